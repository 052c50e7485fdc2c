"""What Kafka brings beyond the port's other adapters: members that come and go, positions that are lost, topics."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from kafka.structs import MemberState
from kafka_bench import Cluster, new_address, wait_until
from queue_benches import after, drain, values

from tests.queue.memory_queue import MemoryDeadLetters
from tests.slots import EachAlone
from tests.threads import running
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.queue.kafka import KafkaConsumer, KafkaDeadLetters, KafkaQueue, reading, topics
from workers.queue.port import (
    GroupBusyError,
    Message,
    PositionLostError,
    QueueError,
    QueueUnavailableError,
    Topic,
    lag_of,
    lost_of,
    reset,
    single,
)

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("broker")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(4)
    yield cluster
    cluster.close()


@pytest.fixture
def kafka_queue(cluster: Cluster) -> Iterator[KafkaQueue]:
    opened = KafkaQueue.open(cluster.address, TOPICS)
    yield opened
    opened.close()


@pytest.fixture
def hasty_queue(cluster: Cluster) -> Iterator[KafkaQueue]:
    """Its members have to ask every two seconds."""
    opened = KafkaQueue.open(replace(cluster.address, max_poll_interval_ms=2_000), TOPICS)
    yield opened
    opened.close()


def publish(opened: KafkaQueue, each: int = 10) -> set[bytes]:
    """Some messages in each partition."""
    published = set()
    for partition in range(opened.partitions(DELIVERIES)):
        batch = [b"%d/%d" % (partition, number) for number in range(each)]
        opened.publish(DELIVERIES, batch, partition)
        published |= set(batch)
    return published


def read(member: KafkaConsumer, count: int) -> list[Message]:
    """Polls until that many have come."""
    messages: list[Message] = []
    wait_until(lambda: len(messages) >= count, lambda: messages.extend(member.poll(100, 0.1)))
    assert len(messages) == count
    return messages


def balanced(*members: KafkaConsumer) -> bool:
    held = [member.held() for member in members]
    stable = all(member._client.group_metadata().state == MemberState.STABLE for member in members)
    return stable and len(frozenset().union(*held)) == sum(map(len, held)) == 4 and all(held)


def balance(*members: KafkaConsumer) -> None:
    """Until the group has come to rest: every member is asked in a thread of its own, as in real life."""
    rested = threading.Event()

    def work(member: KafkaConsumer) -> None:
        while not rested.is_set():
            member._ask(0, 0.05)

    with ThreadPoolExecutor(len(members)) as pool:
        working = [pool.submit(work, member) for member in members]
        try:
            wait_until(lambda: balanced(*members))
        finally:
            rested.set()
        for each in working:
            each.result()


# Members.


def test_members_share_the_partitions_and_take_over_from_each_other(kafka_queue: KafkaQueue) -> None:
    published = publish(kafka_queue)
    first = kafka_queue.consumer(DELIVERIES, "a")
    second = kafka_queue.consumer(DELIVERIES, "a")
    balance(first, second)
    own = read(first, 10 * len(first.held()))
    other = read(second, 10 * len(second.held()))
    assert set(values(own)) | set(values(other)) == published
    assert set(values(own)) & set(values(other)) == set()
    first.commit(after(own))
    second.close()
    again = read(first, len(other))
    assert set(values(again)) == set(values(other)), "it was not committed"
    first.commit(after(again))
    assert lag_of(kafka_queue, DELIVERIES, "a") == 0
    first.close()


def test_what_stays_with_a_member_is_not_read_again(kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    first = kafka_queue.consumer(DELIVERIES, "a")
    read(first, 40)
    second = kafka_queue.consumer(DELIVERIES, "a")
    balance(first, second)
    assert drain(first) == []
    assert {message.partition for message in read(second, 10 * len(second.held()))} == second.held()
    first.close()
    second.close()


def test_a_commit_after_a_partition_went_away_moves_only_what_stayed(kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    first = kafka_queue.consumer(DELIVERIES, "a")
    done = after(read(first, 40))
    second = kafka_queue.consumer(DELIVERIES, "a")
    balance(first, second)
    first.commit(done)
    # The group may have begun to move once more: then it is stored when that is over.
    wait_until(lambda: lag_of(kafka_queue, DELIVERIES, "a") == 10 * len(second.held()), lambda: balance(first, second))
    again = read(second, 10 * len(second.held()))
    second.commit(after(again))
    second.close()
    balance(first)
    first.commit(dict.fromkeys(range(4), 1))
    assert lag_of(kafka_queue, DELIVERIES, "a") == 0, "a position went back"
    assert drain(first) == []
    first.close()


def test_a_commit_in_the_middle_of_a_move_is_stored_when_it_is_over(kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    first = kafka_queue.consumer(DELIVERIES, "a")
    done = after(read(first, 40))
    second = kafka_queue.consumer(DELIVERIES, "a")
    second._client.poll(timeout_ms=200)  # it asks for its share; the first one does not know yet
    first.commit(done)
    balance(first, second)
    first.keep_alive()
    assert lag_of(kafka_queue, DELIVERIES, "a") in {0, 10 * len(second.held())}
    first.close()
    second.close()


def test_a_commit_does_not_wait_for_a_join_that_waits_for_others(kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    first = kafka_queue.consumer(DELIVERIES, "a")
    done = after(read(first, 40))
    second = kafka_queue.consumer(DELIVERIES, "a")
    balance(first, second)
    first._client._coordinator.request_rejoin()
    first._ask(0, 0.0)  # it has joined; the second one is not asked, so the join cannot end
    first.commit(done)
    wait_until(lambda: lag_of(kafka_queue, DELIVERIES, "a") == 10 * len(second.held()), lambda: balance(first, second))
    first.close()
    second.close()


def test_a_member_that_hangs_gives_way_and_comes_back(hasty_queue: KafkaQueue) -> None:
    publish(hasty_queue)
    hung = hasty_queue.consumer(DELIVERIES, "a")
    done = after(read(hung, 40))
    other = hasty_queue.consumer(DELIVERIES, "a")
    again: list[Message] = []
    wait_until(lambda: len(again) == 40, lambda: again.extend(other.poll(100, 0.1)))
    other.commit(after(again[:0]) | dict.fromkeys(range(4), 9))
    hung.commit(done)  # no error, and nothing stored: others read these now
    assert lag_of(hasty_queue, DELIVERIES, "a") == 4
    other.close()
    assert len(read(hung, 4)) == 4
    hung.close()


def test_a_stage_keeps_its_partitions_while_its_handler_takes_longer_than_members_may_be_silent(
    hasty_queue: KafkaQueue,
) -> None:
    published = publish(hasty_queue)
    handled: list[bytes] = []

    def handle(bodies: Sequence[bytes]) -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            time.sleep(0.1)
        handled.extend(bodies)

    spec: StageSpec[bytes] = StageSpec(
        group="a",
        topic=Topic(DELIVERIES.name, durable=False, decode=single(bytes)),
        encode=bytes,
        handle=handle,
        ticks=lambda _: None,
        slots=EachAlone(),
        batch=20,
    )
    consumer = hasty_queue.consumer(DELIVERIES, "a")
    stage = Stage(spec, consumer, MemoryDeadLetters(), RetryPolicy(), random.Random(1), time.monotonic, lambda: 1)
    wait_until(lambda: len(handled) >= 40 and lag_of(hasty_queue, DELIVERIES, "a") == 0, stage.step)
    stage.close()
    assert sorted(handled) == sorted(published), "each once"


def test_a_member_without_room_keeps_its_partitions(hasty_queue: KafkaQueue) -> None:
    publish(hasty_queue)
    member = hasty_queue.consumer(DELIVERIES, "a")
    done = after(read(member, 40))
    over = threading.Event()

    def fill() -> None:
        # In a thread of its own: the member may not wait for a broker that is slow to write.
        while not over.wait(0.1):
            hasty_queue.publish(DELIVERIES, [bytes(100_000)] * 4)

    with running([threading.Thread(target=fill)], over):
        until = time.monotonic() + 4
        while time.monotonic() < until:
            member.keep_alive()
            assert member._ahead.size <= reading.FETCH_BYTES
            time.sleep(0.1)
    held = member._ahead.count
    assert held <= 40, "nothing is read ahead meanwhile"
    member.commit(done)
    assert member.held() == set(range(4))
    more: list[Message] = []
    wait_until(lambda: bool(more), lambda: more.extend(member.poll(100, 0.1)))
    assert all(message.offset >= 10 for message in more), "it was not read again"
    member.close()


def test_a_stopped_process_loses_its_partitions_and_resumes_without_harm(kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    program = """
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import KafkaQueue, consumer, parse
consumer.SESSION_TIMEOUT_MS, consumer.HEARTBEAT_MS = 6_000, 1_000
address = replace(parse(sys.argv[1], Path(), {}), prefix=sys.argv[2])
queue = KafkaQueue.open(address, TOPICS)
member = queue.consumer(DELIVERIES, "a")
done = {}
while sum(done.values()) < 40:
    done |= {message.partition: message.offset + 1 for message in member.poll(100, 1.0)}
print("read", flush=True)
sys.stdin.readline()
member.commit(dict.fromkeys(done, 5))
print("committed", flush=True)
for _ in range(50):
    member.poll(1, 0.1)
member.close()
queue.close()
"""
    address = kafka_queue._address
    stopped = subprocess.Popen(
        [sys.executable, "-c", program, str(address), address.prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        lines = iter(stopped.stdout.readline, "")
        assert any(line == "read\n" for line in lines)
        stopped.send_signal(signal.SIGSTOP)
        other = kafka_queue.consumer(DELIVERIES, "a")
        again = read(other, 40)
        other.commit(after(again))
        stopped.send_signal(signal.SIGCONT)
        stopped.stdin.write("\n")
        stopped.stdin.flush()
        assert any(line == "committed\n" for line in lines)
        # It takes some of the partitions again, and leaves them when it ends.
        again = []
        wait_until(lambda: stopped.poll() is not None, lambda: again.extend(other.poll(100, 0.1)))
        assert stopped.returncode == 0
        assert again == [], "a position went back"
        publish(kafka_queue, 1)
        wait_until(lambda: len(again) >= 4, lambda: again.extend(other.poll(100, 0.1)))
        assert {(message.partition, message.offset) for message in again} == {(each, 10) for each in range(4)}
        other.close()
    finally:
        stopped.kill()
        stopped.communicate()


# Positions.


def test_a_lost_position_is_said_while_the_member_lives_and_after(cluster: Cluster, kafka_queue: KafkaQueue) -> None:
    publish(kafka_queue)
    kafka_queue.consumer(DELIVERIES, "a").close()
    cluster.delete_before(DELIVERIES, 2, 7)
    assert lost_of(kafka_queue, DELIVERIES, "a") == 7
    member = kafka_queue.consumer(DELIVERIES, "a")
    with pytest.raises(
        PositionLostError, match=r"feed\.deliveries/2: a consumer of a wants offset 0, .* earliest .* is 7"
    ):
        wait_until(lambda: False, lambda: member.poll(100, 0.2))
    with pytest.raises(PositionLostError):
        member.poll(1, 0)
    with pytest.raises(GroupBusyError):
        reset(kafka_queue, DELIVERIES, "a")
    member.close()
    assert reset(kafka_queue, DELIVERIES, "a") == 7
    member = kafka_queue.consumer(DELIVERIES, "a")
    read(member, 33)
    member.close()


# Tails.


def test_a_tail_reads_partitions_that_are_added_from_their_first_message(
    cluster: Cluster, kafka_queue: KafkaQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "METADATA_MS", 1_000)
    publish(kafka_queue)
    tail = kafka_queue.tail(DELIVERIES)
    more = topics.definitions(cluster.address, TOPICS, partitions=5, replication=1, action_age_ms=1)
    topics.apply(cluster.address, more)
    wait_until(lambda: published_to(kafka_queue, 4))
    kafka_queue.publish(DELIVERIES, [b"old"], 0)
    seen: set[bytes] = set()
    wait_until(lambda: seen == {b"old", b"new"}, lambda: seen.update(values(tail.poll(100, 0.1))))
    tail.close()


def test_a_tail_whose_messages_are_gone_says_so(cluster: Cluster, kafka_queue: KafkaQueue) -> None:
    tail = kafka_queue.tail(DELIVERIES)
    publish(kafka_queue)
    cluster.delete_before(DELIVERIES, 2, 7)
    for _ in range(2):
        with pytest.raises(PositionLostError, match=r"feed\.deliveries/2: a tail wants offset 0, .* earliest .* is 7"):
            wait_until(lambda: False, lambda: tail.poll(100, 0.2))
    tail.close()


def test_a_tail_is_in_no_group(cluster: Cluster, kafka_queue: KafkaQueue) -> None:
    tail = kafka_queue.tail(DELIVERIES)
    publish(kafka_queue)
    seen: list[Message] = []
    wait_until(lambda: len(seen) == 40, lambda: seen.extend(tail.poll(100, 0.1)))
    assert cluster.address.prefix not in str(cluster.admin.list_groups())
    tail.close()


# Topics and errors.


def test_topics_are_made_checked_and_mended(cluster: Cluster) -> None:
    ours = {topic.name for topic in cluster.wanted}
    longer = topics.definitions(cluster.address, TOPICS, partitions=5, replication=1, action_age_ms=10 * 86_400_000)

    def found() -> list[tuple[str, str]]:
        return sorted(
            (difference.topic.removeprefix(cluster.address.prefix), difference.what)
            for difference in topics.differences(cluster.address, longer)
            if difference.topic in ours
        )

    assert found() == [
        ("feed.actions", "partitions"),
        ("feed.actions", "retention.ms"),
        ("feed.deliveries", "partitions"),
        ("feed.deliveries", "retention.ms"),
        ("feed.retries", "partitions"),
        ("feed.retries", "retention.ms"),
    ]
    left = topics.apply(cluster.address, longer)
    assert not [difference for difference in left if difference.topic in ours]

    def still() -> list[str]:
        return [difference.what for difference in topics.differences(cluster.address, cluster.wanted)][:2]

    # Partitions are never taken away, and a longer retention is none of rule 8's business.
    wait_until(lambda: still() == ["partitions", "partitions"])


def test_a_leader_whose_join_ends_between_two_polls_joins_again(
    cluster: Cluster, kafka_queue: KafkaQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "METADATA_MS", 200)
    publish(kafka_queue)
    member = kafka_queue.consumer(DELIVERIES, "a")
    member.commit(after(read(member, 40)))
    wanted = topics.definitions(cluster.address, TOPICS, partitions=5, replication=1, action_age_ms=1)
    topics.apply(cluster.address, wanted)
    coordinator = member._client._coordinator
    wait_until(lambda: coordinator._join_task is not None, lambda: member._client.poll(timeout_ms=0))
    wait_until(lambda: coordinator._join_task.is_done)
    wait_until(lambda: member.held() == frozenset(range(5)), lambda: member.poll(100, 0))
    member.close()


def test_partitions_that_are_added_are_used_by_those_who_work_already(
    cluster: Cluster, kafka_queue: KafkaQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "METADATA_MS", 1_000)
    publish(kafka_queue)
    member = kafka_queue.consumer(DELIVERIES, "a")
    member.commit(after(read(member, 40)))
    wanted = topics.definitions(cluster.address, TOPICS, partitions=5, replication=1, action_age_ms=1)
    topics.apply(cluster.address, wanted)
    wait_until(lambda: kafka_queue.partitions(DELIVERIES) == 5)
    with pytest.raises(ValueError, match="partition"):
        kafka_queue.publish(DELIVERIES, [b"x"], 5)
    wait_until(lambda: published_to(kafka_queue, 4))
    stored = lag_of(kafka_queue, DELIVERIES, "a")
    assert stored >= 1, "a call that failed may have stored it as well"
    new = read(member, stored)
    assert {(message.partition, message.value) for message in new} == {(4, b"new")}
    member.commit(after(new))
    assert lag_of(kafka_queue, DELIVERIES, "a") == 0
    member.close()


def published_to(opened: KafkaQueue, partition: int) -> bool:
    """Whether it could be published to a partition that its producer may not have heard of."""
    try:
        opened.publish(DELIVERIES, [b"new"], partition)
    except QueueUnavailableError:
        return False
    return True


def test_missing_topics_are_named_and_not_made() -> None:
    address = new_address()
    for use in (partial(KafkaQueue.open, topics=TOPICS), KafkaDeadLetters.open):
        for _ in range(2):
            with pytest.raises(QueueUnavailableError, match=r"no topic test-.*feed\..* make it first"):
                use(address)


def test_a_producer_that_failed_is_replaced(kafka_queue: KafkaQueue) -> None:
    kafka_queue.publish(ACTIONS, [b"x"])
    for _ in range(2):
        with kafka_queue._choosing.current() as producer:
            producer.close()
        with pytest.raises(QueueError):
            kafka_queue.publish(ACTIONS, [b"lost"])
        kafka_queue.publish(ACTIONS, [b"x"])
    assert lag_of(kafka_queue, ACTIONS, "a") == 3
    assert kafka_queue._choosing._not_closed == []


def test_a_large_call_is_spread_over_the_partitions(kafka_queue: KafkaQueue) -> None:
    kafka_queue.publish(ACTIONS, [bytes(1_000)] * 2_000)
    member = kafka_queue.consumer(ACTIONS, "a")
    counts = dict.fromkeys(range(4), 0)
    for message in read(member, 2_000):
        counts[message.partition] += 1
    assert min(counts.values()) > 300
    member.close()


# Dead letters.


def test_letters_are_the_same_for_everybody_and_space_is_freed_from_the_front(cluster: Cluster) -> None:
    here, there = KafkaDeadLetters.open(cluster.address), KafkaDeadLetters.open(cluster.address)
    for number in range(3):
        here.bury(ACTIONS, "a", "r", "x" * 50_000, number, b"%d" % number)
    assert there.letters(0, 10) == here.letters(0, 10)
    assert len(there.letters(0, 1)[0].detail) < 25_000
    assert there.drop(1)
    assert here.letter(1) is None
    there.bury(ACTIONS, "a", "r", "", 1, b"1")
    assert here.count() == 2
    assert here.drop(3)
    assert here.drop(2)
    assert (here.count(), there.count()) == (0, 0)
    for letters in (here, there):
        letters.close()
    again = KafkaDeadLetters.open(cluster.address)
    assert again.letters(0, 10) == []
    again.bury(ACTIONS, "a", "r", "", 1, b"1")
    (letter,) = again.letters(0, 10)
    assert letter.id > 3
    again.close()


# Threads that share a queue.


def test_many_threads_ask_at_once(kafka_queue: KafkaQueue) -> None:
    """As the loops of a worker do when it starts, and the looks of `feedctl status`. All use one connection."""
    at_once = threading.Barrier(32)

    def ask() -> None:
        at_once.wait()
        for _ in range(5):
            kafka_queue.partitions(DELIVERIES)
            kafka_queue.positions(DELIVERIES, "a")
            kafka_queue.ends(DELIVERIES)

    with ThreadPoolExecutor(at_once.parties) as pool:
        for asked in [pool.submit(ask) for _ in range(at_once.parties)]:
            asked.result()
