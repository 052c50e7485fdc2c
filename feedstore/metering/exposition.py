"""Counts in Prometheus' text format."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric

from feedstore.metering import families
from feedstore.metering.definitions import Definition
from feedstore.metering.meter import Counts, cumulated

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST


def metrics(counts: Counts, definitions: Sequence[Definition]) -> Iterator[Metric]:
    """The counts as metrics of the library. definitions: of all metrics in `counts`."""
    counters = {each.name: families.counter(each) for each in definitions if each.kind == "counter"}
    gauges = {each.name: families.gauge(each) for each in definitions if each.kind == "gauge"}
    for counter in counts.counters:
        counters[counter.name].add_metric(counter.labels, counter.value)
    for gauge in counts.gauges:
        gauges[gauge.name].add_metric(gauge.labels, gauge.value)
    histograms = {
        each.name: (each.buckets, families.histogram(each)) for each in definitions if each.kind == "histogram"
    }
    for spread in counts.spreads:
        buckets, histogram = histograms[spread.name]
        histogram.add_metric(spread.labels, cumulated(buckets, spread.counts), spread.sum)
    every = (*counters.values(), *gauges.values(), *(histogram for _, histogram in histograms.values()))
    yield from (each for each in every if each.samples)


def text(counts: Counts, definitions: Sequence[Definition]) -> bytes:
    return rendered(metrics(counts, definitions))


def rendered(given: Iterable[Metric]) -> bytes:
    """Renders metrics that were collected already."""
    return generate_latest(_Given(given))


class _Given:
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
