"""The metrics of the follow store."""

from typing import Final

from feedstore.metering import EVERY, SHARD, SHORT, Definition

_WHERE: Final = "feedstore/follows/watched.py"

CALL_SECONDS: Final = Definition(
    "feed_follow_store_call_seconds",
    "histogram",
    "Duration of calls of a shard, also of those that failed",
    _WHERE,
    EVERY,
    (SHARD,),
    SHORT,
)
FAILURES: Final = Definition(
    "feed_follow_store_failures_total",
    "counter",
    "Calls that a shard did not answer, or that were refused because it is away",
    _WHERE,
    EVERY,
    (SHARD,),
)
AWAY: Final = Definition(
    "feed_follow_store_away",
    "gauge",
    "1 if the shard failed so often that this process asks it no more until it has answered again, else 0",
    _WHERE,
    EVERY,
    (SHARD,),
)

DEFINITIONS: Final = (CALL_SECONDS, FAILURES, AWAY)
