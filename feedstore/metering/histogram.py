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

    def add_all(self, values: Sequence[float], each: int = 1) -> None:
        """Adds each value `each` times. If all are in one bucket, as is common for a lot, it is looked up only once."""
        if not values:
            return
        first = bisect_left(self._bounds, min(values))
        if first == bisect_left(self._bounds, max(values)):
            self._counts[first] += len(values) * each
        else:
            for value in values:
                self._counts[bisect_left(self._bounds, value)] += each
        self.sum += sum(values) * each

    def counts(self) -> list[int]:
        """How many values are in each bucket alone; the last one is beyond all bounds."""
        return self._counts.copy()

    def cumulated(self) -> list[tuple[str, float]]:
        """How many values were at most each bound, by the bound's name; the last one is `+Inf`."""
        return cumulated(self._bounds, self._counts)


def cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """How many values were at most each bound, from `Histogram.counts`."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))
