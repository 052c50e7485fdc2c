"""The metrics of calls to clusters."""

from typing import Final

from feedstore.metering import CLUSTER, SHORT, WRITES, Counted, Label

_METERED: Final = Counted("feedstore/widecolumn/metered.py", WRITES)
_DIRECT: Final = Counted("feedstore/widecolumn/hbase/direct.py", ("serve",))
_CALL: Final = Label("call", ("apply", "read", "cells", "masks", "sweep"))

CALL_SECONDS: Final = _METERED.histogram(
    "feed_cluster_call_seconds",
    "Duration of a worker's calls to a cluster, of any table, also of those that failed",
    CLUSTER,
    _CALL,
    buckets=SHORT,
)
FAILURES: Final = _METERED.counter(
    "feed_cluster_failures_total",
    "A worker's calls that a cluster did not answer (`unavailable`), answered with damage, or can never take",
    CLUSTER,
    _CALL,
    Label("reason", ("unavailable", "damaged", "refused")),
)
READS: Final = _DIRECT.counter(
    "feed_cluster_reads_total",
    "Reads for pages of a row of a cluster in HBase that its region servers answered, and those that had to be left to"
    " its gateways. Absent for a cluster with `reads=gateways`, and for one in files",
    CLUSTER,
    Label("by", ("region_server", "gateway")),
)
