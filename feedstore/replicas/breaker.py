"""A circuit breaker: a cluster that fails again and again is left alone for a while, then tested carefully."""

from typing import Literal

FAILURES = 5
"""After this many failures in a row it opens."""
OPEN_S, OPEN_S_MAX = 1.0, 30.0
"""How long it stays open; doubled by each probe that is not answered."""

State = Literal["closed", "open", "half-open"]


class Breaker:
    """One cluster's. Time is an argument; not thread-safe.

    *Closed*: reads go to the cluster. *Open*: they go elsewhere. *Half-open*: one read, a probe, is on its way to the
    cluster; its outcome decides.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._open_until_s: float | None = None
        self._open_s = OPEN_S
        self._probing = False

    @property
    def state(self) -> State:
        if self._open_until_s is None:
            return "closed"
        return "half-open" if self._probing else "open"

    @property
    def is_quiet(self) -> bool:
        """Whether it is closed, and the last read succeeded."""
        return self._open_until_s is None and not self._failures

    def take_probe(self, now_s: float) -> bool:
        """Whether the caller may send a probe now: one at a time, only if it is due. Its outcome must be reported."""
        if self._open_until_s is None or self._probing or now_s < self._open_until_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Any read that is answered in time closes it, a probe or not."""
        self._failures = 0
        self._open_until_s = None
        self._open_s = OPEN_S
        self._probing = False

    def failed(self, now_s: float, *, probe: bool = False, answered: bool = False) -> None:
        """While it is open, only a failed probe counts: other reads were sent before, or as a last resort.

        answered: it did answer, but too late for a page. A cluster that comes back gets warm with each read, so the
        next probe comes soon.
        """
        if self._open_until_s is None:
            self._failures += 1
            if self._failures >= FAILURES:
                self._open_until_s = now_s + self._open_s
        elif probe:
            self._probing = False
            self._open_s = OPEN_S if answered else min(2 * self._open_s, OPEN_S_MAX)
            self._open_until_s = now_s + self._open_s
