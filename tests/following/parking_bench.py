"""A writer and what lands its retries, on stores of which some rows may be away.

The stages, handlers and tables are the real ones; clocks move only when they are moved, and a crash can be had at
every call of a port that keeps something.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from feedstore.domain import Pin, PinSaved, RefillAsked
from feedstore.following import Limits, entries_of, feed_table, row_key
from feedstore.follows.port import FollowStoreUnavailableError, actions_in
from feedstore.widecolumn import Cell, Mutation, RefusedError, Table, UnavailableError
from feedstore.widecolumn.progress import Progress, progress_table
from tests.follows.memory_follows import open_in_memory
from tests.mutations import rows_of, with_rows
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.widecolumn.memory_store import MemoryStore
from tests.widecolumn.written import count_in
from workers.following import Parking, Writer
from workers.following.applied import NUMBERS
from workers.following.messages import (
    Block,
    Delivery,
    Hold,
    Parked,
    encode_delivery,
    encode_parked,
)
from workers.following.packs import Pack, encode_body, packed
from workers.following.slots import DeliverySlots, ParkedSlots
from workers.following.topics import DELIVERIES, RETRIES, TOPICS
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.ticks import Tick
from workers.queue.port import Consumer, Message, QueueUnavailableError, Topic, lag_of

Body = TypeVar("Body")

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

    whole: a batch with such a row is not written at all; otherwise its other rows are.
    written: the rows of writes, until a test takes them out.
    spend: lets time pass: `cell_s` for each cell that is written, and `fail_s` before a call of any kind fails.
    """

    def __init__(self, table: Table, trip: Trip, spend: Callable[[float], None]) -> None:
        super().__init__(table)
        self._trip = trip
        self._spend = spend
        self.cell_s = 0.0
        self.fail_s = 0.0
        self.away: Callable[[bytes], bool] = lambda row: False
        self.whole = False
        self.refused: Callable[[bytes], bool] = lambda row: False
        self.written: set[bytes] = set()

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._trip.around(lambda: self._apply(batch))

    def _apply(self, batch: Sequence[Mutation]) -> None:
        rows = rows_of(batch)
        if any(map(self.refused, rows)):
            raise RefusedError("refused")
        for mutation in () if self.whole and any(map(self.away, rows)) else batch:
            there = with_rows(mutation, lambda row: not self.away(row))
            super().apply([there])
            self.written.update(rows_of([there]))
            if self.cell_s:
                self._spend(self.cell_s * count_in(there))
        if any(map(self.away, rows)):
            self._spend(self.fail_s)
            raise UnavailableError("a region is away")

    def read(self, row: bytes, after: bytes | None, limit: int) -> list[bytes]:
        self._look(row)
        return super().read(row, after, limit)

    def cells(self, row: bytes) -> list[Cell]:
        self._look(row)
        return super().cells(row)

    def _look(self, row: bytes) -> None:
        if self.away(row):
            self._spend(self.fail_s)
            raise UnavailableError("a region is away")


class Queue:
    """A queue in memory whose publishers and members can be killed, and which may be away for publishers."""

    def __init__(self, clock: Callable[[], int], trip: Trip) -> None:
        self._queue = MemoryQueue(dict.fromkeys(TOPICS, PARTITIONS), clock)
        self._trip = trip
        self.away = False
        self.partitions = self._queue.partitions
        self.positions = self._queue.positions
        self.earliest = self._queue.earliest
        self.ends = self._queue.ends

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        if self.away:
            raise QueueUnavailableError("away")
        self._trip.around(lambda: self._queue.publish(topic, values, partition))

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        for partition, some in values.items():
            self.publish(topic, some, partition)

    def consumer(self, topic: Topic[object], group: str) -> Consumer:
        return Member(self._queue.consumer(topic, group), self._trip)


class Member:
    def __init__(self, consumer: Consumer, trip: Trip) -> None:
        self._consumer = consumer
        self._trip = trip

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        return self._consumer.poll(limit, timeout_s)

    def commit(self, positions: Mapping[int, int]) -> None:
        self._trip.around(lambda: self._consumer.commit(positions))

    def held(self) -> frozenset[int]:
        return self._consumer.held()

    def keep_alive(self) -> None:
        self._consumer.keep_alive()

    def close(self) -> None:
        self._consumer.close()


class Follows:
    """A follow store that may be away."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._store = open_in_memory(clock)
        self.away = False

    def refills(self) -> list[RefillAsked]:
        """Those that were asked for."""
        return [each for each in actions_in(self._store.unrelayed(10_000, 0)) if isinstance(each, RefillAsked)]

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise FollowStoreUnavailableError("away")
        return getattr(self._store, name)


class Bench:
    """Cluster a with its writer and its retries, each with room for so many waiting messages.

    missing: the pins that were published and have not landed, with the times of their actions.
    """

    def __init__(self, room: int = 20, retry_room: int = 10_000, batch: int = 10) -> None:
        self.now_s = 0.0
        self.batch = batch
        self.trip = Trip()
        self.queue = Queue(self.wall_ms, self.trip)
        self.dead = MemoryDeadLetters()
        self.follows = Follows(self.wall_ms)
        self.feeds = Rows(feed_table(100, 10, LIMITS.purge_window_ms), self.trip, self.spend)
        self.notes = Rows(progress_table(LIMITS.purge_window_ms), self.trip, self.spend)
        self.progress = Progress(self.notes)
        self.room, self.retry_room = room, retry_room
        self.pins: dict[int, int] = {}
        self._landed: dict[bytes, set[int]] = {}
        self._pins_landed: set[int] = set()
        self.stages: list[Stage[Any]] = []
        self.begin()

    def spend(self, seconds: float) -> None:
        self.now_s += seconds

    def wall_ms(self) -> int:
        return START_MS + round(self.now_s * 1_000)

    def handler(self, cluster: str = "a") -> Writer:
        return Writer(cluster, self.feeds, self.progress, self.follows, self.queue, LIMITS)

    def parking(self, writer: Writer, cluster: str = "a") -> Parking:
        return Parking(cluster, writer, self.progress, self.follows, self.queue, f"retries-{cluster}")

    def begin(self) -> None:
        """Everything starts again from what was committed."""
        for stage in self.stages:
            stage.close()
        writer = self.handler()
        spec: StageSpec[Delivery | Hold | Pack] = StageSpec(
            group=WRITER,
            topic=DELIVERIES,
            encode=encode_body,
            handle=writer.write,
            ticks=writer.tick,
            slots=DeliverySlots("a", writer.late_before_ms),
            park=self.parking(writer).park,
            batch=self.batch,
            in_flight=self.room,
        )
        self.writer = self._stage(spec)
        self.retries = self.retrier("a", batch=self.batch, in_flight=self.retry_room)
        self.stages = [self.writer, self.retries]

    def retrier(self, cluster: str, **options: Any) -> Stage[Parked]:
        writer = self.handler(cluster)
        parks = self.parking(writer, cluster)
        group = f"retries-{cluster}"
        spec: StageSpec[Parked] = StageSpec(
            group=group,
            topic=RETRIES,
            encode=encode_parked,
            handle=parks.land,
            ticks=lambda _: pytest.fail("a tick"),
            slots=ParkedSlots(cluster, writer.late_before_ms),
            due_ms=lambda parked: parked.due_ms if parked.cluster == cluster else 0,
            given_up=parks.give_up,
            note=self._note,
            **options,
        )
        return self._stage(spec)

    def _stage(self, spec: StageSpec[Body]) -> Stage[Body]:
        consumer = self.queue.consumer(spec.topic, spec.group)
        return Stage(
            spec, consumer, self.dead, RetryPolicy(), random.Random(1), lambda: self.now_s, self.wall_ms, patience_s=0
        )

    def _note(self, spans: Mapping[int, tuple[int, int]]) -> None:
        """What `Applied` notes of a cluster that never goes back."""
        self.progress.note_applied({(NUMBERS[RETRIES], each): end for each, (_, end) in spans.items()})

    # What travels

    def delivery(self, pin: int, user: int, cluster: str | None = None) -> Delivery:
        committed_ms = START_MS - 1_000_000 + pin
        return Delivery(
            PinSaved(Pin(pin, 5_000, 6_000, 1_000 + pin), committed_ms),
            self.wall_ms(),
            [Block([(user, committed_ms)], [(pin, 1_000 + pin)])],
            cluster=cluster,
        )

    def publish(self, pins: Sequence[int], together: int | None = None) -> None:
        """A delivery of each pin to the user of the same number. together: so many in one pack."""
        for start in range(0, len(pins), together or 1):
            some = [self.delivery(pin, pin) for pin in pins[start : start + (together or 1)]]
            for message in some if together is None else packed(some):
                self.queue.publish(DELIVERIES, [encode_delivery(message)])
        self.pins |= {pin: START_MS - 1_000_000 + pin for pin in pins}

    def tick(self) -> int:
        """A tick through every partition; returns its time."""
        settled_ms = self.wall_ms()
        for partition in range(PARTITIONS):
            self.queue.publish(DELIVERIES, [encode_delivery(Tick(settled_ms, 0, 1))], partition)
        return settled_ms

    # What has come of it

    def landed(self) -> set[int]:
        return set(self._look())

    def _look(self) -> set[int]:
        """What has landed. Only rows that were written since the last look are read: tests ask in every step."""
        if self.feeds.written:
            for row in self.feeds.written:
                columns = [cell.column for cell in MemoryStore.cells(self.feeds, row)]
                self._landed[row] = {entry.pin for entry in entries_of(columns)}
            self.feeds.written.clear()
            self._pins_landed = set().union(*self._landed.values())
        return self._pins_landed

    def missing(self) -> dict[int, int]:
        landed = self._look()
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
            assert self.now_s < until_s, f"timed out; {len(self.missing())} pins are missing"
            self.step(checked=turn % 20 == 0)
            turn += 1
        self.check()

    def lag(self, group: str) -> int:
        return lag_of(self.queue, DELIVERIES if group == WRITER else RETRIES, group)

    def published(self) -> int:
        """How many copies were ever parked."""
        return lag_of(self.queue, RETRIES, "no-group")

    def all_landed(self, settled_ms: int) -> bool:
        return not self.missing() and self.watermark() == settled_ms and not self.lag(WRITER) + self.lag(RETRIER)


def dead_region(row: bytes) -> bool:
    """One in four rows."""
    return row[0] < 64


def in_region(pin: int) -> bool:
    return dead_region(row_key(pin))


def everything(row: bytes) -> bool:
    return True
