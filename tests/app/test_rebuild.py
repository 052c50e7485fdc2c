"""Rebuilding a cluster: whose feeds are asked for, and what is queued for it is passed over."""

from contextlib import closing
from pathlib import Path

import pytest

from feedstore.app.clusters import place
from feedstore.domain import Follow, Followee, Unfollow
from feedstore.follows.port import MAX_PAGE, Request
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryConsumer, MemoryQueue
from workers.app import home, rebuild, wiring
from workers.following.topics import DELIVERIES, RETRIES, TOPICS
from workers.queue.port import GroupBusyError, Message, lags_of


@pytest.mark.parametrize("shards", [1, 3])
def test_the_feed_of_every_user_who_follows_anything_is_asked_for(shards: int) -> None:
    follows = open_in_memory(lambda: 1_700_000_000_000, shards)
    users = range(1, MAX_PAGE + 8)
    follows.record([Request(Follow(1, Followee("user", each))) for each in range(2, MAX_PAGE + 5)])
    follows.record([Request(Follow(each, Followee("board", 1))) for each in users])
    follows.record([Request(Follow(2_000, Followee("user", 1))), Request(Unfollow(2_000, Followee("user", 1)))])
    already = follows.backlog().actions
    told: list[int] = []
    rebuild.ask_all(follows, None, told.append)
    assert told == [MAX_PAGE, len(users)]
    assert follows.backlog().actions == already + len(users)
    follows.close()


@pytest.fixture
def queue() -> MemoryQueue:
    queue = MemoryQueue(dict.fromkeys(TOPICS, 2), lambda: 0)
    for partition in range(2):
        queue.publish(DELIVERIES, [b"cells"] * 1_500, partition)
    return queue


def test_all_that_is_there_is_committed_unread(queue: MemoryQueue) -> None:
    rebuild.pass_over(queue, DELIVERIES, "writer-a")
    assert lags_of(queue, DELIVERIES, "writer-a") == {0: 0, 1: 0}


def test_a_group_that_another_process_reads_for_is_refused(queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the partitions, and does not commit what it has."""

    def polled(*_: object) -> list[Message]:
        return []

    monkeypatch.setattr(MemoryConsumer, "poll", polled)
    with pytest.raises(GroupBusyError, match="writer-a: 3000 messages are left of feed"):
        rebuild.pass_over(queue, DELIVERIES, "writer-a")
    queue.consumer(DELIVERIES, "writer-a").close()


def test_a_cluster_that_another_process_still_writes_is_not_removed(tmp_path: Path) -> None:
    """A writer on another machine holds no home."""
    config = home.create(tmp_path / "home", {})
    with closing(wiring.open_ports(config, "read", feeds=False)) as ports:
        live = ports.queue.consumer(RETRIES, "retries-b")
        with pytest.raises(GroupBusyError, match="retries-b"):
            rebuild.recreate(ports, config, "b", lambda _: pytest.fail("worked"), lambda _: None)
        live.close()
    assert place(config, "b").exists()
