"""The metrics of reads, clusters and the queue."""

from typing import Final

from feedstore.following.service import FeedService
from feedstore.http.queues import QueuesState
from feedstore.metering import CLUSTER, Counted, Counts, Label
from feedstore.metering.meter import Sample

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


def counts(service: FeedService, queues: QueuesState | None, stopped: str | None) -> Counts:
    """The current counts. queues: None if they do not answer. stopped: why the worker has stopped."""
    reads = zip((READS, HEDGES, FAILOVERS, PROBES), service.counters(), strict=True)
    gauges = [Sample(STOPPED.name, (), float(stopped is not None))]
    for each in service.clusters():
        gauges.append(Sample(BREAKER.name, (each.name,), _BREAKER_OPEN[each.breaker]))
        if each.behind_ms is not None:
            gauges.append(Sample(BEHIND.name, (each.name,), each.behind_ms / 1_000))
        if each.p95_ms is not None:
            gauges.append(Sample(READ_P95.name, (each.name,), each.p95_ms / 1_000))
    if queues is not None:
        gauges += [Sample(LAG.name, (group.group,), group.lag) for group in queues.groups]
        gauges.append(Sample(DEAD_LETTERS.name, (), queues.dead_letters))
    return Counts(
        [
            *(Sample(definition.name, (), count) for definition, count in reads),
            *(Sample(PAGES.name, (name,), served) for name, served in service.pages_served().items()),
        ],
        gauges,
    )
