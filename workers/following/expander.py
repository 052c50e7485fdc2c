"""Actions into deliveries."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, Self, TypeVar, assert_never

from msgspec.structs import replace

from feedstore.domain import Edge, Followed, PinDeleted, PinSaved, RecordedAction, RefillAsked, RespaceAsked, Unfollowed
from feedstore.following import Limits
from feedstore.follows.port import FollowStore
from feedstore.metering import UNCOUNTED, Meter, sampled
from feedstore.tracing import UNTRACED, Context, Key, Tracer
from workers.following import metrics
from workers.following.backfill import Backfill
from workers.following.fanout import CELLS, Fanout, Remainder
from workers.following.messages import Delivery, Hold, Packed, Range, Task, encode_delivery, encode_range
from workers.following.packing import packed
from workers.following.purge import Purging
from workers.following.topics import ACTIONS, DELIVERIES
from workers.pipeline.ticks import KnownPartitions, Tick
from workers.queue.port import Queue
from workers.queue.traced import sending

MAX_BATCH = 10_000
"""The most actions that are expanded together: they share the index writes, in which neighbours are written once."""

MAX_WAITING = 100_000
"""How many actions may wait, for a shard of the follow store that is away or because their user has done so much: about
150 MB. With more, the expander waits as a whole."""

AS_THEY_COME = 50
"""Of how many actions of one user in one poll the expander does not ask whether others should go first."""

AT_ONCE = 500
"""How many of them a handler takes at once: their followees fit one page of the follow store. So many are taken at once
of what waits for its turn, too: others wait half a second for them, on slow servers."""

_PUBLISH_BYTES = 1_000_000

_SPAN = f"send {DELIVERIES}", sending(DELIVERIES)
"""What a span says in which deliveries are published: its name, and its attributes."""

_RANGES_AT_ONCE = 100

_Action = TypeVar("_Action", bound=RecordedAction)
_Answer = TypeVar("_Answer")
_Remainder = Remainder[PinSaved] | Remainder[PinDeleted]


class _Left(NamedTuple):
    """What is left of fanouts, and what their tasks said. after_ms: as of a task."""

    remainder: _Remainder
    cluster: str | None
    after_ms: int | None


def sender_of(task: Task) -> int:
    """Whose action it is: the follower's, or the owner's of the pin."""
    action = task.action
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
    """Actions by their kind. A kind that this program does not know is refused: what is dropped here counts as done."""

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
        """How many there are, by the names of metrics."""
        return {
            "follow": len(self.followed),
            "unfollow": len(self.unfollowed),
            "save": len(self.saved),
            "delete": len(self.deleted),
            "refill": len(self.refills),
            "respace": len(self.respaces),
        }


class Expander:
    """Expands actions, at most MAX_BATCH at once. Any number may run: each only remembers what it has begun.

    respace: makes room on boards. It leads to no deliveries. meter: what is counted. tracer: what is published carries
    on the traces of its current lot. cells: as of `Fanout`.
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
    ) -> None:
        self._meter = meter
        self._tracer = tracer
        # From the beginning: the first of a kind is an increase, too.
        meter.observe(metrics.STAGE_SECONDS, [], "expanded")
        for kind in _Sorted().by_kind():
            meter.add(metrics.ACTIONS, 0, kind)
        meter.add(metrics.REDATED, 0)
        meter.add(metrics.PUBLISHED, 0)
        self._follows = follows
        self._queue = queue
        self._known = KnownPartitions(queue, ACTIONS)
        self._limits = limits
        self._fanout = Fanout(follows, self._publish, limits, cells)
        self._backfill = Backfill(follows, self._publish, limits)
        self._purging = Purging(follows, self._publish, limits)
        self._respace = respace
        self._begun: list[Task] = []

    def begin(self, tasks: Sequence[Task]) -> None:
        """The first step of `expand` for the same tasks, which it then leaves out, while other tasks are expanded. Rule
        4 asks that it precedes the reads for these tasks, and other expanders write the same indexes at any time. If it
        raises, `expand` does all of it.
        """
        read_ms = self._follows.about_now().earliest_ms
        fresh = [task for task in tasks if task.range is None and not self._is_late(task.action, read_ms)]
        self._index(_Sorted.of(fresh))
        self._begun = fresh  # only now that all of it is durable

    def expand(self, tasks: Sequence[Task]) -> None:
        """Publishes every delivery that these tasks lead to. If it raises, expand them all again."""
        # The store's time from before the first read: what deliveries age by (rule 8).
        read_ms = self._follows.about_now().earliest_ms
        # By identity, which is cheap: an equal task that has come again enters the indexes again.
        done, self._begun = self._begun, []
        begun = set(map(id, done))
        fresh: list[Task] = []
        for task in tasks:
            if self._is_late(task.action, read_ms):
                self._redate(task)
            else:
                fresh.append(task)
        # The first step of all of them, before the first read of any (rule 4): of a pin and a follow that commit
        # side by side one finds the other, and a pin that is saved from now on finds the tombstones.
        self._index(_Sorted.of(task for task in fresh if task.range is None and id(task) not in begun))
        groups: defaultdict[tuple[str | None, Range | None], list[Task]] = defaultdict(list)
        for task in fresh:
            groups[task.cluster, task.range].append(task)
        left: list[_Left] = []
        for (cluster, within), some in groups.items():
            after_ms = max(task.after_ms or 0 for task in some)
            actions = _Sorted.of(some)
            since_ms = max(read_ms, after_ms)
            remainders = self._fan_out(actions, since_ms, cluster, within, len(groups))
            left += [_Left(remainder, cluster, after_ms or None) for remainder in remainders]
            if within is None:
                self._backfill_and_purge(actions, since_ms, cluster)
                for kind, number in actions.by_kind().items():
                    self._meter.add(metrics.ACTIONS, number, kind)
        self._leave(left)
        now_ms = self._follows.about_now().latest_ms
        observed, of_each = sampled([task for task in tasks if task.range is None])
        waited_s = [(now_ms - task.action.committed_ms) / 1_000 for task in observed]
        self._meter.observe(metrics.STAGE_SECONDS, waited_s, "expanded", each=of_each)

    def _is_late(self, action: RecordedAction, now_ms: int) -> bool:
        """Whether an action must be dated again before it is expanded (rule 8)."""
        return _ages(action) and now_ms - action.committed_ms > self._limits.action_age_ms

    def _index(self, actions: _Sorted) -> None:
        self._follows.index(edges=actions.edges, pins=actions.saved, deletions=actions.deleted)

    def _fan_out(
        self, actions: _Sorted, read_ms: int, cluster: str | None, within: Range | None, calls: int
    ) -> list[_Remainder]:
        """Publishes the deliveries of pins that are in the indexes, and returns what is left. cluster: as of the
        deliveries. within, calls: as of `Fanout.save`.
        """
        save = partial(self._fanout.save, within=within, calls=calls)
        delete = partial(self._fanout.delete, within=within, calls=calls)
        saved = _in_turn(save, actions.saved, read_ms, cluster)
        deleted = _in_turn(delete, actions.deleted, read_ms, cluster)
        return [*chain.from_iterable(saved), *chain.from_iterable(deleted)]

    def _leave(self, left: Sequence[_Left]) -> None:
        """Puts off what is left of fanouts: others do it, and what waits behind them here is done before it."""
        if not left:
            return
        # Published last of all: what failed before is done again, and would be published again.
        messages = (value for each in left for value in self._messages(each))
        while some := list(islice(messages, _RANGES_AT_ONCE)):
            self._queue.publish(ACTIONS, some)
        # A tick later than this time follows the tasks that were just published (rule 10).
        until_ms = self._follows.now()
        since_ms: dict[str | None, int] = {}
        for remainder, cluster, _ in left:
            committed_ms = min(action.committed_ms for action in remainder.actions)
            since_ms[cluster] = min(committed_ms, since_ms.get(cluster, committed_ms))
        holds = [Hold(ms, max(ms, until_ms), cluster, "fanout") for cluster, ms in since_ms.items()]
        self._queue.publish(DELIVERIES, [encode_delivery(hold) for hold in holds])

    def _messages(self, left: _Left) -> Iterator[bytes]:
        remainder, cluster, after_ms = left
        for followers in remainder.ranges:
            yield encode_range(followers, remainder.actions, cluster, after_ms, self._tracer.onward())

    def _backfill_and_purge(self, actions: _Sorted, read_ms: int, cluster: str | None) -> None:
        """Publishes the deliveries of follows, unfollows and refills that are in the indexes; and makes room on boards.
        cluster: as of the deliveries.
        """
        _in_turn(self._backfill.follow, actions.followed, read_ms, cluster)
        _in_turn(self._purging.unfollow, actions.unfollowed, read_ms, cluster)
        _in_turn(self._backfill.refill, actions.refills, read_ms, cluster)
        if actions.respaces:
            self._respace(actions.respaces)

    def tick(self, ticks: Sequence[Tick]) -> None:
        """Passes ticks on to every partition of the deliveries, once everything before them has been expanded; of those
        of one source only the newest, which says all that the others do.
        """
        known = [tick for tick in ticks if self._known.had(tick)]
        newest = {(tick.source, tick.sources): tick for tick in sorted(known, key=lambda tick: tick.settled_ms)}
        # Counted only now: what precedes these ticks may be in a partition that was added just before.
        partitions = self._queue.partitions(DELIVERIES)
        values = [encode_delivery(replace(tick, partitions=partitions)) for tick in newest.values()]
        for partition in range(partitions):
            self._queue.publish(DELIVERIES, values, partition)

    def _redate(self, task: Task) -> None:
        """An action that waited too long comes again with a new time, through the outbox, and for every cluster: what
        the follow store says of it has changed. A crash here repeats at worst.
        """
        action = task.action
        redated = self._follows.redate(action)
        if isinstance(redated, Followed | Unfollowed):
            # Its first handler may have died after the index was written. A tombstone that keeps its old time there
            # may expire before the purge is out, and a deletion would pass over this follower (rule 7).
            self._follows.index(edges=[redated.edge()])
        # Hold until the replacement has landed. It may come from an earlier attempt that crashed before it published
        # its hold.
        until_ms = self._standing_ms(action) if redated is None else redated.committed_ms
        hold = Hold(action.committed_ms, max(until_ms, self._follows.now()), task.cluster)
        self._queue.publish(DELIVERIES, [encode_delivery(hold)])
        self._meter.add(metrics.REDATED, 1)

    def _standing_ms(self, action: RecordedAction) -> int:
        """A time that is not before the commit of what took an action's place. The store's `now` may be: it is the
        earliest of its shards' clocks.
        """
        match action:
            case Followed() | Unfollowed():
                key = (action.follower, action.followee)
                return max((edge.ts for edge in self._follows.edges([key]).values()), default=0)
            case PinSaved() | PinDeleted():
                states = self._follows.pins([action.pin.pin]).values()
                return max((max(state.saved_ms, state.deleted_ms or 0) for state in states), default=0)
            case RefillAsked() | RespaceAsked():
                return 0  # a refill that was asked for again holds by itself; no cluster waits for a board
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
    """Deliveries that carry on the traces of their actions."""
    for delivery in deliveries:
        trace = onward.get(delivery.action)
        yield delivery if trace is None else replace(delivery, trace=trace)


def _ages(action: RecordedAction) -> bool:
    """Whether the deliveries of an action can come too late (rule 8)."""
    return not isinstance(action, RespaceAsked)


def _in_turn(
    handle: Callable[[Sequence[_Action], int, str | None], _Answer],
    actions: Sequence[_Action],
    read_ms: int,
    cluster: str | None,
) -> list[_Answer]:
    starts = range(0, len(actions), AT_ONCE)
    return [handle(actions[start : start + AT_ONCE], read_ms, cluster) for start in starts]
