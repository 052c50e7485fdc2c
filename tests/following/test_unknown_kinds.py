"""A kind of action or message that no code here knows is refused where it enters: what is passed over counts as done,
and is lost. mypy names every `match` that lacks a kind; these tests do without mypy.
"""

import random
from typing import Any

import msgspec
import pytest

from feedstore.boards import Boards
from feedstore.domain import user
from feedstore.following import Limits, feed_table
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from feedstore.widecolumn.progress import Progress, progress_table
from tests.simulation.bag import Bag
from tests.simulation.memory_shard import MemoryShard
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import Task, decode_actions, decode_delivery
from workers.queue.port import MalformedError

LIMITS = Limits(10, 5, action_age_ms=10_000, delivery_age_ms=5_000, purge_window_ms=21_000)


class Muted(msgspec.Struct, frozen=True, tag_field="type", tag="mute"):
    """An action of a program that does not exist yet."""

    follower: int = 1
    followee: Any = user(2)
    ts: int = 1_000
    committed_ms: int = 1_000


class Paused(msgspec.Struct, frozen=True, tag_field="type", tag="pause"):
    """A message of such a program."""

    cluster: str | None = None
    read_ms: int = 1_000


MUTED: Any = Muted()
PAUSED: Any = Paused()


def follow_store(shards: int = 2) -> FollowStore:
    return FollowStore([MemoryShard(lambda: 1_000) for _ in range(shards)])


def queue() -> Bag:
    return Bag(random.Random(0), 1, 1, ["a"])


@pytest.mark.parametrize("at_ms", [1_000, 50_000], ids=["young", "so old that it is dated again"])
def test_the_expander_does_not_take_an_unknown_action_for_done(at_ms: int) -> None:
    follows = FollowStore([MemoryShard(lambda: at_ms)])
    with pytest.raises(AssertionError, match="Muted"):
        Expander(follows, queue(), LIMITS, Respacing(Boards(follows), lambda: 0.0).respace).expand([Task(MUTED)])


def test_the_follow_store_records_no_unknown_action() -> None:
    for shards in (1, 2):
        with pytest.raises(AssertionError, match="Muted"):
            follow_store(shards).record([Request(MUTED)])
    with pytest.raises(AssertionError, match="Muted"):
        follow_store().redate(MUTED)
    with pytest.raises(AssertionError, match="Muted"):
        follow_store().shards_of(MUTED)


def test_a_writer_does_not_take_an_unknown_message_for_written() -> None:
    feeds = MemoryStore(feed_table(10, 5, LIMITS.purge_window_ms))
    progress = Progress(MemoryStore(progress_table(LIMITS.purge_window_ms)))
    with pytest.raises(AssertionError, match="Paused"):
        Writer("a", feeds, progress, follow_store(), queue(), LIMITS).write([PAUSED])


def test_a_message_of_an_unknown_kind_is_a_dead_letter() -> None:
    for decode, body in ((decode_actions, Task(MUTED)), (decode_actions, PAUSED), (decode_delivery, PAUSED)):
        with pytest.raises(MalformedError, match="type: expected '"):
            decode(msgspec.json.encode({"v": 1, "body": body}))
