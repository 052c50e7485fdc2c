"""A writer and what lands its retries, on stores of which some rows go away: rule 12 for as long as a region is gone.

The stages, handlers and tables are the real ones; clocks stand still until they are moved, and a crash can be had at
every call of a port that keeps something.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from feedstore.domain import Pin, PinSaved
from feedstore.feeds import Limits, Progress, entries_of, feed_table, progress_table, row_key
from feedstore.follows import sqlite
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.widecolumn import Cell, Mutation, RefusedError, Table, UnavailableError
from feedstore.widecolumn.memory import MemoryStore
from workers.handlers import Parking, Writer, parking
from workers.messages import (
    Block,
    Delivery,
    Hold,
    Parked,
    Tick,
    decode_delivery,
    decode_parked,
    encode_delivery,
    encode_parked,
)
from workers.queue.memory import MemoryDeadLetters, MemoryQueue
from workers.queue.port import (
    DELIVERIES,
    MAX_MESSAGE_BYTES,
    RETRIES,
    TOPICS,
    Consumer,
    Message,
    QueueUnavailableError,
    Topic,
)
from workers.retry import RetryPolicy
from workers.stage import Stage

START_MS = 1_000_000_000
LIMITS = Limits(100, 10, action_age_ms=100_000_000, delivery_age_ms=10_000_000, purge_window_ms=200_000_000)
PARTITIONS = 2
WRITER, RETRIER = "writer-a", "retries-a"


class KilledError(BaseException):
    """The process is gone, in the middle of a call."""


class Trip:
    """Kills at one call of a port, before or after its effect. calls: how many there were."""

    def __init__(self) -> None:
        self.calls = 0
        self.at: int | None = None
        self.after = False

    def around(self, call: Callable[[], None]) -> None:
        number, self.calls = self.calls, self.calls + 1
        if number == self.at and not self.after:
            raise KilledError
        try:
            call()
        finally:
            if number == self.at and self.after:
                raise KilledError


class Rows(MemoryStore):
    """A table of which some rows are away, or refused for ever.

    whole: a batch with such a row is not written at all; otherwise what stands in its other rows is.
    """

    def __init__(self, table: Table, trip: Trip) -> None:
        super().__init__(table)
        self._trip = trip
        self.away: Callable[[bytes], bool] = lambda row: False
        self.whole = False
        self.refused: Callable[[bytes], bool] = lambda row: False

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._trip.around(lambda: self._apply(batch))

    def _apply(self, batch: Sequence[Mutation]) -> None:
        rows = {row for mutation in batch for row, _ in mutation.rows}
        if any(map(self.refused, rows)):
            raise RefusedError("refused")
        for mutation in () if self.whole and any(map(self.away, rows)) else batch:
            super().apply([mutation._replace(rows=[each for each in mutation.rows if not self.away(each[0])])])
        if any(map(self.away, rows)):
            raise UnavailableError("a region is away")

    def read(self, row: bytes, after: bytes | None, limit: int) -> list[bytes]:
        if self.away(row):
            raise UnavailableError("a region is away")
        return super().read(row, after, limit)

    def cells(self, row: bytes) -> list[Cell]:
        if self.away(row):
            raise UnavailableError("a region is away")
        return super().cells(row)


class Queue:
    """A queue in memory whose publishers and members can be killed, and which may be away for publishers."""

    def __init__(self, clock: Callable[[], int], trip: Trip) -> None:
        self._queue = MemoryQueue(dict.fromkeys(TOPICS, PARTITIONS), clock)
        self._trip = trip
        self.away = False
        self.lag = self._queue.lag
        self.partitions = self._queue.partitions

    def publish(self, topic: Topic, values: Sequence[bytes], partition: int | None = None) -> None:
        if self.away:
            raise QueueUnavailableError("away")
        self._trip.around(lambda: self._queue.publish(topic, values, partition))

    def consumer(self, topic: Topic, group: str) -> Consumer:
        return Member(self._queue.consumer(topic, group), self._trip)


class Member:
    def __init__(self, consumer: Consumer, trip: Trip) -> None:
        self._consumer = consumer
        self._trip = trip

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        return self._consumer.poll(limit, timeout_s)

    def commit(self, positions: Mapping[int, int]) -> None:
        self._trip.around(lambda: self._consumer.commit(positions))

    def keep_alive(self) -> None:
        self._consumer.keep_alive()

    def close(self) -> None:
        self._consumer.close()


class Follows:
    """A follow store that may be away."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._store = sqlite.open_store([":memory:"], clock)
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise FollowStoreUnavailableError("away")
        return getattr(self._store, name)


class Bench:
    """Cluster a with its writer and its retries, each with room for so many waiting messages.

    missing: the pins that were published and have not landed, with the times of their actions.
    """

    def __init__(self, room: int = 20, retry_room: int = 10_000) -> None:
        self.now_s = 0.0
        self.trip = Trip()
        self.queue = Queue(self.wall_ms, self.trip)
        self.dead = MemoryDeadLetters()
        self.follows = Follows(self.wall_ms)
        self.feeds = Rows(feed_table(100, 10, LIMITS.purge_window_ms), self.trip)
        self.notes = Rows(progress_table(LIMITS.purge_window_ms), self.trip)
        self.progress = Progress(self.notes)
        self.room, self.retry_room = room, retry_room
        self.pins: dict[int, int] = {}
        self.stages: list[Stage[Any]] = []
        self.begin()

    def wall_ms(self) -> int:
        return START_MS + round(self.now_s * 1_000)

    def parking(self, cluster: str = "a") -> Parking:
        writer = Writer(cluster, self.feeds, self.progress, self.follows, self.queue, LIMITS)
        return Parking(cluster, writer, self.progress, self.follows, self.queue, f"retries-{cluster}")

    def begin(self) -> None:
        """Everything starts anew from what was committed."""
        for stage in self.stages:
            stage.close()
        common: dict[str, Any] = {
            "policy": RetryPolicy(),
            "rng": random.Random(1),
            "clock": lambda: self.now_s,
            "wall_ms": self.wall_ms,
            "batch": 10,
            "patience_s": 0,
        }
        writer = Writer("a", self.feeds, self.progress, self.follows, self.queue, LIMITS)
        parks = self.parking()
        self.writer: Stage[Delivery | Hold] = Stage(
            WRITER,
            DELIVERIES,
            self.queue.consumer(DELIVERIES, WRITER),
            decode_delivery,
            self.dead,
            handle=writer.write,
            ticks=partial(writer.tick, partitions=PARTITIONS),
            park=parks.park,
            in_flight=self.room,
            **common,
        )
        self.retries = self.retrier("a", in_flight=self.retry_room, **common)
        self.stages = [self.writer, self.retries]

    def retrier(self, cluster: str, **options: Any) -> Stage[Parked]:
        parks = self.parking(cluster)
        group = f"retries-{cluster}"
        return Stage(
            group,
            RETRIES,
            self.queue.consumer(RETRIES, group),
            decode_parked,
            self.dead,
            handle=parks.land,
            ticks=lambda _: pytest.fail("a tick"),
            due_ms=lambda parked: parked.due_ms if parked.cluster == cluster else 0,
            given_up=parks.give_up,
            **options,
        )

    # What travels

    def delivery(self, pin: int, user: int, cluster: str | None = None) -> Delivery:
        committed_ms = START_MS - 1_000_000 + pin
        return Delivery(
            PinSaved(Pin(pin, 5_000, 6_000, 1_000 + pin), committed_ms),
            self.wall_ms(),
            [Block([(user, committed_ms)], [(pin, 1_000 + pin)])],
            cluster=cluster,
        )

    def publish(self, pins: Sequence[int]) -> None:
        """A delivery of each pin to the user of the same number."""
        for pin in pins:
            self.queue.publish(DELIVERIES, [encode_delivery(self.delivery(pin, pin))])
            self.pins[pin] = START_MS - 1_000_000 + pin

    def tick(self) -> int:
        """A tick through every partition; returns its time."""
        settled_ms = self.wall_ms()
        for partition in range(PARTITIONS):
            self.queue.publish(DELIVERIES, [encode_delivery(Tick(settled_ms, 0, 1))], partition)
        return settled_ms

    # What has come of it

    def landed(self) -> set[int]:
        return {entry.pin for _, columns in MemoryStore.scan(self.feeds) for entry in entries_of(columns)}

    def missing(self) -> dict[int, int]:
        landed = self.landed()
        return {pin: ms for pin, ms in self.pins.items() if pin not in landed}

    def watermark(self) -> int | None:
        away, self.notes.away = self.notes.away, lambda row: False
        mark = self.progress.watermark()
        self.notes.away = away
        return mark

    def check(self) -> None:
        """Rule 10: what committed before the watermark has landed."""
        mark = self.watermark()
        assert mark is None or all(ms >= mark for ms in self.missing().values())

    def step(self, *, checked: bool = True) -> None:
        for stage in self.stages:
            stage.step()
            if checked:
                self.check()
        self.now_s += 0.05

    def run(self, until: Callable[[], object], seconds: float = 600.0) -> None:
        """Steps until something is so; looks at the watermark now and then."""
        until_s, turn = self.now_s + seconds, 0
        while not until():
            assert self.now_s < until_s, f"in vain; {len(self.missing())} pins are missing"
            self.step(checked=turn % 20 == 0)
            turn += 1
        self.check()

    def lag(self, group: str) -> int:
        return self.queue.lag(DELIVERIES if group == WRITER else RETRIES, group)

    def published(self) -> int:
        """How many copies were ever parked."""
        return self.queue.lag(RETRIES, "nobody")

    def all_landed(self, settled_ms: int) -> bool:
        return not self.missing() and self.watermark() == settled_ms and not self.lag(WRITER) + self.lag(RETRIER)


def dead_region(row: bytes) -> bool:
    """One in four rows."""
    return row[0] < 64


def in_region(pin: int) -> bool:
    return dead_region(row_key(pin))


def everything(row: bytes) -> bool:
    return True


@pytest.mark.parametrize("whole", [False, True], ids=["batches in part", "batches as a whole"])
def test_rule_12_a_region_that_is_away_delays_only_its_own_rows_for_as_long_as_it_is(whole: bool) -> None:
    bench = Bench(room=20)
    bench.feeds.away, bench.feeds.whole = dead_region, whole
    pins = range(1, 1_001)
    away = set(filter(in_region, pins))
    assert len(away) > 10 * bench.room

    for pin in pins:
        bench.publish([pin])
        if pin % 100 == 0:
            bench.tick()
    bench.run(lambda: bench.landed() == set(pins) - away)
    assert bench.watermark() == bench.pins[min(away)], "all ticks but the last have come through, and it stands"

    bench.now_s += 3_600
    bench.run(lambda: bench.now_s > 3_700)
    bench.publish([2_000, 2_001, 2_002, 2_003])
    settled_ms = bench.tick()
    bench.run(lambda: set(bench.missing()) == {pin for pin in bench.pins if in_region(pin)})

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))
    assert bench.dead.count() == 0


def test_rule_12_hardly_anything_is_parked_that_could_be_done() -> None:
    bench = Bench(room=60)
    bench.feeds.away, bench.feeds.whole = dead_region, True
    pins = range(1, 2_001)
    bench.publish(pins)
    away = sum(map(in_region, pins))

    bench.run(lambda: set(map(in_region, bench.missing())) == {True})

    assert away - bench.room <= bench.published() < 1.5 * away


def test_short_faults_stay_in_memory() -> None:
    bench = Bench(room=1_000)
    bench.feeds.away = dead_region
    bench.publish(range(1, 200))
    settled_ms = bench.tick()
    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    bench.run(lambda: bench.now_s > 100)
    bench.feeds.away = lambda row: False

    bench.run(lambda: bench.all_landed(settled_ms))
    assert bench.published() == 0


def away_as_a_whole(bench: Bench, away: bool) -> None:
    bench.feeds.away = bench.notes.away = everything if away else lambda row: False


def progress_away_with_a_region(bench: Bench, away: bool) -> None:
    bench.feeds.away = dead_region if away else lambda row: False
    bench.notes.away = everything if away else lambda row: False


def follow_store_away(bench: Bench, away: bool) -> None:
    bench.follows.away = away


def queue_away_with_a_region(bench: Bench, away: bool) -> None:
    bench.feeds.away = dead_region if away else lambda row: False
    bench.queue.away = away


@pytest.mark.parametrize(
    "fault", [away_as_a_whole, progress_away_with_a_region, follow_store_away, queue_away_with_a_region]
)
def test_where_nothing_can_be_noted_nothing_is_parked_and_the_group_stands_still(
    fault: Callable[[Bench, bool], None],
) -> None:
    bench = Bench(room=20)
    bench.publish(range(1, 501))
    settled_ms = bench.tick()
    fault(bench, True)

    for _ in range(5_000):
        bench.step(checked=False)
    assert bench.published() == 0
    assert bench.lag(WRITER) >= 400

    fault(bench, False)
    bench.run(lambda: bench.all_landed(settled_ms))


def test_a_restart_in_the_middle_loses_nothing() -> None:
    bench = Bench(room=20)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501))
    settled_ms = bench.tick()
    for least in range(10, 90, 10):
        bench.run(lambda least=least: bench.published() >= least)
        bench.begin()
    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    bench.begin()
    bench.feeds.away = lambda row: False

    bench.run(lambda: bench.all_landed(settled_ms))


def test_retries_that_have_no_room_stand_still_alone() -> None:
    bench = Bench(room=20, retry_room=5)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501))
    settled_ms = bench.tick()

    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    for _ in range(2_000):
        bench.step(checked=False)
    assert bench.lag(RETRIER) == bench.published() > 50, "it parks nothing by itself"

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))


def test_so_much_is_parked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED", 30)
    bench = Bench(room=20)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501))
    settled_ms = bench.tick()

    for _ in range(5_000):
        bench.step(checked=False)
    assert 30 <= bench.published() <= 40
    bench.check()

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))


def test_nothing_is_tried_before_it_is_due_and_wrong_clocks_delay_it_by_the_longest_wait() -> None:
    bench = Bench()
    soon, never = bench.wall_ms() + 10_000, 2**62
    for pin, due_ms in ((1, soon), (2, never), (3, 1)):
        bench.publish([])
        parked = Parked("a", pin, due_ms, bench.delivery(pin, pin))
        bench.queue.publish(RETRIES, [encode_parked(parked)], 0)

    for upto_s, landed in ((9.9, {3}), (10.2, {1, 3}), (29.9, {1, 3}), (30.2, {1, 2, 3})):
        while bench.now_s < upto_s:
            bench.step()
        assert bench.landed() == landed
    assert bench.lag(RETRIER) == 0


def test_what_is_parked_for_another_cluster_is_passed_over_at_once() -> None:
    bench = Bench()
    parked = Parked("b", 7, 2**62, bench.delivery(1, 1))
    bench.queue.publish(RETRIES, [encode_parked(parked)])
    away_as_a_whole(bench, True)
    follow_store_away(bench, True)

    bench.retries.step()

    assert bench.lag(RETRIER) == 0
    assert bench.landed() == set()


def test_rule_12_a_parked_message_that_nobody_can_read_is_a_dead_letter() -> None:
    bench = Bench()
    good = encode_parked(Parked("a", 7, 1, bench.delivery(1, 1)))
    bench.queue.publish(RETRIES, [b"nonsense", good, encode_delivery(bench.delivery(2, 2))], 0)

    bench.retries.step()

    letters = bench.dead.letters(0, 10)
    assert [(letter.topic, letter.group, letter.reason) for letter in letters] == [
        (RETRIES, RETRIER, "not_json"),
        (RETRIES, RETRIER, "malformed"),
    ]
    assert bench.landed() == {1}
    assert bench.lag(RETRIER) == 0


def test_rule_10_a_parked_message_that_dies_keeps_no_watermark_back() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    poison = next(filter(in_region, range(1, 1_000)))
    bench.publish([poison])
    bench.run(bench.published)
    settled_ms = bench.tick()
    bench.run(lambda: not bench.lag(WRITER))
    assert bench.watermark() == bench.pins.pop(poison)

    bench.feeds.away, bench.feeds.refused = (lambda row: False), dead_region
    bench.run(lambda: not bench.lag(RETRIER))

    [letter] = bench.dead.letters(0, 10)
    assert (letter.topic, letter.group, letter.reason) == (RETRIES, RETRIER, "refused")
    assert bench.watermark() == settled_ms
    # Sent again once the cause is mended, as `feedctl dead retry` does, it lands.
    bench.feeds.refused = lambda row: False
    bench.queue.publish(RETRIES, [letter.value])
    bench.run(lambda: bench.landed() == {poison})


def test_a_letter_counts_as_done_only_when_its_note_is_lifted() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    poison = next(filter(in_region, range(1, 1_000)))
    bench.publish([poison])
    bench.run(bench.published)
    bench.feeds.away, bench.feeds.refused = (lambda row: False), dead_region
    bench.notes.away = everything
    bench.run(lambda: bench.dead.count() == 1)
    for _ in range(100):
        bench.step(checked=False)
    assert bench.lag(RETRIER) == 1

    bench.notes.away = lambda row: False
    bench.run(lambda: not bench.lag(RETRIER))
    assert bench.dead.count() == 1


def full(delivery: Delivery) -> Delivery:
    """A delivery that the queue takes, and takes no more than a few bytes of."""
    rows = [(2**62, START_MS)] * 1_000
    puts = [Block(rows, [(1, 1)])]
    each = len(encode_delivery(replace(delivery, puts=puts * 2))) - len(encode_delivery(replace(delivery, puts=puts)))
    puts *= (MAX_MESSAGE_BYTES - len(encode_delivery(delivery))) // each
    while len(encode_delivery(replace(delivery, puts=[*puts, Block(rows, [(1, 1)])]))) > MAX_MESSAGE_BYTES:
        rows = rows[:-1]
    found = replace(delivery, puts=[*puts, Block(rows, [(1, 1)])])
    assert MAX_MESSAGE_BYTES - 50 < len(encode_delivery(found)) <= MAX_MESSAGE_BYTES
    return found


def test_what_cannot_be_parked_goes_on_waiting() -> None:
    bench = Bench()
    ours, theirs = bench.delivery(1, 1), bench.delivery(2, 2, cluster="b")
    large = full(ours)

    assert bench.parking().park([ours, theirs, Hold(1, 2), large, ours], 1.0) == [True, False, False, False, True]
    assert bench.published() == 1


def test_rule_8_what_waited_too_long_is_expanded_anew_and_held() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    pin = next(filter(in_region, range(1, 1_000)))
    bench.publish([pin])
    bench.run(bench.published)
    bench.now_s += LIMITS.delivery_age_ms / 1_000 + 1
    settled_ms = bench.tick()
    bench.run(lambda: not bench.lag(WRITER) + bench.lag(RETRIER))

    assert bench.queue.lag("feed.actions", "expander") >= 1
    mark = bench.watermark()
    assert mark is not None
    assert mark <= bench.pins[pin] < settled_ms


def test_rule_11_a_kill_before_or_after_any_call_loses_nothing_and_holds_nothing_for_ever() -> None:
    """note, publish, commit, land, lift, commit: a restart goes on from wherever the process died."""
    pins = [pin for pin in range(1, 60) if in_region(pin)][:6] + [pin for pin in range(1, 20) if not in_region(pin)][:4]

    def life(at: int | None, after: bool) -> int:
        bench = Bench(room=3)
        bench.feeds.away = dead_region
        bench.publish(pins)
        settled_ms = bench.tick()
        bench.trip.calls, bench.trip.at, bench.trip.after = 0, at, after

        def back() -> bool:
            if bench.now_s > 3:
                bench.feeds.away = lambda row: False
            return bench.all_landed(settled_ms)

        killed = 0
        while True:
            try:
                bench.run(back)
                break
            except KilledError:
                killed += 1
                bench.begin()
                bench.check()
        assert bench.published() >= 3
        assert bench.dead.count() == 0
        assert killed == (0 if at is None else 1)
        return bench.trip.calls

    calls = life(None, False)
    assert calls > 30
    for number in range(calls):
        for after in (False, True):
            life(number, after)
