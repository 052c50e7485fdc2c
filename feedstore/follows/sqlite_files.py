"""The SQLite databases of the follow store, and the migrations."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from feedstore.follows.port import FollowStoreUnavailableError, WrongStoreError
from feedstore.follows.versions import latest, lost, migrations, refuse_version
from feedstore.sqlite_file import SqliteFile, Use

_away = FollowStoreUnavailableError
USE: Final = Use(
    ".turn",
    unavailable=_away,
    damaged=lambda message: WrongStoreError(f"{message}: bring it back from a copy"),
    closed=_away,
    writer_cache_kib=16_384,  # what one transaction of index writes changes
    reader_cache_kib=4_096,
    log_bytes=64 << 20,  # the indexes are written all over the file
)


# Migrations
# --------------------------------------------------------------------------------------------------------------------


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def version_in(path: Path) -> int:
    """The version of the tables in a file; 0 if it has none. Raises FollowStoreUnavailableError."""
    if not path.is_file():
        raise lost(path, "no such file")
    with closing(SqliteFile(path, USE)) as file, file.read() as connection:
        return version_of(connection)


def lacking(path: Path) -> list[int]:
    """The versions of the tables that a file lacks, ascending.

    Raises FollowStoreUnavailableError: it is missing, another file, without tables, newer than this program, or cannot
    be read.
    """
    version = version_in(path)
    if not 0 < version <= latest("sqlite"):
        refuse_version(path, version, "sqlite")
    return [each for each, _ in migrations("sqlite") if each > version]


def migrate(path: Path, initialise: Callable[[sqlite3.Connection], None], to: int | None = None) -> None:
    """Creates the file if it is missing, applies the migrations that it lacks, and initialises it. to: the last
    migration that is applied; None: all. Each migration is one transaction.

    Raises FollowStoreUnavailableError: it is another file, newer than this program, or it cannot be written.
    """
    SqliteFile.make(path, USE, lambda connection: _migrate(connection, initialise, to))


def _migrate(connection: sqlite3.Connection, initialise: Callable[[sqlite3.Connection], None], to: int | None) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    stored = version_of(connection)
    if stored > latest("sqlite"):
        raise sqlite3.DatabaseError(f"it has version {stored}, this program knows {latest('sqlite')}")
    for version, script in migrations("sqlite"):
        if stored < version <= (latest("sqlite") if to is None else to):
            connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {version}; COMMIT;")
    connection.execute("BEGIN IMMEDIATE")
    initialise(connection)
    connection.execute("COMMIT")
