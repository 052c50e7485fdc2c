"""The promises of workers.queue.port, one test each, on every adapter."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from queue_benches import Bench, after, drain, values

from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue import port
from workers.queue.port import (
    MAX_MESSAGE_BYTES,
    MAX_POLL_BYTES,
    GroupBusyError,
    Message,
    MessageRefusedError,
    PositionLostError,
    QueueError,
    go_back,
    lag_of,
    lost_of,
    reset,
    rewind,
)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_topics_have_the_partitions_that_they_were_made_with(bench: Bench) -> None:
    assert bench.queue.partitions(ACTIONS) == bench.queue.partitions(DELIVERIES) == bench.partitions


def test_topics_have_different_ids_that_they_keep_or_none(bench: Bench) -> None:
    ids = [bench.queue.topic_id(topic) for topic in (ACTIONS, DELIVERIES)]
    assert ids == [None, None] or (ids[0] != ids[1] and {len(each or b"") for each in ids} == {16})
    bench.restart()
    assert [bench.queue.topic_id(topic) for topic in (ACTIONS, DELIVERIES)] == ids


def test_what_is_published_is_polled_with_its_place(bench: Bench) -> None:
    last = bench.partitions - 1
    bench.queue.publish(DELIVERIES, [b"x", b"", b"y"], last)
    assert bench.consumer("a").poll(10, 0) == [Message(last, 0, b"x"), Message(last, 1, b""), Message(last, 2, b"y")]


def test_a_partition_keeps_the_order_of_calls_and_of_messages(bench: Bench) -> None:
    for first in range(0, 60, 10):
        bench.queue.publish(DELIVERIES, numbered(10, first), 0)
    messages = drain(bench.consumer("a"), limit=7)
    assert values(messages) == numbered(60)
    assert [message.offset for message in messages] == list(range(60))


def test_a_call_without_a_partition_keeps_its_order_and_loses_nothing(bench: Bench) -> None:
    for first in range(0, 60, 10):
        bench.queue.publish(DELIVERIES, numbered(10, first))
    messages = drain(bench.consumer("a"), limit=7)
    assert sorted(map(int, values(messages))) == list(range(60))
    for partition in range(bench.partitions):
        own = [int(message.value) for message in messages if message.partition == partition]
        assert own == sorted(own)


def test_calls_without_a_partition_use_all_of_them(bench: Bench) -> None:
    for number in range(30):
        bench.queue.publish(DELIVERIES, [b"%d" % number])
    assert {message.partition for message in drain(bench.consumer("a"))} == set(range(bench.partitions))


def test_the_only_member_of_a_group_holds_every_partition(bench: Bench) -> None:
    assert bench.consumer("a").held() == set(range(bench.partitions))


def test_several_partitions_are_published_to_together_each_in_its_order(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [b"first"], bench.partitions - 1)
    bench.queue.publish_each(
        DELIVERIES, {partition: numbered(3, 10 * partition) for partition in range(bench.partitions)}
    )
    bench.queue.publish_each(DELIVERIES, {0: [b"last"]})
    found = drain(bench.consumer("a"))
    for partition in range(bench.partitions):
        first, last = [b"first"] * (partition == bench.partitions - 1), [b"last"] * (partition == 0)
        own = [message.value for message in found if message.partition == partition]
        assert own == [*first, *numbered(3, 10 * partition), *last]


def test_messages_are_spread_over_all_partitions_one_after_the_other(bench: Bench) -> None:
    consumer = bench.consumer("a")
    for number in (1, bench.partitions, 3 * bench.partitions + 1):
        bench.queue.spread(DELIVERIES, numbered(number, 100 * number))
        found = drain(consumer)
        assert sorted(message.value for message in found) == sorted(numbered(number, 100 * number))
        per_partition = Counter(message.partition for message in found)
        assert max(per_partition.values()) - (min(per_partition.values()) if number >= bench.partitions else 1) <= 1
        for partition in per_partition:
            own = [int(message.value) for message in found if message.partition == partition]
            assert own == sorted(own)
    bench.queue.spread(DELIVERIES, [])
    with pytest.raises(MessageRefusedError):
        bench.queue.spread(DELIVERIES, [b"x", bytes(MAX_MESSAGE_BYTES + 1)])
    assert consumer.poll(10, 0) == []


def test_if_one_of_several_partitions_or_messages_is_refused_nothing_is_stored(bench: Bench) -> None:
    with pytest.raises(ValueError, match="partition"):
        bench.queue.publish_each(DELIVERIES, {0: [b"x"], bench.partitions: [b"y"]})
    with pytest.raises(ValueError, match="partition"):
        bench.queue.publish_each(DELIVERIES, {-1: [b"x"], 0: [b"y"]})
    with pytest.raises(MessageRefusedError):
        bench.queue.publish_each(DELIVERIES, {0: [b"x"], bench.partitions - 1: [b"y", bytes(MAX_MESSAGE_BYTES + 1)]})
    assert bench.consumer("a").poll(10, 0) == []


def test_publishing_nothing_does_nothing(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [])
    bench.queue.publish_each(DELIVERIES, {})
    bench.queue.publish_each(DELIVERIES, {0: []})
    assert lag_of(bench.queue, DELIVERIES, "a") == 0
    assert bench.consumer("a").poll(10, 0) == []


def test_topics_are_apart(bench: Bench) -> None:
    bench.queue.publish(ACTIONS, [b"x"])
    assert bench.consumer("a", DELIVERIES).poll(10, 0) == []
    assert values(bench.consumer("a", ACTIONS).poll(10, 0)) == [b"x"]


def test_a_poll_gives_at_most_its_limit_and_each_message_once(bench: Bench) -> None:
    for partition in range(bench.partitions):
        bench.queue.publish(DELIVERIES, numbered(10, 10 * partition), partition)
    consumer = bench.consumer("a")
    seen = []
    while some := consumer.poll(4, 0):
        assert len(some) <= 4
        seen += some
    assert len(seen) == len(set(seen)) == 10 * bench.partitions


def test_no_partition_waits_behind_a_busy_one(bench: Bench) -> None:
    bench.publish_everywhere(numbered(100))
    consumer = bench.consumer("a")
    polls = [consumer.poll(10, 0) for _ in range(bench.partitions)]
    assert {message.partition for messages in polls for message in messages} == set(range(bench.partitions))


def test_a_poll_bounds_the_bytes_that_it_returns(bench: Bench) -> None:
    bench.publish_everywhere([bytes(225_000)] * 9 + [b"small"] * 9)
    consumer = bench.consumer("a")
    polls = []
    while some := consumer.poll(1_000, 0):
        polls.append(some)
    assert all(sum(map(len, values(some))) <= MAX_POLL_BYTES for some in polls)
    assert max(len(some) for some in polls) >= 4, "it returns what fits"
    for partition in range(bench.partitions):
        own = [message.offset for some in polls for message in some if message.partition == partition]
        assert own == list(range(18))


def test_a_message_over_the_bound_of_a_poll_comes_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MAX_POLL_BYTES", 10)
    bench.publish_everywhere([b"12345", b"larger than ten", b"12345", b"67890", b""])
    consumer = bench.consumer("a")
    seen = []
    while some := consumer.poll(1_000, 0):
        assert sum(map(len, values(some))) <= 10 or len(some) == 1
        seen += some
    assert len(seen) == len(set(seen)) == 5 * bench.partitions


@pytest.mark.parametrize("limit", [0, -1])
def test_a_poll_for_nothing_is_a_mistake(bench: Bench, limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        bench.consumer("a").poll(limit, 0)


def test_a_poll_that_times_out_is_empty_and_the_next_one_works(bench: Bench) -> None:
    consumer = bench.consumer("a")
    assert consumer.poll(10, 0.001) == []
    bench.queue.publish(DELIVERIES, [b"x"])
    assert values(consumer.poll(10, 60)) == [b"x"]


def test_what_was_not_committed_comes_again_after_a_restart(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(10), 0)
    assert len(bench.consumer("a").poll(10, 0)) == 10
    bench.restart()
    assert values(drain(bench.consumer("a"))) == numbered(10)


def test_what_was_not_committed_comes_again_to_the_next_consumer(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(10), 0)
    first = bench.consumer("a")
    first.commit({0: first.poll(4, 0)[-1].offset + 1})
    first.poll(3, 0)
    first.close()
    assert values(drain(bench.consumer("a"))) == numbered(6, 4)


# kafka-python forgets a connection that it is still making when its client is closed, seen while others use the broker:
# the socket is then left to the garbage collector. This test closes some sixty clients.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning")
def test_a_commit_survives_a_restart_at_any_place_in_a_batch(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    bench.queue.publish(DELIVERIES, numbered(5, 5), 0)
    for position in range(11):
        bench.consumer("a").commit({0: position})
        bench.restart()
        assert values(drain(bench.consumer("a"), limit=3)) == numbered(10 - position, position)
        bench.restart()


def test_partitions_that_a_commit_does_not_name_stay(bench: Bench) -> None:
    bench.publish_everywhere(numbered(3))
    consumer = bench.consumer("a")
    drain(consumer)
    consumer.commit({0: 3})
    consumer.commit({})
    bench.restart()
    assert {m.partition for m in drain(bench.consumer("a"))} == set(range(1, bench.partitions))


def test_a_commit_never_goes_back(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    consumer = bench.consumer("a")
    drain(consumer)
    for position in (4, 4, 2, 0):
        consumer.commit({0: position})
    bench.restart()
    consumer = bench.consumer("a")
    consumer.commit({0: 3})
    assert values(drain(consumer)) == [b"4"]
    assert lag_of(bench.queue, DELIVERIES, "a") == 1


def test_a_commit_does_not_move_the_consumer_that_made_it(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    consumer = bench.consumer("a")
    assert values(consumer.poll(2, 0)) == numbered(2)
    consumer.commit({0: 1})
    assert values(drain(consumer)) == numbered(3, 2)


@pytest.mark.parametrize("position", [-1, 3])
def test_a_commit_of_what_was_never_published_is_a_mistake(bench: Bench, position: int) -> None:
    bench.queue.publish(DELIVERIES, numbered(2), 0)
    consumer = bench.consumer("a")
    drain(consumer)
    with pytest.raises(ValueError, match="position"):
        consumer.commit({0: position})
    assert lag_of(bench.queue, DELIVERIES, "a") == 2


def test_unknown_partitions_are_a_mistake(bench: Bench) -> None:
    with pytest.raises(ValueError, match="partition"):
        bench.consumer("a").commit({bench.partitions: 0})
    for partition in (-1, bench.partitions):
        with pytest.raises(ValueError, match="partition"):
            bench.queue.publish(DELIVERIES, [b"x"], partition)


def test_groups_are_independent(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    a, b = bench.consumer("a"), bench.consumer("b")
    assert values(drain(a)) == values(drain(b)) == numbered(5)
    a.commit({0: 5})
    bench.restart()
    assert drain(bench.consumer("a")) == []
    assert values(drain(bench.consumer("b"))) == numbered(5)


def test_a_group_has_one_live_consumer_on_a_topic(bench: Bench) -> None:
    if not bench.one_member:
        pytest.skip("this queue has any number of them")
    first = bench.consumer("a")
    with pytest.raises(GroupBusyError, match="a"):
        bench.consumer("a")
    bench.consumer("a", ACTIONS)
    first.close()
    bench.consumer("a")


def test_members_are_those_that_are_live_if_the_queue_knows(bench: Bench) -> None:
    assert bench.queue.members(DELIVERIES, "unheard-of") in {None, 0}
    bench.queue.publish(DELIVERIES, numbered(1), 0)
    consumer = bench.consumer("a")
    assert values(drain(consumer)) == numbered(1)
    assert bench.queue.members(DELIVERIES, "a") in {None, 1}
    consumer.close()
    assert bench.queue.members(DELIVERIES, "a") in {None, 0}


def test_lag_counts_what_a_group_has_not_committed(bench: Bench) -> None:
    assert lag_of(bench.queue, DELIVERIES, "a") == 0
    bench.publish_everywhere(numbered(5))
    total = 5 * bench.partitions
    assert lag_of(bench.queue, DELIVERIES, "a") == lag_of(bench.queue, DELIVERIES, "b") == total
    consumer = bench.consumer("a")
    drain(consumer)
    assert lag_of(bench.queue, DELIVERIES, "a") == total
    consumer.commit({0: 3})
    assert lag_of(bench.queue, DELIVERIES, "a") == total - 3
    assert lag_of(bench.queue, DELIVERIES, "b") == total
    assert lag_of(bench.queue, ACTIONS, "a") == 0


def test_the_largest_message_is_taken(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [bytes(MAX_MESSAGE_BYTES)])
    (message,) = bench.consumer("a").poll(10, 0)
    assert message.value == bytes(MAX_MESSAGE_BYTES)


def test_an_oversized_message_is_refused_and_nothing_of_its_call_is_stored(bench: Bench) -> None:
    with pytest.raises(MessageRefusedError):
        bench.queue.publish(DELIVERIES, [b"x", bytes(MAX_MESSAGE_BYTES + 1), b"y"])
    assert lag_of(bench.queue, DELIVERIES, "a") == 0
    assert drain(bench.consumer("a")) == []


def test_a_call_larger_than_any_batch_keeps_its_order(bench: Bench) -> None:
    large = [bytes([number]) * 700_000 for number in range(20)]
    bench.queue.publish(DELIVERIES, large, 0)
    consumer = bench.consumer("a")
    assert values(drain(consumer)) == large


def test_expire_drops_what_is_older_and_keeps_the_rest(bench: Bench) -> None:
    bench.publish_everywhere(numbered(3))
    bench.queue.publish(ACTIONS, numbered(2), 0)
    bench.clock.now_ms += 10
    bench.queue.publish(DELIVERIES, numbered(2, 3), 0)
    assert bench.queue.expire(0, {}) == 3 * bench.partitions + 2
    assert bench.queue.expire(0, {}) == 0
    assert lag_of(bench.queue, DELIVERIES, "new") == 2
    messages = drain(bench.consumer("new"))
    assert messages == [Message(0, 3, b"3"), Message(0, 4, b"4")]


def test_what_stands_behind_a_younger_message_is_kept(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [b"young"], 0)
    bench.clock.now_ms -= 10
    bench.queue.publish(DELIVERIES, [b"dated before it"], 0)
    bench.clock.now_ms += 15
    assert bench.queue.expire(10, {}) == 0
    assert len(drain(bench.consumer("a"))) == 2


def test_rule_11_nothing_expires_that_one_of_its_readers_has_not_committed(bench: Bench) -> None:
    if not bench.expires:
        pytest.skip("it keeps messages for as long as its own settings say, read or not")
    for number in range(4):
        bench.queue.publish(DELIVERIES, [b"%d" % number], 0)
    bench.queue.publish(ACTIONS, numbered(3), 0)
    readers = {DELIVERIES: ["writer-a", "writer-b", "writer-new"], ACTIONS: ["expander"]}
    one, other = bench.consumer("writer-a"), bench.consumer("writer-b")
    drain(one)
    drain(other)
    one.commit({0: 4})
    other.commit({0: 1})
    bench.clock.now_ms += 400 * 86_400_000

    assert bench.queue.expire(1_000, readers) == 1 + 3, "no expander was ever there"
    assert bench.queue.expire(1_000, readers) == 0
    assert (lost_of(bench.queue, DELIVERIES, "writer-b"), lag_of(bench.queue, DELIVERIES, "writer-b")) == (0, 3)
    bench.restart()
    other = bench.consumer("writer-b")
    assert values(drain(other)) == [b"1", b"2", b"3"]
    other.commit({0: 4})
    assert bench.queue.expire(1_000, readers) == 3


def test_what_is_dated_ahead_of_the_clock_holds_up_nothing(bench: Bench) -> None:
    if not bench.expires:
        pytest.skip("it dates messages itself")
    bench.clock.now_ms += 400 * 86_400_000
    bench.queue.publish(DELIVERIES, [b"wrong"], 0)
    bench.clock.now_ms -= 400 * 86_400_000
    bench.queue.publish(DELIVERIES, [b"right"], 0)
    bench.clock.now_ms += 20
    bench.queue.publish(DELIVERIES, [b"young"], 0)

    assert bench.queue.expire(10, {}) == 2
    assert values(drain(bench.consumer("a"))) == [b"young"]


def test_expire_drops_any_number_of_calls(bench: Bench) -> None:
    for number in range(200):
        bench.queue.publish(DELIVERIES, [b"%d" % number], 0)
    assert bench.queue.expire(-1, {}) == 200
    bench.queue.publish(DELIVERIES, [b"next"], 0)
    assert drain(bench.consumer("a")) == [Message(0, 200, b"next")]


def test_offsets_go_on_after_everything_expired(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(3), 0)
    consumer = bench.consumer("a")
    consumer.commit(after(drain(consumer)))
    bench.queue.expire(-1, {})
    bench.restart()
    bench.queue.publish(DELIVERIES, [b"x"], 0)
    assert drain(bench.consumer("a")) == [Message(0, 3, b"x")]


def test_a_group_whose_position_is_gone_stops(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    consumer = bench.consumer("writer-b")
    drain(consumer)
    consumer.commit({0: 3})
    bench.restart()
    bench.queue.expire(-1, {})
    bench.queue.publish(DELIVERIES, [b"x"], bench.partitions - 1)
    consumer = bench.consumer("writer-b")
    for _ in range(2):
        with pytest.raises(PositionLostError, match=r"feed\.deliveries/0.*writer-b"):
            consumer.poll(10, 0)
    assert lag_of(bench.queue, DELIVERIES, "writer-b") == 3
    assert lost_of(bench.queue, DELIVERIES, "writer-b") == 2
    assert lost_of(bench.queue, DELIVERIES, "no-group") == 0
    assert len(drain(bench.consumer("writer-a"))) == 1, "no other group is concerned"


def test_a_live_consumer_whose_position_is_gone_stops(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    consumer = bench.consumer("a")
    consumer.poll(2, 0)
    bench.queue.expire(-1, {})
    if bench.reads_ahead:
        assert values(drain(consumer)) == numbered(3, 2), "it was here already"
        return
    with pytest.raises(PositionLostError):
        consumer.poll(2, 0)


def test_a_group_that_was_there_and_never_committed_is_not_skipped_ahead(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    bench.consumer("a").poll(2, 0)
    bench.restart()
    bench.queue.expire(-1, {})
    with pytest.raises(PositionLostError):
        bench.consumer("a").poll(2, 0)


def test_a_reset_moves_lost_positions_to_the_earliest_message_and_no_others(bench: Bench) -> None:
    bench.publish_everywhere(numbered(5))
    consumer = bench.consumer("a")
    drain(consumer)
    consumer.commit({0: 2} | dict.fromkeys(range(1, bench.partitions), 5))
    bench.clock.now_ms += 10
    bench.queue.expire(0, {})
    bench.publish_everywhere([b"x"])
    with pytest.raises(GroupBusyError):
        reset(bench.queue, DELIVERIES, "a")
    consumer.close()
    assert reset(bench.queue, DELIVERIES, "a") == 3
    assert reset(bench.queue, DELIVERIES, "a") == 0
    assert reset(bench.queue, DELIVERIES, "no-group") == 0
    assert values(drain(bench.consumer("a"))) == [b"x"] * bench.partitions


def test_a_rewound_group_reads_again_what_was_published_since(bench: Bench) -> None:
    last = bench.partitions - 1
    bench.queue.publish(DELIVERIES, [b"old"], last)
    between_ms = bench.pass_time()
    bench.queue.publish(DELIVERIES, [b"1", b"2"], last)
    bench.queue.publish(DELIVERIES, [b"3"], last)
    for group in ("a", "b"):
        bench.read_all(group)
    assert rewind(bench.queue, DELIVERIES, "a", between_ms) == 3
    assert (lag_of(bench.queue, DELIVERIES, "a"), lag_of(bench.queue, DELIVERIES, "b")) == (3, 0)
    assert rewind(bench.queue, DELIVERIES, "a", between_ms) == 0
    bench.restart()
    assert values(drain(bench.consumer("a"))) == [b"1", b"2", b"3"]


def test_a_rewind_moves_nothing_forward_and_nothing_that_is_not_there(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [b"x", b"y"], 0)
    later_ms = bench.pass_time()
    bench.queue.publish(DELIVERIES, [b"z"], 0)
    consumer = bench.consumer("a")
    consumer.commit({0: drain(consumer)[0].offset + 1})
    consumer.close()
    assert rewind(bench.queue, DELIVERIES, "a", later_ms) == 0
    assert lag_of(bench.queue, DELIVERIES, "a") == 2
    assert rewind(bench.queue, DELIVERIES, "a", bench.pass_time()) == 0
    assert rewind(bench.queue, DELIVERIES, "no-group", 1) == 0
    assert rewind(bench.queue, ACTIONS, "a", 1) == 0
    assert rewind(bench.queue, DELIVERIES, "a", 1) == 1
    assert lag_of(bench.queue, DELIVERIES, "a") == 3


def test_a_group_with_a_live_consumer_is_not_rewound(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, [b"x"])
    consumer = bench.consumer("a")
    consumer.commit(after(drain(consumer)))
    with pytest.raises(GroupBusyError):
        rewind(bench.queue, DELIVERIES, "a", 1)
    assert lag_of(bench.queue, DELIVERIES, "a") == 0


def test_a_group_goes_back_to_the_positions_that_it_is_given(bench: Bench) -> None:
    bench.publish_everywhere(numbered(5))
    everywhere = dict.fromkeys(range(bench.partitions), 5)
    for group in ("a", "b"):
        bench.read_all(group)
    assert bench.queue.positions(DELIVERIES, "a") == everywhere
    assert go_back(bench.queue, DELIVERIES, "a", {0: 2}) == 3
    assert bench.queue.positions(DELIVERIES, "a") == everywhere | {0: 2}
    assert go_back(bench.queue, DELIVERIES, "a", everywhere) == 0, "nothing moves forward"
    assert bench.queue.positions(DELIVERIES, "b") == everywhere
    bench.restart()
    assert [(each.partition, each.offset) for each in drain(bench.consumer("a"))] == [(0, 2), (0, 3), (0, 4)]


def test_a_group_that_goes_back_to_what_is_gone_has_lost_its_position(bench: Bench) -> None:
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    bench.read_all("a")
    assert bench.queue.earliest(DELIVERIES) == dict.fromkeys(range(bench.partitions), 0)
    bench.clock.now_ms += 10
    bench.queue.expire(0, {})
    bench.queue.publish(DELIVERIES, [b"x"], 0)
    assert bench.queue.earliest(DELIVERIES)[0] == 5
    assert go_back(bench.queue, DELIVERIES, "a", {0: 3}) == 2
    assert lost_of(bench.queue, DELIVERIES, "a") == 2
    with pytest.raises(PositionLostError):
        drain(bench.consumer("a"))


def test_a_group_that_is_at_the_ends_has_read_all(bench: Bench) -> None:
    assert bench.queue.ends(DELIVERIES) == dict.fromkeys(range(bench.partitions), 0)
    for partition in range(bench.partitions):
        bench.queue.publish(DELIVERIES, numbered(3 + partition), partition)
    ends = bench.queue.ends(DELIVERIES)
    assert ends == {partition: 3 + partition for partition in range(bench.partitions)}
    consumer = bench.consumer("a")
    consumer.commit(after(drain(consumer)))
    assert bench.queue.positions(DELIVERIES, "a") == ends
    bench.clock.now_ms += 10
    bench.queue.expire(0, {})
    assert bench.queue.ends(DELIVERIES) == ends, "what has expired counts"


def test_a_group_goes_back_only_while_it_has_no_consumer_and_only_in_what_there_is(bench: Bench) -> None:
    assert bench.queue.positions(DELIVERIES, "a") == {}
    assert go_back(bench.queue, DELIVERIES, "a", {0: 0}) == 0, (
        "a group that was never there has nothing to go back from"
    )
    with pytest.raises(ValueError, match="partition"):
        bench.queue.move(DELIVERIES, "a", {bench.partitions: 0})
    bench.queue.publish(DELIVERIES, [b"x"], 0)
    consumer = bench.consumer("a")
    consumer.commit(after(drain(consumer)))
    with pytest.raises(GroupBusyError):
        go_back(bench.queue, DELIVERIES, "a", {0: 0})
    assert bench.queue.positions(DELIVERIES, "a")[0] == 1


def test_a_waiting_poll_wakes_up_when_something_is_published(bench: Bench) -> None:
    consumer = bench.consumer("a")
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(consumer.poll, 10, 60.0)
        bench.queue.publish(DELIVERIES, [b"x"])
        assert values(polled.result(30)) == [b"x"]


# Tails
# ----------------------------------------------------------------------------------------------------------------------


def test_a_tail_reads_what_is_published_after_it_began_and_nothing_else(bench: Bench) -> None:
    bench.publish_everywhere(numbered(5))
    tail = bench.tail()
    assert drain(tail) == []
    bench.queue.publish(ACTIONS, [b"another topic"])
    bench.publish_everywhere(numbered(10, 5))
    seen = drain(tail, limit=4)
    assert sorted(seen) == [
        Message(partition, offset, b"%d" % offset) for partition in range(bench.partitions) for offset in range(5, 15)
    ]
    for partition in range(bench.partitions):
        own = [message.offset for message in seen if message.partition == partition]
        assert own == list(range(5, 15)), "in the order of their offsets"


def test_every_tail_reads_all_of_it_and_no_group_hears_of_that(bench: Bench) -> None:
    first = bench.tail()
    bench.queue.publish(DELIVERIES, [b"1"])
    second = bench.tail()
    bench.queue.publish(DELIVERIES, [b"2"])
    assert sorted(values(drain(first))) == [b"1", b"2"]
    assert values(drain(second)) == [b"2"]
    assert lag_of(bench.queue, DELIVERIES, "a") == 2
    assert sorted(values(drain(bench.consumer("a")))) == [b"1", b"2"]


def test_the_polls_of_a_tail_are_bounded(bench: Bench) -> None:
    tail = bench.tail()
    with pytest.raises(ValueError, match="limit"):
        tail.poll(0, 0)
    bench.publish_everywhere([bytes(225_000)] * 9 + [b"small"] * 9)
    polls = []
    while some := tail.poll(12, 0):
        polls.append(some)
    assert all(len(some) <= 12 and sum(map(len, values(some))) <= MAX_POLL_BYTES for some in polls)
    assert sum(map(len, polls)) == 18 * bench.partitions


def test_a_tail_keeps_nothing_from_expiring_and_says_that_it_has_lost_it(bench: Bench) -> None:
    if bench.reads_ahead:
        pytest.skip("what it has read ahead is here already")
    tail = bench.tail()
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    assert values(tail.poll(2, 0)) == numbered(2)
    assert bench.queue.expire(-1, {DELIVERIES: ["a"]}) == 5
    bench.queue.publish(DELIVERIES, [b"x"], bench.partitions - 1)
    for _ in range(2):
        with pytest.raises(PositionLostError, match=r"feed\.deliveries/0"):
            tail.poll(10, 0)
    again = bench.tail()
    bench.queue.publish(DELIVERIES, [b"y"], 0)
    assert values(drain(again)) == [b"y"]


def test_a_tail_that_has_read_all_of_it_loses_nothing_when_it_expires(bench: Bench) -> None:
    tail = bench.tail()
    bench.queue.publish(DELIVERIES, numbered(5), 0)
    drain(tail)
    bench.queue.expire(-1, {})
    bench.queue.publish(DELIVERIES, [b"x"], 0)
    assert drain(tail) == [Message(0, 5, b"x")]


def test_a_waiting_tail_wakes_up_when_something_is_published(bench: Bench) -> None:
    tail = bench.tail()
    assert tail.poll(10, 0.001) == []
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(tail.poll, 10, 60.0)
        bench.queue.publish(DELIVERIES, [b"x"])
        assert values(polled.result(30)) == [b"x"]


def test_a_tail_that_begins_while_others_publish_misses_nothing_of_what_comes_after(bench: Bench) -> None:
    """What one thread publishes in one partition comes without a hole, from wherever the tail begins."""
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(
            lambda: [bench.queue.publish(DELIVERIES, [b"%d" % number], 0) for number in range(100)]
        )
        tails = [bench.tail() for _ in range(3)]
        publishing.result()
    for tail in tails:
        offsets = [message.offset for message in drain(tail)]
        assert offsets == list(range(100 - len(offsets), 100))


def test_a_closed_tail_is_not_used_and_closing_a_queue_ends_its_tails(bench: Bench) -> None:
    closed, waiting = bench.tail(), bench.tail()
    closed.close()
    closed.close()
    with pytest.raises(QueueError):
        closed.poll(1, 0)
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(waiting.poll, 1, 60.0)
        bench.queue.close()
        with pytest.raises(QueueError):
            polled.result(30)
    with pytest.raises(QueueError):
        bench.queue.tail(DELIVERIES)


# Threads and ends
# ----------------------------------------------------------------------------------------------------------------------


def test_many_threads_publish_and_consume_at_once(bench: Bench) -> None:
    calls, size, publishers = 20, 5, 4
    total = calls * size * publishers
    consumers = {group: bench.consumer(group) for group in "ab"}

    def publish(publisher: int) -> None:
        for call in range(calls):
            bench.queue.publish(DELIVERIES, [b"%d %d %d" % (publisher, call, number) for number in range(size)])

    def consume(group: str) -> list[Message]:
        seen: list[Message] = []
        while len(seen) < total:
            some = consumers[group].poll(7, 30.0)
            assert some, "nothing came any more"
            consumers[group].commit(after(some))
            seen += some
        return seen

    with ThreadPoolExecutor(publishers + 2) as pool:
        reading = [pool.submit(consume, group) for group in consumers]
        for done in [pool.submit(publish, publisher) for publisher in range(publishers)]:
            done.result()
        for seen in (future.result() for future in reading):
            assert len(set(values(seen))) == len(seen) == total
            for partition in range(bench.partitions):
                own = [message.offset for message in seen if message.partition == partition]
                assert own == list(range(len(own)))
    assert lag_of(bench.queue, DELIVERIES, "a") == lag_of(bench.queue, DELIVERIES, "b") == 0


def test_a_closed_consumer_is_not_used(bench: Bench) -> None:
    consumer = bench.consumer("a")
    consumer.close()
    consumer.close()
    for use in (lambda: consumer.poll(1, 0), lambda: consumer.commit({0: 0})):
        with pytest.raises(QueueError):
            use()


def test_closing_a_queue_ends_a_waiting_poll(bench: Bench) -> None:
    consumer = bench.consumer("a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.poll, 1, 60.0)
        bench.queue.close()
        bench.queue.close()
        with pytest.raises(QueueError):
            waiting.result(30)
    with pytest.raises(QueueError):
        bench.queue.publish(DELIVERIES, [b"x"])
