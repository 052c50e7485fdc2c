"""The follow store in MySQL or MariaDB: one database for each shard.

    servers = [mysql.server(url, Path(), os.environ) for url in ("mysql://feed@db-0/follows_0", "mysql://feed@db-1/follows_1")]
    mysql.create(servers)
    store = mysql.open_store(servers)

A shard is chosen by a hash of an id: the number and the order of a store's databases never change. It needs PyMySQL.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pymysql

from feedstore.follows.mysql.connections import Bounds, Pool, meaning
from feedstore.follows.mysql.schema import check, migrate
from feedstore.follows.mysql.servers import Server
from feedstore.follows.mysql.servers import parse as server
from feedstore.follows.mysql.shard import MySQLShard
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.follows.sharded import ShardedFollowStore
from feedstore.follows.watched import in_a_thread

__all__ = ["Bounds", "MySQLShard", "Server", "create", "open_store", "server"]

MIGRATION_S = 3_600.0
"""How long one statement of a migration may take."""

CALLS_AT_ONCE = 32
"""How many calls to shards run beside each other where a call goes to several."""


def create(servers: Sequence[Server]) -> None:
    """Creates the tables of a store, and the databases where they are missing, or brings older ones up to date.
    Repeating it changes nothing; several may run at once.

    Raises:
        FollowStoreUnavailableError: a database is another shard, newer than this program, or cannot be written.
    """
    for shard, each in enumerate(servers):
        migrate(each, shard, len(servers), replace(Bounds(), reply_s=MIGRATION_S))


def open_store(
    servers: Sequence[Server], clock: Callable[[], int] | None = None, bounds: Bounds | None = None
) -> FollowStore:
    """Opens a store that was created. clock: the time in ms in place of the databases' own, for tests.

    A database that cannot be reached now is looked at when it can be: others go on without it.

    Raises:
        FollowStoreUnavailableError: a database is not this shard, or not up to date; or none can be reached.
    """
    bounds = bounds or Bounds()
    shards: list[MySQLShard] = []
    away: list[FollowStoreUnavailableError] = []
    with ExitStack() as opened:
        for number, each in enumerate(servers):
            pool = _pool(each, number, len(servers), bounds)
            opened.callback(pool.close)
            shards.append(MySQLShard(pool, bounds, clock))
            if (error := _unreachable(pool)) is not None:
                away.append(error)
        if len(away) == len(servers):
            raise away[0]
        opened.pop_all()
    executor = ThreadPoolExecutor(CALLS_AT_ONCE, "follows") if len(shards) > 1 else None
    return ShardedFollowStore(shards, executor, in_a_thread)


def _pool(where: Server, number: int, count: int, bounds: Bounds) -> Pool:
    try:
        return Pool(where, bounds, lambda connection: check(connection, where, number, count))
    except OSError as error:
        raise FollowStoreUnavailableError(f"{where}: {error}") from error


def _unreachable(pool: Pool) -> FollowStoreUnavailableError | None:
    """Why a server cannot be reached now; None if it is there. Raises FollowStoreUnavailableError if it is wrong."""
    try:
        with pool.lend():
            return None
    except (pymysql.MySQLError, OSError) as error:
        unavailable = pool.unavailable(error)
        if meaning(error) != "lost" and not isinstance(error, OSError):
            raise unavailable from error
        return unavailable
