"""The entry point of the image.

ROLE [CLUSTER]       run the servers of a host: control, standby, host, gateway, kafka, mariadb, prometheus
setup [NAME]         make the home that workers and web share, with topics, tables and databases, if it is not there
                     yet, and a token for Prometheus, if that has none; with NAME, also a token of that name, which
                     it prints
feedctl WORDS...     run a command on that home
check                ask the servers of this host whether they are ready; one line for each that is not
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.docker import names, roles
from deploy.docker.supervisor import Supervisor
from deploy.local import processes
from deploy.local.errors import NotReadyError, StackError
from deploy.local.home import write

PLACES = Path(__file__).with_name("places.json")

_RESTART_S_MIN = 0.1
_RESTART_S_MAX = 86_400
_TOKEN_SCOPES = ("read", "write", "operate")


def main(words: Sequence[str]) -> int:
    """Runs one role and returns the exit status."""
    os.umask(0o077)
    try:
        return _main(*words)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _main(*words: str) -> int:
    match words:
        case ["check"]:
            return _check(_words_of_host())
        case ["setup", *name] if len(name) <= 1:
            return _setup(*name)
        case ["feedctl", *rest]:
            os.execvp("feedctl", ["feedctl", *rest])  # noqa: S606, S607 - of the image
        case [role]:
            _run(role, "")
        case [role, cluster]:
            _run(role, cluster)
        case _:
            raise StackError("expected a role; see deploy/docker/container.py")
    return 0


def _run(role: str, cluster: str) -> None:
    Supervisor(roles.processes(role, cluster), _restart_s()).run()


def _restart_s() -> float:
    """Never nothing at all: a server that ends at once would leave the others of its host no processor."""
    text = os.environ.get("FEED_RESTART_S", "10")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    # The supervisor waits for it in one sleep, which takes no longer span. What is not a number is in no range.
    if not 0 <= seconds <= _RESTART_S_MAX:
        raise StackError(f"FEED_CLUSTER_RESTART_S: expected seconds, from 0 to {_RESTART_S_MAX}, got {text!r}")
    return max(seconds, _RESTART_S_MIN)


def _setup(token: str | None = None) -> int:
    """May be repeated after an interruption: a home that is there is left alone, and a token is made if the caller has
    none. It is printed last: what a set-up that fails has printed is shown with its error.
    """
    status = 0
    if (Path(os.environ["FEED_HOME"]) / "feed.toml").exists():
        print("the home is there already", file=sys.stderr)
    else:
        status = _ran("feedctl", "init", "--stack", "docker", "--stack-home", str(PLACES.parent))
    if not status and not roles.TOKEN.exists():
        status = _let_prometheus_read()
    if not status and token is not None:
        scopes = [word for each in _TOKEN_SCOPES for word in ("--scope", each)]
        status = _ran("feedctl", "token", "new", "--name", token, *scopes)
    return status


def _ran(*command: str) -> int:
    return subprocess.run(command, check=False).returncode  # noqa: S603 - of the image


def _let_prometheus_read() -> int:
    """Makes a token of another name each time: one that an interrupted set-up made and did not write down is lost."""
    words = ("feedctl", "token", "new", "--name", f"prometheus-{secrets.token_hex(4)}", "--scope", "read")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - of the image
    if done.returncode == 0:
        write(roles.TOKEN, done.stdout.strip(), 0o600)
    return done.returncode


def _check(words: Sequence[str]) -> int:
    status = 0
    for process in roles.processes(words[0], words[1] if len(words) > 1 else ""):
        try:
            process.check()
        except NotReadyError as error:
            print(f"{process.name}: {error}")
            status = 1
    return status


def _words_of_host() -> list[str]:
    """The arguments of the first process of this container."""
    words = processes.arguments(1)
    return words[words.index(names.MODULE) + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
