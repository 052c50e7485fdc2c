"""The real Kafka under the queue's tests: the broker of the local stack.

Every bench makes its own topics behind a prefix of its own, and removes them. Two wrappers give the tests what a broker
has no use for: a clock that they move, for expiry, and polls without a timeout that see all that was published.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafka.structs import TopicPartition
from queue_benches import Bench, Clock

from deploy.local import Stack
from workers.following.topics import TOPICS
from workers.queue.kafka import KafkaAddress, KafkaConsumer, KafkaDeadLetters, KafkaQueue, KafkaTail, parse, topics
from workers.queue.kafka.queue import connect
from workers.queue.port import Message, Topic

SETTLE_S = 60.0

_ports: list[int] = []


def use(stack: Stack) -> None:
    """From now on its broker is used, which is started."""
    stack.up("kafka")
    _ports[:] = [stack.port("kafka")]


def new_address() -> KafkaAddress:
    assert _ports, "the test does not ask for the fixture `broker`"
    return replace(parse(f"kafka://127.0.0.1:{_ports[0]}", Path(), {}), prefix=f"test-{uuid.uuid4().hex[:12]}.")


class Cluster:
    """Topics of a test, and what an operator can do to them."""

    def __init__(self, partitions: int) -> None:
        self.address = new_address()
        self.partitions = partitions
        self.wanted = topics.definitions(
            self.address, TOPICS, partitions=partitions, replication=1, action_age_ms=86_400_000
        )
        topics.apply(self.address, self.wanted)
        self.admin = connect(self.address)

    def delete_before(self, topic: Topic[object], partition: int, offset: int) -> None:
        """What retention does to a partition."""
        self.admin.delete_records({TopicPartition(self.address.named(topic.name), partition): offset})

    def close(self) -> None:
        self.admin.delete_topics([topic.name for topic in self.wanted])
        self.admin.close()


class PromptTail:
    """A reader whose polls without a timeout see what was published before."""

    def __init__(self, reader: KafkaConsumer | KafkaTail) -> None:
        self._reader = reader
        self.close = reader.close

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        if timeout_s or limit < 1:
            return self._reader.poll(limit, timeout_s)
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            messages = self._reader.poll(limit, 0.05)
            if messages or self._read_all():
                return messages
        raise AssertionError("a poll did not see what was published")

    def _read_all(self) -> bool:
        """Whether everything that is there has been polled: positions are asked of the client itself."""
        client = self._reader._client
        places = list(client.assignment())
        ends = client.end_offsets(places)
        return not self._reader._ahead.count and all(
            client.position(place, timeout_ms=10_000) == ends[place] for place in places
        )


class PromptConsumer(PromptTail):
    """A member that has joined when it is made."""

    def __init__(self, queue: KafkaQueue, consumer: KafkaConsumer, topic: Topic[object]) -> None:
        super().__init__(consumer)
        self.commit = consumer.commit
        self.held = consumer.held
        self.keep_alive = consumer.keep_alive
        wait_until(lambda: len(consumer.held()) == queue.partitions(topic), consumer.keep_alive)


class Calls:
    """When the messages in the topics were published, by the test's clock.

    ends: by topic and partition, the offset after all that was published at a time, and that time.
    unnoted_ms: when that was published whose ends have not been asked for: asking costs as much as publishing.
    """

    def __init__(self) -> None:
        self.ends: dict[tuple[Topic[object], int], list[tuple[int, int]]] = {}
        self.unnoted_ms: int | None = None


class TestedQueue:
    """A Kafka queue that notes when it was published to, so that a test's clock decides what expires."""

    __test__ = False

    def __init__(self, cluster: Cluster, clock: Clock, calls: Calls) -> None:
        self.queue = KafkaQueue.open(cluster.address, TOPICS)
        self._cluster = cluster
        self._clock = clock
        self._calls = calls
        self.close = self.queue.close
        self.members = self.queue.members
        self.partitions = self.queue.partitions
        self.topic_id = self.queue.topic_id
        self.since = self.queue.since
        self.positions = self.queue.positions
        self.earliest = self.queue.earliest
        self.ends = self.queue.ends
        self.move = self.queue.move
        self.sync = self.queue.sync

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        self._noting(lambda: self.queue.publish(topic, values, partition))

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        self._noting(lambda: self.queue.publish_each(topic, values))

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        self._noting(lambda: self.queue.spread(topic, values))

    def _noting(self, publish: Callable[[], None]) -> None:
        if self._calls.unnoted_ms != self._clock.now_ms:
            self._note()
        publish()
        self._calls.unnoted_ms = self._clock.now_ms

    def consumer(self, topic: Topic[object], group: str) -> PromptConsumer:
        return PromptConsumer(self.queue, self.queue.consumer(topic, group), topic)

    def tail(self, topic: Topic[object]) -> PromptTail:
        return PromptTail(self.queue.tail(topic))

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:
        """What the broker's retention would do if the test's clock were its own."""
        dropped = self.queue.expire(kept_ms, readers)
        now_ms = self._clock.now_ms
        self._note()
        for (topic, partition), noted in self._calls.ends.items():
            kept = next((index for index, (_, ms) in enumerate(noted) if 0 <= now_ms - ms <= kept_ms), len(noted))
            if kept:
                end = noted[kept - 1][0]
                low = self.earliest(topic)[partition]
                if end > low:
                    self._cluster.delete_before(topic, partition, end)
                    dropped += end - low
        return dropped

    def _note(self) -> None:
        if self._calls.unnoted_ms is None:
            return
        for topic in TOPICS:
            for place, end in self.ends(topic).items():
                noted = self._calls.ends.setdefault((topic, place), [])
                if end > (noted[-1][0] if noted else 0):
                    noted.append((end, self._calls.unnoted_ms))
        self._calls.unnoted_ms = None


class KafkaBench(Bench):
    """Its publish times are the broker's, on this machine."""

    def pass_time(self) -> int:
        between_ms = time.time_ns() // 1_000_000 + 2
        time.sleep(0.005)
        return between_ms


def kafka_bench(partitions: int, directory: Path) -> Bench:
    cluster = Cluster(partitions)
    clock = Clock()
    calls = Calls()

    def reopen(queue: TestedQueue) -> TestedQueue:
        queue.close()
        return TestedQueue(cluster, clock, calls)

    bench = KafkaBench(TestedQueue(cluster, clock, calls), reopen, clock, partitions)
    bench.one_member = False
    bench.reads_ahead = True
    bench.expires = False
    bench.closing.callback(cluster.close)
    return bench


@contextlib.contextmanager
def kafka_letters():
    cluster = Cluster(1)
    letters = KafkaDeadLetters.open(cluster.address)
    try:
        yield letters
    finally:
        letters.close()
        cluster.close()


def wait_until(true: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        meanwhile()
        time.sleep(0.02)


__all__ = ["TOPICS", "Cluster", "kafka_bench", "kafka_letters", "new_address", "use", "wait_until"]
