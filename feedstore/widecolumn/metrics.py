"""The metrics of calls to clusters."""

from typing import Final

from feedstore.metering import CLUSTER, SHORT, WRITES, Definition, Label

_WHERE: Final = "feedstore/widecolumn/metered.py"
_CALL: Final = Label("call", ("apply", "read", "cells", "masks", "sweep"))

CALL_SECONDS: Final = Definition(
    "feed_cluster_call_seconds",
    "histogram",
    "Duration of a worker's calls to a cluster, of any table, also of those that failed",
    _WHERE,
    WRITES,
    (CLUSTER, _CALL),
    SHORT,
)
FAILURES: Final = Definition(
    "feed_cluster_failures_total",
    "counter",
    "A worker's calls that a cluster did not answer (`unavailable`), answered with damage, or can never take",
    _WHERE,
    WRITES,
    (CLUSTER, _CALL, Label("reason", ("unavailable", "damaged", "refused"))),
)

DEFINITIONS: Final = (CALL_SECONDS, FAILURES)
