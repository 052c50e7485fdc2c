"""Flow control of large fanouts: their next ranges wait until a cluster has taken the previous ones.

Expanders are faster than the servers that they write for, and a writer takes deliveries as they come. So if much of a
large fanout is published at once, the pins of all other users wait behind it.
"""

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

import structlog

from feedstore.background import Background, BackgroundLook
from workers.following.topics import DELIVERIES
from workers.queue.port import Queue, QueueError

_log = structlog.get_logger()

CALLS: Final = 4
"""The ranges of at most this many calls may be on their way. Writers note what they have taken once a second: with
fewer calls, writers of fast servers would pause in between; with more, the pins of other users wait longer.
"""
SLOW_S: Final = 2.0
"""If a cluster needs longer than this to take a call's ranges, one call less may be on its way; otherwise one more."""
LONGEST_S: Final = 10.0
"""No call is waited for longer than this: if all clusters are away for hours, the rest of the fanouts must not come too
late (rule 8)."""
LOOK_MS: Final = 250
"""While ranges wait, the window asks this often how far the clusters are."""


class _OnItsWay(NamedTuple):
    """The ranges that one call published. published_s: when. ends: a group that is past these positions, by partition,
    has taken all of them.
    """

    published_s: float
    ends: dict[int, int]


class FanoutWindow:
    """The ranges of large fanouts that one expander has published and no cluster has taken yet. Thread-safe.

    groups: the groups that write the clusters. The fastest one counts, so that a cluster that is away holds up nothing.
    clock: monotonic seconds. wall_ms: ms since 1970. background: runs the looks, which ask the queue.
    """

    def __init__(
        self,
        queue: Queue,
        groups: Collection[str],
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        background: Background,
    ) -> None:
        self._queue = queue
        self._groups = groups
        self._clock = clock
        self._wall_ms = wall_ms
        self._looks = BackgroundLook(self._look, background, _not_looked)
        self._lock = threading.Lock()
        self._on_their_way: list[_OnItsWay] = []
        self._calls = CALLS // 2
        self._looked_s = clock()
        self._quarter = 0  # the last LOOK_MS interval in which a look began

    def published(self) -> None:
        """Notes that ranges of large fanouts were just published."""
        # Without an answer of the queue they are waited for until LONGEST_S: only the pace depends on it.
        ends = self._asked(partial(self._queue.ends, DELIVERIES)) or {}
        with self._lock:
            self._on_their_way.append(_OnItsWay(self._clock(), ends))

    def is_full(self) -> bool:
        """Whether ranges must wait, by the last look."""
        return len(self._on_their_way) >= self._calls

    def due_ms(self) -> int:
        """The time before which ranges need not be tried, because the window is full; 0: now. All calls within LOOK_MS
        get the same time, so that their ranges are tried together. If the window is full, a look begins in the
        background, at most once every LOOK_MS. This does not wait or raise.
        """
        self._drop_old()
        quarter = self._wall_ms() // LOOK_MS
        if self.is_full() and quarter != self._quarter and not self._looks.is_under_way:
            self._quarter = quarter
            self._looks.begin()
        return (quarter + 1) * LOOK_MS if self.is_full() else 0

    def _drop_old(self) -> None:
        with self._lock:
            now_s = self._clock()
            left = [each for each in self._on_their_way if now_s - each.published_s < LONGEST_S]
            if len(left) < len(self._on_their_way) and self._is_slow():
                self._calls = max(1, self._calls - 1)
            self._on_their_way = left

    def _look(self) -> None:
        asked = (self._asked(partial(self._queue.positions, DELIVERIES, group)) for group in self._groups)
        positions = [found for found in asked if found is not None]
        with self._lock:
            way = self._on_their_way
            left = [each for each in way if not any(_is_past(some, each.ends) for some in positions)]
            if len(left) < len(way):
                self._calls = max(1, self._calls - 1) if self._is_slow() else min(CALLS, self._calls + 1)
            self._on_their_way = left
            self._looked_s = self._clock()

    def _is_slow(self) -> bool:
        """Whether the oldest call took longer than SLOW_S; the last look still found it on its way."""
        return self._looked_s - self._on_their_way[0].published_s > SLOW_S

    def _asked(self, ask: Callable[[], dict[int, int]]) -> dict[int, int] | None:
        try:
            return ask()
        except QueueError as error:
            _not_looked(str(error))
            return None


def _not_looked(error: str) -> None:
    _log.warning("fanouts.not_looked", error=error)


def _is_past(positions: dict[int, int], ends: dict[int, int]) -> bool:
    """Whether a group is past the ends in most partitions: not in all, because the writer of one may hang."""
    taken = sum(positions.get(partition, 0) >= end for partition, end in ends.items())
    return 2 * taken > len(ends)
