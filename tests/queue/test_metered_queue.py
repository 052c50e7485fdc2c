"""Calls of a queue are counted, whatever the adapter is."""

import itertools
from pathlib import Path

import pytest
from queue_benches import Bench, after, memory_bench

from feedstore.metering import Counting
from tests.metering.readings import observed, value
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.queue import metrics
from workers.queue.metered import MeteredQueue
from workers.queue.port import (
    MAX_MESSAGE_BYTES,
    DamagedQueueError,
    Message,
    MessageRefusedError,
    PositionLostError,
    QueueUnavailableError,
)


def metered(bench: Bench) -> tuple[MeteredQueue, Counting]:
    """With a clock that is a second later each time."""
    meter = Counting(lambda: 0.0)
    return MeteredQueue(bench.queue, TOPICS, meter, map(float, itertools.count()).__next__), meter


def test_a_message_on_its_way_through_is_counted_at_each_call(bench: Bench) -> None:
    queue, meter = metered(bench)
    queue.publish(DELIVERIES, [b"x", b"y"], 0)
    bench.queue = queue
    consumer = bench.consumer("a")
    messages = consumer.poll(10, 5.0)
    consumer.commit(after(messages))
    for call in ("publish", "poll", "commit"):
        count, seconds = observed(meter, metrics.CALL_SECONDS, DELIVERIES.name, call)
        assert count >= 1
        assert seconds == count, "each took a second of this clock"
        assert value(meter, metrics.FAILURES, DELIVERIES.name, call, "unavailable") == 0


def test_a_poll_that_brings_nothing_says_nothing_of_the_queue(bench: Bench) -> None:
    bench.queue, meter = metered(bench)
    assert bench.consumer("a").poll(10, 0) == []
    assert meter.counts().spreads == []


def test_a_message_that_is_too_large_is_a_failure(bench: Bench) -> None:
    queue, meter = metered(bench)
    with pytest.raises(MessageRefusedError):
        queue.publish(ACTIONS, [b"x" * (MAX_MESSAGE_BYTES + 1)])
    assert value(meter, metrics.FAILURES, ACTIONS.name, "publish", "refused") == 1
    assert observed(meter, metrics.CALL_SECONDS, ACTIONS.name, "publish") == (1, 1.0)


class Failing:
    """A consumer whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        raise self._error

    def commit(self, positions: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "call", "reason"),
    [
        (QueueUnavailableError("away"), "poll", "unavailable"),
        (PositionLostError("gone"), "poll", "lost"),
        (DamagedQueueError("corrupt"), "poll", "lost"),
        (QueueUnavailableError("away"), "commit", "unavailable"),
    ],
)
def test_a_call_that_fails_is_counted_by_its_reason(
    error: Exception, call: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = memory_bench(1, Path())
    monkeypatch.setattr(bench.queue, "consumer", lambda topic, group: Failing(error))
    queue, meter = metered(bench)
    consumer = queue.consumer(DELIVERIES, "a")
    assert value(meter, metrics.FAILURES, DELIVERIES.name, call, reason) == 0, "the first is an increase, too"
    with pytest.raises(type(error)):
        consumer.poll(1, 0) if call == "poll" else consumer.commit({})
    assert value(meter, metrics.FAILURES, DELIVERIES.name, call, reason) == 1
