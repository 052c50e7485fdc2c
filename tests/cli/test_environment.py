"""Variables of the environment: what nothing reads is refused, and an error names the variable that holds it."""

import os
import sys

import pytest

from tests.cli.command import Cli


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("FEED_SERVERING_PREFER", "b", "FEED_SERVING_PREFER"),
        ("FEED_FEED_CAPP", "500", "FEED_FEED_CAP"),
        ("FEED_LIMIT_ACTION_AGE", "1d", "FEED_LIMITS_ACTION_AGE"),
        ("FEED_KAFKA_PASWORD", "s3cret", "FEED_KAFKA_PASSWORD"),
        ("FEED_QUEUE", "embedded:q.db", None),
        ("FEED_CLUSTERS", "[]", None),
    ],
)
def test_a_variable_that_nothing_reads_is_refused_with_the_nearest_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, nearest: str | None
) -> None:
    monkeypatch.setenv(name, value)

    said = cli("status", code=2).stderr

    assert f"environment's {name}: nothing reads this variable" in said
    assert nearest is None or nearest in said
    assert "s3cret" not in said
    assert "feed.toml" not in said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FEED_FEED_CAP", "many", "feed.cap: expected a whole number from 1 to 100000, got 'many'"),
        ("FEED_FEED_CAP", "0", "feed.cap: expected a whole number from 1 to 100000, got 0"),
        ("FEED_LIMITS_ACTION_AGE", "soon", "limits.action_age: expected a duration"),
        ("FEED_LIMITS_PURGE_WINDOW", "1d", "purge_window"),
        ("FEED_SERVING_PREFER", "c", "no cluster 'c'"),
        ("FEED_FOLLOWS_SHARDS", "[1]", "follows.shards[0]: expected text, got 1"),
        ("FEED_QUEUE_URL", "embeded:queue.db", "expected embedded:PATH or kafka://HOST:PORT"),
        ("FEED_QUEUE_URL", "embedded://queue.db", "expected embedded:PATH"),
        ("FEED_QUEUE_URL", "amqp://feed:s3cret@queue/", "'amqp' is unknown: expected embedded:PATH or kafka://HOST"),
        ("FEED_FOLLOWS_SHARDS", '["postgresql://db/f"]', "expected sqlite:PATH or mysql://USER@HOST/DATABASE"),
        ("FEED_FOLLOWS_SHARDS", '["mysql://feed@db/f", "cassandra://db/f"]', "'cassandra' is unknown: expected"),
        ("FEED_FOLLOWS_SHARDS", '["mysql://feed@db/f", "sqlite:data/f.db"]', "mysql and sqlite: expected urls of one"),
        ("FEED_FOLLOWS_SHARDS", '["sqlight:follows.db"]', "expected sqlite:PATH"),
        ("FEED_QUEUE_URL", "kafka://", "expected HOST:PORT"),
        ("FEED_FOLLOWS_SHARDS", '["mysql://no-host"]', "mysql://USER@HOST"),
    ],
)
def test_an_error_in_a_variable_names_the_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)

    stderr = cli("status", code=2).stderr

    assert f"environment's {name}: " in stderr
    assert said in stderr
    assert "s3cret" not in stderr
    assert "feed.toml" not in stderr


@pytest.mark.parametrize("words", ["status", "schema apply", "work --until-idle"])
def test_a_password_that_is_no_text_is_refused_and_not_repeated(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("FEED_FOLLOWS_SHARDS", '["mysql://feed@localhost/follows_0"]')
    monkeypatch.setenv("FEED_MYSQL_PASSWORD", os.fsdecode(b"s3cr\xffet"))

    stderr = cli(*words.split(), code=2).stderr

    assert "FEED_MYSQL_PASSWORD: expected text in UTF-8" in stderr
    assert "s3cr" not in stderr


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ("status", "cassandra://one:9042/feed"),
        ("work --until-idle", "cassandra:data/b"),
        ("feed 1", "data/b"),
        ("verify", "rocksdb"),
        ("schema check", "hbas://one:9091/"),
    ],
)
def test_a_cluster_of_an_unknown_scheme_is_refused_and_never_made_a_directory(cli: Cli, words: str, url: str) -> None:
    cli.change("rocksdb:data/b", url)

    said = cli(*words.split(), code=2).stderr

    assert f"{cli.home / 'feed.toml'}: cluster b: " in said
    assert "expected rocksdb:PATH" in said
    assert not list(cli.home.rglob("*cassandra*"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("FEED_QUEUE_URL", "amqp://queue/"), ("FEED_FOLLOWS_SHARDS", '["postgresql://db/f"]')],
)
def test_no_home_is_made_of_an_unknown_scheme(
    empty: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    assert "is unknown: expected" in empty("init", code=2).stderr
    assert not empty.home.exists()


def test_an_error_in_the_file_names_the_file_while_a_variable_overrides_something_else(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_FEED_SLACK", "1")
    cli.set("cap", "0")

    stderr = cli("status", code=2).stderr

    assert str(cli.home / "feed.toml") in stderr
    assert "FEED_FEED_SLACK" not in stderr


def test_variables_of_the_tools_around_are_no_mistakes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEED_TEST_STACK", "FEED_CLUSTER_NET", "FEED_WEB_PORT", "FEED_SITES", "FEED_RESTART_S", "FEEDER"):
        monkeypatch.setenv(name, "1")

    cli("status")


@pytest.mark.parametrize(
    "words", ["status", "work --until-idle", "dead list", "topics check", "topics apply", "verify", "rebuild 1"]
)
def test_a_queue_on_kafka_without_its_extra_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("FEED_QUEUE_URL", "kafka://localhost:9092")
    for name in [name for name in sys.modules if name.startswith("workers.queue.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kafka"]:
        monkeypatch.setitem(sys.modules, name, None)  # of one that is left, modules of ours would be made a second time
    monkeypatch.setitem(sys.modules, "kafka", None)

    said = cli(*words.split(), code=2).stderr

    assert said.startswith(
        "Error: the queue is Kafka: in the checkout of feedstore, pip install --editable '.[kafka]' ("
    )


def test_a_new_home_on_kafka_without_its_extra_says_what_to_install(
    empty: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_QUEUE_URL", "kafka://localhost:9092")
    monkeypatch.setitem(sys.modules, "workers.queue.kafka", None)

    assert "pip install --editable '.[kafka]'" in empty("init", code=2).stderr
