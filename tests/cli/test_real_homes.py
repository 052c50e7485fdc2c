"""Homes on real servers, as far as that needs none: where they are made from, and what is refused without them."""

import shutil
import sqlite3
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import pytest

from deploy.local import Stack
from feedstore.app import config as configuration
from tests.cli.command import Cli
from workers.app import rebuild as rebuilding
from workers.cli import schema, stacks
from workers.queue.port import GroupBusyError


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path / "stack")


def parsed(stack: Stack, home: Path) -> configuration.Config:
    text = configuration.DEFAULT
    for there, instead in stacks.replacements("local", stack.home).items():
        assert text.count(there) == 1
        text = text.replace(there, instead)
    return configuration.parse(home, text, {})


def test_a_home_on_a_stack_has_its_urls(stack: Stack, tmp_path: Path) -> None:
    def at(server: str, purpose: str = "client") -> str:
        return f"127.0.0.1:{stack.port(server, purpose)}"

    config = parsed(stack, tmp_path)
    assert [(each.name, each.url) for each in config.clusters] == [
        (name, f"hbase://{at(f'thrift2-{name}')}/") for name in ("a", "b")
    ]
    assert [each.zookeeper for each in config.clusters] == [at("hbase-a", "zookeeper"), at("hbase-b", "zookeeper")]
    assert config.hbase_jars == f"{stack.home}/jars/hbase/*:{stack.home}/jars/trim/*"
    assert config.queue == f"kafka://{at('kafka')}"
    assert (config.partitions, config.replication) == (4, 1)
    assert config.shards == tuple(
        f"mysql://feed@{at('mariadb')}/follows_{number}?password_file={stack.password_file}" for number in range(2)
    )
    assert (config.metrics.prometheus, config.metrics.targets) == (
        f"http://{at('prometheus')}",
        f"{stack.home}/targets",
    )


def test_the_path_of_a_stack_may_have_what_means_something_else_in_a_url(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "c++" / "feeds@home")
    for url in parsed(stack, tmp_path).shards:
        assert parse_qs(urlsplit(url).query)["password_file"] == [str(stack.password_file)]


def test_a_stack_that_was_moved_or_got_another_port_says_where_it_is_now(stack: Stack, tmp_path: Path) -> None:
    state = stack.home / "stack.json"
    port = stack.port("kafka")
    state.write_text(state.read_text().replace(f": {port}", ": 7"))
    assert parsed(Stack(stack.home.rename(tmp_path / "moved")), tmp_path).queue == "kafka://127.0.0.1:7"
    assert "/moved/" in (tmp_path / "moved" / "places.json").read_text()


def test_without_a_stack_init_says_how_to_start_one(empty: Cli, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    said = empty("init", "--stack", "local", "--stack-home", nowhere, code=2).stderr
    assert f"{nowhere / stacks.PLACES}: not found; start the local stack first: make stack-up STACK={nowhere}" in said
    assert not empty.home.exists()


def test_places_that_are_none_are_named(empty: Cli, stack: Stack) -> None:
    (stack.home / stacks.PLACES).write_text("{")
    said = empty("init", "--stack", "local", "--stack-home", stack.home, code=2).stderr
    assert str(stack.home / stacks.PLACES) in said
    assert not empty.home.exists()


def test_places_of_an_earlier_version_say_what_writes_them_again(empty: Cli, stack: Stack) -> None:
    places = stack.home / stacks.PLACES
    places.write_text(places.read_text().replace('"thrift2"', '"thrift1": [], "thrift2"'))
    said = empty("init", "--stack", "docker", "--stack-home", stack.home, code=2).stderr
    assert "thrift1" in said
    assert "if an earlier version wrote it: make cluster-up writes it again" in said


@pytest.mark.parametrize("words", [["relay"], ["expand"], ["write", "--cluster", "a"]], ids=lambda words: words[0])
def test_parts_of_a_worker_do_not_run_on_files_of_a_home(cli: Cli, words: list[str]) -> None:
    said = cli(*words, code=2).stderr
    assert (
        f"{cli.home}: the queue or a cluster of this home is a file, so the home has one worker: {cli.hint('work')}"
        in said
    )


def test_files_of_a_home_have_no_tables_in_hbase_and_no_topics_to_look_after(cli: Cli) -> None:
    assert "no cluster of this home is HBase" in cli("schema", "check", code=2).stderr
    for verb in ("apply", "check"):
        assert "the queue of this home is embedded" in cli("topics", verb, code=2).stderr


def test_a_check_of_tables_finds_a_follow_store_that_does_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of HBase are well."""
    monkeypatch.setattr(schema, "_in_hbase", lambda _: [])
    cli.set("shards", '["mysql://feed@127.0.0.1:1/follows"]')
    assert "mysql://feed@127.0.0.1:1/follows" in cli("schema", "check", code=3).stderr


def test_a_purge_window_that_is_too_short_is_named_with_durations(cli: Cli) -> None:
    cli.set("purge_window", '"36h"')
    said = cli("status", code=2).stderr
    assert "purge_window: expected more than action_age + 2 x delivery_age, 4d, got 36h: a marker could be" in said


def test_a_cluster_whose_writer_runs_elsewhere_is_not_made_anew(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> NoReturn:
        raise GroupBusyError("feed.deliveries has a live consumer of writer-b; close it first")

    shutil.rmtree(filled.home / "data" / "b")
    monkeypatch.setattr(rebuilding, "refuse_live", busy)
    said = filled("rebuild", "--all", "--cluster", "b", code=3).stderr
    assert "close it first: stop the writers of cluster b first, and run this again" in said


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
    assert "its tables have version 1, this program needs" in filled("follow", 1, "--user", 9, code=2).stderr
    for _ in range(2):
        assert "follow store: its tables are up to date" in filled("schema", "apply").stderr
    filled("follow", 1, "--user", 9)
    assert filled.json("feed", 1)["entries"] == expected
