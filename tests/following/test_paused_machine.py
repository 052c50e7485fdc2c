"""The virtual machine of a writer was paused, with its clocks. It takes a while until it asks the follow store again
what time it is.
"""

from collections.abc import Callable
from typing import Literal

import pytest

from feedstore.clocks import APART_MAX_MS
from feedstore.domain import Pin, PinSaved
from feedstore.following import Limits, feed_table, row_key
from feedstore.follows.store import FollowStore
from feedstore.follows.watched import LOOK_EVERY_S
from feedstore.widecolumn.progress import Progress, progress_table
from tests.queue.memory_queue import MemoryQueue
from tests.simulation.memory_shard import MemoryShard
from tests.widecolumn.memory_store import MemoryStore
from workers.following import Writer
from workers.following.messages import Block, Delivery, Hold
from workers.following.topics import ACTIONS, TOPICS
from workers.pipeline.ticks import Tick
from workers.queue.port import lag_of

HOUR_MS = 3_600_000
LIMITS = Limits(10, 5, action_age_ms=48 * HOUR_MS, delivery_age_ms=24 * HOUR_MS, purge_window_ms=120 * HOUR_MS)
BEFORE_MS = 1_700_000_000_000
PAUSED_MS = 3 * APART_MAX_MS


class Machine:
    """A writer's, which has heard the time of its follow store, and was paused since."""

    def __init__(self) -> None:
        self.now_ms = BEFORE_MS
        self._own_s = 0.0
        self._looks: list[Callable[[], None]] = []
        self._follows = FollowStore([MemoryShard(lambda: self.now_ms)], None, self._looks.append, lambda: self._own_s)
        self.queue = MemoryQueue(dict.fromkeys(TOPICS, 1), lambda: self.now_ms)
        self.queue.consumer(ACTIONS, "expander").close()
        self.feeds = MemoryStore(feed_table(10, 5, LIMITS.purge_window_ms))
        self.progress = Progress(MemoryStore(progress_table(LIMITS.purge_window_ms)))
        self.writer = Writer("a", self.feeds, self.progress, self._follows, self.queue, LIMITS)
        self.looks()
        self.now_ms += PAUSED_MS

    def looks(self) -> None:
        """It asks the follow store for the time, in the background, as it does each second."""
        self._own_s += LOOK_EVERY_S
        self._follows.about_now()
        while self._looks:
            self._looks.pop()()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("kind", ["put_off", "fanout"])
def test_rule_10_a_hold_ends_no_earlier_than_it_says(machine: Machine, kind: Literal["put_off", "fanout"]) -> None:
    """What it waits for was published at that time: until it lands, pages must not claim to have it."""
    committed_ms = machine.now_ms - 1_000
    machine.writer.write([Hold(committed_ms, machine.now_ms, kind=kind)])
    machine.looks()
    machine.writer.tick([(0, Tick(machine.now_ms - 1, 0, 1, 1))])
    assert machine.progress.watermark() == committed_ms
    machine.writer.tick([(0, Tick(machine.now_ms + 1, 0, 1, 1))])
    assert machine.progress.watermark() == machine.now_ms + 1


def test_what_was_read_during_the_pause_is_not_expanded_again(machine: Machine) -> None:
    saved = PinSaved(Pin(1, 2, 3, BEFORE_MS), machine.now_ms - 10)
    machine.writer.write([Delivery(saved, machine.now_ms - 5, puts=[Block([(7, 5)], [(1, BEFORE_MS)])])])
    assert len(machine.feeds.read(row_key(7), None, 10)) == 1
    assert lag_of(machine.queue, ACTIONS, "expander") == 0
