"""The SQLite databases of the follow store, and the migrations."""

import importlib.resources
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from feedstore.follows.port import FollowStoreUnavailableError, refuse_version
from feedstore.sqlite_file import SqliteFile, Use

_away = FollowStoreUnavailableError
USE: Final = Use(
    ".turn",
    unavailable=_away,
    closed=_away,
    writer_cache_kib=16_384,  # what one transaction of index writes changes
    reader_cache_kib=4_096,
    log_bytes=64 << 20,  # the indexes are written all over the file
)


# Migrations
# --------------------------------------------------------------------------------------------------------------------


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """(version, script), ascending. They are in `schemas/follows/sqlite`, or in the package if it is installed."""
    packaged = importlib.resources.files("feedstore.follows") / "migrations" / "sqlite"
    in_repository = Path(__file__).parents[2] / "schemas" / "follows" / "sqlite"
    folder: Traversable = packaged if packaged.is_dir() else in_repository
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((int(name.split("_", 1)[0]), entry.read_text("utf-8")) for name, entry in scripts)


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def lacking(path: Path) -> list[int]:
    """The versions of the tables that a file which is there lacks, ascending.

    Raises FollowStoreUnavailableError: it is another file, newer than this program, or cannot be read.
    """
    with closing(SqliteFile(path, USE)) as file, file.read() as connection:
        version = version_of(connection)
    if version > migrations()[-1][0]:
        refuse_version(path, version, migrations()[-1][0])
    return [each for each, _ in migrations() if each > version]


def migrate(path: Path, initialise: Callable[[sqlite3.Connection], None], to: int | None = None) -> None:
    """Creates the file if it is missing, applies the migrations that it lacks, and initialises it. to: the last
    migration that is applied; None: all. Each is a transaction: it is applied or not.

    Raises:
        FollowStoreUnavailableError: it is another file, newer than this program, or it cannot be written.
    """
    SqliteFile.make(path, USE, lambda connection: _migrate(connection, initialise, to))


def _migrate(connection: sqlite3.Connection, initialise: Callable[[sqlite3.Connection], None], to: int | None) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    stored = version_of(connection)
    latest = migrations()[-1][0]
    if stored > latest:
        raise sqlite3.DatabaseError(f"it has version {stored}, this program knows {latest}")
    for version, script in migrations():
        if stored < version <= (latest if to is None else to):
            connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {version}; COMMIT;")
    connection.execute("BEGIN IMMEDIATE")
    initialise(connection)
    connection.execute("COMMIT")
