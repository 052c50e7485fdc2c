"""The SQLite file of the embedded adapters: made, marked as theirs, and opened."""

import sqlite3
from pathlib import Path
from typing import Final

from feedstore.errors import MisconfiguredError
from feedstore.lazy import closed_on_error
from feedstore.sqlite_file import SqliteFile, Use
from workers.queue.port import QueueError, QueueUnavailableError

APPLICATION_ID: Final = 0x66656564
FORMAT: Final = 1
PAGE_BYTES: Final = 8_192


class WrongQueueError(QueueUnavailableError, MisconfiguredError):
    """The file is not the embedded queue's, is damaged, or has another format."""


THEN: Final = "move the file away, then: feedctl reindex"
"""What an operator does with a file that is no queue any more, or is damaged."""


def _not_ours(message: str) -> WrongQueueError:
    return WrongQueueError(f"{message}: {THEN}")


USE: Final = Use(
    ".next",
    unavailable=QueueUnavailableError,
    damaged=_not_ours,
    closed=QueueError,
    writer_cache_kib=1_024,
    reader_cache_kib=256,  # a message is read once: only the upper pages of its index are needed again
)


def make_file(path: Path) -> SqliteFile:
    """Opens the file at a path, and makes it if it is missing or empty.

    Raises QueueUnavailableError: it cannot be written, or is something else.
    """
    SqliteFile.make(path, USE, lambda connection: _claim(path, connection))
    return SqliteFile(path, USE)


def open_file(path: Path) -> SqliteFile:
    """Opens the file at a path.

    Raises QueueUnavailableError: it is missing, something else, or of another format.
    """
    if not path.exists():
        raise QueueUnavailableError(f"{path}: no such file; create the queue first")
    file = SqliteFile(path, USE)
    with closed_on_error(file), file.read() as reader:
        _check_format(path, reader)
    return file


def _claim(path: Path, connection: sqlite3.Connection) -> None:
    """Marks an empty file as ours; raises if it is something else."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables:
        _check_format(path, connection)
        return
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _check_format(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise _not_ours(f"{path}: not a file that the embedded queue made")
    if version != FORMAT:
        raise WrongQueueError(f"{path}: format {version}, this program knows {FORMAT}: update the program")
