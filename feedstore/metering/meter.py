"""The counts of a process, also in a form for another process."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from feedstore.metering.definitions import Definition

LOOK_LASTS_S: Final = 30.0
"""How long a gauge is served after it was last measured. After that it is unknown, because its measurer hangs or has
ended.
"""


SAMPLES: Final = 50
"""How many items of a batch are looked at, or up to twice as many."""

Item = TypeVar("Item")


class Meter:
    """The port for counting. This class drops everything. Thread-safe. labels: the values of a metric's labels, in the
    order of its definition.

    A call takes about a microsecond: call it once for a batch, not once for each message.
    """

    def add(self, counter: Definition, amount: float, *labels: str) -> None: ...

    def observe(self, histogram: Definition, values: Sequence[float], *labels: str, each: int = 1) -> None:
        """Counts values in a histogram. each: how many observations each value counts as."""

    def note(self, gauge: Definition, value: float, *labels: str) -> None:
        """Sets a gauge until the next note."""

    def since(self, gauge: Definition, at_s: float | None, *labels: str) -> None:
        """Makes a gauge say how long ago `at_s` was, so that it grows by itself; 0 for None. at_s: by the meter's
        clock.
        """

    def saw(self, gauge: Definition, values: Mapping[tuple[str, ...], float], looker: str = "") -> None:
        """Sets the result of a look: all values of a gauge that this looker knows, by their labels. Values of its
        earlier looks are unknown from now on; after LOOK_LASTS_S without another look, all are.
        """

    def forget(self, gauge: Definition, *labels: str) -> None:
        """Makes a gauge unknown from now on."""


def sampled(items: Sequence[Item]) -> tuple[Sequence[Item], int]:
    """An even sample of many items, and how many items each of them represents. For work in a hot path that is done for
    each item.
    """
    step = max(1, len(items) // SAMPLES)
    return items[::step], step


UNCOUNTED: Final = Meter()


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The value of a counter or a gauge."""

    name: str
    labels: tuple[str, ...]
    value: float


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """The value of a histogram, or of a summary, which has one bucket. counts: of each bucket alone; the last one is
    beyond all bounds.
    """

    name: str
    labels: tuple[str, ...]
    counts: list[int]
    sum: float


class Counts(msgspec.Struct, frozen=True):
    """The counts of one or several processes at one moment. spreads: of histograms and summaries."""

    counters: list[Sample] = []
    gauges: list[Sample] = []
    spreads: list[Spread] = []

    def without_gauges(self) -> "Counts":
        """The counts of a process that has ended or hangs: its counters are still true, but its gauges are unknown."""
        return Counts(self.counters, [], self.spreads)

    def without(self, names: Collection[str]) -> "Counts":
        """These counts without the metrics of these names."""
        return Counts(
            [each for each in self.counters if each.name not in names],
            [each for each in self.gauges if each.name not in names],
            [each for each in self.spreads if each.name not in names],
        )


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


def cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """How many values were at most each bound, from `Histogram.counts`."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


_Key = tuple[Definition, tuple[str, ...]]


class Counting(Meter):
    """A meter that can be read. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counters: dict[_Key, float] = {}
        self._histograms: dict[_Key, Histogram] = {}
        self._notes: dict[_Key, float] = {}
        self._ages: dict[_Key, float | None] = {}
        self._seen: dict[tuple[Definition, str], tuple[float, Mapping[tuple[str, ...], float]]] = {}

    def add(self, counter: Definition, amount: float, *labels: str) -> None:
        key = counter, labels
        with self._lock:
            self._counters[key] = self._counters.get(key, 0) + amount

    def observe(self, histogram: Definition, values: Sequence[float], *labels: str, each: int = 1) -> None:
        key = histogram, labels
        with self._lock:
            counted = self._histograms.get(key)
            if counted is None:
                counted = self._histograms[key] = Histogram(histogram.buckets)
            counted.add_all(values, each)

    def note(self, gauge: Definition, value: float, *labels: str) -> None:
        with self._lock:
            self._notes[gauge, labels] = value

    def since(self, gauge: Definition, at_s: float | None, *labels: str) -> None:
        with self._lock:
            self._ages[gauge, labels] = at_s

    def saw(self, gauge: Definition, values: Mapping[tuple[str, ...], float], looker: str = "") -> None:
        with self._lock:
            self._seen[gauge, looker] = (self._clock(), values)

    def forget(self, gauge: Definition, *labels: str) -> None:
        with self._lock:
            self._notes.pop((gauge, labels), None)
            self._ages.pop((gauge, labels), None)

    def counts(self) -> Counts:
        """All current counts."""
        with self._lock:
            now_s = self._clock()
            gauges = [Sample(each.name, labels, value) for (each, labels), value in self._notes.items()]
            gauges += [
                Sample(each.name, labels, 0.0 if at_s is None else max(0.0, now_s - at_s))
                for (each, labels), at_s in self._ages.items()
            ]
            gauges += [
                Sample(each.name, labels, value)
                for (each, _), (at_s, values) in self._seen.items()
                if now_s - at_s <= LOOK_LASTS_S
                for labels, value in values.items()
            ]
            return Counts(
                [Sample(each.name, labels, value) for (each, labels), value in self._counters.items()],
                gauges,
                [
                    Spread(each.name, labels, counted.counts(), counted.sum)
                    for (each, labels), counted in self._histograms.items()
                ],
            )


def together(every: Iterable[Counts]) -> Counts:
    """The counts of several processes as one: the sums of counters, and the largest value of each gauge."""
    counters: dict[tuple[str, tuple[str, ...]], float] = {}
    gauges: dict[tuple[str, tuple[str, ...]], float] = {}
    spreads: dict[tuple[str, tuple[str, ...]], Spread] = {}
    for counts in every:
        for each in counts.counters:
            counters[each.name, each.labels] = counters.get((each.name, each.labels), 0) + each.value
        for each in counts.gauges:
            gauges[each.name, each.labels] = max(each.value, gauges.get((each.name, each.labels), each.value))
        for spread in counts.spreads:
            known = spreads.get((spread.name, spread.labels))
            spreads[spread.name, spread.labels] = spread if known is None else _added(known, spread)
    return Counts(
        [Sample(*key, value) for key, value in counters.items()],
        [Sample(*key, value) for key, value in gauges.items()],
        list(spreads.values()),
    )


def _added(one: Spread, other: Spread) -> Spread:
    counts = [mine + yours for mine, yours in zip(one.counts, other.counts, strict=True)]
    return Spread(one.name, one.labels, counts, one.sum + other.sum)
