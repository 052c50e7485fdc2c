"""The metrics of relays, ticks, stages and the loops that they run in."""

from typing import Final

from feedstore.metering import GROUP, LOOP, PARTITION, SHARD, SHORT, WORKERS, Counted, Label

_RUNTIME: Final = Counted("workers/pipeline/runtime.py", WORKERS)
_STAGE: Final = Counted("workers/pipeline/stage.py", WORKERS)
_RETRY: Final = Counted("workers/pipeline/retry.py", WORKERS)
_RELAY: Final = Counted("workers/pipeline/relay.py", ("work", "relay"))


_LOT: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

# Loops
LOOP_RUNNING: Final = _RUNTIME.gauge(
    "feed_loop_running",
    "1 while the loop runs, 0 once it has ended by itself: its process, or the whole worker, must be started again",
    LOOP,
)
LOOP_STEP_AGE: Final = _RUNTIME.gauge(
    "feed_loop_step_age_seconds",
    "How long ago the loop began the step or the rest that it is in: a loop that hangs is seen here. A step does not"
    " begin anything after a second, but one call of a cluster may take 30 s, one of the expander's handler minutes"
    " (`feed_deliveries_published_total` grows meanwhile), and a sweep as long as it needs",
    LOOP,
)
AWAY: Final = _RETRY.counter(
    "feed_loop_away_total",
    "How often a loop found something away, and rests before it asks again: the `queue`; the `outbox` of a shard; the"
    " cluster or store that takes `notes` of what is done, `ticks`, or `parked` messages; the `dead_letters`; what a"
    " loop needs to `begin`; what a `round` of housekeeping or a sweep needs",
    LOOP,
    Label("what", ("queue", "outbox", "notes", "ticks", "parked", "dead_letters", "begin", "round")),
)

# Relays and ticks
RELAYED: Final = _RELAY.counter(
    "feed_relay_messages_total", "Actions of an outbox that a relay has published, in messages of many", SHARD
)
RELAYED_BYTES: Final = _RELAY.counter(
    "feed_relay_bytes_total", "Bytes of the messages that a relay has published", SHARD
)
TICKS: Final = _RELAY.counter(
    "feed_ticks_total",
    "Ticks that were sent, each through every partition: none while a shard of the follow store, or the queue, is away",
    LOOP,
)

# Stages
MESSAGES: Final = _STAGE.counter(
    "feed_stage_messages_total",
    "Messages that a group is done with: `done` by its handler, `parked` for later, or `dead`",
    GROUP,
    Label("outcome", ("done", "parked", "dead")),
)
BYTES: Final = _STAGE.counter("feed_stage_bytes_total", "Bytes of the messages that a group has polled", GROUP)
LOTS: Final = _STAGE.counter("feed_stage_lots_total", "Polls that brought messages", GROUP)
BATCH: Final = _STAGE.histogram(
    "feed_stage_batch_messages", "Messages that a group's handler was called with", GROUP, buckets=_LOT
)
HANDLE_SECONDS: Final = _STAGE.histogram(
    "feed_stage_handle_seconds",
    "Duration of calls of a group's handler, also of those that failed",
    GROUP,
    buckets=SHORT,
)
RETRIES: Final = _STAGE.counter(
    "feed_stage_retries_total",
    "Calls of the handler that failed, and are repeated: what it needs is `unavailable`, or a message has a `fault`",
    GROUP,
    Label("reason", ("unavailable", "fault")),
)
DEAD: Final = _STAGE.counter(
    "feed_stage_dead_letters_total",
    "Messages that became dead letters: not decodable (`not_json`, `malformed`, `oversized`, `unknown_version`),"
    " `refused` by a store for good, or `failed` too often",
    GROUP,
    Label("reason", ("not_json", "malformed", "oversized", "unknown_version", "refused", "failed", "other")),
)
WAITING: Final = _STAGE.gauge("feed_stage_waiting_messages", "Messages that were polled and are not done", GROUP)
WAITING_BYTES: Final = _STAGE.gauge(
    "feed_stage_waiting_bytes", "Bytes in memory of messages that were polled and are not done", GROUP
)
RETRYING: Final = _STAGE.gauge(
    "feed_stage_retrying_seconds",
    "How long ago the first failed attempt of messages that are still not done began; 0 if there are none",
    GROUP,
)
BEHIND: Final = _STAGE.gauge(
    "feed_group_behind_seconds",
    "The lag in seconds: every action that committed longer ago, and comes through this partition, is done by the"
    " group. It also grows if no ticks come (`feed_ticks_total`). Absent until a tick of every source has come, in a"
    " process that does not read the partition, and of groups whose topic has no ticks",
    GROUP,
    PARTITION,
)
