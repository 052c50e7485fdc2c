"""When a stage begins its next lot, if little has come: pure arithmetic of times.

A handful of cells costs a writer and its servers nearly what thousands cost: a request, a sync of each region's log,
and all that surrounds them. So lots keep a distance. A message that comes after a silence is done at once. One that
comes soon after the last lot began waits for the rest of the distance, and is done with those that come meanwhile.
"""

from typing import Final

ENOUGH_BYTES: Final = 100_000
"""So many bytes of messages are not waited with: they are about what a writer hands to its cluster at once."""


class Gathering:
    """distance_s: the least time from the beginning of one lot to that of the next one. So it is the longest that
    anything waits for more. Times are monotonic seconds.
    """

    def __init__(self, distance_s: float) -> None:
        self._distance_s = distance_s
        self._next_s: float | None = None

    def began(self, now_s: float) -> None:
        """A lot begins now."""
        self._next_s = now_s + self._distance_s

    def left_s(self, now_s: float, size: int) -> float:
        """How much longer to wait for more; 0 or less: begin now. size: the bytes of messages that have come."""
        return 0.0 if self._next_s is None or size >= ENOUGH_BYTES else self._next_s - now_s
