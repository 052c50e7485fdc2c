"""Files that survive a crash whole, and that one process at a time changes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Replaces the text of a file. Whatever dies, and whenever the file is read, it has all of its old text or all of
    the new one. mode: its rights. A link to a file stays a link. Raises OSError.
    """
    path = path.resolve()
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with named(path), os.fdopen(file, "w", encoding="utf-8") as stream:
        os.fchmod(file, mode)
        stream.write(text)
        stream.flush()
        os.fsync(file)
    new.replace(path)
    sync(path.parent)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Names the file in errors of the block, as of a full disk: the system names no open file. Raises OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """A block that one process at a time is in, to change a file by its text. It holds a lock file. Raises OSError."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def sync(path: Path) -> None:
    """Makes all that was written to a file, or the names in a directory, durable. Raises OSError."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
