"""Homes on real servers, as far as that needs none: where they are made from, and what is refused without them."""

import json
import sqlite3
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from tests.cli.command import Cli
from workers.cli import stacks

PORTS = {
    name: {"client": number}
    for number, name in enumerate(["thrift2-a", "thrift1-a", "thrift2-b", "thrift1-b", "kafka", "mariadb"], 7_001)
} | {"hbase-a": {"zookeeper": 7_007}, "hbase-b": {"zookeeper": 7_008}}


@pytest.fixture
def stack_home(tmp_path: Path) -> Path:
    home = tmp_path / "stack"
    home.mkdir()
    (home / stacks.STATE).write_text(json.dumps({"version": 1, "host": "127.0.0.1", "ports": PORTS}))
    return home


def test_a_home_on_a_stack_has_its_urls(stack_home: Path, tmp_path: Path) -> None:
    text = configuration.DEFAULT
    for there, instead in stacks.replacements(stack_home).items():
        assert text.count(there) == 1
        text = text.replace(there, instead)
    config = configuration.parse(tmp_path, text, {})
    assert [(each.name, each.url) for each in config.clusters] == [
        ("a", "hbase://127.0.0.1:7001/?thrift1=127.0.0.1:7002"),
        ("b", "hbase://127.0.0.1:7003/?thrift1=127.0.0.1:7004"),
    ]
    assert [each.zookeeper for each in config.clusters] == ["127.0.0.1:7007", "127.0.0.1:7008"]
    assert config.hbase_jars == f"{stack_home}/jars/hbase/*:{stack_home}/jars/trim/*"
    assert config.queue == "kafka://127.0.0.1:7005"
    assert (config.partitions, config.replication) == (4, 1)
    secret = stack_home / "mariadb.password"
    assert config.shards == tuple(
        f"mysql://feed@127.0.0.1:7006/follows_{number}?password_file={secret}" for number in range(2)
    )


def test_without_a_stack_init_says_how_to_start_one(empty: Cli, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    said = empty("init", "--stack", "local", "--stack-home", nowhere, code=2).stderr
    assert f"{nowhere / stacks.STATE}: not found; start the local stack first: make stack-up STACK={nowhere}" in said
    assert not empty.home.exists()


def test_part_of_a_stack_is_not_enough(empty: Cli, stack_home: Path) -> None:
    ports = {name: each for name, each in PORTS.items() if name != "thrift1-b"}
    (stack_home / stacks.STATE).write_text(json.dumps({"ports": ports}))
    said = empty("init", "--stack", "local", "--stack-home", stack_home, code=2).stderr
    assert "no port of thrift1-b; start all of the stack: make stack-up" in said
    (stack_home / stacks.STATE).write_text("{")
    said = empty("init", "--stack", "local", "--stack-home", stack_home, code=2).stderr
    assert str(stack_home / stacks.STATE) in said
    assert not empty.home.exists()


@pytest.mark.parametrize("words", [["relay"], ["expand"], ["write", "--cluster", "a"]], ids=lambda words: words[0])
def test_parts_of_a_worker_do_not_run_on_files_of_a_home(cli: Cli, words: list[str]) -> None:
    said = cli(*words, code=2).stderr
    assert (
        f"{cli.home}: its queue or a cluster is a file of this home, which has one worker: {cli.hint('work')}" in said
    )


def test_files_of_a_home_have_no_tables_in_hbase_and_no_topics_to_look_after(cli: Cli) -> None:
    assert "no cluster of this home is HBase" in cli("schema", "check", code=2).stderr
    for verb in ("apply", "check"):
        assert "the queue of this home is embedded" in cli("topics", verb, code=2).stderr


def test_a_home_of_an_earlier_version_is_brought_up_to_date(filled: Cli) -> None:
    expected = filled.json("feed", 1)["entries"]
    earlier = sqlite3.connect(filled.home / "data" / "follows.db")
    earlier.executescript(
        "ALTER TABLE outbox DROP COLUMN actions; ALTER TABLE outbox_unrelayed DROP COLUMN actions;"
        "DROP TABLE quiet_boards; DROP TABLE placed_pins;"
        "DROP INDEX boards_owner; ALTER TABLE refills DROP COLUMN served_before_ms;"
        "PRAGMA user_version = 1"
    )
    earlier.close()
    assert "its tables have version 1, this program needs" in filled("follow", 1, "--user", 9, code=3).stderr
    for _ in range(2):
        assert "follow store: its tables are up to date" in filled("schema", "apply").stderr
    filled("follow", 1, "--user", 9)
    assert filled.json("feed", 1)["entries"] == expected
