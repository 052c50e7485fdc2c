"""The window of an expander: what it has published of large fanouts and no cluster has taken."""

from collections.abc import Callable, Iterable

import pytest

from tests.queue.memory_queue import MemoryQueue
from workers.following.topics import DELIVERIES, TOPICS
from workers.following.window import CALLS, LONGEST_S, LOOK_MS, SLOW_S, FanoutWindow
from workers.queue.port import QueueUnavailableError

PARTITIONS = 2


class World:
    def __init__(self, groups: Iterable[str] = ("a", "b"), partitions: int = PARTITIONS) -> None:
        self.now_s = 100.0
        self.looks_hang = False
        self.is_out_of_threads = False
        self.hanging: list[Callable[[], None]] = []
        self.partitions = partitions
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, partitions), lambda: 0)
        self.consumers = {group: self.queue.consumer(DELIVERIES, group) for group in groups}
        self.window = self.a_window(list(self.consumers))
        self.looks = 0
        positions = self.queue.positions

        def counted(*args: object) -> dict[int, int]:
            self.looks += 1
            return positions(*args)  # type: ignore[arg-type]

        self.queue.positions = counted  # type: ignore[method-assign]

    def a_window(self, groups: list[str]) -> FanoutWindow:
        return FanoutWindow(self.queue, groups, lambda: self.now_s, self.wall_ms, self.background)

    def background(self, look: Callable[[], None]) -> None:
        if self.is_out_of_threads:
            raise RuntimeError("can't start new thread")
        if self.looks_hang:
            self.hanging.append(look)
        else:
            look()

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)

    def publish(self) -> None:
        """A call."""
        for partition in range(self.partitions):
            self.queue.publish(DELIVERIES, [b"cells"], partition)
        self.window.published()

    def is_full(self) -> bool:
        """After a look, if it is time for one."""
        due_ms = self.window.due_ms()
        assert self.window.is_full() == bool(due_ms)
        return bool(due_ms)

    def fill(self) -> int:
        """Publishes until it is full; how many calls that took. Time passes, so that it may look."""
        calls = 0
        while not self.is_full():
            self.publish()
            calls += 1
            self.wait()
        return calls

    def take(self, group: str, messages: int = 100) -> None:
        consumer = self.consumers[group]
        taken = consumer.poll(messages, 0)
        consumer.commit({each.partition: each.offset + 1 for each in taken})

    def wait(self, seconds: float = LOOK_MS / 1_000) -> None:
        self.now_s += seconds


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_full_when_some_calls_are_on_their_way(world: World):
    assert not world.is_full()
    assert world.fill() == CALLS // 2
    assert world.is_full()


def test_what_one_cluster_has_taken_is_on_its_way_no_more(world: World):
    world.fill()
    world.take("b", 1)  # of one partition, while the other has some too
    world.wait()
    assert world.is_full()
    world.take("b")
    world.wait()
    assert not world.is_full()


def test_what_others_publish_meanwhile_is_not_waited_for(world: World):
    world.fill()
    world.take("a")
    world.queue.publish(DELIVERIES, [b"another's"] * 50)
    world.wait()
    assert not world.is_full()


def test_it_looks_now_and_then(world: World):
    world.fill()
    world.wait()
    world.looks = 0
    for _ in range(10):
        assert world.is_full()
    assert world.looks == 2, "one for each group"
    world.take("a")
    assert world.is_full(), "as far as is known"
    due_ms = world.window.due_ms()
    assert world.wall_ms() < due_ms <= world.wall_ms() + LOOK_MS
    world.wait(0.001)
    assert world.window.due_ms() == due_ms, "what comes meanwhile is tried with it"
    world.wait()
    assert not world.is_full()


@pytest.mark.parametrize("call", ["ends", "positions"])
def test_rule_12_a_queue_that_does_not_answer_slows_fanouts_and_fails_nothing(world: World, call: str):
    def away(*_args: object) -> dict[int, int]:
        raise QueueUnavailableError("away")

    setattr(world.queue, call, away)
    world.fill()
    world.take("a")
    world.wait()
    assert world.is_full()
    world.wait(LONGEST_S)
    assert not world.is_full()


def test_rule_12_a_look_that_hangs_holds_nothing_up(world: World):
    world.looks_hang = True
    began_s = world.now_s
    assert world.fill() == CALLS // 2
    while world.is_full():
        world.wait()
    assert world.now_s - began_s < LONGEST_S + 1
    (look,) = world.hanging
    look()
    world.looks_hang = False
    world.fill()
    world.take("a")
    world.wait()
    assert not world.is_full()


def test_a_look_that_cannot_begin_is_tried_again(world: World):
    for _ in range(CALLS // 2):
        world.publish()
    world.take("a")
    world.is_out_of_threads = True
    assert world.is_full()
    world.is_out_of_threads = False
    world.wait()
    assert not world.is_full()


def test_a_writer_that_hangs_in_one_of_many_partitions_slows_nothing():
    world = World(partitions=5)
    for _ in range(CALLS // 2):
        world.publish()
    consumer = world.consumers["a"]
    for message in consumer.poll(100, 0):
        if message.partition != 3:
            consumer.commit({message.partition: message.offset + 1})
    world.wait()
    assert not world.is_full()


def test_clusters_that_are_fast_have_more_on_their_way_and_slow_ones_less(world: World):
    sizes = []
    for _ in range(CALLS):
        sizes.append(world.fill())
        world.take("a")
        world.wait()
    assert sizes == [2, 3, 4, 4]
    for _ in range(CALLS + 1):
        sizes.append(world.fill())
        world.wait(SLOW_S)
        assert world.is_full()
        world.wait()
        world.take("a")
    assert sizes[CALLS:] == [4, 3, 2, 1, 1]
    world.fill()
    world.take("a")
    world.wait()
    assert world.fill() == 2


def test_a_pause_between_fanouts_is_not_taken_for_a_slow_cluster(world: World):
    for _ in range(3):
        assert world.fill() == CALLS // 2
        world.take("a")
        world.wait(1_000)


def test_clusters_that_are_all_away_hold_nothing_up_for_long(world: World):
    began_s = world.now_s
    world.fill()
    while world.is_full():
        world.wait()
    assert world.now_s - began_s < LONGEST_S + 1
    assert world.fill() == 1


def test_groups_that_were_never_there_count_as_away():
    world = World(groups=())
    world.window = world.a_window(["never there"])
    world.fill()
    world.wait(LONGEST_S)
    assert not world.is_full()
