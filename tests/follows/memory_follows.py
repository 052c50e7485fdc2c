"""The follow store's SQL on databases in memory: for tests and simulations, which make thousands of them."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.follows.sqlite import Clock, SQLiteShard
from feedstore.follows.store import FollowStore
from feedstore.follows.versions import migrations
from feedstore.sqlite_file import Change, Last, Result, SqliteFile


def open_in_memory(clock: Clock, shards: int = 1) -> FollowStore:
    """A new store. It is gone when it is closed."""
    return FollowStore([SQLiteShard(cast("SqliteFile", MemoryDatabase(each, shards)), clock) for each in range(shards)])


class MemoryDatabase:
    """A database that only this store sees: cheap to make."""

    def __init__(self, shard: int, shards: int) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.deserialize(_empty_image())
        self._connection.execute(
            "INSERT INTO shard_state (only, shard, shards, latest_ms, next_outbox_id) VALUES (1, ?, ?, 0, 1)",
            (shard, shards),
        )

    def rows(self, statement: str, bound: Sequence[object] = ()) -> list[Any]:
        with self.read() as connection:
            return connection.execute(statement, bound).fetchall()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise FollowStoreUnavailableError(f":memory:: {error}") from error

    @contextmanager
    def write(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        del synced  # nothing here outlives the process
        with self.read() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        pass

    def write_grouped(self, change: Change[Result], last: Last[Result]) -> Result:
        with self.write() as connection:
            result = change(connection)
            last(connection, [result])
            return result

    def close(self) -> None:
        with self._lock:
            self._connection.close()


@cache
def _empty_image() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        # Small pages: most simulations write a few rows into each table.
        connection.execute("PRAGMA page_size = 1024")
        for _, script in migrations("sqlite"):
            connection.executescript(script)
        return connection.serialize()
    finally:
        connection.close()
