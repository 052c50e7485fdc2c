"""One user's many messages, and the few of others: who waits for whom."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from feedstore.domain import Followed, Pin, PinDeleted, PinSaved, RefillAsked, Unfollowed, user
from feedstore.widecolumn import UnavailableError
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.slots import EachAlone
from workers.following.expander import sender_of
from workers.following.messages import Task
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.turns import Turns
from workers.queue.port import MAX_POLL_BYTES, Message, QueueUnavailableError, Topic, lag_of

Body = tuple[int, int]
"""A sender and a number."""
AS_THEY_COME, PORTION = 5, 20
PER_MESSAGE_S = 0.001


def decode(value: bytes) -> list[Body]:
    sender, number, *_ = value.split(b" ")
    return [(int(sender), int(number))]


TOPIC: Topic[Body] = Topic("tests", durable=True, decode=decode)


class World:
    """A stage whose handler takes a while for each message."""

    def __init__(self, in_flight: int = 10_000) -> None:
        self.now_s = 0.0
        self.done_s: dict[Body, float] = {}
        self.queue = MemoryQueue({TOPIC: 2}, lambda: 1_000)
        spec: StageSpec[Body] = StageSpec(
            group="group",
            topic=TOPIC,
            encode=lambda body: b"%d %d" % body,
            handle=self.handle,
            ticks=lambda ticks: None,
            slots=EachAlone(),
            turns=Turns(lambda body: body[0], AS_THEY_COME, PORTION),
            batch=100,
            in_flight=in_flight,
        )
        self.stage: Stage[Body] = Stage(
            spec,
            self.queue.consumer(TOPIC, "group"),
            MemoryDeadLetters(),
            RetryPolicy(),
            random.Random(1),
            lambda: self.now_s,
            lambda: 7,
            patience_s=0,
        )

    def change(self, **parts: Any) -> None:
        """Gives the stage other parts of its specification."""
        self.stage._spec = replace(self.stage._spec, **parts)

    def handle(self, bodies: Sequence[Body]) -> None:
        self.now_s += PER_MESSAGE_S * len(bodies)
        assert not self.done_s.keys() & set(bodies), "each is done once"
        self.done_s |= dict.fromkeys(bodies, self.now_s)

    def publish(self, sender: int, numbers: range, partition: int | None = None) -> None:
        self.queue.publish(TOPIC, [b"%d %d" % (sender, number) for number in numbers], partition)

    def run(self) -> None:
        while self.stage.step() or not self.stage.idle():
            assert self.now_s < 1_000


def test_others_do_not_wait_for_the_many_of_one() -> None:
    world = World()
    world.publish(1, range(5_000))
    for number in range(10):
        world.publish(2, range(number, number + 1))
    world.run()

    assert len(world.done_s) == 5_010
    last_s = max(world.done_s[2, number] for number in range(10))
    assert world.done_s[1, 4_999] > PER_MESSAGE_S * 5_000
    # All that lies before them was polled, 1,100 at a time; a portion was done between the polls.
    assert last_s <= PER_MESSAGE_S * 6 * (PORTION + AS_THEY_COME + 10)


def test_what_arrives_meanwhile_waits_for_a_portion() -> None:
    world = World()
    world.publish(1, range(2_000))
    for _ in range(30):
        world.stage.step()
    assert len(world.done_s) < 1_000
    for number in range(20):
        began_s = world.now_s
        world.publish(2, range(number, number + 1))
        while (2, number) not in world.done_s:
            world.stage.step()
        assert world.now_s - began_s <= PER_MESSAGE_S * (2 * PORTION + AS_THEY_COME + 1)


def test_the_many_of_several_take_turns_and_each_keeps_its_order() -> None:
    world = World()
    for sender in (1, 2, 3):
        world.publish(sender, range(1_000), 0)
    world.run()

    order = sorted(world.done_s, key=world.done_s.__getitem__)
    assert len(order) == 3_000
    for sender in (1, 2, 3):
        assert [number for of, number in order if of == sender] == list(range(1_000))
    ends_s = [world.done_s[sender, 999] for sender in (1, 2, 3)]
    assert min(ends_s) > 0.6 * max(ends_s)


@pytest.mark.parametrize("senders", [1, 7, 19, 20, 21, 60])
def test_a_portion_is_shared_out_evenly(senders: int) -> None:
    turns = Turns[Body](lambda body: body[0], 1, PORTION)
    world = World()
    lot = world.stage._lots.begin([Message(0, 0, b"")])
    bodies = [(sender, number) for number in range(50) for sender in range(senders)]
    items = world.stage._lots.take(lot, Message(0, 0, b""), bodies, whole=False)
    now = turns.admit(items)
    assert [item.body for item in now] == [(sender, 0) for sender in range(senders)]
    assert len(turns) == len(list(turns)) == 49 * senders

    taken: Counter[int] = Counter()
    while len(turns) > PORTION * senders:
        portion = turns.take()
        assert len(portion) == PORTION
        taken.update(item.body[0] for item in portion)
        assert max(taken[sender] for sender in range(senders)) - min(taken[sender] for sender in range(senders)) <= 20
    while turns:
        assert 1 <= len(turns.take()) <= PORTION
    assert turns.take() == []


def test_what_comes_in_several_polls_is_done_together() -> None:
    world = World()
    batches: list[int] = []
    handle = world.handle
    world.change(handle=lambda bodies: (batches.append(len(bodies)), handle(bodies))[1])
    padding = b" " * (MAX_POLL_BYTES // 30)  # a poll returns thirty of them
    world.queue.publish(TOPIC, [b"%d 1%s" % (sender, padding) for sender in range(1, 301)], 0)
    world.run()
    # Later polls end with the handler that runs meanwhile.
    assert batches[0] == max(batches) == 100
    assert sum(batches) == len(world.done_s) == 300


def polled_ahead(world: World, poisoned: Body | None = None) -> list[list[Body]]:
    """What is handled together, if each call of the handler ends only after the stage has polled ahead. Each poll
    returns thirty of 300 messages.
    """
    lots: list[list[Body]] = []
    looked = threading.Semaphore(0)
    handle, begin_next = world.handle, world.stage._begin_next

    def slow(bodies: Sequence[Body]) -> None:
        assert looked.acquire(timeout=10)
        lots.append(list(bodies))
        if poisoned in bodies:
            raise ValueError(poisoned)
        handle(bodies)

    def looking(handling: Future[None]) -> Future[None] | None:
        beginning = begin_next(handling)
        looked.release()
        return beginning

    world.change(handle=slow)
    world.stage._begin_next = looking  # type: ignore[method-assign]
    padding = b" " * (MAX_POLL_BYTES // 30)
    world.queue.publish(TOPIC, [b"%d 1%s" % (sender, padding) for sender in range(1, 301)], 0)
    for _ in range(30):
        world.stage.step()
    return lots


def test_lots_are_full_while_much_waits() -> None:
    """What does not fit a lot is not handled alone, and what is being handled takes no room of the next one."""
    world = World()
    lots = polled_ahead(world)
    assert sum(map(len, lots)) == len(world.done_s) > 270
    assert {len(lot) for lot in lots[:-1]} == {100}


def test_the_next_lot_is_begun_while_one_is_handled() -> None:
    world = World()
    begun: list[list[Body]] = []

    def begin(bodies: Sequence[Body]) -> None:
        assert not world.done_s.keys() & set(bodies)
        begun.append(list(bodies))
        raise UnavailableError("away")  # the handler does all of it

    world.change(begin=begin)
    lots = polled_ahead(world)
    assert lots[1:] == begun
    assert len(world.done_s) == 300


def test_parts_of_a_lot_that_failed_get_nothing_more() -> None:
    """Halving would never come to the message that fails."""
    world = World()
    lots = polled_ahead(world, (130, 1))
    failed = [set(lot) for lot in lots if (130, 1) in lot]
    assert len(failed) > 5
    assert all(part <= whole for whole, part in itertools.pairwise(failed))
    assert len(world.done_s) > 270


def test_what_was_polled_before_the_queue_failed_is_done() -> None:
    world = World()
    consumer = world.stage._consumer
    poll, polls = consumer.poll, iter([True, False])

    def failing(limit: int, timeout_s: float) -> list[Message]:
        if next(polls, True):
            return poll(limit, timeout_s)
        raise QueueUnavailableError("away")

    consumer.poll = failing  # type: ignore[method-assign]
    padding = b" " * (MAX_POLL_BYTES // 30)
    world.queue.publish(TOPIC, [b"%d 1%s" % (sender, padding) for sender in range(1, 61)], 0)
    world.stage.step()
    assert len(world.done_s) == 29
    world.now_s += 100  # the rest after the failure
    world.run()
    assert len(world.done_s) == 60


def test_what_waits_for_its_turn_takes_room() -> None:
    world = World(in_flight=200)
    world.publish(1, range(5_000))
    for _ in range(40):
        world.stage.step()
        assert world.stage._lots.items <= 300
    world.run()
    assert len(world.done_s) == 5_000


def test_positions_are_committed_while_some_wait() -> None:
    """A worker that dies in a storm does not begin it again."""
    world = World()
    world.publish(1, range(5_000), 0)
    lags = []
    while world.stage.step() or not world.stage.idle():
        lags.append(lag_of(world.queue, TOPIC, "group"))
    assert len(set(lags)) > 20


def test_the_sender_of_a_task_is_the_user_who_acted() -> None:
    pin = Pin(9, 4, 6, 1_000)
    assert sender_of(Task(Followed(3, user(8), 1_000, 1_000))) == 3
    assert sender_of(Task(Unfollowed(3, user(8), 1_000, 1_000))) == 3
    assert sender_of(Task(PinSaved(pin, 1_000))) == pin.owner
    assert sender_of(Task(PinDeleted(pin, 1_000))) == pin.owner
    assert sender_of(Task(RefillAsked(5, None, 1_000))) == 5
