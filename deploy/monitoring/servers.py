"""The metrics of HBase's servers and of Kafka's broker: which of theirs are shown, under what names.

An agent in each JVM reads them from its beans and serves them, and nothing else, over HTTP (docs/server-metrics.md).
Like the rest of this package it needs nothing but the standard library.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "server-metrics.md"

Kind = Literal["counter", "gauge"]
_MS: Final = 0.001


@dataclass(frozen=True)
class ServerMetric:
    """name, kind, help: as it is served. bean, attribute: where its server has it. labels: fixed ones. factor:
    multiplies its value.
    """

    name: str
    kind: Kind
    help: str
    bean: str
    attribute: str
    labels: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0

    @property
    def rule(self) -> dict[str, Any]:
        """As the agent has it: it looks for the pattern in `domain<key=value, ...><>attribute: value`."""
        domain, _, keys = self.bean.partition(":")
        pattern = f"{domain}<{', '.join(keys.split(','))}><>{self.attribute}: "
        rule: dict[str, Any] = {
            "pattern": re.escape(pattern),
            "name": self.name,
            "type": self.kind.upper(),
            "help": self.help,
        }
        if self.labels:
            rule["labels"] = dict(self.labels)
        if self.factor != 1.0:
            rule["valueFactor"] = self.factor
        return rule


def _trim(name: str, attribute: str, says: str) -> ServerMetric:
    bean = "Hadoop:service=HBase,name=RegionServer,sub=Coprocessor.Region.CP_feedstore.trim.TrimObserver"
    return ServerMetric(f"hbase_trim_{name}_total", "counter", says, bean, attribute)


def _of(server: str, sub: str, name: str, kind: Kind, attribute: str, says: str, factor: float = 1.0) -> ServerMetric:
    return ServerMetric(
        f"hbase_{name}", kind, says, f"Hadoop:service=HBase,name={server},sub={sub}", attribute, factor=factor
    )


def _slowest(sub: str, name: str, attribute: str, says: str) -> ServerMetric:
    """The time that one in a hundred takes at least, by the server's own count of the last minutes."""
    bean = f"Hadoop:service=HBase,name=RegionServer,sub={sub}"
    labels = {"quantile": "0.99"}
    return ServerMetric(f"hbase_{name}_seconds", "gauge", says, bean, f"{attribute}_99th_percentile", labels, _MS)


def _broker(name: str, kind: Kind, bean: str, attribute: str, says: str) -> ServerMetric:
    return ServerMetric(f"kafka_{name}", kind, says, bean, attribute)


def _request(request: str) -> ServerMetric:
    return ServerMetric(
        "kafka_request_seconds",
        "gauge",
        "How long one in a hundred requests of a kind takes at least, from its arrival to its answer",
        f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={request}",
        "99thPercentile",
        {"request": request, "quantile": "0.99"},
        _MS,
    )


_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="

HBASE: Final[Sequence[ServerMetric]] = (
    _trim("compactions", "Compactions", "Compactions of all files that were trimmed"),
    _trim(
        "compactions_untrimmed",
        "CompactionsUntrimmed",
        "Those that were not, because the table asks for another version of the trim than the server has",
    ),
    _trim("rows", "Rows", "Rows that went by"),
    _trim("cells_kept", "CellsKept", "Cells that stayed, delete markers among them"),
    _trim("cells_trimmed", "CellsTrimmed", "Cells that were left out, behind the newest `cap + slack`"),
    _trim("markers_kept", "MarkersKept", "Delete markers that stayed"),
    _of("RegionServer", "Server", "regions", "gauge", "regionCount", "Regions that are open"),
    _of("RegionServer", "Server", "store_files", "gauge", "storeFileCount", "Store files of them"),
    _of("RegionServer", "Server", "store_file_bytes", "gauge", "storeFileSize", "Their size"),
    _of("RegionServer", "Server", "memstore_bytes", "gauge", "memStoreSize", "What is written and not flushed"),
    _of("RegionServer", "Server", "read_requests_total", "counter", "readRequestCount", "Reads, one a row"),
    _of("RegionServer", "Server", "write_requests_total", "counter", "writeRequestCount", "Writes, one a row"),
    _of("RegionServer", "Server", "compactions_waiting", "gauge", "compactionQueueLength", "Compactions that wait"),
    _of("RegionServer", "Server", "flushes_waiting", "gauge", "flushQueueLength", "Flushes that wait"),
    _of(
        "RegionServer",
        "Server",
        "writes_blocked_seconds_total",
        "counter",
        "updatesBlockedTime",
        "How long writes were held up until something was flushed",
        _MS,
    ),
    _of("RegionServer", "Server", "block_cache_hits_total", "counter", "blockCacheHitCount", "Blocks found in memory"),
    _of(
        "RegionServer", "Server", "block_cache_misses_total", "counter", "blockCacheMissCount", "Blocks read from files"
    ),
    _of("RegionServer", "IPC", "call_failures_total", "counter", "exceptions", "Calls that ended with an exception"),
    _slowest(
        "IPC", "call", "TotalCallTime", "How long one in a hundred calls takes at least, with its wait for a handler"
    ),
    _slowest("IPC", "call_wait", "QueueCallTime", "How long one in a hundred calls waits for a handler at least"),
    _slowest("WAL", "log_sync", "SyncTime", "How long one in a hundred syncs of the log takes at least"),
    _of("RegionServer", "WAL", "log_bytes_total", "counter", "writtenBytes", "Bytes written to the log"),
    _of(
        "Master", "Server", "region_servers", "gauge", "numRegionServers", "Region servers that the active master knows"
    ),
    _of("Master", "Server", "dead_region_servers", "gauge", "numDeadRegionServers", "Those that it takes for dead"),
    _of("Master", "AssignmentManager", "regions_in_transition", "gauge", "ritCount", "Regions that are being assigned"),
    _of(
        "Master",
        "AssignmentManager",
        "regions_in_transition_oldest_seconds",
        "gauge",
        "ritOldestAge",
        "For how long the oldest of them has been",
        _MS,
    ),
)
"""The metrics of region servers and masters."""

KAFKA: Final[Sequence[ServerMetric]] = (
    _broker("messages_in_total", "counter", f"{_TOPICS}MessagesInPerSec", "Count", "Records that were published"),
    _broker("bytes_in_total", "counter", f"{_TOPICS}BytesInPerSec", "Count", "Bytes of them, compressed"),
    _broker("bytes_out_total", "counter", f"{_TOPICS}BytesOutPerSec", "Count", "Bytes that were fetched by consumers"),
    _broker(
        "failed_produce_requests_total",
        "counter",
        f"{_TOPICS}FailedProduceRequestsPerSec",
        "Count",
        "Requests to publish that failed",
    ),
    _broker(
        "failed_fetch_requests_total",
        "counter",
        f"{_TOPICS}FailedFetchRequestsPerSec",
        "Count",
        "Requests of consumers that failed",
    ),
    _request("Produce"),
    _request("OffsetCommit"),
    _broker(
        "under_replicated_partitions",
        "gauge",
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        "Value",
        "Partitions that this broker leads, and of which a replica is behind",
    ),
    _broker(
        "offline_partitions",
        "gauge",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        "Value",
        "Partitions without a leader, as the active controller knows",
    ),
    _broker(
        "handlers_idle_ratio",
        "gauge",
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
        "The share of the time in which the threads that handle requests do nothing: 1 if all of it, and 2 of a broker"
        " that is its own controller, which has twice as many",
    ),
)
"""The metrics of brokers."""

SECTIONS: Final = (("HBase's servers", HBASE), ("Kafka's brokers", KAFKA))


def agent_yml(metrics: Sequence[ServerMetric]) -> str:
    """The configuration of the agent: only these beans are read, and only these metrics served. JSON is YAML."""
    beans = list(dict.fromkeys(each.bean for each in metrics))
    return json.dumps({"includeObjectNames": beans, "rules": [each.rule for each in metrics]}, indent=1)


_HEAD: Final = """\
# Metrics of the servers

What the Prometheus of the local stack and of the Docker clusters shows of HBase's and Kafka's own metrics, for people
who watch those servers. `make schemas` writes this page from `deploy/monitoring/servers.py`: do not edit it. Metrics of
our own processes are in [metrics.md](metrics.md).

An agent in each JVM ([jmx_exporter](https://github.com/prometheus/jmx_exporter), `deploy/pom.xml` pins it) reads the
beans below and serves them at `/metrics` of a port of its own. It also serves what each JVM says of itself:
`jvm_memory_used_bytes`, `jvm_gc_collection_seconds`, `process_cpu_seconds_total`, `process_open_fds` and others. Why
this way: [decision 54](decisions/0054-metrics-of-the-servers.md). Each target has the label `server`: its host or its
name in the stack.
"""


def page() -> str:
    """The text of docs/server-metrics.md."""
    return "\n".join([_HEAD, *(_section(title, metrics) for title, metrics in SECTIONS)])


def _section(title: str, metrics: Sequence[ServerMetric]) -> str:
    rows = "\n".join(
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{name}={value}`' for name, value in each.labels.items())}"
        f" | {each.help} | `{each.bean}`: `{each.attribute}` |"
        for each in metrics
    )
    return f"## {title}\n| metric | kind | labels | meaning | bean and attribute |\n|---|---|---|---|---|\n{rows}\n"
