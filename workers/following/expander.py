"""The expander turns actions into deliveries."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self, assert_never

from msgspec.structs import replace

from feedstore.clocks import APART_MAX_MS
from feedstore.domain import (
    Edge,
    Followed,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    RespaceAsked,
    Unfollowed,
)
from feedstore.following import Limits
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.follows.store import FollowStore
from feedstore.metering import UNCOUNTED, Meter, sampled
from feedstore.portions import chunks
from feedstore.tracing import UNTRACED, Context, Key, Tracer
from workers.following import metrics
from workers.following.backfill import Backfill
from workers.following.fanout import CELLS, Fanout, PinAction, Remainder, Visited
from workers.following.messages import (
    Delivery,
    Hold,
    Packed,
    Range,
    RangeTask,
    Task,
    encode_action,
    encode_delivery,
    encode_ticks,
)
from workers.following.packs import packed
from workers.following.purge import Purging
from workers.following.topics import ACTIONS, DELIVERIES
from workers.following.window import FanoutWindow
from workers.pipeline.ticks import KnownPartitions, Tick
from workers.queue.port import Queue
from workers.queue.traced import sending

MAX_BATCH = 10_000
"""The most actions that are expanded together: they share index writes, in which neighbours are written once."""

MAX_WAITING = 100_000
"""The most actions (about 150 MB) that may wait for a shard of the follow store that is away, or because their user has
done so much. If there are more, the whole expander waits."""

AS_THEY_COME = 50
"""Up to this many actions of one user per poll do not wait for their turn."""

AT_ONCE = 500
"""The most actions of a kind that one handler call takes: their followees fit one page of the follow store. Of the
actions that wait for their turn, this many are taken at once: on slow servers others wait half a second for them."""

_PUBLISH_BYTES = 1_000_000

_SPAN = f"send {DELIVERIES}", sending(DELIVERIES)
"""The name and the attributes of a span in which deliveries are published."""


def sender_of(task: Task | RangeTask) -> int:
    """The user whose action it is: the follower, or the owner of the pin."""
    action = task.actions[0] if isinstance(task, RangeTask) else task.action
    match action:
        case PinSaved() | PinDeleted():
            return action.pin.owner
        case Followed() | Unfollowed():
            return action.follower
        case RefillAsked():
            return action.user
        case RespaceAsked():
            return -action.board  # people's ids are positive
        case _:
            assert_never(action)


@dataclass
class _Sorted:
    """Actions by their kind. An unknown kind is refused, because an action that is dropped here would count as done."""

    edges: list[Edge] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    unfollowed: list[Unfollowed] = field(default_factory=list)
    saved: list[PinSaved] = field(default_factory=list)
    deleted: list[PinDeleted] = field(default_factory=list)
    refills: list[RefillAsked] = field(default_factory=list)
    respaces: list[RespaceAsked] = field(default_factory=list)

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Self:
        found = cls()
        for task in tasks:
            action = task.action
            match action:
                case PinSaved():
                    found.saved.append(action)
                case Followed():
                    found.edges.append(action.edge())
                    found.followed.append(action)
                case Unfollowed():
                    found.edges.append(action.edge())
                    found.unfollowed.append(action)
                case PinDeleted():
                    found.deleted.append(action)
                case RefillAsked():
                    found.refills.append(action)
                case RespaceAsked():
                    found.respaces.append(action)
                case _:
                    assert_never(action)
        return found

    def by_kind(self) -> dict[str, int]:
        """The number of actions of each kind, by the kind's name in metrics."""
        return {
            "follow": len(self.followed),
            "unfollow": len(self.unfollowed),
            "save": len(self.saved),
            "delete": len(self.deleted),
            "refill": len(self.refills),
            "respace": len(self.respaces),
        }


class Expander:
    """Expands actions, at most MAX_BATCH at once. Any number of expanders may run: each remembers only what it has
    begun.

    respace: makes room on boards; it leads to no deliveries. meter: counts the work. tracer: messages that are
    published continue the traces of its current lot. cells: about this many cells are published per call before the
    rest of large fanouts is left for later. window: if it is full, ranges of large fanouts wait; None: they never do.
    """

    def __init__(
        self,
        follows: FollowStore,
        queue: Queue,
        limits: Limits,
        respace: Callable[[Sequence[RespaceAsked]], None],
        meter: Meter = UNCOUNTED,
        tracer: Tracer = UNTRACED,
        cells: int = CELLS,
        window: FanoutWindow | None = None,
    ) -> None:
        self._meter = meter
        self._tracer = tracer
        # All begin with 0, so that the first of a kind is seen as an increase.
        meter.observe(metrics.STAGE_SECONDS, [], "expanded")
        for kind in _Sorted().by_kind():
            meter.add(metrics.ACTIONS, 0, kind)
        meter.add(metrics.REDATED, 0)
        meter.add(metrics.PUBLISHED, 0)
        self._follows = follows
        self._queue = queue
        self._known = KnownPartitions(queue, ACTIONS)
        self._limits = limits
        self._cells = cells
        self._window = window
        self._fanout = Fanout(follows, self._publish, limits)
        self._backfill = Backfill(follows, self._publish, limits)
        self._purging = Purging(follows, self._publish, limits)
        self._respace = respace
        self._begun: list[Task] = []

    def begin(self, tasks: Sequence[Task | RangeTask]) -> None:
        """Does the first step of `expand` for tasks (index writes) while other tasks are expanded; `expand` then leaves
        it out. By rule 4 it must only precede the reads for these tasks, and other expanders write the same indexes at
        any time anyway. If it raises, `expand` does the whole step.
        """
        read_ms = self._follows.about_now().earliest_ms
        whole = (task for task in tasks if isinstance(task, Task))
        fresh = [task for task in whole if not self._is_late(task.action, read_ms)]
        self._index(_Sorted.of(fresh))
        self._begun = fresh  # set only now: the index writes are durable

    def expand(self, tasks: Sequence[Task | RangeTask]) -> None:
        """Publishes every delivery that these tasks lead to. The rest of large fanouts it publishes as new tasks. If it
        raises, expand all tasks again.
        """
        # The store's time from before the first read: the age of deliveries counts from it (rule 8).
        read_ms = self._follows.about_now().earliest_ms
        # Compared by identity, which is cheap: an equal task that comes again is indexed again.
        done, self._begun = self._begun, []
        begun = set(map(id, done))
        whole: list[Task] = []
        late: list[Task] = []
        ranges: list[RangeTask] = []
        for task in tasks:
            if isinstance(task, RangeTask):
                ranges.append(task)
            elif self._is_late(task.action, read_ms):
                late.append(task)
            else:
                whole.append(task)
        self._redate(late)
        # The first step is done for all tasks before the first read for any (rule 4): if a pin and a follow commit at
        # the same time, one finds the other, and a pin that is saved from now on finds the ended edges.
        self._index(_Sorted.of(task for task in whole if id(task) not in begun))
        if ranges:
            self._ask_shards(ranges)
        left = [*self._expand(whole, read_ms), *self._expand_ranges(ranges, read_ms)]
        if left:
            self._leave(left)  # last: if anything before fails, all of it is done again
        now_ms = self._follows.about_now().latest_ms
        some, of_each = sampled([task for task in tasks if isinstance(task, Task)])
        waited_s = [(now_ms - task.action.committed_ms) / 1_000 for task in some]
        self._meter.observe(metrics.STAGE_SECONDS, waited_s, "expanded", each=of_each)

    def due_ms(self, task: Task | RangeTask) -> int:
        """The time, by a wall clock, before which a task need not be tried; 0: at once."""
        return self._window.due_ms() if isinstance(task, RangeTask) and self._window is not None else 0

    def _ask_shards(self, tasks: Iterable[RangeTask]) -> None:
        """Asks each shard that these tasks need. If `expand` succeeds, its stage concludes that all shards of its tasks
        answer, but tasks that are left for later have asked none.
        """
        asked: set[int] = set()
        some: list[PinAction] = []
        for action in chain.from_iterable(task.actions for task in tasks):
            needed = self._follows.shards_of(action)
            if not needed <= asked:
                asked |= needed
                some.append(action)
        followees = {followee for action in some for followee in action.pin.followees()}
        self._follows.followers(sorted(followees), None, 1, tombstones=False)
        self._follows.deletions([action.pin.pin for action in some if isinstance(action, PinSaved)])

    def _is_late(self, action: RecordedAction, now_ms: int) -> bool:
        """Whether an action is so old that it must get a new time before it is expanded (rule 8): its deliveries could
        come too late. Requests for room on a board lead to none.
        """
        return not isinstance(action, RespaceAsked) and now_ms - action.committed_ms > self._limits.action_age_ms

    def _index(self, actions: _Sorted) -> None:
        self._follows.index(edges=actions.edges, pins=actions.saved, deletions=actions.deleted)

    def _expand(self, tasks: Sequence[Task], read_ms: int) -> Iterator[RangeTask]:
        """Publishes the deliveries of tasks that are in the indexes, and yields the rest of large fanouts."""
        groups: defaultdict[str | None, list[Task]] = defaultdict(list)
        for task in tasks:
            groups[task.cluster].append(task)
        large = False
        for cluster, some in groups.items():
            after_ms = max((task.after_ms for task in some if task.after_ms is not None), default=None)
            since_ms = max(read_ms, after_ms or 0)
            actions = _Sorted.of(some)
            for visited in self._visits(actions, since_ms, cluster, None, self._cells):
                large = large or bool(visited.left)
                yield from self._left(visited.left, cluster, after_ms)
            for followed in chunks(actions.followed, AT_ONCE):
                self._backfill.follow(followed, since_ms, cluster)
            for unfollowed in chunks(actions.unfollowed, AT_ONCE):
                self._purging.unfollow(unfollowed, since_ms, cluster)
            for refills in chunks(actions.refills, AT_ONCE):
                self._backfill.refill(refills, since_ms, cluster)
            if actions.respaces:
                self._respace(actions.respaces)
            for kind, number in actions.by_kind().items():
                self._meter.add(metrics.ACTIONS, number, kind)
        if large and self._window is not None:
            self._window.published()

    def _expand_ranges(self, tasks: Sequence[RangeTask], read_ms: int) -> Iterator[RangeTask]:
        """Publishes the deliveries of tasks for ranges. What exceeds the cells of a call is left as it is; if the
        window is full, that is everything.
        """
        if not tasks:
            return
        allowed = cells_left = 0 if self._window is not None and self._window.is_full() else self._cells
        for task in tasks:
            # At least one page of followers is done for each action. So only as many actions are taken as fit into the
            # cells that are left.
            most = max(1, cells_left // self._limits.chunk) if cells_left > 0 else 0
            now, later = range(len(task.actions))[:most], range(len(task.actions))[most:]
            if later:
                yield task.only(later)
            fresh: list[PinAction] = []
            late: list[Task] = []
            for action in task.only(now).actions if now else []:
                if self._is_late(action, read_ms):
                    late.append(Task(action, task.cluster))
                else:
                    fresh.append(action)
            self._redate(late)
            cells_left -= len(late) * self._limits.chunk  # each takes about as long as a page
            since_ms = max(read_ms, task.after_ms or 0)
            actions = _Sorted.of(map(Task, fresh))
            for visited in self._visits(actions, since_ms, task.cluster, task.range, cells_left):
                cells_left -= visited.cells
                yield from self._left(visited.left, task.cluster, task.after_ms)
        if cells_left < allowed and self._window is not None:
            self._window.published()

    def _visits(
        self, pins: _Sorted, read_ms: int, cluster: str | None, within: Range | None, cells: int
    ) -> Iterator[Visited]:
        """Publishes the deliveries of pins: AT_ONCE of them at once, about `cells` cells each time."""
        for saved in chunks(pins.saved, AT_ONCE):
            yield self._fanout.save(saved, read_ms, cluster, within, cells)
        for deleted in chunks(pins.deleted, AT_ONCE):
            yield self._fanout.delete(deleted, read_ms, cluster, within, cells)

    def _left(self, remainders: Iterable[Remainder], cluster: str | None, after_ms: int | None) -> Iterator[RangeTask]:
        """Tasks for the rest of fanouts."""
        onward = self._tracer.onward()
        for actions, ranges in remainders:
            for some in chunks(actions, AT_ONCE):
                traces = [(number, onward[action]) for number, action in enumerate(some) if action in onward]
                for each in ranges:
                    yield RangeTask(each, list(some), cluster, after_ms, traces)

    def _leave(self, left: Sequence[RangeTask]) -> None:
        """Publishes tasks for the rest of fanouts: they come after the tasks that wait now, in any expander."""
        # The queue chooses their partitions: one that takes nothing must not keep them all back (rule 12).
        self._queue.spread(ACTIONS, [encode_action(task) for task in left])
        until_ms = self._now_after(left[0].actions[0])
        since_ms: dict[str | None, int] = {}
        for task in left:
            committed_ms = min(action.committed_ms for action in task.actions)
            since_ms[task.cluster] = min(committed_ms, since_ms.get(task.cluster, committed_ms))
        holds = [Hold(ms, max(ms, until_ms), cluster, "fanout") for cluster, ms in since_ms.items()]
        self._queue.publish(DELIVERIES, [encode_delivery(hold) for hold in holds])

    def _now_after(self, action: PinAction) -> int:
        """A time such that any later tick follows all that was just published (rule 10). The clock of any shard will
        do; a shard that this action needs has just answered. If that one is away now, an estimate of its clock is
        enough: if this failed, the tasks would be published again.
        """
        try:
            return self._follows.now(min(self._follows.shards_of(action)))
        except FollowStoreUnavailableError:
            return self._follows.about_now().latest_ms

    def tick(self, ticks: Sequence[Tick]) -> None:
        """Passes ticks on to every partition of the deliveries, once everything before them has been expanded. Of the
        ticks of one source only the newest is passed on: it says all that the others do. All go in one message.
        """
        known = [tick for tick in ticks if self._known.had(tick)]
        newest = {(tick.source, tick.sources): tick for tick in sorted(known, key=lambda tick: tick.settled_ms)}
        # Partitions are counted only now: deliveries from before these ticks may be in a partition that was just added.
        partitions = self._queue.partitions(DELIVERIES)
        values = encode_ticks(newest.values(), partitions)
        self._queue.publish_each(DELIVERIES, dict.fromkeys(range(partitions), values))

    def _redate(self, late: Sequence[Task]) -> None:
        """Records actions again that have waited too long, with a new time. They come through the outbox and for every
        cluster, because what the follow store says of them has changed. A crash here makes repetitions at worst.
        """
        if not late:
            return
        redated = [self._follows.redate(task.action) for task in late]
        edges = [action.edge() for action in redated if isinstance(action, Followed | Unfollowed)]
        if edges:
            # Their first handler may have died after it had written the index. An ended edge that kept its old time
            # there could expire before the purge is published, and a deletion would miss this follower (rule 7).
            self._follows.index(edges=edges)
        now_ms = self._follows.now_at_the_latest()
        latest_ms: dict[int, int] = {}
        # One hold for all actions of a cluster, until the last replacement has landed. A replacement may be of an
        # earlier attempt, which crashed before it published its hold.
        holds: dict[str | None, Hold] = {}
        for task, action in zip(late, redated, strict=True):
            until_ms = self._replaced_ms(task.action, latest_ms) if action is None else action.committed_ms
            hold = holds.get(task.cluster, Hold(task.action.committed_ms, now_ms, task.cluster))
            holds[task.cluster] = replace(
                hold,
                since_ms=min(hold.since_ms, task.action.committed_ms),
                until_ms=max(hold.until_ms, until_ms),
            )
        self._queue.publish(DELIVERIES, [encode_delivery(hold) for hold in holds.values()])
        self._meter.add(metrics.REDATED, len(late))

    def _replaced_ms(self, action: RecordedAction, latest_ms: dict[int, int]) -> int:
        """A time that is not before the commit of the action that replaced this one. Both are on the same shard.

        latest_ms: a time of each shard, read after the actions were replaced; missing ones are added. It bounds the
        answer: if a clock that was far ahead was set back, records keep their times, and a hold must not last until
        then. What has committed is not later than the shard's time, except for the steps that a clock may take.
        """
        shard = self._follows.home(action)
        if shard not in latest_ms:
            latest_ms[shard] = self._follows.now(shard) + APART_MAX_MS
        return min(latest_ms[shard], self._recorded_ms(action))

    def _recorded_ms(self, action: RecordedAction) -> int:
        """The time of the record that this action, or the one that replaced it, has left."""
        match action:
            case Followed() | Unfollowed():
                key = (action.follower, action.followee)
                return max((edge.ts for edge in self._follows.edges([key]).values()), default=0)
            case PinSaved() | PinDeleted():
                states = self._follows.pins([action.pin.pin]).values()
                return max((max(state.saved_ms, state.deleted_ms or 0) for state in states), default=0)
            case RefillAsked() | RespaceAsked():
                return 0  # the new request for a refill makes its own hold; no cluster waits for a board
            case _:
                assert_never(action)

    def _publish(self, deliveries: Iterable[Delivery]) -> None:
        values: list[bytes] = []
        size = published = 0
        if onward := self._tracer.onward():
            deliveries = _traced(deliveries, onward)
        for message in packed(deliveries):
            value = encode_delivery(message)
            values.append(value)
            size += len(value)
            published += message.blocks.count if isinstance(message, Packed) else 1
            if size > _PUBLISH_BYTES:
                self._send(values, published)
                values, size, published = [], 0, 0
        self._send(values, published)

    def _send(self, values: Sequence[bytes], published: int) -> None:
        with self._tracer.part(*_SPAN, kind="producer"):
            self._queue.publish(DELIVERIES, values)
        self._meter.add(metrics.PUBLISHED, published)


def _traced(deliveries: Iterable[Delivery], onward: Mapping[Key, Context]) -> Iterator[Delivery]:
    """Deliveries, each with the trace context of its action."""
    for delivery in deliveries:
        trace = onward.get(delivery.action)
        yield delivery if trace is None else replace(delivery, trace=trace)
