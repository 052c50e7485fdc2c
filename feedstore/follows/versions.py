"""Checks of a database of the follow store: it must be the right shard, with the tables of this program's version."""

import importlib.resources
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from feedstore.follows.port import OutdatedStoreError, WrongStoreError

Database = Literal["mysql", "sqlite"]


@cache
def migrations(database: Database) -> tuple[tuple[int, str], ...]:
    """(version, script), ascending. They are in `schemas/follows`, or in the package if it is installed."""
    packaged = importlib.resources.files("feedstore.follows") / "migrations"
    in_repository = Path(__file__).parents[2] / "schemas" / "follows"
    folder: Traversable = packaged if packaged.is_dir() else in_repository
    scripts = sorted((entry.name, entry) for entry in (folder / database).iterdir() if entry.name.endswith(".sql"))
    return tuple((int(name.split("_", 1)[0]), entry.read_text("utf-8")) for name, entry in scripts)


def latest(database: Database) -> int:
    """The version of this program's tables."""
    return migrations(database)[-1][0]


def lost(where: object, why: str) -> WrongStoreError:
    """The error about a database that was not made yet, or whose content is gone. They look the same."""
    return WrongStoreError(
        f"{where}: {why}: bring the store back from a copy; only if it is a new one: feedctl schema apply"
    )


def refuse_version(where: object, version: int, database: Database) -> None:
    """Raises OutdatedStoreError, WrongStoreError unless a database's tables are of this program's version. 0: none."""
    if version == 0:
        raise lost(where, "it has no tables")
    said = f"{where}: its tables have version {version}, this program needs {latest(database)}"
    if version < latest(database):
        raise OutdatedStoreError(f"{said}: migrate it: feedctl migrate (on servers: feedctl schema apply)")
    if version > latest(database):
        raise WrongStoreError(f"{said}: update the program")


def refuse_shard(where: object, found: tuple[int, ...] | None, mine: tuple[int, int]) -> None:
    """Raises WrongStoreError unless a database is the shard that it was opened as: a store that opened its shards in
    another order would find nothing. found, mine: the number of a shard, and how many there are.
    """
    if found != mine:
        raise WrongStoreError(
            f"{where}: it is {_shard(found)}, and was opened as {_shard(mine)}: follows.shards must name the"
            " databases that the store was made with, all of them and in their order: shards are never added or removed"
        )


def _shard(shard: tuple[int, ...] | None) -> str:
    return "no shard" if shard is None else f"shard {shard[0]} of {shard[1]}"
