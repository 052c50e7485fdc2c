"""Follow stores of the bench's own, on a MySQL server that is named."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from feedstore.follows import mysql
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds
from feedstore.follows.store import FollowStore


@contextmanager
def temporary_store(url: str) -> Iterator[FollowStore]:
    """A store in a database of its own, which is dropped at the end. url: a server, and a user that may make it."""
    databases = servers(url, 1, f"bench_{os.getpid()}")
    try:
        mysql.create(databases)
        with closing(mysql.open_store(databases)) as store:
            yield store
    finally:
        dropped(databases)


def servers(url: str, shards: int, name: str) -> list[mysql.MySQLServer]:
    """Where the shards of a store of the bench are. url: as of `temporary_store`."""
    paths = [f"/follows_{name}_{shard}" for shard in range(shards)]
    return [mysql.server(urlunsplit(urlsplit(url)._replace(path=path)), Path(), os.environ) for path in paths]


def dropped(databases: Sequence[mysql.MySQLServer]) -> None:
    """Drops the databases of a store."""
    for server in databases:
        with closing(MySQLConnection(server.without_database(), PoolBounds(), server.tls_context())) as connection:
            connection.run([f"DROP DATABASE IF EXISTS `{server.database}`"])
