"""What /metrics says of the requests, and what others count."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from feedstore.http.histogram import Histogram

MEDIA_TYPE = CONTENT_TYPE_LATEST

MetricName = Literal[
    # Requests that were answered, by endpoint, method and status
    "feed_http_requests_total",
    # How long they took, from the first byte of the head to the last of the answer, by endpoint
    "feed_http_request_seconds",
    # Requests that are being answered
    "feed_http_requests_under_way",
]

_BY_REQUEST = ("endpoint", "method", "status")
_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Those of one server. Its counts begin with it. Used by one thread, and so counted without locks: a request pays
    about a microsecond for them.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_BUCKETS_S))

    def began(self) -> None:
        self._under_way += 1

    def ended(self, endpoint: str, method: str, status: int, took_s: float) -> None:
        """endpoint, method: those that are known, and nothing that a caller made up."""
        self._under_way -= 1
        self._requests[endpoint, method, status] += 1
        self._times[endpoint].add(took_s)

    def text(self, others: Iterable[Metric]) -> bytes:
        """All of them now, in Prometheus' text format, and what others count behind them."""
        return generate_latest(self) + generate_latest(_Given(others))

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(_named("feed_http_requests_total"), "HTTP requests answered", labels=_BY_REQUEST)
        for (endpoint, method, status), count in self._requests.items():
            requests.add_metric([endpoint, method, str(status)], count)
        seconds = HistogramMetricFamily(
            _named("feed_http_request_seconds"),
            "Duration of HTTP requests, from the first byte of the head to the last of the answer",
            labels=["endpoint"],
        )
        for endpoint, times in self._times.items():
            seconds.add_metric([endpoint], times.cumulated(), times.sum)
        under_way = GaugeMetricFamily(
            _named("feed_http_requests_under_way"), "HTTP requests being answered", self._under_way
        )
        yield from (requests, seconds, under_way)


class _Given:
    """Metrics that somebody else has collected."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _named(name: MetricName) -> str:
    return name
