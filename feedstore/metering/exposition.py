"""Counts in Prometheus' text format."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from feedstore.metering.definitions import Definition, Kind
from feedstore.metering.meter import Counts, cumulated

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
_FAMILIES: Final[dict[Kind, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "summary": SummaryMetricFamily,
}


def text(counts: Counts, definitions: Sequence[Definition]) -> bytes:
    """definitions: of all metrics in `counts`."""
    made = {each.name: _FAMILIES[each.kind](each.name, each.help, labels=each.label_names) for each in definitions}
    buckets = {each.name: each.buckets for each in definitions}
    for sample in (*counts.counters, *counts.gauges):
        made[sample.name].add_metric(sample.labels, sample.value)
    for spread in counts.spreads:
        bounds = buckets[spread.name]
        values = (cumulated(bounds, spread.counts),) if bounds else spread.counts
        made[spread.name].add_metric(spread.labels, *values, spread.sum)
    return generate_latest(_Given([each for each in made.values() if each.samples]))


class _Given:
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
