"""Metrics of the library that writes Prometheus' text format, by their definitions."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily

from feedstore.metering.definitions import Definition, Kind


def counter(definition: Definition) -> CounterMetricFamily:
    return CounterMetricFamily(_name(definition, "counter"), definition.help, labels=_labels(definition))


def gauge(definition: Definition) -> GaugeMetricFamily:
    return GaugeMetricFamily(_name(definition, "gauge"), definition.help, labels=_labels(definition))


def histogram(definition: Definition) -> HistogramMetricFamily:
    return HistogramMetricFamily(_name(definition, "histogram"), definition.help, labels=_labels(definition))


def summary(definition: Definition) -> SummaryMetricFamily:
    return SummaryMetricFamily(_name(definition, "summary"), definition.help, labels=_labels(definition))


def _name(definition: Definition, kind: Kind) -> str:
    assert definition.kind == kind, definition.name
    return definition.name


def _labels(definition: Definition) -> list[str]:
    return [label.name for label in definition.labels]
