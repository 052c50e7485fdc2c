"""The metrics of feeds: from an action to the cells that every cluster shows."""

from typing import Final

from feedstore.metering import CLUSTER, DECADES, PARTITION, SHARD, WRITES, Definition, Label

_WRITER: Final = "workers/following/writer.py"
_EXPANDER: Final = "workers/following/expander.py"
_HOUSEKEEPING: Final = "workers/following/housekeeping.py"
_GAUGES: Final = "workers/app/gauges.py"
_CANARY: Final = "workers/following/canary.py"

# From an action to what shows it
STAGE_SECONDS: Final = Definition(
    "feed_action_stage_seconds",
    "histogram",
    "From the commit of an action until all of its deliveries were in the queue (`expanded`). `relayed`: with each"
    " tick, how long ago the time was before which every action had been relayed",
    _EXPANDER,
    ("work", "relay", "expand"),
    (Label("stage", ("relayed", "expanded")),),
    DECADES,
)
VISIBLE_SECONDS: Final = Definition(
    "feed_action_visible_seconds",
    "histogram",
    "From the commit of an action until a delivery of it is durable and can be read in a cluster. Of a large batch"
    " some deliveries are looked at, and each counts for several",
    _WRITER,
    WRITES,
    (CLUSTER,),
    DECADES,
)
FANOUT_SECONDS: Final = Definition(
    "feed_fanout_visible_seconds",
    "histogram",
    "From the commit of a pin with a page of followers or more until the watermark of a cluster has passed it: the"
    " last follower has it for certain",
    _WRITER,
    WRITES,
    (CLUSTER,),
    DECADES,
)
PURGE_SECONDS: Final = Definition(
    "feed_purge_seconds",
    "histogram",
    "From the commit of an unfollow until all of its entries are gone from a cluster, and the refill was asked for",
    _WRITER,
    WRITES,
    (CLUSTER,),
    DECADES,
)

# Work done
ACTIONS: Final = Definition(
    "feed_actions_expanded_total",
    "counter",
    "Actions that were expanded, those that came again included",
    _EXPANDER,
    ("work", "expand"),
    (Label("kind", ("follow", "unfollow", "save", "delete", "refill", "respace")),),
)
REDATED: Final = Definition(
    "feed_actions_redated_total",
    "counter",
    "Actions that waited for longer than `[limits] action_age`, and got a new time",
    _EXPANDER,
    ("work", "expand"),
)
PUBLISHED: Final = Definition(
    "feed_deliveries_published_total",
    "counter",
    "Deliveries that the expander has published",
    _EXPANDER,
    ("work", "expand"),
)
WRITTEN: Final = Definition(
    "feed_deliveries_written_total", "counter", "Deliveries that a cluster has", _WRITER, WRITES, (CLUSTER,)
)
CELLS: Final = Definition(
    "feed_cells_written_total",
    "counter",
    "Cells and delete markers that a cluster has taken, those that came again included",
    _WRITER,
    WRITES,
    (CLUSTER,),
)
LATE: Final = Definition(
    "feed_deliveries_late_total",
    "counter",
    "Deliveries that came later than `[limits] delivery_age`, and were not applied: their actions are expanded again",
    _WRITER,
    WRITES,
    (CLUSTER,),
)
SENT_BACK: Final = Definition(
    "feed_actions_sent_back_total",
    "counter",
    "Actions that a writer has sent back to the expander",
    _WRITER,
    WRITES,
    (CLUSTER,),
)
REFILLS: Final = Definition(
    "feed_refills_asked_total",
    "counter",
    "Refills that a writer has asked for after purges",
    _WRITER,
    WRITES,
    (CLUSTER,),
)

# How far each cluster is, and what keeps it back
ANSWERS: Final = Definition(
    "feed_cluster_answers",
    "gauge",
    "1 if the worker's last look at the cluster was answered, else 0",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER,),
)
PARTS_ANSWER: Final = Definition(
    "feed_cluster_parts_answer",
    "gauge",
    "1 if every part of the table of the feeds answered the worker's last look, 0 if one did not. Absent if the cluster"
    " does not answer at all",
    _GAUGES,
    ("relay",),
    (CLUSTER,),
)
DAMAGED: Final = Definition(
    "feed_cluster_damaged",
    "gauge",
    "1 if the cluster has lost a part of what it says that it holds, or its group lost deliveries: rebuild it; else 0."
    " Absent if it does not answer. In a home with files its writer ends by itself instead (`feed_loop_running`)",
    _GAUGES,
    ("relay",),
    (CLUSTER,),
)
HOLDS: Final = Definition(
    "feed_cluster_holds",
    "gauge",
    "Notes in a cluster that may keep its watermark back: for work that was `put_off`, for `refill`s after unfollows,"
    " for `parked` deliveries (1,000 of these at most). Absent if it does not answer",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER, Label("kind", ("put_off", "refill", "parked"))),
)
HOLD_AGE: Final = Definition(
    "feed_cluster_hold_age_seconds",
    "gauge",
    "How long ago the oldest action committed of the notes that may keep a cluster's watermark back; 0 if there are"
    " none. Absent if the cluster does not answer",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER, Label("kind", ("put_off", "refill", "parked"))),
)
KEPT_BACK: Final = Definition(
    "feed_cluster_kept_back_by",
    "gauge",
    "1 for what a cluster's watermark waits for, 0 for all else: ticks that have not come through every partition, or a"
    " kind of hold. `unknown`: no tick has come through some partition yet",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER, Label("by", ("ticks", "put_off", "refill", "parked", "unknown"))),
)
PARTITION_BEHIND: Final = Definition(
    "feed_cluster_partition_behind_seconds",
    "gauge",
    "Age of the newest tick that came through a partition of the deliveries, from that partition of the actions whose"
    " ticks are furthest behind. The oldest keeps the watermark",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER, PARTITION),
)
SOURCE_BEHIND: Final = Definition(
    "feed_cluster_source_behind_seconds",
    "gauge",
    "Age of the newest tick of a partition of the actions, from that partition of the deliveries which is furthest"
    " behind",
    _GAUGES,
    ("work", "relay"),
    (CLUSTER, Label("source", of="the partitions of `feed.actions`")),
)
OUTBOX: Final = Definition(
    "feed_outbox_age_seconds",
    "gauge",
    "How long ago the oldest action committed that is not relayed; 0 if there is none; absent if the shard is away",
    _GAUGES,
    ("work", "relay"),
    (SHARD,),
)
OUTBOX_ACTIONS: Final = Definition(
    "feed_outbox_actions",
    "gauge",
    "Actions that are recorded and not relayed; absent if the shard is away",
    _GAUGES,
    ("work", "relay"),
    (SHARD,),
)
OUTBOX_ROWS: Final = Definition(
    "feed_outbox_rows",
    "gauge",
    "Rows of the outbox that hold actions which are not relayed: those of one transaction share rows. Absent if"
    " the shard is away",
    _GAUGES,
    ("work", "relay"),
    (SHARD,),
)

# Housekeeping
HOUSEKEEPING: Final = Definition(
    "feed_housekeeping_rounds_total",
    "counter",
    "Rounds of housekeeping that were done",
    _HOUSEKEEPING,
    ("work", "relay"),
)
EXPIRED: Final = Definition(
    "feed_housekeeping_expired_total",
    "counter",
    "What rounds dropped because it was too old: `messages` of an embedded queue, `rows` of the follow store, and dead"
    " `letters`, also because they were too many: what those would have written is missing",
    _HOUSEKEEPING,
    ("work", "relay"),
    (Label("what", ("messages", "rows", "letters")),),
)
SWEEPS: Final = Definition(
    "feed_sweeps_total",
    "counter",
    "Sweeps of a cluster that ended: the program trimmed it (`done`), or HBase was `asked` to",
    _HOUSEKEEPING,
    WRITES,
    (CLUSTER, Label("outcome", ("done", "asked"))),
)
SWEPT: Final = Definition(
    "feed_swept_cells_total",
    "counter",
    "Cells that sweeps dropped, by reason: `trimmed`, `masked`, expired `markers`. HBase counts its own:"
    " [trim.md](trim.md#metrics)",
    _HOUSEKEEPING,
    WRITES,
    (CLUSTER, Label("reason", ("trimmed", "masked", "markers"))),
)
SWEEP_SECONDS: Final = Definition(
    "feed_sweep_seconds", "gauge", "How long the last sweep took", _HOUSEKEEPING, WRITES, (CLUSTER,)
)
FREE: Final = Definition(
    "feed_store_free_bytes",
    "gauge",
    "Free space of the file system of a store in files: `follows`, `queue`, or `cluster-CLUSTER`",
    _GAUGES,
    ("work", "relay"),
    (Label("store", of="the stores in files of the home"),),
)
SIZE: Final = Definition(
    "feed_store_capacity_bytes",
    "gauge",
    "Size of the file system of a store in files: `follows`, `queue`, or `cluster-CLUSTER`",
    _GAUGES,
    ("work", "relay"),
    (Label("store", of="the stores in files of the home"),),
)
CLOCK: Final = Definition(
    "feed_clock_offset_seconds",
    "gauge",
    "How far the clock of the `process`, if that is more than `[limits] clock_offset`, or of a `shard-N` of the follow"
    " store is ahead of the home's time (behind: less than 0). Absent if it is unknown",
    _GAUGES,
    ("work", "relay"),
    (Label("of", of="`process`, and `shard-N` for each shard"),),
)

CLOCKS_OFF: Final = Definition(
    "feed_clocks_off",
    "gauge",
    "Processes of the home whose clocks are off by more than `[limits] clock_offset`, and go by the home's time. Absent"
    " if nothing of the home is in files",
    _GAUGES,
    ("work", "relay"),
)

# The canary
CANARY_SECONDS: Final = Definition(
    "feed_canary_seconds",
    "histogram",
    "From the commit of a canary until it was read in its feed in a cluster",
    _CANARY,
    ("work", "relay"),
    (CLUSTER,),
    DECADES,
)
CANARY_AGE: Final = Definition(
    "feed_canary_age_seconds",
    "gauge",
    "How long ago the newest canaries committed that were read in every part of a cluster; before the first, since the"
    " worker began. It grows while any part is late. Absent without `[worker] canary`",
    _CANARY,
    ("work", "relay"),
    (CLUSTER,),
)
CANARIES: Final = Definition(
    "feed_canaries_total",
    "counter",
    "Canaries, one a part of the table and round, by what became of them in a cluster: `seen` in their feeds, `late`"
    " (not there after a minute, and waited for no longer), `unreadable` (the same, and the cluster did not answer), or"
    " `unrecorded` (the follow store did not)",
    _CANARY,
    ("work", "relay"),
    (CLUSTER, Label("outcome", ("seen", "late", "unreadable", "unrecorded"))),
)

DEFINITIONS: Final = (
    STAGE_SECONDS,
    VISIBLE_SECONDS,
    FANOUT_SECONDS,
    PURGE_SECONDS,
    ACTIONS,
    REDATED,
    PUBLISHED,
    WRITTEN,
    CELLS,
    LATE,
    SENT_BACK,
    REFILLS,
    ANSWERS,
    PARTS_ANSWER,
    DAMAGED,
    HOLDS,
    HOLD_AGE,
    KEPT_BACK,
    PARTITION_BEHIND,
    SOURCE_BEHIND,
    OUTBOX,
    OUTBOX_ACTIONS,
    OUTBOX_ROWS,
    HOUSEKEEPING,
    EXPIRED,
    SWEEPS,
    SWEPT,
    SWEEP_SECONDS,
    FREE,
    SIZE,
    CLOCK,
    CLOCKS_OFF,
    CANARY_SECONDS,
    CANARY_AGE,
    CANARIES,
)
