"""When a second cluster is asked for the same page, because the first one has not answered yet."""

from collections.abc import Iterable

HEDGE_S_MIN, HEDGE_S_MAX = 0.001, 0.050
"""A hedge is sent after the recent p95 of the healthier cluster, within these bounds."""
SHARE = 0.04
"""Hedges that are sent so early, as a share of the reads in the long run."""
SAVED_MAX = 50.0
"""How many of them may come at once, after a quiet time."""


def hedge_after_s(p95s_s: Iterable[float | None]) -> float:
    """From the recent p95 of each cluster that is well; where none is known, the longest wait."""
    known = [p95_s for p95_s in p95s_s if p95_s is not None]
    return min(max(min(known, default=HEDGE_S_MAX), HEDGE_S_MIN), HEDGE_S_MAX)


class Budget:
    """Keeps hedges rare. One cluster may always be slower than the other: its reads would be hedged all the time.

    Who has nothing left to spend waits for `HEDGE_S_MAX`, and not longer. Not thread-safe.
    """

    def __init__(self) -> None:
        self._saved = SAVED_MAX

    def earn(self) -> None:
        """For every read."""
        self._saved = min(SAVED_MAX, self._saved + SHARE)

    def spend(self) -> bool:
        """For an early hedge; False: not now."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


class Pace:
    """When the next cluster is asked, while one has been asked and says nothing. Time is an argument.

    due_s: then, and not before.
    """

    def __init__(self, hedge_after_s: float) -> None:
        self._hedge_after_s = hedge_after_s
        self._latest_s = float("-inf")
        self.due_s = float("-inf")

    def asked(self, now_s: float) -> None:
        """A cluster has been asked."""
        self._latest_s = now_s
        self.due_s = now_s + self._hedge_after_s

    def is_early(self, now_s: float) -> bool:
        """Whether a hedge sent now must be paid for."""
        return now_s < self._latest_s + HEDGE_S_MAX

    def put_off(self) -> None:
        """To where it is not early any more."""
        self.due_s = self._latest_s + HEDGE_S_MAX
