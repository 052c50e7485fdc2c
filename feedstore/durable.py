"""Files that survive a crash whole, and that one process at a time changes."""

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

CHANGE_WAIT_S: Final = 5.0
"""How long a process waits while another one changes a file: that one may be suspended in the middle of it."""
_POLL_S: Final = 0.01


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Replaces the text of a file. Whatever dies, and whenever the file is read, it has all of its old text or all of
    the new one. mode: its rights. Its owner and group stay, even if root replaces it, so that the same users can read
    it. A file that root makes belongs to the owner of its directory. A link to a file stays a link. Raises OSError.
    """
    path = path.resolve()
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    file = _made(new, os.O_WRONLY)
    with named(path), os.fdopen(file, "w", encoding="utf-8") as stream:
        _keep_owner(path, file)
        os.fchmod(file, mode)
        stream.write(text)
        stream.flush()
        os.fsync(file)
    new.replace(path)
    sync(path.parent)


def make_directory(path: Path) -> None:
    """Makes a directory and its missing parents, unless it is there. What root makes belongs to the owner of the
    directory that it is in. Raises OSError.
    """
    for each in (*reversed(path.parents), path):
        if not each.exists():
            each.mkdir(exist_ok=True)
            give(each)


def give(path: Path, file: int | None = None) -> None:
    """Gives what root has made to the owner of its directory: in a home of another user, that user must be able to
    read, change and remove it. file: its descriptor, if it is open. That user may have put a link to a file of root in
    its place: so a link, or a file with a second name, is not given.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # root of a container may be unable to give a file away
        directory = path.parent.stat()
        if file is not None:
            os.fchown(file, directory.st_uid, directory.st_gid)
            return
        made = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(made)
            if stat.S_ISDIR(about.st_mode) or about.st_nlink == 1:
                os.fchown(made, directory.st_uid, directory.st_gid)
        finally:
            os.close(made)


def opened(path: Path) -> int:
    """Opens a file for reading and writing, and makes it if it is missing. Raises OSError."""
    try:
        return _made(path, os.O_RDWR)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _made(path: Path, flags: int) -> int:
    """Makes and opens a file. Raises FileExistsError, OSError."""
    file = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    give(path, file)
    return file


def _keep_owner(path: Path, file: int) -> None:
    """Gives an open file the owner and the group of the one that it replaces. Raises OSError."""
    try:
        before = path.stat()
    except FileNotFoundError:
        return
    new = os.fstat(file)
    if (before.st_uid, before.st_gid) == (new.st_uid, new.st_gid):
        return
    try:
        os.fchown(file, before.st_uid, before.st_gid)
    except PermissionError as error:
        reason = f"it would not stay with user {before.st_uid}, group {before.st_gid}: do this as its owner, or as root"
        raise PermissionError(error.errno, reason) from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Names the file in errors of the block, such as a full disk: the system names no open file. Raises OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def changing(path: Path, within_s: float = CHANGE_WAIT_S) -> Iterator[None]:
    """A block that one process at a time is in, to change a file by its text. It holds a lock file.

    Raises OSError, also if another process has been in the block for `within_s`.
    """
    lock = opened(path.with_name(path.name + ".lock"))
    try:
        if not locked(lock, within_s):
            reason = f"another process has been changing it for {within_s:g} s: it may be suspended"
            raise TimeoutError(errno.ETIMEDOUT, reason, str(path))
        yield
    finally:
        os.close(lock)


def locked(file: int, within_s: float) -> bool:
    """Takes the lock of an open file. One process at a time has it; the system drops it once the file is closed. False:
    another process still has it after `within_s`. Raises OSError.
    """
    for left in reversed(range(1 + round(within_s / _POLL_S))):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_POLL_S)
        else:
            return True
    return False


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    """Removes a directory. It is renamed first, because half of it would look like a damaged one. ignore_errors:
    whether files that cannot be removed after that are left. Raises OSError.
    """
    gone = path.with_name(path.name + ".gone")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=ignore_errors)


def sync(path: Path) -> None:
    """Makes all that was written to a file, or the names in a directory, durable. Raises OSError."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
