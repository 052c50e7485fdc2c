"""The metrics of feeds: from an action to the cells that every cluster shows."""

from typing import Final

from feedstore.metering import CLUSTER, DECADES, PARTITION, SHARD, WRITES, Counted, Label

_STAGES: Final = Counted("workers/following/expander.py", ("work", "relay", "expand"))
_WRITER: Final = Counted("workers/following/writer.py", WRITES)
_EXPANDER: Final = Counted("workers/following/expander.py", ("work", "expand"))
_GAUGES: Final = Counted("workers/app/gauges.py", ("work", "relay"))
_PART_GAUGES: Final = Counted("workers/app/gauges.py", ("relay",))
_HOUSEKEEPER: Final = Counted("workers/following/housekeeping.py", ("work", "relay"))
_SWEEPER: Final = Counted("workers/following/housekeeping.py", WRITES)
_CANARY: Final = Counted("workers/following/canary.py", ("work", "relay"))

# From an action to what shows it
STAGE_SECONDS: Final = _STAGES.histogram(
    "feed_action_stage_seconds",
    "From the commit of an action until its deliveries were in the queue (`expanded`); of a pin for very many"
    " followers, the first of them. `relayed`: with each"
    " tick, how long ago the time was before which every action had been relayed",
    Label("stage", ("relayed", "expanded")),
    buckets=DECADES,
)
VISIBLE_SECONDS: Final = _WRITER.histogram(
    "feed_action_visible_seconds",
    "From the commit of an action until a delivery of it is durable and can be read in a cluster. Of a large batch"
    " some deliveries are looked at, and each counts for several",
    CLUSTER,
    buckets=DECADES,
)
FANOUT_SECONDS: Final = _WRITER.histogram(
    "feed_fanout_visible_seconds",
    "From the commit of a pin with a page of followers or more until the watermark of a cluster has passed it: the"
    " last follower has it for certain",
    CLUSTER,
    buckets=DECADES,
)
PURGE_SECONDS: Final = _WRITER.histogram(
    "feed_purge_seconds",
    "From the commit of an unfollow until all of its entries are gone from a cluster, and the refill was asked for",
    CLUSTER,
    buckets=DECADES,
)

# Work done
ACTIONS: Final = _EXPANDER.counter(
    "feed_actions_expanded_total",
    "Actions that were expanded, those that came again included",
    Label("kind", ("follow", "unfollow", "save", "delete", "refill", "respace")),
)
REDATED: Final = _EXPANDER.counter(
    "feed_actions_redated_total", "Actions that waited for longer than `[limits] action_age`, and got a new time"
)
PUBLISHED: Final = _EXPANDER.counter("feed_deliveries_published_total", "Deliveries that the expander has published")
WRITTEN: Final = _WRITER.counter("feed_deliveries_written_total", "Deliveries that a cluster has", CLUSTER)
CELLS: Final = _WRITER.counter(
    "feed_cells_written_total",
    "Cells and delete markers that a cluster has taken, those that came again included",
    CLUSTER,
)
LATE: Final = _WRITER.counter(
    "feed_deliveries_late_total",
    "Deliveries that came later than `[limits] delivery_age`, and were not applied: their actions are expanded again",
    CLUSTER,
)
SENT_BACK: Final = _WRITER.counter(
    "feed_actions_sent_back_total", "Actions that a writer has sent back to the expander", CLUSTER
)
REFILLS: Final = _WRITER.counter(
    "feed_refills_asked_total", "Refills that a writer has asked for after purges", CLUSTER
)

# How far each cluster is, and what keeps it back
ANSWERS: Final = _GAUGES.gauge(
    "feed_cluster_answers", "1 if the worker's last look at the cluster was answered, else 0", CLUSTER
)
PARTS_ANSWER: Final = _PART_GAUGES.gauge(
    "feed_cluster_parts_answer",
    "1 if every part of the table of the feeds answered the worker's last look, 0 if one did not. Absent if the cluster"
    " does not answer at all",
    CLUSTER,
)
DAMAGED: Final = _PART_GAUGES.gauge(
    "feed_cluster_damaged",
    "1 if the cluster has lost a part of what it says that it holds, or its group lost deliveries: rebuild it; else 0."
    " Absent if it does not answer. Under `feedctl work` a writer that finds that ends by itself instead"
    " (`feed_loop_running`); if files of a cluster break while it runs, the cluster does not answer"
    " (`feed_cluster_answers`)",
    CLUSTER,
)
HOLDS: Final = _GAUGES.gauge(
    "feed_cluster_holds",
    "Notes in a cluster that may keep its watermark back: for work that was `put_off`, for `refill`s after unfollows,"
    " for large `fanout`s that are not done, for `parked` deliveries (of those one for each partition and ten seconds,"
    " ten minutes at most). If over a thousand of the others wait for what is parked, they are one that is `put_off`."
    " Absent if it does not answer",
    CLUSTER,
    Label("kind", ("put_off", "refill", "fanout", "parked")),
)
HOLD_AGE: Final = _GAUGES.gauge(
    "feed_cluster_hold_age_seconds",
    "How long ago the oldest action of the notes that may keep a cluster's watermark back committed; 0 if there are"
    " none. Absent if the cluster does not answer, or if the only note says that the cluster is being rebuilt",
    CLUSTER,
    Label("kind", ("put_off", "refill", "fanout", "parked")),
)
KEPT_BACK: Final = _GAUGES.gauge(
    "feed_cluster_kept_back_by",
    "1 for what a cluster's watermark waits for, 0 for all else: ticks that have not come through every partition, or a"
    " kind of hold. `unknown`: no tick has come through some partition yet",
    CLUSTER,
    Label("by", ("ticks", "put_off", "refill", "fanout", "parked", "unknown")),
)
PARTITION_BEHIND: Final = _GAUGES.gauge(
    "feed_cluster_partition_behind_seconds",
    "Age of the newest tick that came through a partition of the deliveries, from that partition of the actions whose"
    " ticks are furthest behind. The oldest keeps the watermark. If all are behind, feed_group_behind_seconds of the"
    " expander says why",
    CLUSTER,
    PARTITION,
)
ACTIONS_LOST: Final = _GAUGES.gauge(
    "feed_actions_lost",
    "1 if actions were lost in the queue before they were expanded: no expander works until `feedctl reindex` has"
    " brought them back; else 0. Absent if the queue is away",
)
OUTBOX: Final = _GAUGES.gauge(
    "feed_outbox_age_seconds",
    "How long ago the oldest action that is not relayed committed; 0 if there is none; absent if the shard is away",
    SHARD,
)
OUTBOX_ACTIONS: Final = _GAUGES.gauge(
    "feed_outbox_actions", "Actions that are recorded and not relayed; absent if the shard is away", SHARD
)
OUTBOX_ROWS: Final = _GAUGES.gauge(
    "feed_outbox_rows",
    "Rows of the outbox that hold actions which are not relayed: those of one transaction share rows. Absent if"
    " the shard is away",
    SHARD,
)

# Housekeeping
HOUSEKEEPING: Final = _HOUSEKEEPER.counter("feed_housekeeping_rounds_total", "Rounds of housekeeping that were done")
EXPIRED: Final = _HOUSEKEEPER.counter(
    "feed_housekeeping_expired_total",
    "What rounds dropped because it was too old: `messages` of an embedded queue, `rows` of the follow store, and dead"
    " `letters`, also because they were too many: what those would have written is missing",
    Label("what", ("messages", "rows", "letters")),
)
SWEEPS: Final = _SWEEPER.counter(
    "feed_sweeps_total",
    "Sweeps of a cluster that ended. Absent for a cluster in HBase, which trims by itself",
    CLUSTER,
    Label("outcome", ("done",)),
)
SWEPT: Final = _SWEEPER.counter(
    "feed_swept_cells_total",
    "Cells that sweeps dropped, by reason: `trimmed`, `masked`, expired `markers`. HBase counts its own:"
    " [trim.md](trim.md#metrics)",
    CLUSTER,
    Label("reason", ("trimmed", "masked", "markers")),
)
SWEEP_SECONDS: Final = _SWEEPER.gauge("feed_sweep_seconds", "How long the last sweep took", CLUSTER)
FREE: Final = _GAUGES.gauge(
    "feed_store_free_bytes",
    "Free space of the file system of a store in files: `follows`, `queue`, or `cluster-CLUSTER`. Of several shards of"
    " the follow store the one on the fullest file system counts",
    Label("store", of="the stores in files of the home"),
)
SIZE: Final = _GAUGES.gauge(
    "feed_store_capacity_bytes",
    "Size of the file system of a store in files: `follows`, `queue`, or `cluster-CLUSTER`",
    Label("store", of="the stores in files of the home"),
)
CLOCK: Final = _GAUGES.gauge(
    "feed_clock_offset_seconds",
    "How far the clock of the `process`, if that is more than `[limits] clock_offset`, or of a `shard-N` of the follow"
    " store is ahead of the home's time (behind: less than 0). Absent if it is unknown",
    Label("of", of="`process`, and `shard-N` for each shard"),
)

CLOCKS_OFF: Final = _GAUGES.gauge(
    "feed_clocks_off",
    "Processes of the home whose clocks are off by more than `[limits] clock_offset`, and go by the home's time. Absent"
    " if nothing of the home is in files",
)

# The canary
CANARY_SECONDS: Final = _CANARY.histogram(
    "feed_canary_seconds",
    "From the commit of a canary until it was read in its feed in a cluster",
    CLUSTER,
    buckets=DECADES,
)
CANARY_AGE: Final = _CANARY.gauge(
    "feed_canary_age_seconds",
    "How long ago the newest canaries that were read in every part of a cluster committed; before the first, since the"
    " worker began. It grows while any part is late. Absent without `[worker] canary`",
    CLUSTER,
)
CANARIES: Final = _CANARY.counter(
    "feed_canaries_total",
    "Canaries, one a part of the table and round, by what became of them in a cluster: `seen` in their feeds, `late`"
    " (not there after a minute, and waited for no longer), `unreadable` (the same, and the cluster did not answer), or"
    " `unrecorded` (the follow store did not)",
    CLUSTER,
    Label("outcome", ("seen", "late", "unreadable", "unrecorded")),
)
