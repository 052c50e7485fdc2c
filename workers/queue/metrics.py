"""The metrics of the queue."""

from collections.abc import Mapping
from typing import Final

from feedstore.metering import GROUP, PARTITION, SHORT, WORKERS, Counted, Label

_GAUGES: Final = Counted("workers/app/gauges.py", ("work", "relay"))
_METERED: Final = Counted("workers/queue/metered.py", WORKERS)

REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "publish": ("unavailable", "refused"),
    "poll": ("unavailable", "lost"),
    "commit": ("unavailable",),
}
"""Each call that is counted, and the reasons for which it may fail."""

_TOPIC: Final = Label("topic", of="the topics of the queue")
_CALL: Final = Label("call", tuple(REASONS))

PARTITION_LAG: Final = _GAUGES.gauge(
    "feed_group_partition_lag",
    "Messages of a partition that the group has not committed; absent if the queue is away",
    GROUP,
    PARTITION,
)
CALL_SECONDS: Final = _METERED.histogram(
    "feed_queue_call_seconds",
    "Duration of a worker's calls of the queue, also of those that failed: `publish` until the messages are stored,"
    " `commit` of positions, and a `poll` that brought messages: the wait for the first of them is a part of it, so"
    " that only that of a busy group says how fast the queue is",
    _TOPIC,
    _CALL,
    buckets=SHORT,
)
FAILURES: Final = _METERED.counter(
    "feed_queue_failures_total",
    "A worker's calls that the queue did not answer (`unavailable`; consumers of Kafka hear nothing instead, and count"
    " polls of a partition that cannot be read), messages that are too large for it (`refused`), and polls whose"
    " messages are gone, or damaged in a file (`lost`)",
    _TOPIC,
    _CALL,
    Label("reason", ("unavailable", "refused", "lost")),
)
