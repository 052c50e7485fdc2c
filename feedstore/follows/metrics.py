"""The metrics of the follow store."""

from typing import Final

from feedstore.metering import EVERY, SHARD, SHORT, Counted

_SHARDS: Final = Counted("feedstore/follows/watched.py", EVERY)

CALL_SECONDS: Final = _SHARDS.histogram(
    "feed_follow_store_call_seconds", "Duration of calls of a shard, also of those that failed", SHARD, buckets=SHORT
)
FAILURES: Final = _SHARDS.counter(
    "feed_follow_store_failures_total",
    "Calls that a shard did not answer, or that were refused because it is away",
    SHARD,
)
AWAY: Final = _SHARDS.gauge(
    "feed_follow_store_away",
    "1 if the shard failed so often that this process calls it no more until a look finds it back, else 0",
    SHARD,
)
