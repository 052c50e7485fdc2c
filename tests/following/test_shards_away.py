"""One of three shards of the follow store is away: what each part of the pipeline does meanwhile (rule 12)."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from feedstore.boards import Boards
from feedstore.domain import (
    MAX_ID,
    Action,
    DeletePin,
    Follow,
    Pin,
    PinDeleted,
    PinSaved,
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.following import Limits, feed_table
from feedstore.follows.port import FollowStoreUnavailableError, Request, actions_in
from feedstore.follows.store import FollowStore
from feedstore.widecolumn.progress import Progress, progress_table
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import (
    Block,
    Delivery,
    Hold,
    Range,
    RangeTask,
    Task,
    encode_delivery,
    wrap_actions,
)
from workers.following.packs import decode_bodies
from workers.following.slots import DeliverySlots, TaskSlots
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.pipeline.outages import Slots
from workers.pipeline.relay import Relay
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.queue.port import lag_of

START_MS = 1_700_000_000_000
HOUR_S = 3_600
LIMITS = Limits(100, 10, 48 * HOUR_S * 1_000, 24 * HOUR_S * 1_000, 120 * HOUR_S * 1_000, 500)
TIME_OUT_S = 20.0
AWAY = 1


class World:
    """Three shards, far away; calls that fail take their time-out of the callers that wait for them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.away = False
        self.calls_away = 0
        self.asked: set[int] = set()
        self.in_background = False
        self.waiting: list[Callable[[], None]] = []
        shards = [self.shard(number) for number in range(3)]
        self.follows = FollowStore(shards, None, self.waiting.append, lambda: self.now_s)
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, 1), self.ms)
        self.dead = MemoryDeadLetters()
        self.feeds = MemoryStore(feed_table(100, 10, LIMITS.purge_window_ms))
        self.progress = Progress(MemoryStore(progress_table(LIMITS.purge_window_ms)))
        self.relays = [
            Relay(self.follows, shard, self.queue, ACTIONS, self.dead, lambda: self.now_s, lambda: 1, wrap_actions)
            for shard in range(3)
        ]
        self.follows.about_now()
        self.look()

    def ms(self) -> int:
        return START_MS + int(self.now_s * 1_000)

    def shard(self, number: int) -> Any:
        world = self
        real: Any = open_in_memory(self.ms)._shards[0]

        class Far:
            def __getattr__(self, name: str) -> Any:
                return partial(world.call, number, getattr(real, name))

        return Far()

    def call(self, number: int, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if not self.in_background:
            self.asked.add(number)
        if number != AWAY or not self.away:
            return call(*args, **named)
        self.calls_away += 1
        if not self.in_background:
            self.now_s += TIME_OUT_S
        raise FollowStoreUnavailableError("no answer")

    def look(self) -> None:
        """What is done in the background."""
        self.in_background = True
        while self.waiting:
            self.waiting.pop()()
        self.in_background = False

    def stage(self, topic: Any, handle: Callable[[Any], None], slots: Slots[Any]) -> Stage[Any]:
        spec: StageSpec[Any] = StageSpec(
            group=topic.name,
            topic=topic,
            encode=lambda _: pytest.fail("a message of several bodies"),
            handle=handle,
            ticks=lambda _: None,
            slots=slots,
        )
        consumer = self.queue.consumer(topic, topic.name)
        return Stage(
            spec, consumer, self.dead, RetryPolicy(), random.Random(1), lambda: self.now_s, self.ms, patience_s=0
        )

    def run(self, stage: Stage[Any], seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s and not until():
            stage.step()
            self.look()
            self.now_s += 0.05

    def delivery(self, pin: int) -> Delivery:
        action = PinSaved(Pin(pin, 5_000, 6_000, 1_000 + pin), self.ms())
        return Delivery(action, self.ms(), [Block([(pin, self.ms())], [(pin, 1_000 + pin)])])


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.away = False
    world.follows.close()


def test_a_writer_writes_plain_cells_without_the_follow_store(world: World) -> None:
    writer = Writer("a", world.feeds, world.progress, world.follows, world.queue, LIMITS)
    stage = world.stage(DELIVERIES, writer.write, DeliverySlots("a", writer.late_before_ms))
    world.away = True
    world.queue.publish(DELIVERIES, [encode_delivery(world.delivery(pin)) for pin in range(1, 1_001)])
    began_s = world.now_s

    world.run(stage, 60, lambda: not lag_of(world.queue, DELIVERIES, DELIVERIES.name))

    assert world.now_s - began_s < 5
    assert len(list(world.feeds.scan(b"", b"\xff" * 20))) == 1_000


def test_rule_8_a_writer_lets_nothing_old_through_while_a_shard_is_away(world: World) -> None:
    writer = Writer("a", world.feeds, world.progress, world.follows, world.queue, LIMITS)
    old = world.delivery(1)
    world.away = True
    world.now_s += 24 * HOUR_S - 300  # more than clocks drift apart in a day
    fresh = world.delivery(2)
    writer.write([old, fresh])
    assert len(list(world.feeds.scan(b"", b"\xff" * 20))) == 2

    world.now_s += 301
    fresh = world.delivery(3)
    late = Delivery(old.action, old.read_ms, [Block([(99, world.ms())], [(1, 1_001)])])
    writer.write([fresh, late])

    rows = list(world.feeds.scan(b"", b"\xff" * 20))
    assert len(rows) == 3
    assert world.queue.ends(ACTIONS) == {0: 1}


def test_rule_10_what_is_late_while_a_shard_is_away_is_sent_back_once_and_keeps_the_watermark(world: World) -> None:
    writer = Writer("a", world.feeds, world.progress, world.follows, world.queue, LIMITS)
    late = world.delivery(1)
    world.now_s += 25 * HOUR_S
    world.away = True
    for _ in range(3):
        writer.write([late])
    assert world.queue.ends(ACTIONS) == {0: 1}
    assert world.progress.landed_before(world.ms()) == late.action.committed_ms
    later_ms = world.ms() + 600_000  # more than clocks drift apart in a day
    assert world.progress.landed_before(later_ms) == later_ms


def test_rule_8_what_is_late_gets_a_new_date_while_another_shard_is_away(world: World) -> None:
    pins = [Pin(number, 5_000, 6_000, 1_000) for number in range(1, 61)]
    saved = [
        each for each in world.follows.record([Request(SavePin(pin)) for pin in pins]) if isinstance(each, PinSaved)
    ]
    tasks = [Task(each) for each in saved if AWAY not in world.follows.shards_of(each)]
    expander = Expander(world.follows, world.queue, LIMITS, Respacing(Boards(world.follows), lambda: 0.0).respace)
    world.now_s += 49 * HOUR_S
    world.away = True
    expander.expand(tasks)
    (hold,) = decode_bodies(world.queue.consumer(DELIVERIES, "reader").poll(10, 0)[0].value)
    assert isinstance(hold, Hold)
    assert hold.since_ms == tasks[0].action.committed_ms


def indexed_away(world: World, pin: Pin) -> bool:
    """Without its indexes a pin cannot be expanded; its own shard is asked only if somebody receives it."""
    return AWAY in {world.follows._all.shard_of(each) for each in (pin.owner, pin.board)}


def test_an_expander_does_what_needs_no_shard_that_is_away(world: World) -> None:
    """Of a batch of tasks some need the shard that is away. The others get done soon; no time-out is waited for."""
    pins = [Pin(number, 5_000 + number, 100_000 + number, 1_000) for number in range(1, 601)]
    world.follows.record([Request(SavePin(pin)) for pin in pins])
    for relay in world.relays:
        while relay.step():
            pass
    good = {pin.pin for pin in pins if AWAY not in world.follows.shards_of(PinSaved(pin, START_MS))}
    assert 100 < len(good) < 300
    expander = Expander(world.follows, world.queue, LIMITS, Respacing(Boards(world.follows), lambda: 0.0).respace)
    done: list[int] = []

    def expand(tasks: list[Task]) -> None:
        expander.expand(tasks)
        done.extend(task.action.pin.pin for task in tasks if isinstance(task.action, PinSaved))

    stage = world.stage(ACTIONS, expand, TaskSlots(world.follows))
    world.away = True
    began_s = world.now_s

    world.run(stage, 2 * HOUR_S, lambda: good <= set(done))

    assert good <= set(done)
    assert not [pin for pin in pins if pin.pin in done and indexed_away(world, pin)]
    assert world.now_s - began_s < 300
    assert world.calls_away < 10_000

    world.away = False
    world.run(stage, 2 * HOUR_S, lambda: not lag_of(world.queue, ACTIONS, ACTIONS.name))
    assert set(done) == {pin.pin for pin in pins}


def test_what_a_task_needs_are_the_shards_that_its_expansion_asks(world: World) -> None:
    expander = Expander(world.follows, world.queue, LIMITS, Respacing(Boards(world.follows), lambda: 0.0).respace)
    slots = TaskSlots(world.follows)
    actions: list[Action] = [
        *(Follow(each, user(5_000 + each % 7)) for each in range(1, 40)),
        *(SavePin(Pin(each, 5_000 + each % 7, 6_000 + each % 7, 1_000)) for each in range(1, 40)),
        *(DeletePin(each) for each in range(1, 20)),
        *(Unfollow(each, user(5_000 + each % 7)) for each in range(1, 20)),
    ]
    world.follows.record([Request(action) for action in actions])
    world.follows.ask_refill([30], None, 0)
    kinds = set()
    for action in sorted(actions_in(world.follows.unrelayed(1_000)), key=lambda each: each.committed_ms):
        world.asked.clear()
        expander.expand([Task(action)])
        assert world.asked <= slots.needed(Task(action)), action
        kinds.add(type(action))
        if isinstance(action, PinSaved | PinDeleted):
            for followee in action.pin.followees():
                world.asked.clear()
                part = RangeTask(Range(followee, 0, MAX_ID), [action])
                expander.expand([part])
                assert world.asked <= slots.needed(part), action
    assert len(kinds) == 5
    assert slots.count == 3


def test_an_unfollow_of_many_older_pins_asks_no_shard_that_it_does_not_name(world: World) -> None:
    limits = replace(LIMITS, cap=5, slack=2)
    expander = Expander(world.follows, world.queue, limits, Respacing(Boards(world.follows), lambda: 0.0).respace)
    slots = TaskSlots(world.follows)
    pins = [Pin(each, 5_000 + each % 7, 6_000 + each % 70, 1_000) for each in range(1, 200)]
    world.follows.record([Request(SavePin(pin)) for pin in pins])
    world.follows.record([Request(Follow(each, user(5_000 + each % 7))) for each in range(1, 40)])
    world.follows.record([Request(Follow(each, board(6_000 + each))) for each in range(1, 40)])
    expander.expand([Task(action) for action in actions_in(world.follows.unrelayed(1_000))])
    world.now_s += 144 * HOUR_S
    unfollows = [Unfollow(each, user(5_000 + each % 7)) for each in range(1, 40)]
    unfollows += [Unfollow(each, board(6_000 + each)) for each in range(1, 40)]
    for action in world.follows.record([Request(each) for each in unfollows]):
        assert isinstance(action, Unfollowed)
        world.asked.clear()
        expander.expand([Task(action)])
        assert world.asked <= slots.needed(Task(action)), action


def test_the_pins_of_a_range_that_need_a_shard_which_is_away_do_not_hold_up_the_others(world: World) -> None:
    slots = TaskSlots(world.follows)
    pins = [Pin(number, 5_000, 100_000 + number, 1_000) for number in range(1, 61)]
    task = RangeTask(Range(user(5_000), 0, MAX_ID), [PinSaved(pin, START_MS) for pin in pins], "a")
    away = AWAY
    inside, outside = slots.divided(task, frozenset([away])) or pytest.fail("not divided")
    assert {action.pin for action in inside.actions + outside.actions} == set(pins)
    assert all(away in world.follows.shards_of(action) for action in inside.actions)
    assert away not in slots.needed(outside)
    assert slots.divided(outside, frozenset([away])) is None
    assert slots.divided(Task(task.actions[0]), frozenset([away])) is None


def test_what_is_left_as_it_is_does_not_say_that_a_shard_answers(world: World) -> None:
    """The stage would try everything that waits for the shard, again and again."""
    full = SimpleNamespace(is_full=lambda: True, published=lambda: None)
    respace = Respacing(Boards(world.follows), lambda: 0.0).respace
    expander = Expander(world.follows, world.queue, LIMITS, respace, window=full)  # type: ignore[arg-type]
    pins = [Pin(number, 5_000, 100_000 + number, 1_000) for number in range(1, 61)]
    needing = [pin for pin in pins if AWAY in world.follows.shards_of(PinSaved(pin, START_MS))]
    others = [pin for pin in pins if pin not in needing]
    world.away = True
    with pytest.raises(FollowStoreUnavailableError):
        expander.expand([RangeTask(Range(user(5_000), 0, MAX_ID), [PinSaved(pin, START_MS) for pin in needing])])
    expander.expand([RangeTask(Range(user(5_000), 0, MAX_ID), [PinSaved(pin, START_MS) for pin in others])])
