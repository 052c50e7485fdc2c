"""Canaries: seen, late, unreadable; and they leave everything as it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from feedstore.domain import MAX_ID, RESERVED_FROM
from feedstore.following import FEEDS, bucket, feed_table, row_key
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.follows.store import FollowStore
from feedstore.metering import Counting
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Cell, Put, UnavailableError
from tests.follows.memory_follows import open_in_memory
from tests.widecolumn.memory_store import MemoryStore
from workers.following import metrics
from workers.following.canary import (
    FOLLOWEE,
    LATE_S,
    PIN,
    USERS,
    CanaryFlights,
    CanaryWatch,
    arrived,
    fly,
)
from workers.pipeline.runtime import Every

TABLE = feed_table(100, 10, 1_000_000)


class Table(MemoryStore):
    away = False

    def cells_of(self, rows: Any) -> list[list[Cell]]:
        if self.away:
            raise UnavailableError("away")
        return super().cells_of(rows)


class Bench:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.follows = open_in_memory(self.now_ms)
        self.table = Table(TABLE)
        self.replica = Replica("a", {FEEDS: self.table})
        self.meter = Counting(lambda: self.now_s)
        self.flights = CanaryFlights(self.follows, ["a"], self.meter)
        self.flying = Every("canary", self.flights.fly, 15.0, lambda: self.now_s, "canary.unrecorded")
        self.watch = CanaryWatch(self.replica, self.flights, self.meter, lambda: self.now_s, self.now_ms)

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.flying.step()
            self.watch.step()
            self.now_s += 0.25

    def land(self, users: tuple[int, ...] = USERS) -> None:
        """What the pipeline does of what was recorded."""
        ts = self.flights.newest.ts
        self.table.apply([Put([(row_key(each), ts[each])], [bytes(16)]) for each in users])

    def outcomes(self) -> dict[str, float]:
        counters = self.meter.counts().counters
        return {each.labels[1]: each.value for each in counters if each.name == metrics.CANARIES.name and each.value}

    def age_s(self) -> float:
        [age] = [each.value for each in self.meter.counts().gauges if each.name == metrics.CANARY_AGE.name]
        return age

    def times(self) -> int:
        [spread] = self.meter.counts().spreads
        return sum(spread.counts)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.follows.close()


def test_there_is_one_in_each_part_of_the_table_and_all_ids_are_reserved():
    assert sorted(bucket(each) // 16 for each in USERS) == list(range(16))
    assert all(RESERVED_FROM <= each < FOLLOWEE == MAX_ID for each in USERS)
    assert FOLLOWEE not in USERS
    assert min(PIN.pin, PIN.owner, PIN.board) >= RESERVED_FROM


def test_one_that_is_seen_is_counted_with_its_time(bench: Bench):
    bench.run(16)
    assert bench.outcomes() == {}
    bench.land()
    bench.run(2)
    assert bench.outcomes() == {"seen": 16}
    assert bench.times() == 16
    assert bench.age_s() < 5


def test_one_part_that_is_late_keeps_the_age_growing(bench: Bench):
    bench.run(16)
    bench.land(USERS[1:])
    bench.run(LATE_S + 2)
    assert bench.outcomes() == {"seen": 15, "late": 1}
    assert bench.age_s() > LATE_S
    bench.run(1)
    bench.land()  # it is back: the next round is seen
    bench.run(16)
    bench.land()
    bench.run(2)
    assert bench.outcomes()["seen"] > 16
    assert bench.age_s() < 20


def test_a_cluster_that_does_not_answer_is_unreadable_and_not_late(bench: Bench):
    bench.table.away = True
    bench.run(16 + LATE_S)
    assert bench.outcomes() == {"unreadable": 16}
    assert bench.age_s() > LATE_S


def test_a_follow_store_that_is_away_records_none(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    def away(_: object) -> None:
        raise FollowStoreUnavailableError("away")

    monkeypatch.setattr(bench.follows, "record", away)
    bench.run(16)
    assert bench.outcomes() == {"unrecorded": 16}


def test_before_the_first_is_seen_the_age_counts_from_the_beginning(bench: Bench):
    bench.now_s += 100
    assert bench.age_s() == 100


def test_nothing_grows_in_the_follow_store(bench: Bench):
    fly(bench.follows, 1)
    before = records(bench.follows)
    for number in range(2, 10):
        bench.now_s += 15
        fly(bench.follows, number)
    assert records(bench.follows) == before == (16, 1, 1)


def records(follows: FollowStore) -> tuple[int, int, int]:
    """How many edges, pins and boards there are: those of canaries are not among the store's own counts."""
    return (
        len(follows.all_edges_after(None, 100)),
        len(follows.pins_after(0, 0, 100)),
        len(follows.boards_of([MAX_ID], None, 100)),
    )


def test_an_older_edge_is_not_what_was_asked_for(bench: Bench):
    first = fly(bench.follows, 1)
    bench.table.apply([Put([(row_key(each), ts)], [bytes(16)]) for each, ts in first.ts.items()])
    bench.now_s += 1
    second = fly(bench.follows, 2)
    assert arrived(bench.replica, first.ts) == set(USERS)
    assert arrived(bench.replica, second.ts) == set()
