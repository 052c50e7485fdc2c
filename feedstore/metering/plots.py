"""Plots of metrics over the last hour.

A line of a plot is a reading of one metric: the largest value of a gauge, the rate of a counter, or a quantile of a
histogram, by one label. There are two equivalent ways to get it: from samples that this process takes (`Recorder`), or
by a query of a Prometheus (`query`), which has samples of all processes.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from feedstore.errors import NotNowError
from feedstore.metering.definitions import Definition
from feedstore.metering.meter import Counts, Sample, Spread, cumulated

HOUR_S: Final = 3_600
EVERY_S: Final = 10
"""The time between two samples of this process."""
WINDOW_S: Final = 60
"""The time before each point that its rates and quantiles are taken over."""

Source = Literal["own", "prometheus"]


class PlotsUnavailableError(NotNowError):
    """Not now: the configured Prometheus does not answer."""


@dataclass(frozen=True)
class Largest:
    """The value of a gauge; the largest one if several processes have it. by: a label. A query may also have several
    labels, with commas, or none.
    """

    metric: Definition
    by: str


@dataclass(frozen=True)
class Growth:
    """How much a counter grows in a second."""

    metric: Definition
    by: str


@dataclass(frozen=True)
class Quantile:
    """A quantile of a histogram. q: from 0 to 1."""

    metric: Definition
    by: str
    q: float


Reading = Largest | Growth | Quantile


@dataclass(frozen=True)
class Plot:
    """A question, and the lines that answer it. name: for programs. title, says: for people. unit: `seconds`, or the
    name of the things that are counted.
    """

    name: str
    title: str
    says: str
    unit: str
    readings: tuple[Reading, ...]


class Series(msgspec.Struct, frozen=True):
    """A line of a plot. values: one for each time; null if nothing is known of that time."""

    name: str
    values: list[float | None]


class Drawn(msgspec.Struct, frozen=True):
    """A plot. title, says: for people. unit: `seconds`, or the name of what is counted. series: its lines."""

    name: str
    title: str
    says: str
    unit: str
    series: list[Series]


class Hour(msgspec.Struct, frozen=True):
    """Plots of the last hour. times_ms: the times of all values, ascending, in ms since 1970. every_ms: the time
    between two of them if no sample is missing. source: `own` if the samples are those of this process, `prometheus` if
    they come from a Prometheus.
    """

    source: Source
    every_ms: int
    times_ms: list[int]
    plots: list[Drawn]


def name_of(reading: Reading, value: str) -> str:
    """The name of a line. value: that of its label."""
    return f"{value} p{100 * reading.q:g}" if isinstance(reading, Quantile) else value


def query(reading: Reading, matching: str, window: str) -> str:
    """The PromQL of a reading. matching: the selector between the braces, such as `home="x"`; may be empty. window:
    such as `1m`.
    """
    name = reading.metric.name
    by = f"by ({reading.by}) " if reading.by else ""
    buckets = f"{reading.by}, le" if reading.by else "le"
    braces = f"{{{matching}}}" if matching else ""
    match reading:
        case Largest():
            return f"max {by}({name}{braces})"
        case Growth():
            return f"sum {by}(rate({name}{braces}[{window}]))"
        case Quantile():
            return f"histogram_quantile({reading.q}, sum by ({buckets}) (rate({name}_bucket{braces}[{window}])))"
        case _:
            assert_never(reading)


def drawn(plots: Sequence[Plot], lines: Mapping[tuple[str, str], Sequence[float | None]]) -> list[Drawn]:
    """The plots with their lines. lines: the values of each line, by its plot's name and its own."""
    return [
        Drawn(
            plot.name,
            plot.title,
            plot.says,
            plot.unit,
            [Series(name, list(values)) for (of, name), values in sorted(lines.items()) if of == plot.name],
        )
        for plot in plots
    ]


class _Sample(NamedTuple):
    """values: of gauges and counters, by the metric and the value of the label. buckets: of histograms, by the same,
    each with how many values were at most each bound.
    """

    at_s: float
    values: Mapping[tuple[str, str], float]
    buckets: Mapping[tuple[str, str], Mapping[float, float]]


class Recorder:
    """The last hour of plots, in memory: about 30 floats for each sample. Not thread-safe."""

    def __init__(self, plots: Sequence[Plot]) -> None:
        self._plots = plots
        self._readings = [(plot, reading) for plot in plots for reading in plot.readings]
        self._by = {reading.metric.name: (reading.metric, reading.by) for _, reading in self._readings}
        self._recent: deque[_Sample] = deque(maxlen=WINDOW_S // EVERY_S + 1)
        points = HOUR_S // EVERY_S
        self._times_ms: deque[int] = deque(maxlen=points)
        self._points: deque[Mapping[tuple[str, str], float]] = deque(maxlen=points)

    def take(self, at_ms: int, counts: Counts) -> None:
        """Takes a sample. If the clock was put back, the samples with later times go, because times must ascend."""
        while self._times_ms and at_ms <= self._times_ms[-1]:
            self._times_ms.pop()
            self._points.pop()
        while self._recent and at_ms / 1_000 <= self._recent[-1].at_s:
            self._recent.pop()
        self._recent.append(self._sampled(at_ms / 1_000, counts))
        self._times_ms.append(at_ms)
        self._points.append(
            {
                (plot.name, name_of(reading, value)): number
                for plot, reading in self._readings
                for value, number in self._read(reading)
            }
        )

    def hour(self) -> Hour:
        names = dict.fromkeys(name for point in self._points for name in point)
        lines = {name: [point.get(name) for point in self._points] for name in names}
        return Hour("own", 1_000 * EVERY_S, list(self._times_ms), drawn(self._plots, lines))

    def _sampled(self, at_s: float, counts: Counts) -> _Sample:
        values: dict[tuple[str, str], float] = {}
        buckets: dict[tuple[str, str], dict[float, float]] = {}
        for counter in counts.counters:
            if key := self._key(counter):
                values[key] = values.get(key, 0) + counter.value
        for gauge in counts.gauges:
            if key := self._key(gauge):
                values[key] = max(gauge.value, values.get(key, gauge.value))
        for spread in counts.spreads:
            if key := self._key(spread):
                before = buckets.setdefault(key, {})
                for bound, count in cumulated(self._by[spread.name][0].buckets, spread.counts):
                    before[float(bound)] = before.get(float(bound), 0) + count
        return _Sample(at_s, values, buckets)

    def _key(self, of: Sample | Spread) -> tuple[str, str] | None:
        """The metric and the value of the label that its line is named by; None if no line reads it."""
        if of.name not in self._by:
            return None
        metric, by = self._by[of.name]
        return of.name, dict(zip(metric.label_names, of.labels, strict=True)).get(by, "")

    def _read(self, reading: Reading) -> Iterator[tuple[str, float]]:
        """The values of a reading in the latest sample, by the value of the label."""
        first, last = self._recent[0], self._recent[-1]
        name = reading.metric.name
        match reading:
            case Largest():
                yield from ((value, number) for (of, value), number in last.values.items() if of == name)
            case Growth():
                if last.at_s <= first.at_s:
                    return
                for (of, value), number in last.values.items():
                    if of == name:
                        grown = _growth(first.values.get((of, value), 0), number)
                        yield value, grown / (last.at_s - first.at_s)
            case Quantile():
                for (of, value), counts in last.buckets.items():
                    if of == name:
                        before = first.buckets.get((of, value), {}) if len(self._recent) > 1 else counts
                        grown_by = {bound: _growth(before.get(bound, 0), count) for bound, count in counts.items()}
                        if (found := quantile(reading.q, grown_by)) is not None:
                            yield value, found
            case _:
                assert_never(reading)


def _growth(before: float, now: float) -> float:
    """How much a counter has grown. If it is smaller than before, it began again from 0."""
    return now - before if now >= before else now


def quantile(q: float, below: Mapping[float, float]) -> float | None:
    """A quantile, computed as by Prometheus' `histogram_quantile`: values are assumed to be spread evenly within a
    bucket.

    below: for each bound, how many values are at most that; the last bound is infinite. Returns None if there are no
    values.
    """
    bounds = sorted(below)
    if not bounds or not below[bounds[-1]]:
        return None
    rank = q * below[bounds[-1]]
    at = next(place for place, bound in enumerate(bounds) if below[bound] >= rank)
    if math.isinf(bounds[at]):
        return bounds[at - 1] if at else None
    low, low_count = (bounds[at - 1], below[bounds[at - 1]]) if at else (0.0, 0.0)
    inside = below[bounds[at]] - low_count
    return low + (bounds[at] - low) * ((rank - low_count) / inside if inside else 1.0)
