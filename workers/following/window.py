"""Flow control of large fanouts: their next ranges wait until a cluster has taken the last ones.

Expanders are faster than the servers that they write for, and a writer takes deliveries as they come. So whatever is
published at once of a large fanout, the pins of all others wait for.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from workers.following.topics import DELIVERIES
from workers.queue.port import Queue

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
    """What one expander has published of large fanouts and no cluster has taken yet. Used by one thread at a time, but
    for `due_ms`.

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
        self._on_their_way: list[_OnItsWay] = []
        self._calls = CALLS // 2
        self._looked_s = clock()

    def published(self) -> None:
        """Ranges were published, of large fanouts, just now. Raises QueueUnavailableError."""
        self._on_their_way.append(_OnItsWay(self._clock(), self._queue.ends(DELIVERIES)))

    def due_ms(self) -> int:
        """The time before which ranges that have come need not be tried, because the window was full at the last look;
        0 if they may be tried now. The same for all that come within LOOK_MS: they are tried together.
        """
        if len(self._on_their_way) < self._calls or self._clock() >= self._looked_s + LOOK_MS / 1_000:
            return 0
        return (self._wall_ms() // LOOK_MS + 1) * LOOK_MS

    def is_full(self) -> bool:
        """Whether ranges must wait. It looks every LOOK_MS at most. Raises QueueUnavailableError."""
        now_s = self._clock()
        if len(self._on_their_way) >= self._calls and now_s >= self._looked_s + LOOK_MS / 1_000:
            self._look(now_s)
        return len(self._on_their_way) >= self._calls

    def _look(self, now_s: float) -> None:
        positions = [self._queue.positions(DELIVERIES, group) for group in self._groups]
        left = [
            each
            for each in self._on_their_way
            if now_s - each.published_s < LONGEST_S and not any(_is_past(taken, each.ends) for taken in positions)
        ]
        if len(left) < len(self._on_their_way):
            # For certain: the first of them was on its way at the last look.
            slow = self._looked_s - self._on_their_way[0].published_s > SLOW_S
            self._calls = max(1, self._calls - 1) if slow else min(CALLS, self._calls + 1)
        self._on_their_way = left
        self._looked_s = now_s


def _is_past(positions: dict[int, int], ends: dict[int, int]) -> bool:
    return all(positions.get(partition, 0) >= end for partition, end in ends.items())
