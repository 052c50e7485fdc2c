"""The command line of the local stack."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.local import jars, logs
from deploy.local.command import run, say, show
from deploy.local.errors import StackError
from deploy.local.home import STATE_NAME
from deploy.local.stack import GROUPS, NAMES, READY_S, ServerStatus, Stack, expand

_DEFAULT_HOME = Path(".stack")

_EPILOG = f"""\
servers:
  {" ".join(NAMES)}
  {"; ".join(f"{group} means {', '.join(names)}" for group, names in GROUPS.items())}
  If you name none, the command is about all of them.

examples:
  python -m deploy.local up                             all servers, in .stack
  python -m deploy.local up --home /tmp/k kafka         just a broker, in a home of its own
  python -m deploy.local up --home /tmp/h thrift2-a     a gateway, and the cluster that it needs
  python -m deploy.local status
  python -m deploy.local kill hbase-b                   SIGKILL; its gateway keeps running, and cannot answer
  python -m deploy.local up                             starts what was killed, restarts what does not answer, and
                                                        does not touch the rest
  python -m deploy.local suspend kafka                  it keeps its connections and answers nothing
  python -m deploy.local resume kafka
  python -m deploy.local logs hbase-a --lines 100
  python -m deploy.local down

exit status: 0 done; 1 not done, and stderr says why; 2 wrong usage; status: 3 if a server is not ready
"""


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns the exit status."""
    options = _parser().parse_args(arguments)
    return run(lambda: _run(options), "what was started keeps running")


def _run(options: argparse.Namespace) -> int:
    if options.command == "jars":
        print(jars.ensure(options.profile, say))
        return 0
    if options.command != "up" and not (options.home / STATE_NAME).exists():
        raise StackError(f"{options.home}: there is no stack here")
    stack = Stack(options.home, say)
    match options.command:
        case "up":
            stack.up(*options.servers, deadline_s=options.deadline)
        case "start":
            stack.start(*options.servers, deadline_s=options.deadline, wait=not options.no_wait)
        case "status":
            states = stack.status(*options.servers)
            return show(states, _lines(states), as_json=options.json)
        case "logs":
            return _show_logs(stack, options)
        case "down":
            stack.stop()
        case _:
            getattr(stack, options.command)(*options.servers)
    return 0


def _lines(states: Sequence[ServerStatus]) -> Iterator[str]:
    yield f"{'SERVER':<11}{'STATE':<11}{'PID':>8}{'MIB':>6}  PORTS"
    for state in states:
        listening = " ".join(f"{purpose}={port}" for purpose, port in state.ports.items())
        detail = f"  ({state.detail})" if state.detail else ""
        memory = f"{state.resident_bytes >> 20:>6}"
        yield f"{state.name:<11}{state.state:<11}{state.pid or '-':>8}{memory}  {listening}{detail}"


def _show_logs(stack: Stack, options: argparse.Namespace) -> int:
    files = [stack.log(name) for name in expand(options.servers) if stack.log(name).exists()]
    if not files:
        raise StackError("there is no log yet")
    if options.follow:
        sys.stdout.flush()
        os.execvp("tail", ["tail", "-n", str(options.lines), "-F", *map(str, files)])  # noqa: S606, S607 - fixed words
    for file in files:
        if len(files) > 1:
            print(f"==> {file} <==")
        print(logs.tail(file, options.lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local",
        description="Two HBase clusters with gateways, a Kafka broker, MariaDB and Prometheus, on the loopback.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    home = argparse.ArgumentParser(add_help=False)
    home.add_argument("--home", type=Path, default=_DEFAULT_HOME, help="the directory of the stack (default: .stack)")
    patience = argparse.ArgumentParser(add_help=False)
    patience.add_argument(
        "--deadline", type=float, default=READY_S, metavar="S", help="seconds to become ready (default: %(default).0f)"
    )

    def command(
        name: str, help_text: str, *parents: argparse.ArgumentParser, servers: str = "*"
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_text, description=help_text, parents=[home, *parents])
        if servers:
            added.add_argument("servers", nargs=servers, metavar="SERVER")
        return added

    command("up", "start servers and what they need, and wait until they answer", patience)
    command("down", "stop everything", servers="")
    command("status", "show the state of every server").add_argument("--json", action="store_true", help="for machines")
    shown = command("logs", "show the end of logs")
    shown.add_argument("--lines", "-n", type=int, default=40, metavar="N", help="how many (default: %(default)s)")
    shown.add_argument("--follow", "-f", action="store_true", help="keep showing new lines")
    start = command("start", "start just these servers", patience, servers="+")
    start.add_argument("--no-wait", action="store_true", help="do not wait until they answer")
    command("stop", "stop these servers", servers="+")
    command("kill", "SIGKILL these servers", servers="+")
    command("suspend", "SIGSTOP these servers", servers="+")
    command("resume", "SIGCONT these servers", servers="+")
    got = commands.add_parser("jars", help="get the jars of a profile of deploy/pom.xml and print their directory")
    got.add_argument("profile", choices=["hbase", "kafka"])
    return parser
