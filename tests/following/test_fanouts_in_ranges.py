"""A fanout in ranges: what one call does of it, what it leaves, and that nothing is left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedstore.boards import Boards
from feedstore.domain import MAX_ID, Edge, Follow, Followee, Pin, PinDeleted, PinSaved, SavePin, board, user
from feedstore.following import Limits
from feedstore.follows.port import FollowStoreUnavailableError, Request
from feedstore.follows.store import FollowStore
from feedstore.metering import UNCOUNTED, Counting, Meter
from tests.follows.memory_follows import open_in_memory
from tests.metering.readings import value
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from workers.boards import Respacing
from workers.following import Expander, metrics
from workers.following.expander import sender_of
from workers.following.fanout import Fanout, ranges_left
from workers.following.messages import Delivery, Hold, Range, RangeTask, Task, encode_action, encode_delivery
from workers.following.packs import Pack
from workers.following.slots import TaskSlots
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.following.traces import of_tasks
from workers.following.window import CALLS, LOOK_MS, FanoutWindow
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.turns import Turns
from workers.queue.port import Message, QueueUnavailableError, Topic

NOW = 1_341_100_972_000
HOUR_MS = 3_600_000
PAGE = 10
LIMITS = Limits(100, 10, action_age_ms=HOUR_MS, delivery_age_ms=HOUR_MS, purge_window_ms=4 * HOUR_MS, chunk=PAGE)
PIN = Pin(7, 2**50 + 1, 21, NOW)
SAVED, DELETED = PinSaved(PIN, NOW), PinDeleted(PIN, NOW)
OWNER, BOARD = PIN.followees()

IDS = st.integers(1, MAX_ID).filter(lambda number: number != OWNER.id)


# The ranges


@given(IDS, IDS, st.none() | st.tuples(st.integers(0, MAX_ID), IDS))
def test_ranges_follow_each_other_and_end_where_the_range_ends(one: int, other: int, bounds: tuple[int, int] | None):
    first, last = sorted((one, other))
    within = None if bounds is None else Range(OWNER, min(bounds[0], first - 1), max(bounds[1], last))
    until = MAX_ID if within is None else within.until
    left = ranges_left(within, OWNER, first, last)
    assert [each.after for each in left] == [last, *(each.until for each in left[:-1])][: len(left)]
    assert all(each.after < each.until for each in left)
    assert bool(left) == (last < until)
    assert not left or left[-1].until == until
    assert len(left) <= 64


def test_ranges_of_a_whole_fanout_become_wider():
    left = ranges_left(None, OWNER, 1_001, 2_000)
    assert [each.until - each.after for each in left[:3]] == [64_000, 64**2 * 1_000, 64**3 * 1_000]


def test_a_range_is_divided_evenly():
    left = ranges_left(Range(OWNER, 0, 65_000), OWNER, 1, 1_000)
    assert {each.until - each.after for each in left} == {1_000}
    assert len(left) == 64


def test_few_followers_that_are_left_are_one_range():
    assert ranges_left(Range(OWNER, 0, 1_200), OWNER, 1, 1_000) == [Range(OWNER, 1_000, 1_200)]


# What one call does


@dataclass
class Fed:
    """What was published: how often each follower got each pin."""

    rows: dict[tuple[int, int], int] = field(default_factory=dict)

    def publish(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            for block in [*delivery.puts, *delivery.markers]:
                for follower, _ in block.rows:
                    for pin, _ in block.pins:
                        self.rows[follower, pin] = self.rows.get((follower, pin), 0) + 1


@pytest.fixture
def follows() -> Iterator[FollowStore]:
    store = open_in_memory(lambda: NOW)
    yield store
    store.close()


def follow(store: FollowStore, followers: Iterable[int], followee: Followee = OWNER, *, active: bool = True) -> None:
    store.index(edges=[Edge(each, followee, NOW, active=active) for each in followers])


def all_of_it(store: FollowStore, actions: list[PinSaved] | list[PinDeleted], cells: int) -> tuple[Fed, int]:
    """Everything that follows from some actions, and how many calls it took."""
    fed = Fed()
    fanout = Fanout(store, fed.publish, LIMITS)
    first = actions[0]
    todo: list[tuple[list[Any], Range | None]] = [(list(actions), None)]
    calls = 0
    while todo:
        some, within = todo.pop()
        handle = fanout.save if isinstance(first, PinSaved) else fanout.delete
        calls += 1
        todo += [(left.actions, each) for left in handle(some, NOW, None, within, cells).left for each in left.ranges]
    return fed, calls


FOLLOWERS = st.sets(st.one_of(st.integers(1, 100), st.integers(1, 2**40), IDS), max_size=60)


@given(FOLLOWERS, FOLLOWERS, st.sampled_from([1, 15, 40, 10_000]), st.booleans())
def test_every_follower_gets_every_pin_once_an_edge(of_owner: set[int], of_board: set[int], cells: int, deleted: bool):
    store = open_in_memory(lambda: NOW)
    follow(store, of_owner)
    follow(store, of_board, BOARD)
    pins = [PIN, Pin(8, PIN.owner, 22, NOW)]
    actions = [PinDeleted(pin, NOW) for pin in pins] if deleted else [PinSaved(pin, NOW) for pin in pins]
    fed, _ = all_of_it(store, actions, cells)
    store.close()
    expected: dict[tuple[int, int], int] = {}
    for followers, reached in ((of_owner, (7, 8)), (of_board, (7,))):
        for follower in followers:
            for pin in reached:
                expected[follower, pin] = expected.get((follower, pin), 0) + 1
    assert fed.rows == expected


def test_a_fanout_that_is_not_large_is_done_in_one_call(follows: FollowStore):
    follow(follows, range(1, 100))
    _, calls = all_of_it(follows, [SAVED], 200)  # its owner has half of them, its board the other half
    assert calls == 1


def test_one_call_does_little_more_than_its_cells(follows: FollowStore):
    follow(follows, range(1, 1_001))
    fed = Fed()
    visited = Fanout(follows, fed.publish, LIMITS).save([SAVED], NOW, None, None, 200)
    assert len(fed.rows) == visited.cells == 100
    assert [each.actions for each in visited.left] == [[SAVED]]


def test_a_large_fanout_does_not_keep_those_behind_it_in_the_same_call(follows: FollowStore):
    follow(follows, range(1, 1_001))
    other = Pin(8, 2**50 + 2, 22, NOW)
    follow(follows, [5_000], user(2**50 + 2))
    fed = Fed()
    visited = Fanout(follows, fed.publish, LIMITS).save([SAVED, PinSaved(other, NOW)], NOW, None, None, 20)
    assert (5_000, 8) in fed.rows
    assert [each.actions for each in visited.left] == [[SAVED]]


def test_a_range_reads_no_other_followee(follows: FollowStore):
    follow(follows, range(1, 31))
    follow(follows, range(101, 131), BOARD)
    fed = Fed()
    assert Fanout(follows, fed.publish, LIMITS).save([SAVED], NOW, None, Range(OWNER, 5, 15), 1_000) == (10, [])
    assert sorted(follower for follower, _ in fed.rows) == list(range(6, 16))


def test_rule_7_a_range_of_a_deletion_has_tombstones(follows: FollowStore):
    follow(follows, range(1, 31), active=False)
    fed, calls = all_of_it(follows, [DELETED], 1)
    assert len(fed.rows) == 30
    assert calls > 1


# What the expander makes of it


class Queue(MemoryQueue):
    """away: publishing to this topic fails. order: of which topic each call was."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(dict.fromkeys(TOPICS, partitions), lambda: NOW)
        self.away: Topic[object] | None = None
        self.order: list[str] = []

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        if topic is self.away:
            raise QueueUnavailableError("away")
        if values:
            self.order.append(topic.name)
        super().publish_each(topic, values)

    def messages(self, topic: Topic[object]) -> list[Message]:
        """All that was published since the last call."""
        consumer = self.consumer(topic, "test")
        found: list[Message] = []
        while messages := consumer.poll(1_000, 0):
            found += messages
            consumer.commit({message.partition: message.offset + 1 for message in messages})
        consumer.close()
        return found

    def bodies(self, topic: Topic[object]) -> list[Any]:
        return [body for message in self.messages(topic) for body in topic.decode(message.value)]


class Windowed:
    """A window that a test fills. count: how often something large was published."""

    def __init__(self) -> None:
        self.full = False
        self.count = 0

    def is_full(self) -> bool:
        return self.full

    def published(self) -> None:
        self.count += 1

    def due_ms(self) -> int:
        return 7


@dataclass
class World:
    follows: FollowStore
    queue: Queue = field(default_factory=Queue)

    def expander(self, cells: int, meter: Meter = UNCOUNTED, window: Any = None) -> Expander:
        respace = Respacing(Boards(self.follows), lambda: 0.0).respace
        return Expander(self.follows, self.queue, LIMITS, respace, meter, cells=cells, window=window)


@pytest.fixture
def world(follows: FollowStore) -> World:
    follow(follows, range(1, 101))
    return World(follows)


def recorded(world: World, pin: Pin = PIN) -> PinSaved:
    (saved,) = world.follows.record([Request(SavePin(pin))])
    assert isinstance(saved, PinSaved)
    return saved


def some_pins(world: World, count: int) -> list[PinSaved]:
    return [recorded(world, Pin(100 + each, PIN.owner, PIN.board, NOW)) for each in range(count)]


def reached(bodies: Iterable[Any]) -> list[tuple[int, int]]:
    """Each (follower, pin) of packs."""
    packs = [each for each in bodies if isinstance(each, Pack)]
    blocks = [block for pack in packs for delivery in pack.deliveries() for block in delivery.puts]
    return [(follower, pin) for block in blocks for follower, _ in block.rows for pin, _ in block.pins]


def test_rule_10_a_hold_follows_what_was_left(world: World):
    saved = recorded(world)
    world.expander(cells=40).expand([Task(saved, "b", NOW - 5)])
    assert world.queue.order[-2:] == [ACTIONS.name, DELIVERIES.name]
    first, *others = world.queue.bodies(ACTIONS)
    assert first == RangeTask(Range(OWNER, 20, 20 + 64 * 20), [saved], "b", NOW - 5)
    assert all((each.actions, each.cluster, each.after_ms) == ([saved], "b", NOW - 5) for each in others)
    *packs, hold = world.queue.bodies(DELIVERIES)
    assert len(reached(packs)) == 20
    assert (hold.since_ms, hold.cluster, hold.kind) == (saved.committed_ms, "b", "fanout")
    assert hold.until_ms >= saved.committed_ms


@pytest.mark.parametrize("away", [ACTIONS, DELIVERIES])
def test_rule_11_what_cannot_be_left_is_done_again(world: World, away: Topic[object]):
    saved = recorded(world)
    expander = world.expander(cells=40)
    publish_each = world.queue.publish_each

    def failing(topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        hold = topic is DELIVERIES and ACTIONS.name in world.queue.order
        if topic is ACTIONS if away is ACTIONS else hold:
            raise QueueUnavailableError("away")
        publish_each(topic, values)

    world.queue.publish_each = failing  # type: ignore[method-assign]
    with pytest.raises(QueueUnavailableError):
        expander.expand([Task(saved)])
    assert not any(isinstance(each, Hold) for each in world.queue.bodies(DELIVERIES))
    world.queue.publish_each = publish_each  # type: ignore[method-assign]
    world.queue.bodies(ACTIONS)
    expander.expand([Task(saved)])
    assert world.queue.bodies(ACTIONS)
    assert isinstance(world.queue.bodies(DELIVERIES)[-1], Hold)


def test_nothing_is_left_before_all_else_is_done(world: World):
    """A call that fails is made again, and what it had left would be there twice."""
    saved = recorded(world)
    (followed,) = world.follows.record([Request(Follow(500, OWNER))])
    world.expander(cells=20).expand([Task(saved), Task(followed)])
    assert world.queue.order[-2:] == [ACTIONS.name, DELIVERIES.name]
    assert world.queue.order.count(ACTIONS.name) == 1


def test_rule_12_a_shard_that_is_away_does_not_fail_what_was_left(world: World):
    """One that is away would have the ranges published again and again."""
    saved = recorded(world)
    asked: list[object] = []

    def away(shard: int | None = None) -> int:
        asked.append(shard)
        raise FollowStoreUnavailableError("away")

    world.follows.now = away  # type: ignore[method-assign]
    world.expander(cells=20).expand([Task(saved)])
    assert asked == [0], "one that has answered in this call"
    assert world.queue.bodies(ACTIONS)
    assert isinstance(world.queue.bodies(DELIVERIES)[-1], Hold)


def test_ranges_go_to_one_partition_after_the_other(follows: FollowStore):
    follow(follows, range(1, 101))
    world = World(follows, Queue(partitions=3))
    world.expander(cells=20).expand([Task(recorded(world))])
    assert world.queue.order.count(ACTIONS.name) == 1, "a call costs a round trip, or a wait for the disk"
    partitions = [message.partition for message in world.queue.messages(ACTIONS)]
    assert all(partitions.count(each) >= len(partitions) // 3 for each in range(3))


def test_rule_12_ranges_leave_the_choice_of_their_partitions_to_the_queue(follows: FollowStore):
    """It knows which ones take nothing now. If all ranges waited for one of these, so would the shards they need."""

    class Missing(Queue):
        """Partition 0 of the actions takes nothing."""

        def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
            if topic is ACTIONS and 0 in values:
                raise QueueUnavailableError("too few replicas are in sync")
            super().publish_each(topic, values)

        def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
            super().publish_each(topic, {1: values[::2], 2: values[1::2]})

    follow(follows, range(1, 101))
    world = World(follows, Missing(partitions=3))
    world.expander(cells=20).expand([Task(recorded(world))])
    assert {message.partition for message in world.queue.messages(ACTIONS)} == {1, 2}


def test_pins_of_one_user_stay_together(world: World):
    some = some_pins(world, 3)
    world.expander(cells=20).expand([Task(each) for each in some])
    assert all(task.actions == some for task in world.queue.bodies(ACTIONS))


def test_a_range_is_no_action_and_enters_no_index(world: World):
    meter = Counting(lambda: 0.0)
    saved = recorded(world)
    expander = world.expander(20, meter)
    expander.expand([Task(saved)])
    left = world.queue.bodies(ACTIONS)
    world.follows.index = None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        expander.begin([Task(saved)])
    world.follows.index = lambda **rows: None if not any(rows.values()) else pytest.fail("indexed")  # type: ignore[method-assign]
    expander.begin(left)
    expander.expand(left)
    assert value(meter, metrics.ACTIONS, "save") == 1


def test_rule_8_what_waited_too_long_is_dated_again_as_a_whole(world: World):
    saved, other = recorded(world), recorded(world, Pin(8, PIN.owner, 22, NOW))
    late = PinSaved(saved.pin, saved.committed_ms - 2 * HOUR_MS)
    world.expander(1_000).expand([RangeTask(Range(OWNER, 50, MAX_ID), [late, other], None, None, [(1, "x")])])
    assert world.queue.bodies(ACTIONS) == []
    hold, *packs = world.queue.bodies(DELIVERIES)
    assert (hold.since_ms, hold.kind) == (late.committed_ms, "put_off")
    assert {pin for _, pin in reached(packs)} == {8}


def test_a_range_of_what_a_pin_does_not_reach_cannot_be():
    with pytest.raises(ValueError, match="the owner and board of each pin"):
        RangeTask(Range(board(22), 0, 9), [SAVED])


def test_halves_are_the_whole(world: World):
    pins = [PinSaved(Pin(each, PIN.owner, PIN.board, NOW), NOW) for each in range(1, 4)]
    task = RangeTask(Range(OWNER, 3, 9), list(pins), "b", 5, [(0, "x"), (2, "y")])
    slots = TaskSlots(world.follows)
    first, second = slots.halved(task) or pytest.fail("no halves")
    assert (first.actions + second.actions, first.range, second.cluster) == (pins, task.range, "b")
    assert of_tasks([first, second]) == of_tasks([task]) == {pins[0]: "x", pins[2]: "y"}
    assert slots.halved(first) is None
    assert slots.halved(Task(SAVED)) is None


# What waits


def test_ranges_wait_while_the_window_is_full_and_nothing_else_does(world: World):
    saved, other = recorded(world), recorded(world, Pin(8, 2**50 + 2, 22, NOW))
    follow(world.follows, [5_000], user(2**50 + 2))
    window = Windowed()
    window.full = True
    waiting = RangeTask(Range(OWNER, 50, MAX_ID), [saved], "b", NOW - 5, [(0, "x")])
    world.expander(200, window=window).expand([waiting, Task(other)])
    assert world.queue.bodies(ACTIONS) == [waiting]
    pack, hold = world.queue.bodies(DELIVERIES)
    assert reached([pack]) == [(5_000, 8)]
    assert (hold.since_ms, hold.kind) == (saved.committed_ms, "fanout")
    assert window.count == 0


def test_large_fanouts_are_in_the_window_and_small_ones_are_not(world: World):
    saved, other = recorded(world), recorded(world, Pin(8, 2**50 + 2, 22, NOW))
    window = Windowed()
    expander = world.expander(40, window=window)
    expander.expand([Task(other)])
    assert window.count == 0
    expander.expand([Task(saved)])
    assert window.count == 1
    expander.expand(world.queue.bodies(ACTIONS))
    assert window.count == 2


def test_what_is_for_a_range_waits_for_the_next_look_at_a_full_window(world: World):
    saved = recorded(world)
    waiting = RangeTask(Range(OWNER, 50, MAX_ID), [saved])
    assert world.expander(40, window=Windowed()).due_ms(Task(saved)) == 0
    assert world.expander(40, window=Windowed()).due_ms(waiting) == 7
    assert world.expander(40).due_ms(waiting) == 0


def test_ranges_beyond_the_cells_of_a_call_are_left_as_they_are(world: World):
    saved = recorded(world)
    ranges = [RangeTask(Range(OWNER, after, after + 30), [saved]) for after in (0, 30, 60)]
    world.expander(20).expand(ranges)
    left = world.queue.bodies(ACTIONS)
    assert left[-2:] == ranges[1:]
    assert {each.range.until for each in left[:-2]} == {30}


def test_many_pins_for_one_range_are_done_in_several_calls(world: World):
    pins = some_pins(world, 50)
    expander = world.expander(100)
    done: list[tuple[int, int]] = []
    todo = [RangeTask(Range(OWNER, 50, MAX_ID), list(pins))]
    while todo:
        expander.expand(todo)
        cells = reached(world.queue.bodies(DELIVERIES))
        assert len(cells) <= 100 + 10 * PAGE, "the cells of a call, and a page for as many pins as fit in them"
        done += cells
        todo = world.queue.bodies(ACTIONS)
    assert sorted(done) == sorted((follower, 100 + pin) for follower in range(51, 101) for pin in range(50))


# Through a stage


def test_ranges_wait_in_a_stage_until_the_window_opens_and_others_do_not(world: World):
    saved, other = recorded(world), recorded(world, Pin(8, 2**50 + 2, 22, NOW))
    follow(world.follows, [5_000], user(2**50 + 2))
    clock = [100.0]
    window = FanoutWindow(world.queue, ["writer"], lambda: clock[0], lambda: int(clock[0] * 1_000), lambda look: look())
    handler = world.expander(1_000, window=window)
    writer = world.queue.consumer(DELIVERIES, "writer")
    spec = StageSpec(
        group="expander",
        topic=ACTIONS,
        encode=encode_action,
        handle=handler.expand,
        ticks=lambda _: None,
        turns=Turns(sender_of, 50, 500),
        due_ms=handler.due_ms,
        slots=TaskSlots(world.follows),
    )
    stage = Stage(
        spec,
        world.queue.consumer(ACTIONS, "expander"),
        MemoryDeadLetters(),
        RetryPolicy(),
        Random(1),
        lambda: clock[0],
        lambda: int(clock[0] * 1_000),
        patience_s=0.0,
    )
    for _ in range(CALLS):
        world.queue.publish(DELIVERIES, [encode_delivery(Hold(1, 2))], 0)
        window.published()
    world.queue.publish(ACTIONS, [encode_action(RangeTask(Range(OWNER, 50, MAX_ID), [saved]))], 0)
    world.queue.publish(ACTIONS, [encode_action(Task(other))], 0)
    published = len(world.queue.order)
    for _ in range(10):
        stage.step()
        clock[0] += LOOK_MS / 1_000
    assert world.queue.order[published:] == [DELIVERIES.name], "the pin of others, and nothing of the range"
    assert not stage.idle()
    taken = writer.poll(1_000, 0)
    writer.commit({each.partition: each.offset + 1 for each in taken})
    while not stage.idle():
        stage.step()
        clock[0] += LOOK_MS / 1_000
    assert len(reached(world.queue.bodies(DELIVERIES))) == 50 + 1
    stage.close()
