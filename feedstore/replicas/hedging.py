"""When a second cluster is asked for the same page, because the first has not answered yet."""

from collections import deque
from collections.abc import Iterable

HEDGE_S_MIN, HEDGE_S_MAX = 0.001, 0.050
"""A hedge is sent after the recent p95 of the healthier cluster, within these bounds."""
SHARE = 0.03
"""The share of reads that get an early hedge in the long run."""
SAVED_MAX = 50.0
"""How many early hedges may be sent in a burst, after a quiet time."""
WINDOW = 256
"""How many of a cluster's latest reads count for its p95."""
_KNOWN_FROM = 20


class Latency:
    """The 95th percentile of the latest reads. Not thread-safe."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=WINDOW)

    def add(self, took_s: float) -> None:
        self._took.append(took_s)

    def p95_s(self) -> float | None:
        """None until there are enough reads. It sorts: do not call it for every read."""
        if len(self._took) < _KNOWN_FROM:
            return None
        ordered = sorted(self._took)
        return ordered[int(0.95 * len(ordered))]


def hedge_after_s(p95s_s: Iterable[float | None]) -> float:
    """The delay, from the recent p95 of each cluster that is well; the longest wait if none is known."""
    known = [p95_s for p95_s in p95s_s if p95_s is not None]
    return min(max(min(known, default=HEDGE_S_MAX), HEDGE_S_MIN), HEDGE_S_MAX)


class Budget:
    """Keeps hedges rare. If one cluster is always slower than the other, its reads would otherwise be hedged all the
    time. A read without budget waits for `HEDGE_S_MAX`, and not longer. Not thread-safe.
    """

    def __init__(self) -> None:
        self._saved = SAVED_MAX

    def earn(self) -> None:
        """Call it for every read."""
        self._saved = min(SAVED_MAX, self._saved + SHARE)

    def spend(self) -> bool:
        """Call it before an early hedge; False: not now."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


class Pace:
    """When the next cluster is asked, while one has been asked and has not answered. Time is an argument.

    due_s: the earliest time.
    """

    def __init__(self, hedge_after_s: float) -> None:
        self._hedge_after_s = hedge_after_s
        self._latest_s = float("-inf")
        self.due_s = float("-inf")

    def asked(self, now_s: float) -> None:
        """Call it when a cluster has been asked."""
        self._latest_s = now_s
        self.due_s = now_s + self._hedge_after_s

    def is_early(self, now_s: float) -> bool:
        """Whether a hedge that is sent now is early: it spends budget."""
        return now_s < self._latest_s + HEDGE_S_MAX

    def put_off(self) -> None:
        """Puts the next hedge off until it is no longer early."""
        self.due_s = self._latest_s + HEDGE_S_MAX
