"""Databases for the tests, on the server of the local stack, or on the one that FEED_TEST_MYSQL names."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local import Stack
from feedstore.follows import mysql
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds
from feedstore.follows.store import FollowStore

PREFIX = f"follows_test_{os.getpid()}"
"""Its user may make databases whose names begin with `follows_`."""
OTHER = os.environ.get("FEED_TEST_MYSQL", "")
"""The address of another server, as feed.toml has it, without a database."""
TABLES = [
    "clocks",
    "edges",
    "followers",
    "follower_tombstones",
    "boards",
    "pins",
    "pin_index",
    "pin_index_deleted",
    "outbox",
    "outbox_unrelayed",
    "request_keys",
    "refills",
    "placed_pins",
    "board_orders",
]


def url() -> str:
    """The address of the server, without a database."""
    assert _stack, "the test does not ask for the fixture `mariadb`"
    return OTHER or f"mysql://feed@127.0.0.1:{_stack[0].port('mariadb')}/?password_file={_stack[0].password_file}"


def server(database: str) -> mysql.MySQLServer:
    """The server with one of its databases."""
    return mysql.server(urlsplit(url())._replace(path=f"/{database}").geturl(), Path(), os.environ)


def use(stack: Stack) -> None:
    """Starts the server of the stack, unless another one is named. It is used from now on."""
    if not OTHER:
        stack.up("mariadb")
    _stack[:] = [stack]


def connect(where: mysql.MySQLServer) -> MySQLConnection:
    return MySQLConnection(where, PoolBounds(), where.tls_context())


def drop(where: mysql.MySQLServer) -> None:
    connection = connect(where.without_database())
    connection.run([f"DROP DATABASE IF EXISTS `{where.database}`"])
    connection.close()


@cache
def _created(shards: int, purpose: str) -> list[mysql.MySQLServer]:
    """Databases that stay for the whole run."""
    servers = [server(f"{PREFIX}_{purpose}_{shards}_{number}") for number in range(shards)]
    for each in servers:
        drop(each)
    mysql.create(servers)
    _to_drop.extend(servers)
    return servers


_to_drop: list[mysql.MySQLServer] = []
_stack: list[Stack] = []


def drop_all() -> None:
    while _to_drop:
        drop(_to_drop.pop())


def fresh(shards: int, purpose: str = "contract") -> list[mysql.MySQLServer]:
    """The databases of an empty store. Emptying tables takes a fraction of what creating them takes."""
    servers = _created(shards, purpose)
    empty = [f"DELETE FROM {table}" for table in TABLES]
    for each in servers:
        connection = connect(each)
        connection.run(["START TRANSACTION", *empty, "UPDATE shard_state SET latest_ms = 0", "COMMIT"])
        connection.run(["ALTER TABLE outbox AUTO_INCREMENT = 1"])  # an outbox without its first row has lost it
        connection.close()
    return servers


def opener(_: Path, shards: int) -> Callable[[Callable[[], int]], FollowStore]:
    servers = fresh(shards)
    return lambda clock: mysql.open_store(servers, clock)
