"""Counting how large values were."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """How many values were at most each bound, and their sum. Not thread-safe.

    bounds: ascending.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def copy(self) -> "Histogram":
        copied = Histogram(self._bounds)
        copied._counts, copied.sum = self._counts.copy(), self.sum
        return copied

    def cumulated(self) -> list[tuple[str, float]]:
        """How many values were at most a bound, by its name; the last one is `+Inf`."""
        return list(zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True))
