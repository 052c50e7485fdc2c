"""The metrics of relays, ticks, stages and the loops that they run in."""

from typing import Final

from feedstore.metering import GROUP, LOOP, PARTITION, SHARD, SHORT, WORKERS, Definition, Label

_STAGE: Final = "workers/pipeline/stage.py"
_RELAY: Final = "workers/pipeline/relay.py"
_RUNTIME: Final = "workers/pipeline/runtime.py"

_LOT: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

# Loops
LOOP_RUNNING: Final = Definition(
    "feed_loop_running",
    "gauge",
    "1 while the loop runs, 0 once it has ended by itself: its process, or the whole worker, must be started again",
    _RUNTIME,
    WORKERS,
    (LOOP,),
)
LOOP_STEP_AGE: Final = Definition(
    "feed_loop_step_age_seconds",
    "gauge",
    "How long ago the loop began the step or the rest that it is in: a loop that hangs is seen here. A step does not"
    " begin anything after a second, but one call of a cluster may take 30 s, and a sweep as long as it needs",
    _RUNTIME,
    WORKERS,
    (LOOP,),
)
AWAY: Final = Definition(
    "feed_loop_away_total",
    "counter",
    "How often a loop found something away, and rests before it asks again: the `queue`; the `outbox` of a shard; the"
    " cluster or store that takes `notes` of what is done, `ticks`, or `parked` messages; the `dead_letters`; what a"
    " loop needs to `begin`; what a `round` of housekeeping or a sweep needs",
    _STAGE,
    WORKERS,
    (LOOP, Label("what", ("queue", "outbox", "notes", "ticks", "parked", "dead_letters", "begin", "round"))),
)

# Relays and ticks
RELAYED: Final = Definition(
    "feed_relay_messages_total",
    "counter",
    "Actions of an outbox that a relay has published, in messages of many",
    _RELAY,
    ("work", "relay"),
    (SHARD,),
)
RELAYED_BYTES: Final = Definition(
    "feed_relay_bytes_total",
    "counter",
    "Bytes of the messages that a relay has published",
    _RELAY,
    ("work", "relay"),
    (SHARD,),
)
TICKS: Final = Definition(
    "feed_ticks_total",
    "counter",
    "Ticks that were sent, each through every partition: none while a shard of the follow store, or the queue, is away",
    _RELAY,
    ("work", "relay"),
    (LOOP,),
)

# Stages
MESSAGES: Final = Definition(
    "feed_stage_messages_total",
    "counter",
    "Messages that a group is done with: `done` by its handler, `parked` for later, or `dead`",
    _STAGE,
    WORKERS,
    (GROUP, Label("outcome", ("done", "parked", "dead"))),
)
BYTES: Final = Definition(
    "feed_stage_bytes_total", "counter", "Bytes of the messages that a group has polled", _STAGE, WORKERS, (GROUP,)
)
LOTS: Final = Definition("feed_stage_lots_total", "counter", "Polls that brought messages", _STAGE, WORKERS, (GROUP,))
BATCH: Final = Definition(
    "feed_stage_batch_messages",
    "histogram",
    "Messages that a group's handler was called with",
    _STAGE,
    WORKERS,
    (GROUP,),
    _LOT,
)
HANDLE_SECONDS: Final = Definition(
    "feed_stage_handle_seconds",
    "histogram",
    "Duration of calls of a group's handler, also of those that failed",
    _STAGE,
    WORKERS,
    (GROUP,),
    SHORT,
)
RETRIES: Final = Definition(
    "feed_stage_retries_total",
    "counter",
    "Calls of the handler that failed, and are repeated: what it needs is `unavailable`, or a message has a `fault`",
    _STAGE,
    WORKERS,
    (GROUP, Label("reason", ("unavailable", "fault"))),
)
DEAD: Final = Definition(
    "feed_stage_dead_letters_total",
    "counter",
    "Messages that became dead letters: not decodable (`not_json`, `malformed`, `oversized`, `unknown_version`),"
    " `refused` by a store for good, or `failed` too often",
    _STAGE,
    WORKERS,
    (
        GROUP,
        Label("reason", ("not_json", "malformed", "oversized", "unknown_version", "refused", "failed", "other")),
    ),
)
WAITING: Final = Definition(
    "feed_stage_waiting_messages",
    "gauge",
    "Messages that were polled and are not done",
    _STAGE,
    WORKERS,
    (GROUP,),
)
WAITING_BYTES: Final = Definition(
    "feed_stage_waiting_bytes",
    "gauge",
    "Bytes in memory of messages that were polled and are not done",
    _STAGE,
    WORKERS,
    (GROUP,),
)
RETRYING: Final = Definition(
    "feed_stage_retrying_seconds",
    "gauge",
    "How long ago the first attempt began that failed, of messages that are still not done; 0 if there are none",
    _STAGE,
    WORKERS,
    (GROUP,),
)
BEHIND: Final = Definition(
    "feed_group_behind_seconds",
    "gauge",
    "The lag in seconds: every action that committed longer ago, and comes through this partition, is done by the"
    " group. It also grows if no ticks come (`feed_ticks_total`). Absent before the first tick, and of groups whose"
    " topic has no ticks",
    _STAGE,
    WORKERS,
    (GROUP, PARTITION),
)

DEFINITIONS: Final = (
    LOOP_RUNNING,
    LOOP_STEP_AGE,
    AWAY,
    RELAYED,
    RELAYED_BYTES,
    TICKS,
    MESSAGES,
    BYTES,
    LOTS,
    BATCH,
    HANDLE_SECONDS,
    RETRIES,
    DEAD,
    WAITING,
    WAITING_BYTES,
    RETRYING,
    BEHIND,
)
