"""What the tests of queues share: a queue with its clock and its restart, made for each adapter."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from feedstore.metering import UNCOUNTED
from tests.queue.memory_queue import MemoryQueue
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.embedded import EmbeddedQueue
from workers.queue.metered import MeteredQueue
from workers.queue.port import Consumer, Message, Queue, Tail, Topic

START_MS = 1_700_000_000_000


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Bench:
    """A queue under test, and what a test needs besides the port: its clock and a restart."""

    def __init__(self, queue: Queue, reopen: Callable[[Queue], Queue], clock: Clock, partitions: int) -> None:
        self._reopen = reopen
        self._consumers = ExitStack()
        self.queue = queue
        self.closing = ExitStack()
        self.one_member = True
        """Whether a group has one live consumer on a topic."""
        self.expires = True
        """Whether messages expire when it is told to, and not by settings of its own."""
        self.reads_ahead = False
        """Whether what a live consumer was about to poll survives its expiry."""
        self.clock = clock
        self.partitions = partitions

    def consumer(self, group: str, topic: Topic[object] = DELIVERIES) -> Consumer:
        consumer = self.queue.consumer(topic, group)
        self._consumers.callback(consumer.close)
        return consumer

    def tail(self, topic: Topic[object] = DELIVERIES) -> Tail:
        tail = self.queue.tail(topic)
        self._consumers.callback(tail.close)
        return tail

    def publish_everywhere(self, values: list[bytes]) -> None:
        """In every partition."""
        self.queue.publish_each(DELIVERIES, dict.fromkeys(range(self.partitions), values))

    def read_all(self, group: str) -> None:
        """A consumer of the group comes, reads and commits all that there is, and goes."""
        consumer = self.queue.consumer(DELIVERIES, group)
        consumer.commit(after(drain(consumer)))
        consumer.close()

    def restart(self) -> None:
        """All consumers and tails are gone, and the queue comes back as a new process would find it."""
        self._consumers.close()
        self.queue = self._reopen(self.queue)

    def pass_time(self) -> int:
        """Returns a time by the clock that publish times are stamped with: after what was published so far, and not
        after what will be.
        """
        self.clock.now_ms += 1_000
        return self.clock.now_ms

    def close(self) -> None:
        with self.closing:
            self._consumers.close()
            self.queue.close()


def memory_bench(partitions: int, directory: Path) -> Bench:
    clock = Clock()
    return Bench(MemoryQueue(dict.fromkeys(TOPICS, partitions), clock), lambda queue: queue, clock, partitions)


def metered_bench(partitions: int, directory: Path) -> Bench:
    """A queue whose calls are counted: it is a queue like those that it counts."""
    clock = Clock()
    queue = MeteredQueue(MemoryQueue(dict.fromkeys(TOPICS, partitions), clock), TOPICS, UNCOUNTED, time.monotonic)
    return Bench(queue, lambda queue: queue, clock, partitions)


def embedded_bench(partitions: int, directory: Path) -> Bench:
    clock = Clock()
    path = directory / "queue.db"
    EmbeddedQueue.create(path, dict.fromkeys(TOPICS, partitions))

    def reopen(queue: Queue) -> Queue:
        queue.close()
        return EmbeddedQueue.open(path, TOPICS, clock)

    return Bench(EmbeddedQueue.open(path, TOPICS, clock), reopen, clock, partitions)


def drain(consumer: Consumer | Tail, limit: int = 1_000) -> list[Message]:
    """Everything there is now."""
    messages: list[Message] = []
    while some := consumer.poll(limit, 0):
        messages += some
    return messages


def values(messages: list[Message]) -> list[bytes]:
    return [message.value for message in messages]


def after(messages: list[Message]) -> dict[int, int]:
    """The positions behind messages, by partition."""
    return {message.partition: message.offset + 1 for message in messages}
