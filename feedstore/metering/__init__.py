"""Metrics: their definitions, the counts of a process, Prometheus' text format.

Each package defines its metrics in its `metrics.py`. docs/metrics.md lists all of them.
"""

from feedstore.metering.definitions import (
    CLUSTER,
    DECADES,
    EVERY,
    GROUP,
    LOOP,
    PARTITION,
    SHARD,
    SHORT,
    WORKERS,
    WRITES,
    Counted,
    Definition,
    Kind,
    Label,
    Program,
    definitions_of,
)
from feedstore.metering.meter import UNCOUNTED, Counting, Counts, Meter, sampled

__all__ = [
    "CLUSTER",
    "DECADES",
    "EVERY",
    "GROUP",
    "LOOP",
    "PARTITION",
    "SHARD",
    "SHORT",
    "UNCOUNTED",
    "WORKERS",
    "WRITES",
    "Counted",
    "Counting",
    "Counts",
    "Definition",
    "Kind",
    "Label",
    "Meter",
    "Program",
    "definitions_of",
    "sampled",
]
