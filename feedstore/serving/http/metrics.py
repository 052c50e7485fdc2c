"""What /metrics says."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from feedstore.serving.queues import QueuesState
from feedstore.serving.service import FeedService

MEDIA_TYPE = CONTENT_TYPE_LATEST

MetricName = Literal[
    # Requests that were answered, by endpoint, method and status
    "feed_http_requests_total",
    # How long they took, from the first byte of the head to the last of the answer, by endpoint
    "feed_http_request_seconds",
    # Requests that are being answered
    "feed_http_requests_under_way",
    # Reads of feeds that may need more than one cluster; reads of clusters in files do not count where all is well
    "feed_reads_total",
    # Reads that asked another cluster as well, because the first said nothing
    "feed_read_hedges_total",
    # Reads that asked another cluster instead, because the first failed
    "feed_read_failovers_total",
    # Reads that also tried a cluster whose breaker was open
    "feed_read_probes_total",
    # By cluster: 0 where its breaker is closed, 1 where it is open, 0.5 while it is tried
    "feed_cluster_breaker_open",
    # By cluster: everything committed longer ago than this has landed there; absent where that is unknown
    "feed_cluster_behind_seconds",
    # By cluster: of its recent reads; absent where there were too few, and for a cluster in files
    "feed_cluster_read_p95_seconds",
    # By consumer group: messages (the relay: outbox rows) that it has left to do; absent where the queue is away
    "feed_group_lag",
    # Messages that could not be done; absent where the queue is away
    "feed_dead_letters",
    # 1 if the worker of this process has stopped by itself, else 0
    "feed_worker_stopped",
]

_BY_REQUEST = ("endpoint", "method", "status")
_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BREAKER_OPEN = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


class Metrics:
    """Those of one server. Its counts begin with it. Used by one thread, and so counted without locks: a request pays
    about a microsecond for them.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: defaultdict[str, _Times] = defaultdict(_Times)

    def began(self) -> None:
        self._under_way += 1

    def ended(self, endpoint: str, method: str, status: int, took_s: float) -> None:
        """endpoint, method: those that are known, and nothing that a caller made up."""
        self._under_way -= 1
        self._requests[endpoint, method, status] += 1
        self._times[endpoint].add(took_s)

    def text(self, service: FeedService, queues: QueuesState | None, stopped: str | None) -> bytes:
        """All of them now, in Prometheus' text format. queues: None where they do not answer. stopped: why the worker
        has stopped.
        """
        return generate_latest(self) + generate_latest(_Standing(service, queues, stopped))

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(_named("feed_http_requests_total"), "Requests answered", labels=_BY_REQUEST)
        for (endpoint, method, status), count in self._requests.items():
            requests.add_metric([endpoint, method, str(status)], count)
        seconds = HistogramMetricFamily(_named("feed_http_request_seconds"), "How long they took", labels=["endpoint"])
        for endpoint, times in self._times.items():
            seconds.add_metric([endpoint], times.cumulated(), times.sum_s)
        under_way = GaugeMetricFamily(_named("feed_http_requests_under_way"), "Being answered", self._under_way)
        yield from (requests, seconds, under_way)


class _Times:
    """How often something took how long."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        self._counts[bisect_left(_BUCKETS_S, took_s)] += 1
        self.sum_s += took_s

    def cumulated(self) -> list[tuple[str, float]]:
        """How often at most so long, by the bound's name."""
        return list(zip([*map(str, _BUCKETS_S), "+Inf"], accumulate(self._counts), strict=True))


class _Standing:
    """What others count, as it is now."""

    def __init__(self, service: FeedService, queues: QueuesState | None, stopped: str | None) -> None:
        self._service = service
        self._queues = queues
        self._stopped = stopped

    def collect(self) -> Iterator[Metric]:
        tally = self._service.tally()
        yield CounterMetricFamily(_named("feed_reads_total"), "Reads of feeds", tally.reads)
        yield CounterMetricFamily(_named("feed_read_hedges_total"), "Reads that asked two", tally.hedges)
        yield CounterMetricFamily(_named("feed_read_failovers_total"), "Reads that asked another", tally.failovers)
        yield CounterMetricFamily(_named("feed_read_probes_total"), "Reads that tried a cluster", tally.probes)
        breaker = GaugeMetricFamily(_named("feed_cluster_breaker_open"), "Breaker open", labels=["cluster"])
        behind = GaugeMetricFamily(_named("feed_cluster_behind_seconds"), "How far behind", labels=["cluster"])
        p95 = GaugeMetricFamily(_named("feed_cluster_read_p95_seconds"), "Of recent reads", labels=["cluster"])
        for each in self._service.clusters():
            breaker.add_metric([each.name], _BREAKER_OPEN[each.breaker])
            if each.behind_ms is not None:
                behind.add_metric([each.name], each.behind_ms / 1_000)
            if each.p95_ms is not None:
                p95.add_metric([each.name], each.p95_ms / 1_000)
        yield from (breaker, behind, p95)
        yield GaugeMetricFamily(
            _named("feed_worker_stopped"), "Worker stopped by itself", int(self._stopped is not None)
        )
        if self._queues is not None:
            lag = GaugeMetricFamily(_named("feed_group_lag"), "Left to do", labels=["group"])
            for group in self._queues.groups:
                lag.add_metric([group.group], group.lag)
            yield lag
            yield GaugeMetricFamily(_named("feed_dead_letters"), "Dead letters", self._queues.dead_letters)


def _named(name: MetricName) -> str:
    return name
