"""The tables of a MySQL shard: migrations, in order and one runner at a time, and which shard a database is."""

from contextlib import closing
from typing import Final

import pymysql

from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds, described
from feedstore.follows.mysql.servers import MySQLServer
from feedstore.follows.port import FollowStoreUnavailableError, WrongStoreError
from feedstore.follows.versions import latest, migrations, refuse_shard, refuse_version

LOCK_WAIT_S: Final = 15
"""How long a runner waits for another one."""

_BOUNDS: Final = PoolBounds(reply_s=3_600.0)
"""A statement of a migration may take an hour: it may copy a table."""

_UNKNOWN_DATABASE: Final = 1049
_UNKNOWN_TABLE: Final = 1146


def migrate(server: MySQLServer, shard: int, shards: int) -> None:
    """Creates the database if it is missing, applies the migrations that it lacks, and makes it this shard.

    A migration commits statement by statement; if it was cut off, each may run again.

    Raises FollowStoreUnavailableError: it is another shard, newer than this program, or cannot be written.
    """
    try:
        # The lock goes with the connection.
        with closing(_connect_or_create(server)) as connection:
            _locked(connection, server)
            _migrate(connection, server)
            claim = f"VALUES (1, {shard:d}, {shards:d}, 0) ON DUPLICATE KEY UPDATE only_row = 1"
            connection.run([f"INSERT INTO shard_state (only_row, shard, shards, latest_ms) {claim}"])
            check(connection, server, shard, shards)
    except (pymysql.MySQLError, OSError) as error:
        raise FollowStoreUnavailableError(f"{server}: {described(error)}") from error


def stored_version(server: MySQLServer) -> int:
    """The version of a database's tables; 0 if there is no such database, or none with tables of a store. Raises
    FollowStoreUnavailableError.
    """
    try:
        with closing(MySQLConnection(server, PoolBounds(), server.tls_context())) as connection:
            return _version(connection)
    except (pymysql.MySQLError, OSError) as error:
        if isinstance(error, pymysql.MySQLError) and error.args[0] == _UNKNOWN_DATABASE:
            return 0
        raise FollowStoreUnavailableError(f"{server}: {described(error)}") from error


def check(connection: MySQLConnection, server: MySQLServer, shard: int, shards: int) -> None:
    """Refuses a database that is not this shard, with tables of this program's version.

    Raises FollowStoreUnavailableError; pymysql.MySQLError: it could not look.
    """
    refuse_version(server, _version(connection), "mysql")
    rows = connection.rows("SELECT shard, shards FROM shard_state WHERE only_row = 1")
    refuse_shard(server, rows[0] if rows else None, (shard, shards))


def _connect_or_create(server: MySQLServer) -> MySQLConnection:
    tls = server.tls_context()
    try:
        return MySQLConnection(server, _BOUNDS, tls)
    except pymysql.MySQLError as error:
        if error.args[0] != _UNKNOWN_DATABASE:
            raise
    with closing(MySQLConnection(server.without_database(), _BOUNDS, tls)) as connection:
        connection.run([f"CREATE DATABASE IF NOT EXISTS `{server.database}`"])
    return MySQLConnection(server, _BOUNDS, tls)


def _locked(connection: MySQLConnection, server: MySQLServer) -> None:
    if connection.rows(f"SELECT GET_LOCK('{server.lock_name()}', {LOCK_WAIT_S})")[0][0] != 1:
        raise FollowStoreUnavailableError(f"{server}: another migration has been running for {LOCK_WAIT_S} s")


def _migrate(connection: MySQLConnection, server: MySQLServer) -> None:
    stored = _version(connection)
    if stored > latest("mysql"):
        raise WrongStoreError(f"{server}: it has version {stored}, this program knows {latest('mysql')}")
    for version, script in migrations("mysql"):
        if version > stored:
            connection.run([script.rstrip().removesuffix(";")])
            connection.run([f"INSERT INTO schema_versions (version) VALUES ({version:d})"])


def _version(connection: MySQLConnection) -> int:
    """0 if there is nothing yet."""
    try:
        version = connection.rows("SELECT MAX(version) FROM schema_versions")[0][0]
    except pymysql.MySQLError as error:
        if error.args[0] != _UNKNOWN_TABLE:
            raise
        return 0
    return int(version or 0)
