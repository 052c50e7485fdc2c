"""The writer turns deliveries into the cells of one cluster."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import assert_never

from feedstore.clocks import APART_MAX_MS
from feedstore.domain import PinSaved, RecordedAction, Unfollowed
from feedstore.following import FEEDS, Limits, entries_of, mutations, row_key
from feedstore.follows.port import MAX_PAGE
from feedstore.follows.store import FollowStore
from feedstore.metering import UNCOUNTED, Meter, sampled
from feedstore.portions import chunks, portions
from feedstore.tracing import UNTRACED, Tracer, Value
from feedstore.widecolumn import MAX_LIMIT, DeleteColumns, Mutation, WideColumnStore
from feedstore.widecolumn.progress import Progress, Through
from workers.following import metrics
from workers.following.covering import Covering, covering_now, uncovered
from workers.following.messages import Delivery, Hold, Purge, Task, encode_action
from workers.following.packs import Pack, cell_mutations
from workers.following.topics import ACTIONS, DELIVERIES
from workers.pipeline.ticks import KnownPartitions, Settled, Tick
from workers.queue.port import Queue

_CELLS_AT_ONCE = 10_000
"""The most cells of a batch: large enough to share a sync to disk, small enough for memory and for a retry."""
_FANOUTS_MAX = 1_000
"""At most this many large fanouts are timed at once; further ones are not counted."""


class Writer:
    """Writes one cluster. What must be remembered is in the cluster (`Progress`). A writer itself only knows which
    ticks it has met: after a restart it meets later ones. Any number may run.

    cluster: its name. feeds, progress: its tables. meter: counts the work. tracer: tasks that are sent back continue
    the traces of its current lot.
    """

    def __init__(
        self,
        cluster: str,
        feeds: WideColumnStore,
        progress: Progress,
        follows: FollowStore,
        queue: Queue,
        limits: Limits,
        meter: Meter = UNCOUNTED,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._meter = meter
        self._tracer = tracer
        self._fanouts = LargeFanouts(meter, cluster, limits.chunk)
        # All begin with 0, so that the first of a kind is seen as an increase.
        for histogram in (metrics.VISIBLE_SECONDS, metrics.PURGE_SECONDS):
            meter.observe(histogram, [], cluster)
        for counter in (metrics.WRITTEN, metrics.CELLS, metrics.LATE, metrics.SENT_BACK, metrics.REFILLS):
            meter.add(counter, 0, cluster)
        self._cluster = cluster
        self._feeds = feeds
        self._progress = progress
        self._follows = follows
        self._queue = queue
        self._known = KnownPartitions(queue, ACTIONS, DELIVERIES)
        self._limits = limits
        self._late_before_ms = 0
        self._settled: defaultdict[int, Settled] = defaultdict(Settled)  # by partition of the deliveries
        self._counted: defaultdict[int, int] = defaultdict(int)  # the most partitions that a tick named in each
        self._noted: dict[Through, int] = {}

    def late_before_ms(self) -> int:
        """Deliveries that were read before this time were late at the last call of `write`."""
        return self._late_before_ms

    def write(self, messages: Sequence[Delivery | Hold | Pack]) -> None:
        """Applies deliveries and packs, with purges, holds and sending back; all is durable when it returns. If it
        raises, write all of them again.
        """
        # A delivery that was read before this time is late (rule 8): it is too old, or this cluster was created again
        # since.
        # The time must never be too early, or a delivery that is too old would be applied. Plain cells need nothing
        # else of the store.
        ours = [message for message in messages if message.cluster in (None, self._cluster)]
        now_ms = self._now_ms(ours)
        late_before_ms = max(now_ms - self._limits.delivery_age_ms, self._progress.made_ms())
        self._late_before_ms = late_before_ms
        holds: list[tuple[int, int]] = []
        fanouts: list[tuple[int, int]] = []
        deliveries: list[Delivery] = []
        packs: list[Pack] = []
        late: list[Delivery | Pack] = []
        # If a delivery was read later than now, a clock was ahead: its age is unknown.
        ahead_ms = now_ms + APART_MAX_MS
        for message in ours:
            match message:
                case Hold():
                    # A later time is from a clock that was ahead; what the hold waits for was published before now.
                    until_ms = message.until_ms if message.until_ms <= ahead_ms else now_ms
                    (fanouts if message.kind == "fanout" else holds).append((message.since_ms, until_ms))
                case Delivery() | Pack() if not late_before_ms <= message.read_ms <= ahead_ms:
                    late.append(message)
                case Delivery():
                    deliveries.append(message)
                case Pack():
                    packs.append(message)
                case _:
                    assert_never(message)
        for some in portions(packs, Pack.cells, _CELLS_AT_ONCE):
            self._apply(cell_mutations(some), some)
        for each in portions(deliveries, Delivery.cells, _CELLS_AT_ONCE):
            self._apply(list(_mutations(each)), each)
        self._finish_purges(deliveries)
        if holds:
            self._progress.hold(holds)
        if fanouts:
            self._progress.hold_for_fanouts(fanouts)
        self._send_back(late, late_before_ms)

    def _now_ms(self, messages: Sequence[Delivery | Hold | Pack]) -> int:
        """The store's time, or a later one. If messages are ahead of it, the store is asked: the clocks of this machine
        may have been paused with it.
        """
        now_ms = self._follows.about_now().latest_ms
        times = (message.until_ms if isinstance(message, Hold) else message.read_ms for message in messages)
        if max(times, default=0) > now_ms + APART_MAX_MS:
            now_ms = max(now_ms, self._follows.now_at_the_latest())
        return now_ms

    def _apply(self, batch: Sequence[Mutation], messages: Sequence[Delivery | Pack]) -> None:
        """Applies the mutations of some messages, and counts these: they are durable then, and can be read."""
        cells = sum(message.cells() for message in messages)
        about: dict[str, Value] = {
            "db.operation.name": "apply",
            "db.collection.name": FEEDS,
            "feedstore.cluster": self._cluster,
            "feedstore.cells": cells,
        }
        with self._tracer.part(f"apply {FEEDS}", about, kind="client"):
            self._feeds.apply(batch)
        now_ms = self._follows.about_now().latest_ms
        committed = [ms for message in messages for ms in _committed_ms(message)]
        some, each = sampled(committed)
        self._meter.observe(metrics.VISIBLE_SECONDS, [(now_ms - ms) / 1_000 for ms in some], self._cluster, each=each)
        self._meter.add(metrics.WRITTEN, len(committed), self._cluster)
        self._meter.add(metrics.CELLS, cells, self._cluster)
        self._fanouts.landed(messages)

    def tick(self, ticks: Sequence[tuple[int, Tick]]) -> None:
        """Takes ticks, each with the partition of the deliveries that it came through, once everything before them has
        landed. Once a tick of every source has come through a partition, the cluster notes the time of the oldest. A
        tick that is ahead of the store's time is ignored: it is from before a shard was brought back. So is a tick of
        partitions that do not exist. Raises UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: take
        all again.
        """
        ahead_ms = self._follows.about_now().latest_ms + APART_MAX_MS
        told: set[int] = set()
        for partition, tick in ticks:
            if tick.settled_ms <= ahead_ms and self._known.had(tick):
                settled = self._settled[partition]
                if tick.sources < settled.sources and self._known.are_fewer(settled.sources):
                    # No tick of the others will ever come.
                    settled = self._settled[partition] = Settled()
                settled.note(tick)
                # A tick that was counted before a partition was added may be published after one that names it.
                self._counted[partition] = max(self._partitions(tick), self._counted[partition])
                told.add(partition)
        later: dict[Through, int] = {}
        for partition in told:
            settled = self._settled[partition]
            through, settled_ms = Through(partition, self._counted[partition], settled.sources), settled.settled_ms()
            if settled_ms is not None and settled_ms > self._noted.get(through, 0):
                later[through] = settled_ms
        if later:
            self._progress.advance(later)
            self._noted |= later
        self._fanouts.ticked(self._progress.watermark, lambda: self._follows.about_now().latest_ms)

    def _partitions(self, tick: Tick) -> int:
        """How many partitions a tick must come through. Its sender knows the number; this writer may not know the
        newest partition, which may hold deliveries from before this tick.
        """
        # If a tick does not say how many, it was sent to no more partitions than there are now.
        return self._queue.partitions(DELIVERIES) if tick.partitions is None else tick.partitions

    def _finish_purges(self, landed: Sequence[Delivery]) -> None:
        """For each purge whose parts have all landed: reads the row, asks for a refill and notes a hold for it."""
        parts = [(each.action, each.purge) for each in landed if isinstance(each.action, Unfollowed)]
        finished = [(action, purge) for action, purge in parts if purge and self._all_parts_landed(action, purge)]
        if not finished:
            return
        self._read_rows(action for action, purge in finished if not purge.complete)
        # Each retry asks again, so nothing is asked for while the holds cannot be written.
        self._progress.refuse_unwritable()
        # Refills are asked for only after the markers have landed: entries that come first could be trimmed away,
        # because they lie below entries that the markers then remove (rule 9).
        users = {action.follower for action, _ in finished}
        asked_ms = self._follows.ask_refill(sorted(users), self._cluster, 0)
        # One hold for all: they end together, and the oldest of them makes none last longer.
        since_ms = min(action.committed_ms for action, _ in finished)
        self._progress.hold_for_refills([(since_ms, asked_ms)])
        took_s = [(asked_ms - action.committed_ms) / 1_000 for action, _ in finished]
        self._meter.observe(metrics.PURGE_SECONDS, took_s, self._cluster)
        self._meter.add(metrics.REFILLS, len(users), self._cluster)

    def _all_parts_landed(self, action: Unfollowed, purge: Purge) -> bool:
        return purge.parts == 1 or self._progress.part_landed(action.follower, action.ts, purge.part, purge.parts)

    def _read_rows(self, actions: Iterable[Unfollowed]) -> None:
        """Removes from each follower's row all other entries that an unfollowed followee covers and no active edge does
        (rule 6): entries so old that the expander's lists do not reach them. A row is read once for all of its user.
        """
        by_follower: defaultdict[int, Covering] = defaultdict(Covering)
        for action in actions:
            by_follower[action.follower].add(action.followee, action.ts)
        for follower, unfollowed in by_follower.items():
            self._read_row(follower, unfollowed)

    def _read_row(self, follower: int, unfollowed: Covering) -> None:
        row, after = row_key(follower), None
        while True:
            columns = self._feeds.read(row, after, MAX_LIMIT)
            for some in chunks(columns, MAX_PAGE):
                found = [entry.pin for entry in entries_of(some)]
                pins = [state.pin for state in self._follows.pins(found).values()]
                mine = [pin for pin in pins if unfollowed.ts(pin) is not None]
                covering = covering_now(self._follows, [(follower, mine)])[follower]
                self._feeds.apply(
                    [
                        mutations.remove([(follower, ts)], [(pin.pin, pin.created_ms) for pin in stray])
                        for ts, stray in uncovered(mine, unfollowed, covering).items()
                    ]
                )
            if len(columns) < MAX_LIMIT:
                return
            after = columns[-1]

    def _send_back(self, late: Sequence[Delivery | Pack], late_before_ms: int) -> None:
        """Sends the actions of late deliveries and packs back to the expander, for this cluster (rule 8).
        late_before_ms: a delivery that was read before this time is late.

        If an action was sent back after a delivery was read, it is not sent back again for that delivery: the new
        delivery is read later, and replaces all earlier ones. If the new one is late as well, the action is sent back
        once more.
        """
        self._meter.add(metrics.LATE, sum(len(_committed_ms(message)) for message in late), self._cluster)
        newest: dict[RecordedAction, int] = {}
        for message in late:
            for action in message.recorded() if isinstance(message, Pack) else [message.action]:
                newest[action] = max(min(message.read_ms, late_before_ms - 1), newest.get(action, 0))
        by_identity = {_identity(action): action for action in newest}
        noted = self._progress.sent_back_after({each: newest[action] for each, action in by_identity.items()})
        back = {each: action for each, action in by_identity.items() if each not in noted}
        if not back:
            return
        # Each retry sends back again, so nothing is sent back while it cannot be noted.
        self._progress.refuse_unwritable()
        onward = self._tracer.onward()
        tasks = [Task(action, self._cluster, late_before_ms, onward.get(action)) for action in back.values()]
        self._queue.publish(ACTIONS, [encode_action(task) for task in tasks])
        # Any tick later than this time follows the tasks that were just published. If this failed while a shard is
        # away, each retry would publish them again.
        until_ms = self._follows.now_at_the_latest()
        # One hold for all: they end together.
        self._progress.hold([(min(action.committed_ms for action in back.values()), until_ms)])
        # Noted last: from now on only the hold keeps the watermark back for the late deliveries, which are dropped.
        self._progress.note_sent_back(back, late_before_ms)
        self._meter.add(metrics.SENT_BACK, len(back), self._cluster)


class LargeFanouts:
    """Times the large fanouts of one cluster that this process writes. A fanout is large if it has a full page of
    followers. Its last follower certainly has the pin once the watermark has passed the pin's commit.

    chunk: how many followers are on a page.
    """

    def __init__(self, meter: Meter, cluster: str, chunk: int) -> None:
        self._meter = meter
        self._cluster = cluster
        self._chunk = chunk
        self._committed_ms: set[int] = set()
        meter.observe(metrics.FANOUT_SECONDS, [], cluster)

    def landed(self, messages: Sequence[Delivery | Pack]) -> None:
        for message in messages:
            self._committed_ms.update(self._large(message)[: _FANOUTS_MAX - len(self._committed_ms)])

    def _large(self, message: Delivery | Pack) -> list[int]:
        """When the saved pins of a message's large fanouts committed."""
        if isinstance(message, Pack):
            return message.large_saves(self._chunk)
        is_large = message.puts and len(message.puts[0].rows) >= self._chunk
        return [message.action.committed_ms] if is_large and isinstance(message.action, PinSaved) else []

    def ticked(self, watermark: Callable[[], int | None], now_ms: Callable[[], int]) -> None:
        """Notes that ticks have come, which may have moved the watermark. It is asked only if a fanout is under way."""
        if not self._committed_ms:
            return
        mark = watermark() or 0
        passed = [ms for ms in self._committed_ms if ms < mark]
        if passed:
            now = now_ms()
            self._committed_ms.difference_update(passed)
            self._meter.observe(metrics.FANOUT_SECONDS, [(now - ms) / 1_000 for ms in passed], self._cluster)


def _identity(action: RecordedAction) -> bytes:
    """The name of an action in a cluster's notes."""
    return blake2b(encode_action(Task(action)), digest_size=16).digest()


def _committed_ms(message: Delivery | Pack) -> list[int]:
    """When a delivery's action committed; for a pack, the action of each block."""
    return message.committed_ms() if isinstance(message, Pack) else [message.action.committed_ms]


def _mutations(deliveries: Iterable[Delivery]) -> Iterator[Mutation]:
    for delivery in deliveries:
        for block in delivery.puts:
            yield mutations.put(block.rows, block.pins)
        for block in delivery.markers:
            yield mutations.remove(block.rows, block.pins)
        for stray in delivery.strays:
            yield DeleteColumns([(stray.row, stray.ts)], stray.columns)
