"""Keeping a delta fresh from a queue, whatever becomes of either."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from feedstore.catalog.port import CatalogUnavailableError
from feedstore.domain import Followed, Pin, PinDeleted, PinSaved, user
from tests.catalog.memory_catalog import MemoryCatalog
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from workers.app.catalogs import pin_updates
from workers.catalog.updater import CLOCKS_APART_MS, OlderDeltaError, Updater, UpdateSlots, updater_group
from workers.following.messages import Range, RangeTask, Task, decode_actions, encode_action
from workers.following.topics import ACTIONS
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.ticks import Tick
from workers.queue.port import GroupBusyError

START = 1_700_000_000_000
KEPT = 3_600_000
GROUP = updater_group("pins", "a")


class Bench:
    """A queue with two partitions, a catalog in memory, and one clock for all."""

    def __init__(self) -> None:
        self.now_ms = START
        self.queue = MemoryQueue({ACTIONS: 2}, lambda: self.now_ms)
        self.queue.consumer(ACTIONS, GROUP).close()
        self.store = MemoryCatalog()
        self.reading: Updater | None = None

    def updater(self) -> Updater:
        return Updater(self.store, pin_updates, self.queue, ACTIONS, GROUP, lambda: self.now_ms, KEPT)

    def make_again(self) -> None:
        """Removes the topic and makes it again, as on brokers."""
        self.queue = MemoryQueue({ACTIONS: 2}, lambda: self.now_ms)

    def save(self, pin: int, partition: int = 0) -> None:
        self.now_ms += 1
        action = PinSaved(Pin(pin, 7, 70, 1_000), self.now_ms)
        self.queue.publish(ACTIONS, [encode_action(Task(action))], partition)

    def delete(self, pin: int, partition: int = 0) -> None:
        self.now_ms += 1
        action = PinDeleted(Pin(pin, 7, 70, 1_000), self.now_ms)
        self.queue.publish(ACTIONS, [encode_action(Task(action))], partition)

    def tick(self, *partitions: int) -> int:
        """Everything so far is settled; returns the time that the delta then knows."""
        self.now_ms += 1
        for partition in partitions or (0, 1):
            self.queue.publish(ACTIONS, [encode_action(Tick(self.now_ms, partition, 2))], partition)
        return self.now_ms - 1

    def work(self, updater: Updater, *, commit: bool = True, begins: bool = True) -> None:
        """Begins, and does all that is there, as a stage does."""
        if begins:
            updater.begin()
        consumer = self.queue.consumer(ACTIONS, GROUP)
        try:
            while messages := consumer.poll(3, 0):
                bodies = [(each.partition, body) for each in messages for body in decode_actions(each.value)]
                updater.enter(body for _, body in bodies if isinstance(body, Task))
                updater.tick([each for each in bodies if isinstance(each[1], Tick)])
                if commit:
                    consumer.commit({each.partition: each.offset + 1 for each in messages})
        finally:
            consumer.close()

    def pins(self) -> dict[int, bool]:
        """Whether each pin of the delta lives."""
        self.store.use(self.store.load(1, []).id) if not self.store.generations() else None
        keys = [pin.to_bytes(8, "big") for pin in range(20)]
        return {int.from_bytes(key, "big"): record[1] == 0 for key, record in self.store.fetch(keys).records.items()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_was_recorded_of_pins_is_entered_and_nothing_else(bench: Bench):
    bench.pins()
    bench.save(5)
    bench.queue.publish(ACTIONS, [encode_action(Task(Followed(1, user(2), 3, 4)))])
    bench.delete(6, partition=1)
    known_ms = bench.tick()
    bench.work(bench.updater())
    assert bench.pins() == {5: True, 6: False}
    assert bench.store.delta().known_ms == known_ms


def test_a_new_delta_begins_now_whatever_is_in_the_queue(bench: Bench):
    """Some actions that were recorded earlier may not be in the queue any more."""
    bench.save(5)
    bench.tick()
    bench.work(bench.updater())
    assert bench.store.delta().floor_ms == bench.now_ms


def test_what_is_known_waits_for_every_partition(bench: Bench):
    first_ms = bench.tick()
    updater = bench.updater()
    bench.work(updater)
    bench.tick(0)
    bench.save(8, partition=1)
    consumer = bench.queue.consumer(ACTIONS, GROUP)
    updater.tick([(0, Tick(bench.now_ms, 0, 2))])
    assert bench.store.delta().known_ms == first_ms
    updater.tick([(1, Tick(bench.now_ms - 1, 1, 2))])
    assert bench.store.delta().known_ms == bench.now_ms - 2
    consumer.close()


def test_what_is_known_waits_for_every_partition_over_restarts(bench: Bench):
    first_ms = bench.tick()
    bench.work(bench.updater())
    bench.now_ms += CLOCKS_APART_MS + 1_000  # so that the first tick does not come again
    bench.tick(0)
    bench.work(bench.updater())
    assert bench.store.delta().known_ms == first_ms


def test_several_updaters_note_together_what_is_known(bench: Bench):
    """Each hears of its own partitions only."""
    bench.tick()
    updaters = [bench.updater(), bench.updater()]
    bench.work(updaters[0])
    bench.now_ms += 1_000
    for partition, updater in enumerate(updaters):
        updater.tick([(partition, Tick(bench.now_ms + partition, partition, 2))])
    assert bench.store.delta().known_ms == bench.now_ms - 1


def test_of_the_ticks_of_a_partition_the_last_one_is_noted(bench: Bench):
    updater = bench.updater()
    updater.tick([(0, Tick(START - each, 0, 2)) for each in (3, 1, 2)])
    updater.tick([(1, Tick(START, 1, 2))])
    assert bench.store.delta().known_ms == START - 2


def test_a_tick_that_is_ahead_of_the_source_says_nothing(bench: Bench):
    updater = bench.updater()
    updater.begin()
    ahead = bench.now_ms + CLOCKS_APART_MS + 1
    updater.tick([(0, Tick(ahead, 0, 2)), (1, Tick(ahead, 1, 2))])
    assert bench.store.delta().known_ms == 0


def test_rule_12_a_tick_of_partitions_that_there_are_not_says_nothing(bench: Bench):
    first_ms = bench.tick()
    updater = bench.updater()
    bench.work(updater)
    updater.tick([(0, Tick(bench.now_ms, 0, 1_000)), (0, Tick(bench.now_ms, 2**40, 2**41))])
    assert bench.store.delta().known_ms == first_ms
    bench.now_ms += 1_000
    updater.tick([(partition, Tick(bench.now_ms, partition, 2)) for partition in (0, 1)])
    assert bench.store.delta().known_ms == bench.now_ms - 1


def test_a_delta_that_was_put_back_gets_all_that_it_lacks(bench: Bench):
    bench.pins()
    bench.tick()
    bench.work(bench.updater())
    held = dict(bench.store._updates), bench.store._delta  # a copy of its files
    bench.now_ms += 60_000
    bench.save(5)
    bench.now_ms += 60_000
    bench.delete(6, partition=1)
    known_ms = bench.tick()
    bench.work(bench.updater())
    bench.store._updates, bench.store._delta = dict(held[0]), held[1]
    assert bench.pins() == {}
    bench.work(bench.updater())
    assert bench.pins() == {5: True, 6: False}
    assert bench.store.delta().known_ms == known_ms


def test_a_delta_that_is_put_back_under_its_updater_gets_all_that_it_lacks(bench: Bench):
    """As by a snapshot that is restored in HBase: what was entered since the copy is read again."""
    bench.pins()
    bench.tick()
    updater = bench.updater()
    bench.work(updater)
    held = dict(bench.store._updates), bench.store._delta, dict(bench.store._noted)
    bench.now_ms += 60_000
    bench.save(5)
    known_ms = bench.tick()
    bench.work(updater, begins=False)
    assert bench.store.delta().known_ms == known_ms
    bench.store._updates, bench.store._delta, bench.store._noted = held
    bench.now_ms += 60_000
    last_ms = bench.tick()
    with pytest.raises(OlderDeltaError):
        bench.work(updater, begins=False)
    assert bench.store.delta().known_ms < known_ms, "it claims nothing that it lacks"
    with closing_consumer(bench), pytest.raises(GroupBusyError):
        updater.begin()  # another member is further on, and has not noticed yet
    bench.work(updater)
    assert bench.pins() == {5: True}
    assert bench.store.delta().known_ms == last_ms


def test_a_delta_that_is_older_than_the_queue_has_a_gap(bench: Bench):
    bench.tick()
    bench.work(bench.updater())
    floor_ms = bench.store.delta().floor_ms
    bench.now_ms += KEPT + CLOCKS_APART_MS
    bench.save(5)
    bench.tick()
    bench.work(bench.updater())
    assert bench.store.delta().floor_ms > floor_ms + KEPT


def test_messages_that_were_lost_are_a_gap_and_the_rest_is_read(bench: Bench):
    bench.pins()
    bench.tick()
    bench.work(bench.updater())
    bench.save(5)
    bench.now_ms += 5_000
    bench.queue.expire(1_000, {})
    bench.save(6)
    bench.tick()
    bench.work(bench.updater())
    assert bench.pins() == {6: True}
    assert bench.store.delta().floor_ms > START + 5_000


def test_a_topic_that_was_made_again_is_a_gap(bench: Bench):
    """The positions of its groups went with it, and so did what they had not read."""
    bench.pins()
    bench.tick()
    bench.work(bench.updater())
    bench.save(5)
    lost_ms = bench.now_ms
    bench.make_again()
    bench.save(6)
    bench.tick()
    bench.work(bench.updater())
    assert bench.pins() == {6: True}
    floor_ms = bench.store.delta().floor_ms
    assert floor_ms > lost_ms, "no answer claims to have what was lost"
    bench.work(bench.updater())
    assert bench.store.delta().floor_ms == floor_ms, "it is noted once"


def test_messages_that_were_lost_are_passed_over_once_all_members_have_left(bench: Bench):
    """Who joined again would be told that they are lost, again and again: no position moves under a live member."""
    bench.pins()
    bench.tick()
    bench.work(bench.updater())
    bench.save(5)
    bench.now_ms += 5_000
    bench.queue.expire(1_000, {})
    bench.save(6)
    updater = bench.updater()
    with closing_consumer(bench), pytest.raises(GroupBusyError):
        updater.begin()
    bench.work(updater)
    assert bench.pins() == {6: True}


def test_a_group_with_another_member_is_left_where_it_is(bench: Bench):
    bench.tick()
    bench.work(bench.updater())
    with closing_consumer(bench):
        bench.updater().begin()


@contextmanager
def closing_consumer(bench: Bench) -> Iterator[None]:
    consumer = bench.queue.consumer(ACTIONS, GROUP)
    try:
        yield
    finally:
        consumer.close()


def test_many_updates_are_entered_in_calls_that_are_bounded(bench: Bench):
    bench.pins()
    actions = [Task(PinSaved(Pin(pin, 7, 70, 1_000), START)) for pin in range(1, 2_502)]
    bench.updater().enter(actions)
    assert bench.store.delta().entries == len(actions)


def test_a_range_of_a_fanout_says_nothing() -> None:
    action = PinSaved(Pin(3, 7, 70, 1_000), START)
    assert len(pin_updates(Task(action))) == 1
    assert pin_updates(RangeTask(Range(action.pin.followees()[0], 5, 9), [action])) == ()


class Away:
    """A catalog that is away and counts the calls that find that out."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_away = True
        self.entered = 0

    def enter(self, bodies: Sequence[Task | RangeTask]) -> None:
        updates = [update for body in bodies for update in pin_updates(body)]
        if not updates:
            return
        self.calls += 1
        if self.is_away:
            raise CatalogUnavailableError("it is away")
        self.entered += len(updates)


def test_while_a_catalog_is_away_it_is_asked_now_and_then_whatever_comes_that_says_nothing_to_it(bench: Bench):
    """What says nothing to it succeeds, and is no sign that the catalog answers: every message that waits would be
    tried again with every follow.
    """
    store, now_s = Away(), 0.0
    spec: StageSpec[Any] = StageSpec(
        group=GROUP,
        topic=ACTIONS,
        encode=encode_action,
        handle=store.enter,
        ticks=lambda _: None,
        slots=UpdateSlots(pin_updates),
    )
    policy = RetryPolicy()
    stage = Stage(
        spec,
        bench.queue.consumer(ACTIONS, GROUP),
        MemoryDeadLetters(),
        policy,
        random.Random(1),
        lambda: now_s,
        lambda: bench.now_ms,
        patience_s=0.0,
    )
    for pin in range(100):
        bench.save(1 + pin % 19)
        bench.queue.publish(ACTIONS, [encode_action(Task(Followed(1, user(2), 3, 4)))])
        stage.step()
        now_s += 1.0
    assert not store.entered
    assert store.calls <= 25, "about as often as one message alone would be tried"
    store.is_away = False
    while not stage.idle():
        now_s += 1.0
        stage.step()
    assert store.entered == 100
    stage.close()
