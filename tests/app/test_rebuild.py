"""Rebuilding a cluster: what is queued for it is passed over."""

import pytest

from tests.queue.memory_queue import MemoryConsumer, MemoryQueue
from workers.app import rebuild
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.port import GroupBusyError, Message


@pytest.fixture
def queue() -> MemoryQueue:
    queue = MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: 0)
    for partition in range(2):
        queue.publish(DELIVERIES, [b"cells"] * 1_500, partition)
    return queue


def test_all_that_is_there_is_committed_unread(queue: MemoryQueue) -> None:
    rebuild.pass_over(queue, DELIVERIES, "writer-a")
    assert queue.lags(DELIVERIES, "writer-a") == {0: 0, 1: 0}


def test_a_group_that_another_process_reads_for_is_refused(queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the partitions, and does not commit what it has."""

    def polled(*_: object) -> list[Message]:
        return []

    monkeypatch.setattr(MemoryConsumer, "poll", polled)
    with pytest.raises(GroupBusyError, match="writer-a: 3000 messages are left of feed"):
        rebuild.pass_over(queue, DELIVERIES, "writer-a")
    queue.consumer(DELIVERIES, "writer-a").close()
