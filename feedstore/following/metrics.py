"""The metrics of reads, clusters and the queue."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from feedstore.following.service import FeedService
from feedstore.http.queues import QueuesState
from feedstore.metering import CLUSTER, Counted, Label, families

if TYPE_CHECKING:  # defining metrics needs no library
    from prometheus_client.core import Metric

_SERVED: Final = Counted("feedstore/following/metrics.py", ("serve",))
_SERVICE: Final = Counted("feedstore/following/service.py", ("serve",))
_WATCHED: Final = Counted("feedstore/following/metrics.py", ("serve", "work", "relay"))

READS: Final = _SERVED.counter(
    "feed_reads_total",
    "Reads of feeds that may need more than one cluster; those of clusters in files do not count while all is well",
)
HEDGES: Final = _SERVED.counter(
    "feed_read_hedges_total", "Reads that also asked another cluster, because the first was slow"
)
FAILOVERS: Final = _SERVED.counter(
    "feed_read_failovers_total", "Reads that asked another cluster instead, because the first failed"
)
PROBES: Final = _SERVED.counter("feed_read_probes_total", "Reads that tested a cluster whose breaker is open")
PAGES: Final = _SERVICE.counter(
    "feed_pages_total", "Pages of feeds that a cluster has served; a page of pins may take several", CLUSTER
)
BREAKER: Final = _SERVED.gauge(
    "feed_cluster_breaker_open", "Breaker of a cluster: 0 closed, 1 open, 0.5 half-open", CLUSTER
)
BEHIND: Final = _WATCHED.gauge(
    "feed_cluster_behind_seconds",
    "Age of a cluster's watermark: everything committed longer ago has landed there. Absent if that is unknown,"
    " as while the cluster is being rebuilt",
    CLUSTER,
)
READ_P95: Final = _SERVED.gauge(
    "feed_cluster_read_p95_seconds",
    "p95 of recent reads of a cluster; absent if there were too few, and for clusters in files",
    CLUSTER,
)
STOPPED: Final = _SERVED.gauge(
    "feed_worker_stopped",
    "1 if the worker of this process has stopped by itself, or no process works in a home in files; else 0",
)
LAG: Final = _WATCHED.gauge(
    "feed_group_lag",
    "Messages that a consumer group has not committed; of `relay`, actions. Absent if the queue is away; of `relay`,"
    " if a shard of the follow store is",
    Label("group", of="`relay`, and the consumer groups: `expander`, `writer-CLUSTER`, `retries-CLUSTER`, ..."),
)
DEAD_LETTERS: Final = _WATCHED.gauge(
    "feed_dead_letters", "Messages that could not be processed, and are kept; absent if the queue is away"
)


_BREAKER_OPEN: Final = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


def metrics(service: FeedService, queues: QueuesState | None, stopped: str | None) -> "Iterator[Metric]":
    """The current metrics. queues: None if they do not answer. stopped: why the worker has stopped."""
    counters = service.counters()
    for definition, count in (
        (READS, counters.reads),
        (HEDGES, counters.hedges),
        (FAILOVERS, counters.failovers),
        (PROBES, counters.probes),
    ):
        of_reads = families.counter(definition)
        of_reads.add_metric([], count)
        yield of_reads
    pages = families.counter(PAGES)
    for name, served in service.pages_served().items():
        pages.add_metric([name], served)
    yield pages
    breaker, behind, p95 = families.gauge(BREAKER), families.gauge(BEHIND), families.gauge(READ_P95)
    for each in service.clusters():
        breaker.add_metric([each.name], _BREAKER_OPEN[each.breaker])
        if each.behind_ms is not None:
            behind.add_metric([each.name], each.behind_ms / 1_000)
        if each.p95_ms is not None:
            p95.add_metric([each.name], each.p95_ms / 1_000)
    yield from (breaker, behind, p95)
    has_stopped = families.gauge(STOPPED)
    has_stopped.add_metric([], int(stopped is not None))
    yield has_stopped
    if queues is not None:
        lag, dead = families.gauge(LAG), families.gauge(DEAD_LETTERS)
        for group in queues.groups:
            lag.add_metric([group.group], group.lag)
        dead.add_metric([], queues.dead_letters)
        yield from (lag, dead)
