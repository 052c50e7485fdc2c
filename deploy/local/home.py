"""A stack's home: one directory with its ports, configuration, data, logs, process ids and its password.

- `stack.json`: the ports, chosen once
- `places.json`: where its servers are, for `feedctl init --stack local`
- `mariadb.password`: of the user of the follow store's databases; mode 600
- `conf/SERVER/`: rewritten at every start
- `data/SERVER/`: the server's data
- `log/SERVER.log`: the server's output, all its lives in one file
- `run/SERVER.pid`: the process, while there is one
- `targets/`: the targets of its Prometheus: a file for each process that offers metrics
- `jars/`: links to the jars that its clusters were started with last, for `feedctl table`
"""

import contextlib
import fcntl
import json
import os
import random
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local import ports
from deploy.local.errors import StackError
from deploy.local.servers import Say
from deploy.local.waiting import becomes

STATE_NAME = "stack.json"

_VERSION = 1
_LOCK_WAIT_S = 600.0
_LOCK_ASK_S = 0.1

Ports = Mapping[str, Mapping[str, int]]
"""By server and by purpose."""


@dataclass(frozen=True)
class Home:
    """Where everything of one stack is. `root` is absolute."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / STATE_NAME

    @property
    def places(self) -> Path:
        return self.root / "places.json"

    @property
    def password_file(self) -> Path:
        return self.root / "mariadb.password"

    def conf(self, server: str) -> Path:
        return self.root / "conf" / server

    def data(self, server: str) -> Path:
        return self.root / "data" / server

    def log(self, server: str) -> Path:
        return self.root / "log" / f"{server}.log"

    def pid_file(self, server: str) -> Path:
        return self.root / "run" / f"{server}.pid"

    @property
    def targets(self) -> Path:
        return self.root / "targets"

    def link(self, name: str, target: Path) -> None:
        """Makes a link in the home, or replaces one that is there; at no moment there is none."""
        new = self.root / f"{name}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        new.replace(self.root / name)

    def create(self) -> None:
        """Makes the directories, readable by no other user: configuration holds the password. May be repeated."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("conf", "data", "jars", "log", "run", "targets"):
            (self.root / name).mkdir(exist_ok=True, mode=0o700)

    def password(self) -> str:
        """The password of the follow store's user, made where there is none yet.

        Raises StackError: its file is empty.
        """
        return password(self.password_file, mode=0o600)

    def ports(self, wanted: Mapping[str, tuple[str, ...]]) -> Ports:
        """The recorded ports; those not recorded yet are chosen and recorded.

        Raises StackError: the state file is not one of ours.
        """
        recorded = self._recorded()
        if missing := _missing(wanted, recorded):
            # Those of its servers that are stopped are free now.
            taken = {port for purposes in recorded.values() for port in purposes.values()}
            chosen = ports.choose(len(missing), random.SystemRandom(), taken)
            for (server, purpose), port in zip(missing, chosen, strict=True):
                recorded.setdefault(server, {})[purpose] = port
            state = {"version": _VERSION, "host": ports.LOOPBACK, "ports": recorded}
            write(self.state, json.dumps(state, indent=2, sort_keys=True) + "\n", mode=0o644)
        return recorded

    def is_complete(self, wanted: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether there are a password and all of these ports, none of which changes any more."""
        return self.password_file.exists() and not _missing(wanted, self._recorded())

    def _recorded(self) -> dict[str, dict[str, int]]:
        if not self.state.exists():
            return {}
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
            if state["version"] != _VERSION:
                raise StackError(f"{self.state}: version {state['version']}, and this program knows {_VERSION}")
            return {
                str(server): {str(purpose): int(port) for purpose, port in purposes.items()}
                for server, purposes in state["ports"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(f"{self.state} cannot be read: {error}; stop its servers and remove it") from error

    @contextlib.contextmanager
    def lock(self, say: Say) -> Iterator[None]:
        """Holds the home for one command: two that start the same server would both fail.

        Raises StackError: another command holds it for too long.
        """
        with (self.root / "lock").open("w") as file:
            if not _locked(file.fileno()):
                say(f"{self.root}: waiting for another command to end")
            if not becomes(lambda: _locked(file.fileno()), _LOCK_WAIT_S, _LOCK_ASK_S):
                raise StackError(f"{self.root}: another command has held this home for too long")
            yield


def _missing(wanted: Mapping[str, tuple[str, ...]], recorded: Ports) -> list[tuple[str, str]]:
    return [
        (server, purpose)
        for server, purposes in wanted.items()
        for purpose in purposes
        if purpose not in recorded.get(server, {})
    ]


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def password(file: Path, mode: int) -> str:
    """What a file of a password holds; where there is no file, one is made.

    Raises StackError: it is empty.
    """
    if not file.exists():
        write(file, secrets.token_urlsafe(24), mode)
    found = file.read_text(encoding="utf-8").strip()
    if not found:
        raise StackError(
            f"{file} is empty, and anybody would get into the database: remove it, and another one is made"
        )
    return found


def write(path: Path, text: str, mode: int) -> None:
    """All of it or nothing, even if this process is killed or the power fails. It is never readable by more than `mode`
    says.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        os.fchmod(file, mode)
        stream.write(text)
        stream.flush()
        os.fsync(file)
    new.replace(path)


def write_conf(folder: Path, name: str, text: str) -> None:
    """Writes one configuration file, readable by its owner only."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, text, mode=0o600)
