"""The follow store in MySQL or MariaDB: one database for each shard.

    servers = [mysql.server(url, Path(), os.environ) for url in ("mysql://feed@db-0/follows_0", "mysql://feed@db-1/follows_1")]
    mysql.create(servers)
    store = mysql.open_store(servers)

A shard is chosen by a hash of an id: the number and the order of a store's databases never change. It needs PyMySQL.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pymysql

from feedstore.follows.mysql.connections import Bounds, Pool
from feedstore.follows.mysql.schema import check, migrate
from feedstore.follows.mysql.servers import Server
from feedstore.follows.mysql.servers import parse as server
from feedstore.follows.mysql.shard import MySQLShard
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.follows.sharded import ShardedFollowStore

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

    Raises:
        FollowStoreUnavailableError: a database cannot be reached, is not this shard, or not up to date.
    """
    bounds = bounds or Bounds()
    shards: list[MySQLShard] = []
    try:
        for number, each in enumerate(servers):
            shards.append(_open_shard(each, number, len(servers), clock, bounds))
    except BaseException:
        for shard in shards:
            shard.close()
        raise
    executor = ThreadPoolExecutor(CALLS_AT_ONCE, "follows") if len(shards) > 1 else None
    return ShardedFollowStore(shards, executor)


def _open_shard(where: Server, number: int, count: int, clock: Callable[[], int] | None, bounds: Bounds) -> MySQLShard:
    try:
        pool = Pool(where, bounds)
    except OSError as error:
        raise FollowStoreUnavailableError(f"{where}: {error}") from error
    try:
        with pool.lend() as connection:
            check(connection, where, number, count)
    except (pymysql.MySQLError, OSError) as error:
        pool.close()
        raise pool.unavailable(error) from error
    return MySQLShard(pool, bounds, clock)
