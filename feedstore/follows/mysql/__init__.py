"""The follow store in MySQL or MariaDB: one database for each shard.

    servers = [mysql.server(url, Path(), os.environ) for url in ("mysql://feed@db-0/follows_0", "mysql://feed@db-1/follows_1")]
    mysql.create(servers)
    store = mysql.open_store(servers)

A shard is chosen by a hash of an id: the number and the order of a store's databases never change. It needs PyMySQL.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pymysql
import structlog

from feedstore.background import on_a_thread
from feedstore.clocks import steady, wall_ms
from feedstore.follows.mysql.connections import MySQLPool, PoolBounds, meaning
from feedstore.follows.mysql.schema import check, migrate, stored_version
from feedstore.follows.mysql.servers import MySQLServer
from feedstore.follows.mysql.servers import parse as server
from feedstore.follows.mysql.shard import MySQLShard
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.follows.store import FollowStore
from feedstore.follows.watched import boot_s
from feedstore.metering import UNCOUNTED, Meter
from feedstore.tracing import UNTRACED, Tracer

_log = structlog.get_logger()

__all__ = ["MySQLServer", "MySQLShard", "PoolBounds", "create", "open_store", "server", "stored_version"]

CALLS_AT_ONCE = 32
"""How many calls to shards run in parallel if a call goes to several."""


def create(servers: Sequence[MySQLServer]) -> None:
    """Creates the tables of a store, and its databases if they are missing, or brings older ones up to date. Repeating
    it changes nothing; several may run at once.

    Raises FollowStoreUnavailableError: a database is another shard, newer than this program, or cannot be written.
    """
    for shard, each in enumerate(servers):
        migrate(each, shard, len(servers))


def open_store(
    servers: Sequence[MySQLServer],
    clock: Callable[[], int] | None = None,
    bounds: PoolBounds | None = None,
    own: Callable[[], int] = wall_ms,
    *,
    may_be_away: bool = False,
    meter: Meter = UNCOUNTED,
    tracer: Tracer = UNTRACED,
) -> FollowStore:
    """Opens a store that was created. clock: the time in ms in place of the databases' own, for tests. own: the time of
    this process: a database whose clock is far ahead of it, and of what was settled, stamps nothing. may_be_away:
    whether it opens if no database can be reached. meter, tracer: as in `FollowStore`.

    A database that cannot be reached now is checked once it can be, before anything is asked of it. The others work
    without it.

    Raises FollowStoreUnavailableError: a database is not this shard, or not up to date; or none can be reached.
    """
    bounds = bounds or PoolBounds()
    shards: list[MySQLShard] = []
    own = steady(own, boot_s)
    pools: list[MySQLPool] = []
    with ExitStack() as opened:
        for number, each in enumerate(servers):
            pool, claims = _pools(each, number, len(servers), bounds)
            shards.append(MySQLShard(pool, claims, bounds, own, clock))
            opened.callback(shards[-1].close)
            pools.append(pool)
        # In parallel: a host that does not answer takes long.
        with ThreadPoolExecutor(len(pools), "follows-open") as looking:
            away = {number: error for number, error in enumerate(looking.map(_unreachable, pools)) if error is not None}
        if len(away) == len(servers) and not may_be_away:
            raise away[0]
        for number, error in away.items():
            _log.warning("follows.shard_away", shard=number, error=str(error))
        opened.pop_all()
    executor = ThreadPoolExecutor(CALLS_AT_ONCE, "follows") if len(shards) > 1 else None
    return FollowStore(shards, executor, on_a_thread("follows-look"), meter=meter, tracer=tracer)


def _pools(where: MySQLServer, number: int, count: int, bounds: PoolBounds) -> tuple[MySQLPool, MySQLPool]:
    """Connections for all calls, and the one for the claim to relay."""
    try:
        tls = where.tls_context()
    except OSError as error:
        raise FollowStoreUnavailableError(f"{where}: {error}") from error
    # The claim ends with its connection.
    claim = replace(bounds, connections=1, transaction_s=bounds.claim_s, life_s=math.inf)
    all_calls, claims = (
        MySQLPool(where, each, tls, partial(check, server=where, shard=number, shards=count))
        for each in (bounds, claim)
    )
    return all_calls, claims


def _unreachable(pool: MySQLPool) -> FollowStoreUnavailableError | None:
    """Why a server cannot be reached now; None if it is there. Raises FollowStoreUnavailableError if it is wrong."""
    try:
        with pool.lend():
            return None
    except (pymysql.MySQLError, OSError) as error:
        unavailable = pool.unavailable(error)
        if meaning(error) == "failed" and not isinstance(error, OSError):
            raise unavailable from error
        return unavailable
