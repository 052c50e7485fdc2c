"""What /metrics says of reads, clusters and the queue."""

from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from feedstore.following.service import FeedService
from feedstore.http.queues import QueuesState

MetricName = Literal[
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

_BREAKER_OPEN = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


def metrics(service: FeedService, queues: QueuesState | None, stopped: str | None) -> Iterator[Metric]:
    """As they are now. queues: None where they do not answer. stopped: why the worker has stopped."""
    counters = service.counters()
    yield CounterMetricFamily(
        _named("feed_reads_total"), "Reads of feeds that may need more than one cluster", counters.reads
    )
    yield CounterMetricFamily(
        _named("feed_read_hedges_total"),
        "Reads that also asked another cluster, because the first was slow",
        counters.hedges,
    )
    yield CounterMetricFamily(
        _named("feed_read_failovers_total"),
        "Reads that asked another cluster, because the first failed",
        counters.failovers,
    )
    yield CounterMetricFamily(
        _named("feed_read_probes_total"), "Reads that tested a cluster whose breaker is open", counters.probes
    )
    breaker = GaugeMetricFamily(
        _named("feed_cluster_breaker_open"), "Breaker of a cluster: 0 closed, 1 open, 0.5 half-open", labels=["cluster"]
    )
    behind = GaugeMetricFamily(
        _named("feed_cluster_behind_seconds"), "Age of a cluster's watermark", labels=["cluster"]
    )
    p95 = GaugeMetricFamily(
        _named("feed_cluster_read_p95_seconds"), "p95 of recent reads of a cluster", labels=["cluster"]
    )
    for each in service.clusters():
        breaker.add_metric([each.name], _BREAKER_OPEN[each.breaker])
        if each.behind_ms is not None:
            behind.add_metric([each.name], each.behind_ms / 1_000)
        if each.p95_ms is not None:
            p95.add_metric([each.name], each.p95_ms / 1_000)
    yield from (breaker, behind, p95)
    yield GaugeMetricFamily(
        _named("feed_worker_stopped"),
        "1 if the worker of this process has stopped by itself, else 0",
        int(stopped is not None),
    )
    if queues is not None:
        lag = GaugeMetricFamily(_named("feed_group_lag"), "Uncommitted messages per consumer group", labels=["group"])
        for group in queues.groups:
            lag.add_metric([group.group], group.lag)
        yield lag
        yield GaugeMetricFamily(
            _named("feed_dead_letters"), "Messages that could not be processed", queues.dead_letters
        )


def _named(name: MetricName) -> str:
    return name
