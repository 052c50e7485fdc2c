"""Flow control of large fanouts: their next ranges wait until a cluster has taken the last ones.

Expanders are faster than the servers that they write for, and a writer takes deliveries as they come. So whatever is
published at once of a large fanout, the pins of all others wait for.
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
"""The ranges of so many calls may be on their way, at most. Writers note what they have taken once a second: with fewer
they pause in between where servers are fast, and with more the pins of others wait longer.
"""
SLOW_S: Final = 2.0
"""If a call takes longer than this until a cluster has taken it, one call less may be on its way; if not, one more."""
LONGEST_S: Final = 10.0
"""No call is waited for longer than this: all clusters may be away for hours, and what is left of the fanouts must not
come too late then (rule 8)."""
LOOK_MS: Final = 250
"""How often it is asked how far the clusters are, while ranges wait."""


class _OnItsWay(NamedTuple):
    """published_s: when. ends: the positions of a group that has all of it, by partition."""

    published_s: float
    ends: dict[int, int]


class FanoutWindow:
    """What one expander has published of large fanouts and no cluster has taken yet. Thread-safe.

    groups: those that write the clusters. The first that is done counts: one that is away holds up nothing. clock:
    monotonic seconds. wall_ms: ms since 1970. background: for looks, which ask the queue.
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
        self._quarter = 0  # the last in which a look began

    def published(self) -> None:
        """Ranges were published, of large fanouts, just now."""
        # It is only about pace: if the queue does not say where they end, they are waited for as if it were far.
        ends = self._asked(partial(self._queue.ends, DELIVERIES)) or {}
        with self._lock:
            self._on_their_way.append(_OnItsWay(self._clock(), ends))

    def is_full(self) -> bool:
        """Whether ranges must wait, as far as is known."""
        return len(self._on_their_way) >= self._calls

    def due_ms(self) -> int:
        """The time before which ranges need not be tried, because the window is full; 0: now. The same for all that ask
        within LOOK_MS: they are tried together. If it is full, a look begins, one every LOOK_MS at most. It does not
        wait or raise.
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
        """Whether the first call was on its way for longer than SLOW_S for certain: it was, at the last look."""
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
    """Whether a group has taken it in most partitions: a writer of one of them may hang."""
    taken = sum(positions.get(partition, 0) >= end for partition, end in ends.items())
    return 2 * taken > len(ends)
