"""How a MySQL shard is named and reached, and what its errors mean: all that needs no server."""

import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import CLIENT

from feedstore.app import wiring
from feedstore.app.config import DEFAULT, FILE_NAME, Config, load
from feedstore.domain import InvalidValueError
from feedstore.errors import ConfigError
from feedstore.follows import mysql
from feedstore.follows.mysql import connections, durability, schema
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds, Reply
from feedstore.follows.port import FollowStoreUnavailableError, OutdatedStoreError, UnsafeStoreError, WrongStoreError
from feedstore.follows.versions import latest


@pytest.mark.parametrize(
    ("numbers", "means"),
    [
        ((1213, 1205, 1062), "again"),
        ((2003, 2006, 2013, 1927, 1290, 1792, 1836), "lost"),
        ((1040, 1129, 1203, 1226), "full"),
        ((1064, 1045, 1146), "failed"),
    ],
)
def test_what_errors_mean(numbers: tuple[int, ...], means: str):
    for number in numbers:
        assert connections.meaning(pymysql.err.OperationalError(number, "text")) == means
        assert connections.meaning(pymysql.err.IntegrityError(number, "text")) == means
    assert connections.meaning(pymysql.err.InterfaceError(0, "")) == "lost"
    assert connections.meaning(OSError(numbers[0])) == "failed"


# Settings that lose commits
# --------------------------------------------------------------------------------------------------------------------

MARIADB = {
    "debug_no_sync": "OFF",
    "innodb_doublewrite": "ON",
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_flush_method": "O_DIRECT",
    "log_bin": "OFF",
    "sync_binlog": "0",
}
MYSQL = {
    "innodb_doublewrite": "DETECT_AND_RECOVER",
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_flush_method": "fsync",
    "log_bin": "ON",
    "sync_binlog": "1",
}


@pytest.mark.parametrize(
    "settings",
    [
        MARIADB,
        MARIADB | {"innodb_flush_log_at_trx_commit": "3"},
        MARIADB | {"log_bin": "ON", "sync_binlog": "1"},
        MARIADB | {"innodb_doublewrite": "fast"},
        MYSQL,
        MYSQL | {"log_bin": "OFF", "sync_binlog": "0"},
    ],
)
def test_rule_11_a_server_that_keeps_what_it_commits_is_taken(settings: dict[str, str]):
    assert durability.unsafe(settings) == []
    durability.refuse_unsafe(parse("mysql://feed@localhost/follows_0"), settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (MARIADB | {"innodb_flush_log_at_trx_commit": "2"}, "innodb_flush_log_at_trx_commit is 2, expected 1"),
        (MYSQL | {"innodb_flush_log_at_trx_commit": "0"}, "innodb_flush_log_at_trx_commit is 0, expected 1"),
        (MARIADB | {"innodb_doublewrite": "OFF"}, "innodb_doublewrite is OFF, expected ON"),
        (MYSQL | {"innodb_doublewrite": "DETECT_ONLY"}, "innodb_doublewrite is DETECT_ONLY, expected ON"),
        (MARIADB | {"innodb_flush_method": "nosync"}, "innodb_flush_method is NOSYNC"),
        (MARIADB | {"debug_no_sync": "ON"}, "debug_no_sync is ON, expected OFF"),
        (MARIADB | {"log_bin": "ON"}, "sync_binlog is 0, expected 1, because log_bin is ON"),
        (MYSQL | {"sync_binlog": "1000"}, "sync_binlog is 1000, expected 1"),
    ],
)
def test_rule_11_a_server_that_could_lose_what_it_commits_is_refused_by_name(settings: dict[str, str], said: str):
    with pytest.raises(UnsafeStoreError, match=rf"follows_0.*{said}.*set it there"):
        durability.refuse_unsafe(parse("mysql://feed@localhost/follows_0"), settings)


# Urls and secrets
# --------------------------------------------------------------------------------------------------------------------


def parse(url: str, base: Path = Path("/home/x"), **environ: str) -> mysql.MySQLServer:
    return mysql.server(url, base, environ)


def test_a_url_names_a_database():
    where = parse(
        "mysql://feed@db-0.example:3307/follows_0?ca=ca.pem&cert=c.pem&key=/k.pem", FEED_MYSQL_PASSWORD="s3cret"
    )
    assert where == mysql.MySQLServer(
        "db-0.example",
        3307,
        "feed",
        "follows_0",
        "s3cret",
        "verify",
        ca=Path("/home/x/ca.pem"),
        cert=Path("/home/x/c.pem"),
        key=Path("/k.pem"),
    )
    assert str(where) == "mysql://feed@db-0.example:3307/follows_0"
    assert "s3cret" not in repr(where)
    assert parse("mysql://feed@db/follows") == mysql.MySQLServer("db", 3306, "feed", "follows")


def test_a_password_comes_from_its_file_first(tmp_path: Path):
    (tmp_path / "secret").write_text("päss wörd\n")
    where = parse("mysql://feed@db/follows?password_file=secret", tmp_path, FEED_MYSQL_PASSWORD="other")
    assert where.password == "päss wörd"
    with pytest.raises(FileNotFoundError):
        parse("mysql://feed@db/follows?password_file=nowhere", tmp_path)


@pytest.mark.parametrize("url", ["mysql://feed:s3cret@db/follows", "mysql://feed@db/follows?password=s3cret"])
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str):
    with pytest.raises(InvalidValueError, match="password_file") as caught:
        parse(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://feed:1/s3cret@db/follows",
        "mysql://feed:#s3cret@db/follows",
        "mysql:feed:s3cret@db/follows",
        "mysql://feed:s3cret@[db/follows",
    ],
)
def test_a_password_is_not_repeated_where_the_url_is_read_in_another_way(url: str):
    with pytest.raises(InvalidValueError, match="expected mysql://USER@HOST") as caught:
        parse(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/follows",
        "mysql://feed@/follows",
        "mysql://feed@db",
        "mysql://feed@db/",
        "mysql://feed@db/a/b",
        "mysql://feed@db/a`b",
        "mysql://feed@db:no/follows",
        "mysql://feed@db..example/follows",
        f"mysql://feed@{'d' * 64}/follows",
        "mysql://feed@[::1/follows",
        "mysql://feed@db/follows?what=1",
        "mysql://feed@db/follows?tls=maybe",
        "mysql://feed@db/follows?tls=off&ca=ca.pem",
        "mysql://feed@db/follows?key=key.pem",
        "mysql:follows",
        "sqlite:follows.db",
    ],
)
def test_a_url_that_cannot_be(url: str):
    with pytest.raises(InvalidValueError, match="expected mysql://USER@HOST"):
        parse(url)


@pytest.mark.parametrize(
    ("url", "tls"),
    [
        ("mysql://feed@db/follows", "verify"),
        ("mysql://feed@db/follows?tls=encrypt", "encrypt"),
        ("mysql://feed@db/follows?tls=off", "off"),
        ("mysql://feed@127.0.0.1/follows", "off"),
        ("mysql://feed@localhost/follows?tls=verify", "verify"),
        ("mysql://feed@127.0.0.1/follows?ca=ca.pem", "verify"),
    ],
)
def test_tls_is_verified_unless_the_url_says_otherwise(url: str, tls: str):
    assert parse(url).tls == tls


@pytest.mark.parametrize("greeting", [b"\x0a", b"\x0a8.0.3\0", b"\x0a8.0.3\0\x01\0"])
def test_a_server_whose_greeting_is_cut_off_is_away(greeting: bytes):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(len(greeting).to_bytes(3, "little") + b"\0" + greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        where = parse(f"mysql://feed@127.0.0.1:{server.getsockname()[1]}/follows")
        with pytest.raises(pymysql.MySQLError) as caught:
            MySQLConnection(where, PoolBounds(), None)
        thread.join()
    assert connections.meaning(caught.value) == "lost"


def test_a_password_that_needs_a_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    """As MySQL 8 asks for it without TLS: RSA, by its default for new accounts."""
    monkeypatch.setattr(pymysql._auth, "_have_cryptography", False)
    capabilities = CLIENT.PROTOCOL_41 | CLIENT.SECURE_CONNECTION | CLIENT.PLUGIN_AUTH | CLIENT.CONNECT_WITH_DB
    greeting = (
        b"\x0a8.0.36\0\x01\0\0\0saltsalt\0"
        + struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
        + bytes(10)
        + b"saltsaltsalt\0caching_sha2_password\0"
    )
    answers = [b"\x01\x04", b"\x01a public key"]

    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            accepted, _ = server.accept()
            with accepted, accepted.makefile("rwb") as stream:
                stream.write(len(greeting).to_bytes(3, "little") + b"\0" + greeting)
                for answer in answers:
                    stream.flush()
                    head = stream.read(4)
                    stream.read(int.from_bytes(head[:3], "little"))
                    stream.write(len(answer).to_bytes(3, "little") + bytes([head[3] + 1]) + answer)

        thread = threading.Thread(target=greet)
        thread.start()
        where = parse(f"mysql://feed@127.0.0.1:{server.getsockname()[1]}/follows", FEED_MYSQL_PASSWORD="s3cret")
        with pytest.raises(FollowStoreUnavailableError, match=r"cryptography.*: use TLS.*pip install 'PyMySQL\[rsa\]'"):
            mysql.open_store([where])
        thread.join()


class RefusedError(Exception):
    pass


def connected_with(where: mysql.MySQLServer, monkeypatch: pytest.MonkeyPatch, bounds: PoolBounds) -> dict[str, object]:
    """The arguments that the driver is called with."""
    called: dict[str, object] = {}

    def connect(**arguments: object) -> None:
        called.update(arguments)
        raise RefusedError

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(RefusedError):
        MySQLConnection(where, bounds, where.tls_context())
    return called


def test_the_driver_gets_timeouts_tls_and_the_password_in_utf8(monkeypatch: pytest.MonkeyPatch):
    where = parse("mysql://feed@db/follows", FEED_MYSQL_PASSWORD="päss")
    called = connected_with(where, monkeypatch, PoolBounds(connect_s=1.5, reply_s=2.5))
    assert (called["connect_timeout"], called["read_timeout"], called["write_timeout"]) == (1.5, 2.5, 2.5)
    assert called["password"] == "päss".encode()
    assert called["ssl_disabled"] is False
    context = called["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_the_driver_gets_no_tls_or_an_unverified_one_only_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    off = connected_with(parse("mysql://feed@db/follows?tls=off"), monkeypatch, PoolBounds())
    assert (off["ssl"], off["ssl_disabled"]) == (None, True)
    context = connected_with(parse("mysql://feed@db/follows?tls=encrypt"), monkeypatch, PoolBounds())["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_a_ca_and_a_certificate_that_are_not_there_are_named(tmp_path: Path):
    for query in ("ca=ca.pem", "cert=cert.pem"):
        where = parse(f"mysql://feed@db/follows?{query}", tmp_path)
        with pytest.raises(FollowStoreUnavailableError, match=r"mysql://feed@db:3306/follows: .*No such file.*\.pem"):
            mysql.open_store([where])
        with pytest.raises(FollowStoreUnavailableError, match="No such file"):
            mysql.create([where])


# Servers that are away at the start
# --------------------------------------------------------------------------------------------------------------------


class Database:
    """Connects to the servers of a store, and answers as the database there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = True
        self.error: pymysql.MySQLError | None = None
        self.version = latest("mysql")
        monkeypatch.setattr(connections, "MySQLConnection", self._connect)

    def _connect(self, server: mysql.MySQLServer, bounds: PoolBounds, tls: object) -> "Database":
        if self.away:
            if self.error is not None:
                raise self.error
            raise pymysql.OperationalError(2003, f"Can't connect to MySQL server on '{server.host}'")
        return self

    def rows(self, statement: str) -> list[tuple[int, ...]]:
        return [(self.version,)] if "schema_versions" in statement else [(0, 1)]

    def run(self, statements: Sequence[str]) -> list[Reply]:
        return [Reply([], 0, 0) for _ in statements]

    open = in_transaction = reused = False
    opened_s = idle_since_s = 0.0

    def close(self) -> None: ...


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    return Database(monkeypatch)


def test_a_store_may_be_opened_while_all_of_it_is_away_if_that_is_wanted(database: Database):
    where = parse("mysql://feed@db/follows")
    with pytest.raises(FollowStoreUnavailableError, match="Can't connect to MySQL server on 'db'"):
        mysql.open_store([where])
    with closing(mysql.open_store([where], may_be_away=True)) as store:
        with pytest.raises(FollowStoreUnavailableError, match="Can't connect to MySQL server on 'db'"):
            store.following(1)
        database.away = False
        assert store.following(1) == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1040, "Too many connections"),
        (1203, "max_user_connections"),
        (1226, "max_connections_per_hour"),
        (1129, "host is blocked"),
    ],
)
def test_a_database_that_takes_no_more_connections_is_away(database: Database, number: int, said: str):
    """As it is when many processes are started at once: a web server that is one of them still serves pages."""
    database.error = pymysql.OperationalError(number, said)
    with closing(mysql.open_store([parse("mysql://feed@db/follows")], may_be_away=True)) as store:
        with pytest.raises(FollowStoreUnavailableError, match=said):
            store.following(1)
        database.away = False
        assert store.following(1) == []


class Connection:
    """One of a pool. replica: whether its server is one by now."""

    in_transaction = reused = False
    idle_since_s = 0.0

    def __init__(self, *, replica: bool = False) -> None:
        self.open = True
        self.opened_s = time.monotonic()
        self.replica = replica

    def refuse_replica(self) -> None:
        if self.replica:
            raise pymysql.OperationalError(1290, "read_only is ON")

    def close(self) -> None:
        self.open = False


@pytest.mark.parametrize(
    ("answer", "replica", "kept"),
    [
        (None, False, "new"),
        (pymysql.OperationalError(1040, "Too many connections"), False, "old"),
        (pymysql.OperationalError(1040, "Too many connections"), True, "none"),
        (pymysql.OperationalError(2003, "Can't connect"), False, "none"),
    ],
)
def test_a_connection_that_is_too_old_is_kept_if_the_server_takes_no_new_one(
    monkeypatch: pytest.MonkeyPatch, answer: pymysql.MySQLError | None, replica: bool, kept: str
):
    """But not if it is the connection to a server that is not the primary any more."""
    made: list[Connection] = []

    def connect(*_: object) -> Connection:
        if made and answer is not None:
            raise answer
        if made:
            assert made[0].open, "another process may take the place of what is closed first"
        made.append(Connection(replica=replica))
        return made[-1]

    monkeypatch.setattr(connections, "MySQLConnection", connect)
    pool = connections.MySQLPool(parse("mysql://feed@db/follows"), PoolBounds(), None, lambda _: None)
    with pool.lend():
        pass
    made[0].opened_s = time.monotonic() - 61
    if kept == "none":
        with pytest.raises(pymysql.MySQLError), pool.lend():
            pass
        assert not made[0].open
    else:
        with pool.lend() as lent:
            assert lent is made[{"old": 0, "new": 1}[kept]]
        assert made[0].open == (kept == "old")


def test_a_database_that_refuses_the_user_is_wrong(database: Database):
    database.error = pymysql.OperationalError(1045, "Access denied for user 'feed'")
    with pytest.raises(FollowStoreUnavailableError, match="Access denied"):
        mysql.open_store([parse("mysql://feed@db/follows")], may_be_away=True)


def test_what_a_server_answers_reads_the_same_wherever_it_is_met(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise pymysql.OperationalError(1045, "Access denied for user 'feed'")

    monkeypatch.setattr(connections, "MySQLConnection", refuse)
    monkeypatch.setattr(schema, "MySQLConnection", refuse)
    where = parse("mysql://feed@db/follows")
    for call in (
        lambda: mysql.create([where]),
        lambda: mysql.stored_version(where),
        lambda: mysql.open_store([where]),
    ):
        with pytest.raises(FollowStoreUnavailableError) as refused:
            call()
        assert str(refused.value) == "mysql://feed@db:3306/follows: Access denied for user 'feed' (error 1045)"


def test_a_store_that_is_wrong_is_refused_as_soon_as_it_can_be_reached(database: Database):
    where = parse("mysql://feed@db/follows")
    database.version = 0
    with closing(mysql.open_store([where], may_be_away=True)) as store:
        database.away = False
        with pytest.raises(WrongStoreError, match="it has no tables"):
            store.following(1)
    database.version = 1
    with pytest.raises(OutdatedStoreError, match="migrate it"):
        mysql.open_store([where], may_be_away=True)


# The configuration
# --------------------------------------------------------------------------------------------------------------------


def config(home: Path, *shards: str) -> Config:
    return load(home, {"FEED_FOLLOWS_SHARDS": json.dumps(shards)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / FILE_NAME).write_text(DEFAULT)
    return tmp_path


def test_a_url_in_the_configuration_that_cannot_be_is_named(home: Path):
    (home / "no_text").write_bytes(b"\xff")
    for work in (lambda each: wiring.open_follows(each, int), wiring.create_follows):
        with pytest.raises(ConfigError, match=r"FEED_FOLLOWS_SHARDS: follows\.shards: url: expected no password"):
            work(config(home, "mysql://feed:s3cret@db/follows"))
        for file, expected in (("no_text", "UTF-8, got 'no_text'"), ("a%00b", "UTF-8, got"), ("nowhere", "nowhere")):
            with pytest.raises(ConfigError, match=rf"FEED_FOLLOWS_SHARDS: follows\.shards: .*{expected}"):
                work(config(home, f"mysql://feed@db/follows?password_file={file}"))
    with pytest.raises(ConfigError, match=r"follows\.shards: mysql and sqlite: expected urls of one scheme"):
        config(home, "mysql://feed@db/follows", "sqlite:data/follows.db")


def test_without_the_driver_the_configuration_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "feedstore.follows.mysql", None)
    with pytest.raises(ConfigError, match=r"pip install --editable '\.\[mysql\]'"):
        wiring.open_follows(config(home, "mysql://feed@db/follows"), int)
