"""Ticks cost a system that has nothing to do as little as they can: many are noted, and passed on, as one."""

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from feedstore.boards import Boards
from feedstore.following import Limits, feed_table
from feedstore.follows.store import FollowStore
from feedstore.widecolumn import Mutation
from feedstore.widecolumn.progress import Progress, progress_table
from tests.queue.memory_queue import MemoryQueue
from tests.simulation.bag import Bag
from tests.simulation.memory_shard import MemoryShard
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import Hold, decode_delivery, encode_action
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.pipeline.relay import Ticker
from workers.pipeline.ticks import Tick
from workers.queue.port import Message

LIMITS = Limits(10, 5, action_age_ms=10_000, delivery_age_ms=5_000, purge_window_ms=21_000)


class Counting(MemoryStore):
    """Counts the calls that a server would have to answer."""

    calls = 0

    def apply(self, mutations: Sequence[Mutation]) -> None:
        self.calls += bool(mutations)
        super().apply(mutations)


def writer(store: MemoryStore, queue: Bag | None = None) -> Writer:
    follows = FollowStore([MemoryShard(lambda: 1_000)])
    feeds = MemoryStore(feed_table(10, 5, LIMITS.purge_window_ms))
    return Writer("a", feeds, Progress(store), follows, queue or bag(), LIMITS)


def bag(sources: int = 1, partitions: int = 1) -> Bag:
    """A queue with so many partitions for actions, and for deliveries."""
    return Bag(random.Random(0), sources, partitions, ["a"])


def test_ticks_of_all_partitions_are_one_write() -> None:
    store = Counting(progress_table(LIMITS.purge_window_ms))
    ticks = [(partition, Tick(5_000 + source, source, 3, 4)) for partition in range(4) for source in range(3)]
    writer(store, bag(3, 4)).tick(ticks)
    assert store.calls == 1
    assert Progress(store).watermark() == 5_000


def test_of_ticks_of_one_partition_the_newest_counts_whatever_their_order() -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    writer(store).tick([(0, Tick(7_000, 0, 1, 1)), (0, Tick(9_000, 0, 1, 1)), (0, Tick(8_000, 0, 1, 1))])
    assert Progress(store).watermark() == 9_000


def test_a_partition_that_is_not_among_them_still_holds_the_watermark_back() -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    handler = writer(store, bag(1, 2))
    handler.tick([(0, Tick(7_000, 0, 1, 2)), (1, Tick(6_000, 0, 1, 2))])
    handler.tick([(0, Tick(9_000, 0, 1, 2))])
    assert Progress(store).watermark() == 6_000


def test_rule_10_a_source_that_no_tick_came_from_holds_the_watermark_back() -> None:
    store = Counting(progress_table(LIMITS.purge_window_ms))
    handler = writer(store, bag(3, 2))
    for partition, source in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
        handler.tick([(partition, Tick(7_000 + source, source, 3, 2))])
        assert Progress(store).watermark() is None
    handler.tick([(0, Tick(9_000, 2, 3, 2))])
    assert Progress(store).watermark() == 7_000
    handler.tick([(partition, Tick(9_000, source, 3, 2)) for partition in (0, 1) for source in (1, 2)])
    assert Progress(store).watermark() == 7_000, "the first source is behind"
    assert store.calls == 2, "one for each partition: nothing else has changed"


def test_rule_10_a_writer_that_was_restarted_claims_nothing_of_what_it_has_not_met() -> None:
    store, queue = MemoryStore(progress_table(LIMITS.purge_window_ms)), bag(2)
    writer(store, queue).tick([(0, Tick(7_000, 0, 2, 1)), (0, Tick(8_000, 1, 2, 1))])
    assert Progress(store).watermark() == 7_000
    again = writer(store, queue)
    again.tick([(0, Tick(9_000, 1, 2, 1))])
    assert Progress(store).watermark() == 7_000
    again.tick([(0, Tick(9_500, 0, 2, 1))])
    assert Progress(store).watermark() == 9_000


def test_rule_10_a_source_that_was_added_is_waited_for() -> None:
    store, queue = MemoryStore(progress_table(LIMITS.purge_window_ms)), bag(1)
    handler = writer(store, queue)
    handler.tick([(0, Tick(7_000, 0, 1, 1))])
    queue.grow(ACTIONS)
    handler.tick([(0, Tick(8_000, 0, 2, 1))])
    assert Progress(store).watermark() == 7_000
    handler.tick([(0, Tick(7_500, 1, 2, 1))])
    assert Progress(store).watermark() == 7_500


def test_rule_10_where_the_actions_were_made_again_with_fewer_partitions_the_watermark_needs_these_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, queue = MemoryStore(progress_table(LIMITS.purge_window_ms)), bag(3)
    handler = writer(store, queue)
    handler.tick([(0, Tick(7_000, source, 3, 1)) for source in range(3)])
    monkeypatch.setattr(queue, "partitions", lambda topic: 2 if topic is ACTIONS else 1)
    handler.tick([(0, Tick(9_000, 0, 2, 1)), (0, Tick(7_500, 2, 3, 1))])
    assert Progress(store).watermark() == 7_000, "one of the new sources has not come, and the other is gone"
    handler.tick([(0, Tick(8_000, 1, 2, 1))])
    assert Progress(store).watermark() == 8_000


def test_rule_10_a_tick_that_was_counted_before_a_source_was_added_hides_it_from_no_writer() -> None:
    store, queue = MemoryStore(progress_table(LIMITS.purge_window_ms)), bag(2)
    handler = writer(store, queue)
    handler.tick([(0, Tick(7_000, 0, 2, 1)), (0, Tick(8_000, 0, 1, 1))])
    assert Progress(store).watermark() is None
    handler.tick([(0, Tick(7_500, 1, 2, 1))])
    assert Progress(store).watermark() == 7_500


def test_rule_10_a_tick_that_was_counted_before_a_partition_a_partition_was_added_hides_it_from_no_writer() -> None:
    """One expander counts the partitions, and publishes its tick after another one has used the new partition."""
    store, queue = MemoryStore(progress_table(LIMITS.purge_window_ms)), bag(2, 3)
    handler = writer(store, queue)
    for source, partitions in ((0, 3), (1, 2)):
        handler.tick([(partition, Tick(7_000, source, 2, partitions)) for partition in (0, 1)])
    assert Progress(store).watermark() is None
    handler.tick([(2, Tick(8_000, source, 2, 3)) for source in (0, 1)])
    assert Progress(store).watermark() == 7_000


def passed_on(ticks: Sequence[Tick], partitions: int) -> list[list[Message]]:
    """The messages that an expander makes of ticks, for each partition of the deliveries."""
    queue = MemoryQueue({topic: partitions if topic is DELIVERIES else 2 for topic in TOPICS}, lambda: 1_000)
    follows = FollowStore([MemoryShard(lambda: 1_000)])
    expander = Expander(follows, queue, LIMITS, Respacing(Boards(follows), lambda: 0.0).respace)
    expander.tick(ticks)
    found = queue.consumer(DELIVERIES, "writer-a").poll(100, 0)
    return [[each for each in found if each.partition == partition] for partition in range(partitions)]


def test_the_newest_tick_of_each_source_is_passed_on_to_every_partition_in_one_message() -> None:
    several = passed_on([Tick(100, 0, 2), Tick(300, 0, 2), Tick(200, 1, 2), Tick(150, 0, 2)], 3)
    for (message,) in several:
        assert set(DELIVERIES.bodies(message.value)) == {Tick(300, 0, 2, 3), Tick(200, 1, 2, 3)}
    for (message,) in passed_on([Tick(100, 1, 2)], 2):
        assert decode_delivery(message.value) == Tick(100, 1, 2, 2), "earlier writers read it as well"


def test_ticks_that_count_other_numbers_of_sources_are_messages_of_their_own() -> None:
    (messages,) = passed_on([Tick(100, 0, 1), Tick(300, 0, 2), Tick(200, 1, 2)], 1)
    assert [set(DELIVERIES.bodies(each.value)) for each in messages] == [
        {Tick(100, 0, 1, 1)},
        {Tick(300, 0, 2, 1), Tick(200, 1, 2, 1)},
    ]


def test_rule_10_where_partitions_are_added_beside_an_old_writer_its_watermark_waits_for_them() -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    heard, queue = bag(), bag()
    old = writer(store, heard)
    follows = FollowStore([MemoryShard(lambda: 1_000)])
    expander = Expander(follows, queue, LIMITS, Respacing(Boards(follows), lambda: 0.0).respace)

    def pass_on(settled_ms: int) -> list[tuple[int, Tick]]:
        expander.tick([Tick(settled_ms, 0, 1)])
        passed = [(each.partition, each.body) for each in queue.writers["a"].ticks()]
        queue.writers["a"].undone = [{} for _ in queue.writers["a"].undone]
        return passed

    old.tick(pass_on(7_000))
    assert Progress(store).watermark() == 7_000
    queue.grow(DELIVERIES)
    first, second = pass_on(9_000)
    old.tick([first, second])
    assert Progress(store).watermark() == 7_000, "it has not heard of the other one, and deliveries may be in it"
    heard.grow(DELIVERIES)
    old.tick([first])
    assert Progress(store).watermark() is None, "deliveries may be in the other one, and it has not been heard of"
    old.tick([second])
    assert Progress(store).watermark() == 9_000


def test_rule_10_where_partitions_of_the_actions_are_added_ticks_go_through_them() -> None:
    queue = bag()
    follows = FollowStore([MemoryShard(lambda: 20_000)])
    ticker = Ticker(follows.settled_ms, queue, ACTIONS, lambda: 0.0, encode_action)
    ticker.tick()
    queue.grow(ACTIONS)
    ticker.tick()
    sent = [[(each.source, each.sources) for each in messages.values()] for messages in queue.expander.undone]
    assert sent == [[(0, 1), (0, 2)], [(1, 2)]]


def test_rule_10_a_tick_of_an_older_expander_counts_for_as_many_partitions_as_there_are() -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    handler = writer(store)
    old = decode_delivery(b'{"v":1,"body":{"type":"tick","settled_ms":7000,"source":0,"sources":1}}')
    assert isinstance(old, Tick)
    handler.tick([(0, old)])
    assert Progress(store).watermark() == 7_000
    handler._queue.grow(DELIVERIES)
    handler.tick([(0, old)])
    assert Progress(store).watermark() is None


IMPOSSIBLE = [
    Tick(9_000, 0, 1_000),
    Tick(9_000, 999, 1_000),
    Tick(9_000, 1, 1),
    Tick(9_000, 2**33, 2**34),
    Tick(9_000, 0, 2**62),
]


@pytest.mark.parametrize("tick", IMPOSSIBLE, ids=str)
def test_rule_12_a_tick_of_partitions_that_there_are_not_is_not_passed_on(tick: Tick) -> None:
    queue = bag()
    follows = FollowStore([MemoryShard(lambda: 20_000)])
    expander = Expander(follows, queue, LIMITS, Respacing(Boards(follows), lambda: 0.0).respace)
    expander.tick([Tick(7_000, 0, 1), tick])
    assert [each.body for each in queue.writers["a"].ticks()] == [Tick(7_000, 0, 1, 1)]


@pytest.mark.parametrize(
    "tick",
    [*(replace(tick, partitions=1) for tick in IMPOSSIBLE), Tick(9_000, 0, 1, 1_000), Tick(9_000, 0, 1, 2**40)],
    ids=str,
)
def test_rule_12_a_tick_of_partitions_that_there_are_not_stops_no_watermark(tick: Tick) -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    handler = writer(store)
    handler.tick([(0, Tick(7_000, 0, 1, 1)), (0, tick)])
    assert Progress(store).watermark() == 7_000
    handler.tick([(0, Tick(8_000, 0, 1, 1))])
    assert Progress(store).watermark() == 8_000


def test_rule_12_a_hold_that_is_ahead_of_the_clock_ends_as_one_of_now_does() -> None:
    store = MemoryStore(progress_table(LIMITS.purge_window_ms))
    handler = writer(store)
    handler.write([Hold(900, 2**62), Hold(2**61, 2**62)])
    handler.tick([(0, Tick(950, 0, 1, 1))])
    assert Progress(store).watermark() == 900
    handler.tick([(0, Tick(1_001, 0, 1, 1))])
    assert Progress(store).watermark() == 1_001
