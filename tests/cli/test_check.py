"""feedctl check: what an operator can get wrong, each named alone, before anything is written."""

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from feedstore.app import open_files
from feedstore.app.catalogs import open_store
from feedstore.app.wiring import create_cluster
from tests.cli.command import Cli
from workers.app import checks
from workers.app.checks import facts as gathering
from workers.app.checks.facts import Room
from workers.app.home import private
from workers.app.wiring import other_partitions

Break = Callable[[Cli, pytest.MonkeyPatch], None]


def _file(old: str, new: str) -> Break:
    return lambda cli, _: cli.change(old, new)


def _env(name: str, value: str) -> Break:
    return lambda _, patch: patch.setenv(name, value)


def _home_time(off_ms: int) -> Break:
    """The first process after the boot had a clock that was off by so much."""

    def change(cli: Cli, _: pytest.MonkeyPatch) -> None:
        file = cli.home / "clock.json"
        anchor = json.loads(file.read_text())
        file.write_text(json.dumps(anchor | {"booted_ms": anchor["booted_ms"] + off_ms}))

    return change


def _without(module: str, name: str, value: str) -> Break:
    def change(_: Cli, patch: pytest.MonkeyPatch) -> None:
        patch.setitem(sys.modules, module, None)
        patch.setenv(name, value)

    return change


def _sql(file: str, *statements: str) -> Break:
    def change(cli: Cli, _: pytest.MonkeyPatch) -> None:
        with closing(sqlite3.connect(cli.home / "data" / file)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return change


def _gone(name: str) -> Break:
    def change(cli: Cli, _: pytest.MonkeyPatch) -> None:
        path = cli.home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def _linked(cli: Cli, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(cli.home / "data" / "b")
    (cli.home / "data" / "b").symlink_to("a")


def _rights(name: str, mode: int) -> Break:
    return lambda cli, _: (cli.home / name).chmod(mode)


def _tokens(cli: Cli, patch: pytest.MonkeyPatch, *, expires: str = "never", mode: int = 0o600) -> None:
    patch.setenv("FEED_HTTP_TOKENS", "tokens.toml")
    cli("token", "new", "--name", "web", "--scope", "read", "--expires", expires)
    (cli.home / "tokens.toml").chmod(mode)


def _short_key(cli: Cli, _: pytest.MonkeyPatch) -> None:
    (cli.home / "cursor.key").write_text("ab" * 4)
    (cli.home / "cursor.key").chmod(0o600)


def _garbage(name: str) -> Break:
    def change(cli: Cli, _: pytest.MonkeyPatch) -> None:
        (cli.home / "data" / name).write_bytes(b"no database" * 1_000)

    return change


def _one_group_of_two_catalogs(cli: Cli, _: pytest.MonkeyPatch) -> None:
    cli.add('[[clusters]]\nname = "x-b"\nurl = "rocksdb:data/c"\n[catalogs.ads]\n[catalogs.ads-x]\n')
    with private():
        create_cluster(configuration.load(cli.home, {}), "x-b")


def _garbage_in_catalog(name: str) -> Break:
    def change(cli: Cli, _: pytest.MonkeyPatch) -> None:
        cli.add("[catalogs.pins]\n")
        config = configuration.load(cli.home, {})
        with private(), open_store(config, "pins", "b") as store:
            store.note_known(1)
            store.use(store.load(1, []).id)
        (cli.home / "data" / "b.catalog" / "pins" / name).write_text("garbage")

    return change


def _files(hard: int, **http: str) -> Break:
    """A process may have so many open. http: settings of [http]."""

    def change(_: Cli, patch: pytest.MonkeyPatch) -> None:
        for key, value in http.items():
            patch.setenv(f"FEED_HTTP_{key}", value)
        patch.setattr(open_files.resource, "getrlimit", lambda _: (hard, hard))

    return change


def _room(**values: object) -> Break:
    def change(cli: Cli, patch: pytest.MonkeyPatch) -> None:
        there = {"free_bytes": 1 << 40, "free_files": None, "read_only": False, "kind": "ext4"} | values
        patch.setattr(gathering, "_rooms", lambda _: [Room(cli.home, **there)])

    return change


def _owner(cli: Cli, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "geteuid", lambda: 1_000)
    os.chown(cli.home / "data" / "queue.db", 1_001, -1)


WRONG: dict[str, tuple[Break, str, str]] = {
    # What is wrong: how it is made so, the check that names it, what it says.
    "no home": (_gone("feed.toml"), "configuration", "not found, and stores of a home are here"),
    "not TOML": (_file("cap = 1000", "cap = ["), "configuration", "not valid TOML"),
    "a wrong type": (_file("cap = 1000", 'cap = "many"'), "configuration", "feed.cap"),
    "two clusters of one name": (_file('name = "b"', 'name = "a"'), "configuration", "same name"),
    "a wrong variable": (_env("FEED_FEED_CAP", "all"), "configuration", "FEED_FEED_CAP"),
    "one directory under two names": (
        _file("rocksdb:data/b", "rocksdb:data/../data/a"),
        "configuration",
        "a url of its own",
    ),
    "one directory by a link": (_linked, "configuration", "a url of its own"),
    "a cluster inside another": (_file("rocksdb:data/b", "rocksdb:data/a/b"), "configuration", "inside: give it"),
    "a cluster around everything": (_file("rocksdb:data/b", "rocksdb:data"), "configuration", "inside: give it"),
    "a cluster that is the home": (_file("rocksdb:data/b", "rocksdb:../home"), "configuration", "inside: give it"),
    "the queue in the follow store": (
        _env("FEED_QUEUE_URL", "embedded:data/follows.db"),
        "configuration",
        "in one place",
    ),
    "a shard twice": (
        _env("FEED_FOLLOWS_SHARDS", '["sqlite:data/follows.db", "sqlite:data/follows.db"]'),
        "configuration",
        "in one place",
    ),
    "a path that no file can have": (
        _file("rocksdb:data/b", "rocksdb:data\\u0000b"),
        "configuration",
        "cluster b: expected rocksdb:PATH",
    ),
    "the root as the queue": (_env("FEED_QUEUE_URL", "embedded:/"), "configuration", "expected embedded:PATH"),
    "an HBase url without a table": (_file("rocksdb:data/b", "hbase://"), "places", "cluster b"),
    "HBase without its extra": (
        lambda cli, patch: (
            _without("feedstore.app.hbase", "FEED_HBASE_JARS", "x")(cli, patch),
            _file("rocksdb:data/b", "hbase://one:9090/feed")(cli, patch),
        )[0],
        "places",
        "pip install --editable '.[hbase]'",
    ),
    "Kafka without its extra": (
        _without("workers.queue.kafka", "FEED_QUEUE_URL", "kafka://one:9092"),
        "queue",
        "pip install --editable '.[kafka]'",
    ),
    "MySQL without its extra": (
        _without("feedstore.follows.mysql", "FEED_FOLLOWS_SHARDS", '["mysql://feed@db/follows"]'),
        "follow store",
        "pip install --editable '.[mysql]'",
    ),
    "a password in a url": (
        _env("FEED_FOLLOWS_SHARDS", '["mysql://feed:secret@db/follows"]'),
        "follow store",
        "no password in it",
    ),
    "a password file that is missing": (
        _env("FEED_FOLLOWS_SHARDS", '["mysql://feed@db/follows?password_file=nowhere"]'),
        "follow store",
        "nowhere",
    ),
    "a broker without a port": (_env("FEED_QUEUE_URL", "kafka://one"), "queue", "expected HOST:PORT"),
    "the follow store lost": (_gone("data/follows.db"), "follow store", "no such file"),
    "the follow store of an older program": (
        _sql("follows.db", "PRAGMA user_version = 2"),
        "follow store",
        "version 2",
    ),
    "the follow store of a newer program": (
        _sql("follows.db", "PRAGMA user_version = 99"),
        "follow store",
        "version 99",
    ),
    "another number of shards": (
        _sql("follows.db", "UPDATE shard_state SET shards = 2"),
        "follow store",
        "shard 0 of 2",
    ),
    "a follow store that is none": (_garbage("follows.db"), "follow store", "not a database"),
    "the queue lost": (_gone("data/queue.db"), "queue", "feedctl reindex"),
    "a queue that is none": (_garbage("queue.db"), "queue", "not a database"),
    "a queue of a newer program": (_sql("queue.db", "PRAGMA user_version = 9"), "queue", "format 9"),
    "another number of partitions": (_env("FEED_QUEUE_PARTITIONS", "4"), "queue", "queue.partitions: 4"),
    "a cluster lost": (_gone("data/b"), "clusters", "there is no cluster in this directory"),
    "a cluster damaged": (_gone("data/b/CURRENT"), "clusters", "damaged"),
    "rare ticks": (_env("FEED_WORKER_TICK", "1m"), "limits", "worker.tick"),
    "short deliveries": (_env("FEED_LIMITS_DELIVERY_AGE", "1s"), "limits", "limits.delivery_age"),
    "rare housekeeping": (_env("FEED_WORKER_HOUSEKEEPING", "30d"), "limits", "worker.housekeeping"),
    "letters that go at once": (_env("FEED_LIMITS_DEAD_LETTER_AGE", "1h"), "limits", "limits.dead_letter_age"),
    "more connections than files": (_files(4_096, CONNECTIONS="100000"), "limits", "http.connections"),
    "more threads than files": (_files(4_096, THREADS="1024"), "limits", "file descriptors, and this process may have"),
    "updates of a catalog damaged": (_garbage_in_catalog("delta/CURRENT"), "catalogs", "b.catalog/pins/delta"),
    "two catalogs with one group": (_one_group_of_two_catalogs, "catalogs", "give one of the catalogs another name"),
    "a catalog damaged": (_garbage_in_catalog("CURRENT"), "catalogs", "b.catalog/pins/CURRENT is damaged"),
    "a store that others may read": (_rights("data/queue.db", 0o644), "rights", "others may use it"),
    "a configuration that others may write": (_rights("feed.toml", 0o666), "rights", "others may use it"),
    "a file of another user": (_owner, "rights", "of another user"),
    "a full disk": (_room(free_bytes=1 << 20), "disk", "1 MiB are free"),
    "no room for more files": (_room(free_files=3), "disk", "3 more files"),
    "a read-only disk": (_room(read_only=True), "disk", "read-only"),
    "a disk of the network": (_room(kind="nfs4"), "disk", "nfs4"),
    "a clock that was ahead": (
        _sql("follows.db", "UPDATE shard_state SET latest_ms = 4102444800000"),
        "clock",
        "ahead of this machine's",
    ),
    "a clock that is behind": (
        lambda cli, _: os.utime(cli.home / "feed.toml", (4_102_444_800, 4_102_444_800)),
        "clock",
        "this machine's clock is before",
    ),
    "a home's time that is ahead": (_home_time(3_600_000), "clock", "s behind the home's time"),
    "a home's time that is behind": (_home_time(-3_600_000), "clock", "s ahead of the home's time"),
    "tokens that are missing": (_env("FEED_HTTP_TOKENS", "tokens.toml"), "http", "make a token"),
    "tokens that everybody may read": (lambda cli, patch: _tokens(cli, patch, mode=0o644), "http", "other users"),
    "tokens that have expired": (lambda cli, patch: _tokens(cli, patch, expires="1ms"), "http", "has expired"),
    "a short key": (_short_key, "http", "at least 32 bytes"),
    "serving without its extra": (
        lambda cli, patch: (
            _tokens(cli, patch),
            patch.setattr(gathering, "find_spec", lambda name: None if name == "uvicorn" else name),
        )[0],
        "libraries",
        "pip install --editable '.[http]' (no uvicorn)",
    ),
    "traces without their extra": (
        lambda cli, patch: (
            patch.setenv("FEED_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces"),
            patch.setattr(gathering, "find_spec", lambda name: None if name.startswith("opentelemetry") else name),
        )[0],
        "libraries",
        "pip install --editable '.[traces]'",
    ),
    "metrics without their extra": (
        lambda cli, patch: (
            patch.setenv("FEED_METRICS_LISTEN", "127.0.0.1:9100"),
            patch.setattr(gathering, "find_spec", lambda name: None if name == "prometheus_client" else name),
        )[0],
        "libraries",
        "metrics.listen",
    ),
}


def _state(home: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in home.rglob("*")}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_mistake_is_named_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    make, check, said = WRONG[wrong]
    make(cli, monkeypatch)
    before = _state(cli.home)

    answers = [json.loads(line) for line in cli("check", "--json", code=2).stdout.splitlines()]

    found = [answer for answer in answers if not answer["ok"]]
    assert [answer["check"] for answer in found] == [check], found
    assert said in found[0]["said"]
    assert _state(cli.home) == before


def test_what_is_wrong_is_a_line_for_people_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_QUEUE_PARTITIONS", "4")

    said = cli("check", code=2)

    assert "WRONG queue         queue.partitions: 4" in said.stdout
    assert "1 fault found; check changes nothing" in said.stderr


def test_a_good_home_says_a_line_for_each_thing_that_was_looked_at(filled: Cli) -> None:
    before = _state(filled.home)

    said = filled("check").stdout.splitlines()
    answers = [json.loads(line) for line in filled("check", "--json").stdout.splitlines()]

    names = ["configuration", *(check.name for check in checks.CHECKS)]
    assert [line[6:20].strip() for line in said] == names
    assert [(answer["check"], answer["ok"]) for answer in answers] == [(name, True) for name in names]
    assert _state(filled.home) == before


@pytest.mark.processes
def test_a_number_of_partitions_that_the_queue_does_not_have_is_logged_where_the_work_begins(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_QUEUE_PARTITIONS", "4")
    said = filled.process("work", "--until-idle").stderr
    [warned] = [json.loads(line) for line in said.splitlines() if '"queue.partitions_differ"' in line]
    assert warned["level"] == "warning"
    assert warned["error"] == (
        "queue.partitions: 4, and the queue has 1: an embedded queue keeps the number that it was made with: set it to"
        " 1"
    )
    monkeypatch.delenv("FEED_QUEUE_PARTITIONS")
    assert "partitions" not in filled.process("work", "--until-idle").stderr


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([4, 4, 4], None),
        ([], None),
        ([4, 3, 4], "queue.partitions: 4, and the queue has 3: feedctl topics apply adds partitions"),
        ([8, 8, 8], "queue.partitions: 4, and the queue has 8: Kafka cannot remove any: set it to 8"),
    ],
)
def test_how_to_end_another_number_of_partitions_in_kafka_is_said(
    tmp_path: Path, found: list[int], said: str | None
) -> None:
    text = configuration.DEFAULT.replace("embedded:data/queue.db", "kafka://one:9092")
    assert other_partitions(configuration.parse(tmp_path, text, {"FEED_QUEUE_PARTITIONS": "4"}), found) == said


@pytest.mark.processes
def test_a_home_is_good_while_a_worker_runs_on_it(cli: Cli) -> None:
    with cli.worker():
        cli("check")
