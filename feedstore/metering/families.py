"""Makes metrics of the library that writes Prometheus' text format, by their definitions. Only that loads
the library.
"""

# ruff: noqa: PLC0415 - the library is an extra
from typing import TYPE_CHECKING

from feedstore.metering.definitions import Definition, Kind

if TYPE_CHECKING:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        SummaryMetricFamily,
    )


def counter(definition: Definition) -> "CounterMetricFamily":
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(_name(definition, "counter"), definition.help, labels=_labels(definition))


def gauge(definition: Definition) -> "GaugeMetricFamily":
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(_name(definition, "gauge"), definition.help, labels=_labels(definition))


def histogram(definition: Definition) -> "HistogramMetricFamily":
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(_name(definition, "histogram"), definition.help, labels=_labels(definition))


def summary(definition: Definition) -> "SummaryMetricFamily":
    from prometheus_client.core import SummaryMetricFamily

    return SummaryMetricFamily(_name(definition, "summary"), definition.help, labels=_labels(definition))


def _name(definition: Definition, kind: Kind) -> str:
    assert definition.kind == kind, definition.name
    return definition.name


def _labels(definition: Definition) -> list[str]:
    return [label.name for label in definition.labels]
