"""A home: the directory with `feed.toml` and the embedded stores, and the lock of the one worker that writes them."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from feedstore import durable
from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.errors import ConfigError, NotNowError

LOCK_NAME = "worker.lock"

_WHY_BYTES_MAX = 2_000
_LOCK_WAIT_S = 0.5
"""How long to wait for the lock: a process that checks whether a worker runs holds it for a moment."""


class HomeBusyError(NotNowError):
    """Not now: a worker holds the home; the message names its process. `pid` is None if it could not be read."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


def create(home: Path, environ: Mapping[str, str], replaced: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Makes a home and its stores. replaced: texts of the default `feed.toml`, each with its replacement.

    `feed.toml` is written last, so that a home exists completely or not at all, and this can be repeated after a
    failure.

    Raises:
        ConfigError: there is already a home, or the stores of one without its `feed.toml`, or it cannot be made as the
            environment says.
        HomeBusyError: another process is making it.
        FollowStoreUnavailableError, QueueError, UnavailableError: a store cannot be made.
    """
    from feedstore.app import wiring as feedstore_wiring  # noqa: PLC0415 - commands that make no home need not load it
    from workers.app import wiring  # noqa: PLC0415 - the same

    path = home / configuration.FILE_NAME
    _refuse_home(path)
    text = configuration.DEFAULT
    for there, instead in replaced.items():
        assert text.count(there) == 1, there
        text = text.replace(there, instead)
    config = configuration.parse(home, text, environ)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with worker_lock(home):  # two at once would remove each other's files
            _refuse_home(path)
            if feedstore_wiring.are_files_used(config):
                # With limits of another home, the next trim could remove what readers may reach.
                raise ConfigError(
                    f"{home}: stores of a home are here, and {configuration.FILE_NAME} is gone: bring it back from a"
                    " copy; if there is none, take that of a new home in another directory, and give it the limits and"
                    " the urls of this one; nothing was changed"
                )
            wiring.create(config)
            durable.replace(path, text)
    except HomeBusyError as error:
        pid = "" if error.pid is None else f" (process {error.pid})"
        what = f"is making this home, or a worker runs whose {configuration.FILE_NAME} is gone"
        raise HomeBusyError(f"{home}: another feedctl init{pid} {what}", error.pid) from error
    except OSError as error:
        raise ConfigError(f"{home}: {error.strerror or error}") from error
    return config


def _refuse_home(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path}: there is a home already; nothing was changed")


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Until the end of the block, files that this process and its children make are for their own user alone: RocksDB
    and SQLite make files with the rights that the process permits.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def worker_lock(home: Path) -> Iterator[int]:
    """Holds the home as its one worker; gives the lock's descriptor. The system releases the lock when this process,
    and all that inherited the descriptor, have ended in any way.

    Raises:
        HomeBusyError: another worker holds it.
        ConfigError: the lock cannot be made.
    """
    path = home / LOCK_NAME
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: a worker must be able to write its home") from error
    try:
        if not durable.locked(file, _LOCK_WAIT_S):
            pid = _pid_in(file)
            raise HomeBusyError(f"{held(home, pid)}{_stop(pid)}", pid)
        with durable.named(path):
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)
        yield file
    finally:
        os.close(file)


def is_gone(home: Path, lock: int) -> bool:
    """Whether the home was removed, or another one was put in its place, since a worker took it. lock: of
    `worker_lock`. False if that cannot be seen now.
    """
    try:
        return not os.path.samestat((home / LOCK_NAME).stat(), os.fstat(lock))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def note_stopped(lock: int, why: str | None) -> None:
    """Notes next to the lock that its worker has stopped by itself though its process runs; None: that it works."""
    line = b"" if why is None else b" ".join(why.encode(errors="replace").split())[:_WHY_BYTES_MAX] + b"\n"
    text = b"%d\n" % os.getpid() + line
    os.pwrite(lock, text, 0)
    os.ftruncate(lock, len(text))


def worker_stopped(home: Path) -> str | None:
    """Why the worker that holds the home has stopped by itself; None if it works, or there is none."""
    if not worker_runs(home):
        return None
    try:
        _, _, why = (home / LOCK_NAME).read_bytes().partition(b"\n")
    except OSError:
        return None
    return why.decode(errors="replace").strip() or None


def worker_runs(home: Path) -> int | None:
    """The process id of the worker that holds the home; 0 if it cannot be read; None if there is no worker."""
    try:
        file = os.open(home / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(file) or 0
    else:
        return None
    finally:
        os.close(file)


def held(home: Path, pid: int | None) -> str:
    """The sentence that a worker holds a home, and which one."""
    command = command_of(pid)
    which = f"pid {_shown(pid)}" if command is None else f"pid {pid}, {command}"
    return f"{home}: a worker holds this home already ({which})"


def command_of(pid: int | None) -> str | None:
    """The command of feedctl that a process of this machine runs; None if it runs none, or that cannot be seen."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None
    names = [Path(word).name for word in words]
    return " ".join(["feedctl", *words[names.index("feedctl") + 1 :]]) if "feedctl" in names else None


def _stop(pid: int | None) -> str:
    """What to do about a worker. The number may be a container's, so a process that is not feedctl's is not named."""
    if command_of(pid) is not None:
        return f": stop it (kill -TERM {pid}), then run this again"
    return ": stop it, then run this again"


def _shown(pid: int | None) -> str:
    """The process as it is shown. Writers inherit their worker's lock: if it was killed, they may hold the home."""
    if pid is None:
        return "unknown"
    if Path(f"/proc/{pid}").exists():
        return str(pid)
    return f"{pid}, which does not run here: if it has ended, its writers hang, pgrep writer- finds them"


def _pid_in(file: int) -> int | None:
    text = os.pread(file, 20, 0).partition(b"\n")[0].strip()
    return int(text) if text.isdigit() else None
