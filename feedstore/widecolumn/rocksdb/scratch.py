"""Directories of temporary files that are removed even if their process was killed."""

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "feedstore-secondary-"
LEFT_MAX: Final = 100
"""The most directories left by others that are removed at once, so that no reader waits for long."""
_ATTEMPTS_MAX: Final = 3


class Scratch:
    """A directory of this process, and of the processes that it forks while the directory is there. Not thread-safe.

    The directory is locked, and the lock ends with the process, whatever ends it. The lock is the kernel's: processes
    that see other process ids see it too, as in containers with one /tmp. Each new object removes the directories of
    this user that no process holds. A directory of an earlier program, which held no lock, may be in use: its process
    makes it again, as it does if anything else cleans the directory of temporary files.
    """

    def __init__(self) -> None:
        _remove_left()
        self._make()

    def there(self) -> Path:
        """The directory, empty when it is new. It is another one if something has cleaned it away."""
        if not _is_at(self._path, self._held):
            self.remove()
            self._make()
        return self._path

    def _make(self) -> None:
        self._path, self._held = _new()
        self.remove = weakref.finalize(self, _remove, self._path, self._held)


def _new() -> tuple[Path, int | None]:
    """Makes a directory. Returns it, and the descriptor that holds its lock; None if files cannot be locked."""
    for _ in range(_ATTEMPTS_MAX):
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        if (held := _lock(path)) is not None:
            return path, held
        # Another process may have locked it first, as one that was left: it removes it.
    return Path(tempfile.mkdtemp(prefix=PREFIX)), None


def _remove_left() -> None:
    removed = 0
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if is_ours and (held := _lock(Path(entry.path))) is not None:
                _remove(Path(entry.path), held)
                removed += 1
                if removed == LEFT_MAX:
                    return


def _lock(path: Path) -> int | None:
    """Locks a directory until the descriptor is closed. None if another holds it, or it is not one."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, held):
            return held
    os.close(held)
    return None


def _is_at(path: Path, held: int | None) -> bool:
    """Whether the directory that is held is still at its path."""
    if held is None:
        return path.is_dir()
    try:
        return os.path.samestat(path.stat(), os.fstat(held))
    except OSError:
        return False


def _remove(path: Path, held: int | None) -> None:
    if held is None or _is_at(path, held):
        shutil.rmtree(path, ignore_errors=True)
    if held is not None:
        os.close(held)
