"""The command line of the Docker clusters."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.docker import image, smoke
from deploy.docker.clusters import READY_S, Clusters, ContainerStatus
from deploy.docker.engine import Engine, NoEngineError
from deploy.local.command import run, say, show

_DEFAULT_HOME = Path(".cluster")

_EPILOG = """\
examples:
  python -m deploy.docker ready      install and start what is missing (make docker-ready)
  python -m deploy.docker up         build the image, start everything, wait until it answers (make cluster-up)
  python -m deploy.docker status     ask every container; --json for programs
  python -m deploy.docker down       remove containers, networks, data, secrets; the image stays (make cluster-down)
  python -m deploy.docker stop       stop the engine, if `ready` started it (make docker-stop)
  python -m deploy.docker smoke      all of that around one drill (make drill-smoke)

exit status: 0 done; 1 not done, and stderr says why; 2 wrong usage; status: 3 if something is not ready;
ready, smoke: 4 if no engine can run here (no root to start or install one, no cgroups, containers do not run)
"""

_NO_ENGINE = 4


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns the exit status."""
    options = _parser().parse_args(arguments)
    is_smoke = options.command == "smoke"
    removed = "was removed" if is_smoke else "keeps running: `make cluster-down` removes it"
    return run(lambda: _run(options), f"what was started {removed}")


def _run(options: argparse.Namespace) -> int:
    try:
        return _done(options)
    except NoEngineError as error:
        say(f"error: no engine can run here: {error}")
        return _NO_ENGINE


def _done(options: argparse.Namespace) -> int:
    engine = Engine(options.home.resolve())
    match options.command:
        case "ready":
            smoke.make_ready(engine.home, say)
        case "stop":
            if not engine.stop(say):
                say("engine: none was started here; an engine that others started is not stopped")
        case "build":
            image.build(say)
        case "up":
            Clusters(options.home, say).up(options.deadline)
        case "down":
            Clusters(options.home, say).down()
        case "smoke":
            smoke.smoke(engine.home, say)
        case _:
            states = Clusters(options.home, say).status()
            return show(states, _lines(states), as_json=options.json)
    return 0


def _lines(states: Sequence[ContainerStatus]) -> Iterator[str]:
    yield f"{'CONTAINER':<14}{'STATE':<11}{'RESTARTS':>8}{'MIB':>6}"
    for state in states:
        detail = f"  ({state.detail})" if state.detail else ""
        yield f"{state.name:<14}{state.state:<11}{state.restarts:>8}{state.memory_bytes >> 20:>6}{detail}"
    yield f"{'':<14}{'':<11}{'':>8}{sum(state.memory_bytes for state in states) >> 20:>6}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.docker",
        description="Two HBase clusters on HDFS, a Kafka broker, MariaDB, the workers and the web, in Docker.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    home = argparse.ArgumentParser(add_help=False)
    home.add_argument("--home", type=Path, default=_DEFAULT_HOME, help="where secrets are kept (default: %(default)s)")
    for name, help_text in (
        ("ready", "install and start what is missing: packages, engine, base image"),
        ("stop", "stop the engine, if it was started here"),
        ("build", "build the image"),
        ("up", "start everything, and wait until it answers"),
        ("down", "remove everything but the image"),
        ("smoke", "run one drill and all steps around it: ready, up, a host killed under load, down, stop"),
        ("status", "show the state of every container"),
    ):
        added = commands.add_parser(name, help=help_text, description=help_text, parents=[home])
        if name == "up":
            added.add_argument("--deadline", type=float, default=READY_S, metavar="S", help="(default: %(default).0f)")
        if name == "status":
            added.add_argument("--json", action="store_true", help="for machines")
    return parser
