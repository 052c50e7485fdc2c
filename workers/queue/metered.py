"""A queue whose calls are counted: how long they took, and why they failed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from feedstore.metering import Meter
from workers.queue import metrics
from workers.queue.port import (
    Consumer,
    DamagedQueueError,
    Message,
    MessageRefusedError,
    PositionLostError,
    Queue,
    QueueError,
    QueueUnavailableError,
    Tail,
    Topic,
)

Result = TypeVar("Result")


class _Calls:
    """Counts calls. clock: monotonic seconds."""

    def __init__(self, meter: Meter, clock: Callable[[], float]) -> None:
        self._meter = meter
        self._clock = clock

    def begin(self, topic: Topic[object], *calls: str) -> None:
        """Counts 0 failures of each kind, so that the first one is seen as an increase."""
        for call in calls:
            for reason in metrics.REASONS[call]:
                self._meter.add(metrics.FAILURES, 0, topic.name, call, reason)

    def call(self, topic: Topic[object], name: str, work: Callable[[], Result]) -> Result:
        """Makes a call and counts it. The duration of a poll that brings nothing is not counted: it is the time-out and
        tells nothing about the queue.
        """
        began_s = self._clock()
        try:
            result = work()
        except (MessageRefusedError, PositionLostError, DamagedQueueError, QueueUnavailableError) as error:
            self._meter.add(metrics.FAILURES, 1, topic.name, name, _reason(error))
            self._observe(topic, name, began_s)
            raise
        if result or name != "poll":
            self._observe(topic, name, began_s)
        return result

    def _observe(self, topic: Topic[object], name: str, began_s: float) -> None:
        self._meter.observe(metrics.CALL_SECONDS, [self._clock() - began_s], topic.name, name)


def _reason(error: QueueError) -> str:
    match error:
        case MessageRefusedError():
            return "refused"
        case PositionLostError() | DamagedQueueError():
            return "lost"
        case _:
            return "unavailable"


class MeteredQueue:
    """A queue whose calls are counted. queue: makes the calls. topics: all topics that are published to. clock:
    monotonic seconds.

    Publishing, polling and committing are counted: they happen for each lot. Tails belong to no group and are not.
    """

    def __init__(self, queue: Queue, topics: Iterable[Topic[object]], meter: Meter, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._calls = _Calls(meter, clock)
        for topic in topics:
            self._calls.begin(topic, "publish")

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        self._calls.call(topic, "publish", lambda: self._queue.publish(topic, values, partition))

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        self._calls.call(topic, "publish", lambda: self._queue.publish_each(topic, values))

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        self._calls.call(topic, "publish", lambda: self._queue.spread(topic, values))

    def sync(self, topic: Topic[object]) -> None:
        self._queue.sync(topic)

    def consumer(self, topic: Topic[object], group: str) -> "MeteredConsumer":
        self._calls.begin(topic, "poll", "commit")
        return MeteredConsumer(self._queue.consumer(topic, group), topic, self._calls)

    def partitions(self, topic: Topic[object]) -> int:
        return self._queue.partitions(topic)

    def topic_id(self, topic: Topic[object]) -> bytes | None:
        return self._queue.topic_id(topic)

    def tail(self, topic: Topic[object]) -> Tail:
        return self._queue.tail(topic)

    def members(self, topic: Topic[object], group: str) -> int | None:
        return self._queue.members(topic, group)

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        return self._queue.positions(topic, group)

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        return self._queue.earliest(topic)

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        return self._queue.ends(topic)

    def since(self, topic: Topic[object], from_ms: int) -> dict[int, int]:
        return self._queue.since(topic, from_ms)

    def move(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        self._queue.move(topic, group, positions)

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:
        return self._queue.expire(kept_ms, readers)

    def close(self) -> None:
        self._queue.close()


class MeteredConsumer:
    """A member of a group, whose calls are counted."""

    def __init__(self, consumer: Consumer, topic: Topic[object], calls: _Calls) -> None:
        """For MeteredQueue."""
        self._consumer = consumer
        self._topic = topic
        self._calls = calls

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        return self._calls.call(self._topic, "poll", lambda: self._consumer.poll(limit, timeout_s))

    def commit(self, positions: Mapping[int, int]) -> None:
        self._calls.call(self._topic, "commit", lambda: self._consumer.commit(positions))

    def held(self) -> frozenset[int]:
        return self._consumer.held()

    def keep_alive(self) -> None:
        self._consumer.keep_alive()

    def close(self) -> None:
        self._consumer.close()
