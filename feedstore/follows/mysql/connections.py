"""Connections to one MySQL server: how they are made, lent, and given up, and what its errors mean.

Statements go out in packets: several of them, one round trip. They hold integers and hexadecimal literals only, so
nothing in them needs escaping.
"""

import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS

from feedstore.follows.mysql import durability
from feedstore.follows.mysql.servers import MySQLServer
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.lazy import closed_on_error


@dataclass(frozen=True)
class PoolBounds:
    """How long things may take, and how many there may be.

    transaction_s: a transaction that takes longer is aborted: by the client if it still runs, else by the server.
    lock_wait_s: how long one statement waits for a lock, at least 1; a transaction waits again until `transaction_s`.
    reply_s: how long the server may take for a round trip.
    connections: how many one shard has at most.
    life_s: how long a connection is used. Then a new one is opened, which notices that the server is a replica now, or
        that its name belongs to another one, which may be another shard.
    claim_s: how long a process that says nothing keeps a shard that it relays.
    """

    connect_s: float = 5.0
    reply_s: float = 20.0
    transaction_s: float = 10.0
    lock_wait_s: int = 1
    connections: int = 32
    life_s: float = 60.0
    claim_s: float = 30.0


class Reply(NamedTuple):
    """The answer to one statement of a packet. last_id: the value that it gave to LAST_INSERT_ID."""

    rows: Sequence[tuple[Any, ...]]
    affected: int
    last_id: int


_READ_ONLY: Final = "read_only"
_SETTINGS: Final = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})".format(
    ", ".join(f"'{name}'" for name in (_READ_ONLY, *durability.NAMES))
)
"""It needs no privilege."""

MAX_PACKET: Final = 1_000_000
"""The most characters that go out at once; far below what any server takes by default."""

MAX_GROUP_CONCAT: Final = 8_000_000

Meaning = Literal["again", "lost", "full", "failed"]

_AGAIN: Final = frozenset(
    {
        1213,  # deadlock: this transaction was chosen
        1205,  # a lock was not granted in time
        1062,  # duplicate key: another transaction has inserted the row since we read
        1020,  # a row has changed since it was read
    }
)
_LOST: Final = frozenset(
    {
        2003,  # cannot connect
        2006,  # gone away
        2013,  # lost during the query
        2055,  # lost, with the system's error
        1053,  # the server shuts down
        1927,  # the connection was killed
        3169,  # the session was killed
        4031,  # the server closed an idle connection
        1290,  # read-only: this is not the primary any more
        1792,
        1836,
    }
)
_FULL: Final = frozenset(
    {
        1040,  # too many connections
        1129,  # this host has failed to connect too often
        1203,  # too many connections of this user
        1226,  # too many of this user in an hour
    }
)


def meaning(error: BaseException) -> Meaning:
    """again: the transaction did nothing, and may succeed now. lost: the connection is lost, or its server is not the
    primary any more. full: the server takes no more connections now, but the open ones are as good as before.
    """
    if isinstance(error, pymysql.err.InterfaceError):
        return "lost"
    number = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else None
    if number in _AGAIN:
        return "again"
    if number in _FULL:
        return "full"
    return "lost" if number in _LOST else "failed"


class MySQLConnection:
    """Raises UnsafeStoreError if the server could lose what it commits: every connection asks, so that a server that
    was away, or that took over from another one, is checked as well. One that is read-only counts as away: it is a
    replica, and what is read from it may be older than what was committed (rule 4).

    reused: it has been lent before, and may have died since.
    """

    def __init__(self, server: MySQLServer, bounds: PoolBounds, tls: ssl.SSLContext | None) -> None:
        self.reused = False
        self.opened_s = time.monotonic()
        self.idle_since_s = 0.0
        self._raw = _connected(
            host=server.host,
            port=server.port,
            user=server.user,
            # As bytes: a text would be sent as Latin-1.
            password=server.password.encode(),
            database=server.database or None,
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            connect_timeout=bounds.connect_s,
            read_timeout=bounds.reply_s,
            write_timeout=bounds.reply_s,
            program_name="feedstore",
            # Without it, PyMySQL would encrypt if it can, and trust any server.
            ssl=tls,
            ssl_disabled=tls is None,
        )
        with closed_on_error(self):
            *_, rows = self.run([*_session(bounds), _SETTINGS])
            settings = dict(rows.rows)
            _refuse_replica(settings)
            durability.refuse_unsafe(server, settings)

    def run(self, statements: Sequence[str]) -> list[Reply]:
        """Sends the statements in one packet, and gives the reply of each. After an error, the later ones were not
        run.
        """
        replies: list[Reply] = []
        with self._raw.cursor() as cursor:
            cursor.execute(";".join(statements))
            while True:
                replies.append(Reply(cursor.fetchall(), cursor.rowcount, cursor.lastrowid or 0))
                if not cursor.nextset():
                    return replies

    def rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        return self.run([statement])[0].rows

    def refuse_replica(self) -> None:
        """Raises pymysql.MySQLError: the server is read-only now, or the connection is lost."""
        _refuse_replica(dict(self.rows(_SETTINGS)))

    def roll_back(self) -> None:
        self._raw.rollback()

    @property
    def open(self) -> bool:
        return bool(self._raw.open)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, as the server said with its last reply."""
        return bool(self._raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)  # type: ignore[attr-defined]

    def close(self) -> None:
        with suppress(pymysql.MySQLError, OSError):
            self._raw.close()


def _refuse_replica(settings: Mapping[str, str]) -> None:
    value = settings.get(_READ_ONLY, "OFF")
    if value.upper() not in {"OFF", "0"}:
        raise pymysql.OperationalError(1290, f"{_READ_ONLY} is {value}: it is not the primary")


def _session(bounds: PoolBounds) -> list[str]:
    variables = {
        # A client that stops inside a transaction is cut off, and what it holds is free again.
        "wait_timeout": max(1, round(bounds.transaction_s)),
        "innodb_lock_wait_timeout": max(1, bounds.lock_wait_s),
        "group_concat_max_len": MAX_GROUP_CONCAT,
        "sql_mode": "'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    }
    # Every statement sees what is committed when it begins (rule 4), and locks stay on the rows that match only.
    isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    return [isolation, f"SET SESSION {', '.join(f'{name} = {value}' for name, value in variables.items())}"]


class MySQLPool:
    """Lends connections to one server, the one that was used last first. Thread-safe.

    check: raises if the server is not the right one. It sees each connection first: the name may lead to another server
        than before.
    """

    def __init__(
        self,
        server: MySQLServer,
        bounds: PoolBounds,
        tls: ssl.SSLContext | None,
        check: Callable[[MySQLConnection], None],
    ) -> None:
        self._check = check
        self.server = server
        self._bounds = bounds
        self._tls = tls
        self._idle: deque[MySQLConnection] = deque()
        self._room = threading.BoundedSemaphore(bounds.connections)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[MySQLConnection]:
        """A connection outside of any transaction. What the block leaves open is rolled back.

        Raises:
            FollowStoreUnavailableError: all are lent for too long, or the pool is closed.
            pymysql.MySQLError, OSError: it cannot connect; and what the block raises.
        """
        if not self._room.acquire(timeout=self._bounds.transaction_s):
            raise self.unavailable(f"all {self._bounds.connections} connections are in use")
        try:
            connection = self._take()
            try:
                yield connection
            except pymysql.MySQLError:
                # The server has answered, with an error; or the connection is closed already.
                if connection.open:
                    with suppress(pymysql.MySQLError, OSError):
                        connection.roll_back()
                        self._give_back(connection)
                        connection = None  # type: ignore[assignment]  # it is the pool's again
                raise
            else:
                if not connection.in_transaction:
                    self._give_back(connection)
                    connection = None  # type: ignore[assignment]  # it is the pool's again
            finally:
                # In whatever state it is: closing it rolls back.
                if connection is not None:
                    connection.close()
        finally:
            self._room.release()

    def forget_idle(self) -> None:
        """Closes what is not lent: one connection was lost, so others may be."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self._closed = True
        self.forget_idle()

    def unavailable(self, error: BaseException | str, what: str = "") -> FollowStoreUnavailableError:
        return FollowStoreUnavailableError(f"{self.server}: {what}{described(error)}")

    def _take(self) -> MySQLConnection:
        if self._closed:
            raise self.unavailable("the store was closed")
        now_s = time.monotonic()
        # The server closes what is idle for as long as a transaction may last.
        idle_s = self._bounds.transaction_s / 2
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if now_s - connection.idle_since_s >= idle_s:
                connection.close()
                continue
            connection.reused = True
            return connection if now_s - connection.opened_s < self._bounds.life_s else self._replaced(connection)
        return self._opened()

    def _replaced(self, old: MySQLConnection) -> MySQLConnection:
        """A new connection in place of an old one, which is closed; the old one if the server takes no more of them now
        and is still the primary. If it were closed first, another process could take its place.
        """
        with closed_on_error(old):
            try:
                new = self._opened()
            except pymysql.MySQLError as error:
                if meaning(error) != "full":
                    raise
                old.refuse_replica()
                return old
        old.close()
        return new

    def _opened(self) -> MySQLConnection:
        connection = MySQLConnection(self.server, self._bounds, self._tls)
        with closed_on_error(connection):
            self._check(connection)
        return connection

    def _give_back(self, connection: MySQLConnection) -> None:
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        if self._closed:
            self.forget_idle()


def _connected(**given: Any) -> "pymysql.Connection[Any]":
    """As `pymysql.connect`, with an error of MySQL in place of Python's own."""
    try:
        return pymysql.connect(**given)
    except (IndexError, struct.error) as error:
        raise pymysql.OperationalError(2013, "the server did not greet as one of MySQL does") from error
    except RuntimeError as error:
        # MySQL 8 encrypts passwords itself if TLS does not.
        raise pymysql.OperationalError(2061, f"{error}: use TLS, or pip install 'PyMySQL[rsa]'") from error


def described(error: BaseException | str) -> str:
    if isinstance(error, pymysql.MySQLError) and len(error.args) > 1:
        return f"{error.args[1]} (error {error.args[0]})"
    return str(error)
