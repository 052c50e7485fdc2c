"""Flow control of large fanouts: their next ranges wait until a cluster has taken the last ones.

Expanders are faster than the servers that they write for, and a writer takes deliveries as they come. So whatever is
published at once of a large fanout, the pins of all others wait for.
"""

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

import structlog

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
    monotonic seconds. wall_ms: ms since 1970.
    """

    def __init__(
        self, queue: Queue, groups: Collection[str], clock: Callable[[], float], wall_ms: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._groups = groups
        self._clock = clock
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._on_their_way: list[_OnItsWay] = []
        self._calls = CALLS // 2
        self._looked_s = clock()

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
        """The time before which ranges need not be tried, because the window is full; 0: now. If it is full, it looks
        how far the clusters are, every LOOK_MS at most. The same for all that ask within LOOK_MS: they are tried
        together. It does not raise.
        """
        with self._lock:
            now_s = self._clock()
            if self.is_full() and now_s >= self._looked_s + LOOK_MS / 1_000:
                self._look(now_s)
            return (self._wall_ms() // LOOK_MS + 1) * LOOK_MS if self.is_full() else 0

    def _look(self, now_s: float) -> None:
        asked = (self._asked(partial(self._queue.positions, DELIVERIES, group)) for group in self._groups)
        positions = [found for found in asked if found is not None]
        left = [
            each
            for each in self._on_their_way
            if now_s - each.published_s < LONGEST_S and not any(_is_past(taken, each.ends) for taken in positions)
        ]
        if len(left) < len(self._on_their_way):
            # It may have been there for longer; for so long it was there.
            slow = self._looked_s - self._on_their_way[0].published_s > SLOW_S
            self._calls = max(1, self._calls - 1) if slow else min(CALLS, self._calls + 1)
        self._on_their_way = left
        self._looked_s = now_s

    def _asked(self, ask: Callable[[], dict[int, int]]) -> dict[int, int] | None:
        try:
            return ask()
        except QueueError as error:
            _log.warning("fanouts.not_looked", error=str(error))
            return None


def _is_past(positions: dict[int, int], ends: dict[int, int]) -> bool:
    """Whether a group has taken it in most partitions: a writer of one of them may hang."""
    taken = sum(positions.get(partition, 0) >= end for partition, end in ends.items())
    return 2 * taken > len(ends)
