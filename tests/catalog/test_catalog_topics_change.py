"""Catalogs of a home whose queue is on a broker, and whose topics are removed and made again."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from tests.cli.command import Cli, eventually
from tests.stack.own_brokers import Brokers, own_brokers
from tests.stack.own_home import home_on_broker, remove_topic
from workers.catalog.topics import UPDATES
from workers.following.topics import ACTIONS
from workers.queue.port import Topic

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("topics_of_catalogs")]

BEFORE = 1_341_100_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with own_brokers(tmp_path_factory.mktemp("broker"), count=1) as running:
        yield running


@pytest.fixture
def cli(broker: Brokers, tmp_path: Path) -> Cli:
    cli = home_on_broker(tmp_path / "home", broker)
    with (cli.home / configuration.FILE_NAME).open("a") as file:
        file.write("[catalogs.pins]\n[catalogs.ads]\n")
    cli("topics", "apply")
    ads = cli.home / "ads.jsonl"
    ads.write_text('{"key": "a", "record": 1}\n')
    cli("catalog", "load", "ads", ads, "--as-of", BEFORE)
    return cli


def made_again(cli: Cli, topic: Topic[object]) -> None:
    remove_topic(cli, topic)
    cli("topics", "apply")


def deltas(cli: Cli, catalog: str) -> list[dict[str, int]]:
    return [json.loads(line)["delta"] for line in cli("catalog", "list", catalog, "--json").stdout.splitlines()]


def update(cli: Cli, record: int) -> None:
    with cli.ports() as ports:
        line = {"key": "a", "time_ms": ports.clock(), "record": record}
    cli("catalog", "update", "ads", "-", stdin=json.dumps(line))


@pytest.mark.parametrize(("catalog", "topic"), [("ads", UPDATES), ("pins", ACTIONS)])
def test_what_was_lost_with_a_topic_while_no_worker_ran_is_a_gap(cli: Cli, catalog: str, topic: Topic[object]) -> None:
    cli.work()
    known_ms = [each["known_ms"] for each in deltas(cli, catalog)]
    update(cli, 2)
    made_again(cli, topic)
    if topic is ACTIONS:
        cli("reindex")
    cli.work()
    assert all(each["floor_ms"] > known for each, known in zip(deltas(cli, catalog), known_ms, strict=True))


def test_what_was_lost_with_a_topic_while_a_worker_ran_is_a_gap(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as stderr:
        worker = cli.spawn("work", stderr=stderr)
    try:
        eventually(lambda: all(each["known_ms"] > 1 for each in deltas(cli, "ads")), "it reads the topic")
        floor_ms = max(each["floor_ms"] for each in deltas(cli, "ads"))
        made_again(cli, UPDATES)
        eventually(lambda: all(each["floor_ms"] > floor_ms for each in deltas(cli, "ads")), "the gap is noted")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
