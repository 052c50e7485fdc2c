"""How things are: what a look finds, and what it does not say where something is away."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.domain import Follow, user
from feedstore.following import feed_table
from feedstore.following.metrics import BEHIND, DEAD_LETTERS, LAG
from feedstore.follows.port import Backlog, FollowStoreUnavailableError, Request
from feedstore.metering import Counting
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import PROGRESS, Progress, State, Through, progress_table
from tests.cli.command import Cli
from tests.metering.readings import value
from tests.widecolumn.memory_store import MemoryStore
from workers.app.gauges import FAULTS_EVERY_S, LOOK_EVERY_S, ClusterGauges, QueueGauges, gauges_of, kept_back_by
from workers.following import metrics
from workers.following.landed import NOT_KNOWN_MS, REBUILDING_MS
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.queue.metrics import PARTITION_LAG
from workers.queue.port import QueueUnavailableError

FEEDS_TABLE = feed_table(100, 10, 1_000_000)
STATE = State(9_000, 9_000, {0: 9_000}, [], [], [], [])


@pytest.mark.parametrize(
    ("state", "by"),
    [
        (STATE, "ticks"),
        (STATE._replace(watermark=None, settled=None, heard={}), "unknown"),
        (STATE._replace(watermark=5_000, put_off=[5_000, 7_000]), "put_off"),
        (STATE._replace(watermark=5_000, refills=[5_000], put_off=[6_000]), "refill"),
        (STATE._replace(watermark=5_000, fanouts=[5_000], refills=[6_000]), "fanout"),
        (STATE._replace(watermark=5_000, parked=[5_000], put_off=[5_000]), "parked"),
        (STATE._replace(put_off=[9_500]), "ticks"),  # one that begins later keeps nothing back
    ],
)
def test_what_keeps_a_watermark_back_is_named(state: State, by: str):
    assert kept_back_by(state) == by
    kept = gauges_of(state, "a", 10_000)[metrics.KEPT_BACK]
    assert {labels[1] for labels, is_so in kept.items() if is_so} == {by}
    assert len(kept) == 6


def test_the_partition_that_is_furthest_behind_is_seen():
    found = gauges_of(STATE._replace(watermark=4_000, heard={0: 4_000, 1: 7_000}), "a", 10_000)
    assert found[metrics.PARTITION_BEHIND] == {("a", "0"): 6.0, ("a", "1"): 3.0}
    assert found[BEHIND] == {("a",): 6.0}


def test_holds_are_counted_with_the_age_of_the_oldest():
    found = gauges_of(STATE._replace(watermark=5_000, put_off=[7_000, 5_000], parked=[6_000]), "a", 10_000)
    assert found[metrics.HOLDS] == {("a", "put_off"): 2, ("a", "refill"): 0, ("a", "fanout"): 0, ("a", "parked"): 1}
    assert found[metrics.HOLD_AGE] == {
        ("a", "put_off"): 5.0,
        ("a", "refill"): 0.0,
        ("a", "fanout"): 0.0,
        ("a", "parked"): 4.0,
    }


def test_a_watermark_ahead_of_the_clock_says_nothing_of_how_far_it_is_behind():
    assert BEHIND not in gauges_of(STATE._replace(watermark=10**12), "a", 10_000)


@pytest.mark.parametrize("mark", [REBUILDING_MS, NOT_KNOWN_MS])
def test_a_mark_is_no_time_and_has_no_age(mark: int):
    """As in a cluster that is being rebuilt: the hold keeps its watermark back, and says nothing of any action."""
    now_ms = 1_796_000_000_000
    state = STATE._replace(settled=now_ms, watermark=mark, put_off=[mark], refills=[now_ms - 3_000])
    found = gauges_of(state, "a", now_ms)
    assert BEHIND not in found
    assert found[metrics.HOLDS]["a", "put_off"] == 1
    assert found[metrics.HOLD_AGE] == {("a", "refill"): 3.0, ("a", "fanout"): 0.0, ("a", "parked"): 0.0}
    assert kept_back_by(state) == "put_off"
    later = gauges_of(state._replace(put_off=[mark, now_ms - 5_000]), "a", now_ms)
    assert later[metrics.HOLD_AGE]["a", "put_off"] == 5.0


class Away(MemoryStore):
    away = False

    def cells(self, row: bytes) -> Any:
        if self.away:
            raise UnavailableError("away")
        return super().cells(row)


class Bench:
    def __init__(self, config: Config, ports: Ports) -> None:
        self.now_s = 0.0
        self.meter = Counting(lambda: self.now_s)
        self.table = Away(progress_table(1_000_000))
        replicas = {"a": Replica("a", {PROGRESS: self.table})}
        self.ports = replace(ports, replicas=replicas, meter=self.meter, clock=lambda: 10_000)
        self.queue = QueueGauges(self.ports, config)
        self.cluster = ClusterGauges(self.ports, "a", lambda: self.now_s, faults=False)

    def look(self) -> None:
        self.now_s += LOOK_EVERY_S
        self.queue.look()
        self.cluster.look()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    cli = Cli(tmp_path / "home")
    cli("init")
    config = configuration.load(cli.home, {})
    with cli.ports(feeds=False) as ports:
        yield Bench(config, ports)


def test_the_queue_the_outboxes_and_the_disks_are_seen(bench: Bench):
    bench.ports.follows.record([Request(Follow(1, user(2))), Request(Follow(1, user(3)))])
    bench.ports.queue.publish(ACTIONS, [b"x", b"y"])
    bench.look()
    assert value(bench.meter, LAG, "relay") == 2
    assert value(bench.meter, LAG, "expander") == 2
    assert value(bench.meter, PARTITION_LAG, "expander", "0") == 2
    assert value(bench.meter, DEAD_LETTERS) == 0
    assert (value(bench.meter, metrics.OUTBOX, "0") or 0) >= 0
    assert value(bench.meter, metrics.OUTBOX_ACTIONS, "0") == 2
    assert value(bench.meter, metrics.OUTBOX_ROWS, "0") == 1
    free, size = (value(bench.meter, each, "queue") or 0 for each in (metrics.FREE, metrics.SIZE))
    assert 0 < free <= size
    assert value(bench.meter, metrics.CLOCKS_OFF) == 0
    assert value(bench.meter, metrics.ACTIONS_LOST) == 0
    bench.ports.queue.expire(-1, {ACTIONS: []})
    bench.look()
    assert value(bench.meter, metrics.ACTIONS_LOST) == 1


def test_a_look_asks_each_shard_once_for_what_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """To answer, it counts all rows that are not relayed, and another look comes after five seconds."""
    asked: list[int] = []
    [shard] = bench.ports.follows._shards
    count = shard.backlog

    def counted() -> Backlog:
        asked.append(1)
        return count()

    monkeypatch.setattr(shard, "backlog", counted)
    bench.look()
    assert len(asked) == 1
    assert (value(bench.meter, LAG, "relay"), value(bench.meter, metrics.OUTBOX_ACTIONS, "0")) == (0, 0)


def test_what_is_away_is_unknown_and_the_rest_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.look()
    assert value(bench.meter, LAG, "expander") == 0

    def away(*_: object) -> None:
        raise QueueUnavailableError("away")

    def shard_away(*_: object) -> None:
        raise FollowStoreUnavailableError("away")

    monkeypatch.setattr(bench.ports.follows, "backlog", shard_away)
    bench.look()
    assert value(bench.meter, LAG, "expander") == 0
    assert value(bench.meter, LAG, "relay") is None
    monkeypatch.setattr(bench.ports.queue, "positions", away)
    bench.look()
    assert value(bench.meter, LAG, "expander") is None
    assert value(bench.meter, LAG, "relay") is None
    assert value(bench.meter, PARTITION_LAG, "expander", "0") is None
    assert value(bench.meter, metrics.ACTIONS_LOST) is None
    for each in (metrics.OUTBOX, metrics.OUTBOX_ACTIONS, metrics.OUTBOX_ROWS):
        assert value(bench.meter, each, "0") is None
    assert value(bench.meter, DEAD_LETTERS) == 0


def test_a_cluster_that_is_away_does_not_answer_and_nothing_more_is_said_of_it(bench: Bench):
    Progress(bench.table).advance({Through(0, 1, 1): 4_000})
    bench.look()
    assert value(bench.meter, metrics.ANSWERS, "a") == 1
    assert value(bench.meter, BEHIND, "a") == 6.0
    bench.table.away = True
    bench.look()
    assert value(bench.meter, metrics.ANSWERS, "a") == 0
    assert value(bench.meter, BEHIND, "a") is None
    assert value(bench.meter, metrics.HOLDS, "a", "parked") is None
    bench.table.away = False
    bench.look()
    assert value(bench.meter, BEHIND, "a") == 6.0


def test_a_cluster_that_was_emptied_is_damaged(tmp_path: Path):
    cli = Cli(tmp_path / "home")
    cli("init")
    cli("follow", 1, "--user", 2)
    cli("save-pin", 7, "--owner", 2, "--board", 3)
    cli.work()
    now_s = [0.0]
    with cli.ports() as ports:
        gauges = ClusterGauges(ports, "a", lambda: now_s[0], faults=True)
        now_s[0] = FAULTS_EVERY_S
        gauges.look()
        assert value(ports.meter, metrics.DAMAGED, "a") == 0
        emptied = MemoryStore(FEEDS_TABLE)
        tables = {**ports.replicas["a"].tables, "following_feed": emptied}
        gauges = ClusterGauges(replace(ports, replicas={"a": Replica("a", tables)}), "a", lambda: now_s[0], faults=True)
        now_s[0] += FAULTS_EVERY_S
        gauges.look()
        assert value(ports.meter, metrics.DAMAGED, "a") == 1


def test_a_part_that_does_not_answer_is_told_and_a_cluster_that_does_not_is_not(tmp_path: Path):
    class Parts(MemoryStore):
        def read(self, row: bytes, *arguments: Any) -> Any:
            if row >= b"\x40":
                raise UnavailableError("region away")
            return super().read(row, *arguments)

    cli = Cli(tmp_path / "home")
    cli("init")
    now_s = [0.0]
    with cli.ports() as ports:

        def look(changed: Ports) -> float | None:
            gauges = ClusterGauges(changed, "a", lambda: now_s[0], faults=True)
            now_s[0] += FAULTS_EVERY_S
            gauges.look()
            return value(ports.meter, metrics.PARTS_ANSWER, "a")

        tables = ports.replicas["a"].tables
        assert look(ports) == 1
        lacking = {**tables, "following_feed": Parts(FEEDS_TABLE)}
        assert look(replace(ports, replicas={"a": Replica("a", lacking)})) == 0
        assert value(ports.meter, metrics.DAMAGED, "a") is None
        silent = Away(FEEDS_TABLE)
        silent.away = True
        gone = dict.fromkeys(tables, silent)
        assert look(replace(ports, replicas={"a": Replica("a", gone)})) is None
