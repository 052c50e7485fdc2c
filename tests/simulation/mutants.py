"""The guards of the design, each taken out: by other values in the handlers' modules, or by a port that lies."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent

from feedstore.domain import (
    Edge,
    Follow,
    Followed,
    Followee,
    Pin,
    PinSaved,
    RecordedAction,
    RefillAsked,
    Unfollow,
    Unfollowed,
    user,
)
from feedstore.following import FEEDS, entries_of
from feedstore.follows import recording
from feedstore.follows.port import RefillTimes
from feedstore.follows.shard import Changes, FollowerRow, Standing
from feedstore.widecolumn import Cell, Mutation, Put, PutCells, resolution
from tests.simulation.bag import Group
from tests.simulation.bag import Taken as Message
from tests.simulation.memory_shard import MemoryShard
from tests.simulation.world import BEGINNING, DIVIDING, GENERAL, GROWING, PARKING, Profile, World
from tests.widecolumn import memory_store
from tests.widecolumn.written import cells_in
from workers.following import Expander, Parking, Writer, applied, fanout
from workers.following.applied import NUMBERS
from workers.following.backfill import Backfill
from workers.following.fanout import Fanout
from workers.following.messages import Delivery, Hold, Parked, RangeTask, Task
from workers.following.packs import Pack
from workers.following.purge import Purging
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.pipeline.ticks import Settled, Tick
from workers.queue.port import Topic

Patches = Sequence[tuple[object, str, Any]]

SEEDS = Path(__file__).with_name("found_by.json")
_FOUND_BY: dict[str, int] = json.loads(SEEDS.read_text())


def _nothing(_world: World) -> None:
    pass


@dataclass(frozen=True)
class Taken:
    """A guard that is gone. rule: the one in docs/rules.md that asks for it. directed: hardly any seed finds it; a
    schedule made for it does, in a module of this folder that names it.

    found_by: a seed that found it (`python -m tests.simulation --write-seeds`, found_by.json); it may have ceased to.
    """

    name: str
    rule: int
    what: str
    patched: Callable[[], Patches] = list
    tampered: Callable[[World], None] = _nothing
    profile: Profile = GENERAL
    directed: bool = False
    found_by: int | None = None

    def patches(self) -> Patches:
        return self.patched()

    def tamper(self, world: World) -> None:
        self.tampered(world)


class _Lying:
    """A port of which some methods are others."""

    def __init__(self, port: Any, **methods: Callable[..., Any]) -> None:
        self._port = port
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class _Whatever:
    """Equal to anything."""

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


# Clocks and timestamps
# --------------------------------------------------------------------------------------------------------------------


def _clock_per_edge() -> Patches:
    real, last = recording._record_edge, {}

    def record(action: Follow | Unfollow, now_ms: int, standing: Standing, changes: Changes) -> Followed | Unfollowed:
        edge = (action.follower, action.followee)
        standing.clocks[action.follower] = last.get(edge, 0)
        recorded = real(action, now_ms, standing, changes)
        last[edge] = recorded.ts
        return recorded

    return [(recording, "_record_edge", record)]


def _pin_time_in_cells(world: World) -> None:
    def skewed(mutation: Mutation) -> Iterable[Mutation]:
        if not isinstance(mutation, Put | PutCells):
            return [mutation]
        return [
            Put([(row, max(ts, entries_of([column])[0].created_ms))], [column])
            for row, column, ts in cells_in(mutation)
        ]

    for port in world.ports.values():
        real = port.tables[FEEDS].apply

        def apply(batch: Sequence[Mutation], real: Any = real) -> None:
            real([each for mutation in batch for each in skewed(mutation)])

        port.tables[FEEDS].apply = apply  # type: ignore[method-assign]


def _marker_at_deletion(deleted_ms: int, rows: Sequence[tuple[int, int]], pin: Pin) -> Any:
    return fanout.Block([(follower, deleted_ms) for follower, _ in rows], [(pin.pin, pin.created_ms)])


def _put_wins(versions: Iterable[resolution.Version]) -> list[Cell]:
    puts: dict[bytes, int] = {}
    markers: dict[bytes, int] = {}
    for column, timestamp, is_marker in versions:
        newest = markers if is_marker else puts
        newest[column] = max(timestamp, newest.get(column, 0))
    return [Cell(column, ts) for column, ts in sorted(puts.items()) if ts >= markers.get(column, 0)]


# Indexes and looks
# --------------------------------------------------------------------------------------------------------------------


def _overwrite(shard: MemoryShard, rows: Sequence[FollowerRow]) -> None:
    for row in rows:
        shard._followers.setdefault(row[:2], {})[row[2]] = row


def _no_look_at_the_edge(world: World) -> None:
    real = world.expander._backfill
    port = _Lying(world.follows, edges=lambda keys: {key: world.follows.edges(keys) and _Whatever() for key in keys})
    blind = Backfill(port, real._publish, world.limits)  # type: ignore[arg-type]
    world.expander._backfill = SimpleNamespace(follow=blind.follow, refill=real.refill)  # type: ignore[assignment]


def _no_second_look_in_refills(world: World) -> None:
    """The edges are what they were when the followees were read."""
    real, first_look = world.expander._backfill, {}

    def following_of(followers: Sequence[int], after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        page = world.follows.following_of(followers, after, limit)
        seen = first_look.setdefault(getcurrent(), {})
        seen.update({(edge.follower, edge.followee): edge for edge in page})
        return list(page)

    def edges(keys: Sequence[tuple[int, Followee]]) -> dict[tuple[int, Followee], Edge]:
        seen = first_look.pop(getcurrent(), {})
        return {key: seen[key] for key in keys if key in seen}

    port = _Lying(world.follows, following_of=following_of, edges=edges)
    blind = Backfill(port, real._publish, world.limits)  # type: ignore[arg-type]
    world.expander._backfill = SimpleNamespace(follow=real.follow, refill=blind.refill)  # type: ignore[assignment]


def _served_by_what_began_before(world: World) -> None:
    """A refill serves what was asked for until its end, not until its first read."""
    real = world.expander._backfill

    def refill(actions: Sequence[RefillAsked], read_ms: int, cluster: str | None) -> None:
        real.refill(actions, read_ms, cluster)
        times = world.follows_store.refill_times([(each.user, each.cluster) for each in actions])
        world.follows_store.mark_refills_served({key: known.asked_ms + 1 for key, known in times.items()})

    world.expander._backfill = SimpleNamespace(follow=real.follow, refill=refill)  # type: ignore[assignment]


def _served_for_ever() -> Patches:
    def is_served(_backfill: Backfill, action: RefillAsked, times: RefillTimes, _read_ms: int) -> bool:
        return action.committed_ms < times.served_before_ms

    return [(Backfill, "_is_served", is_served)]


def _no_look_at_deletions(handler: str) -> Callable[[World], None]:
    def tamper(world: World) -> None:
        owner = getattr(world.expander, handler)
        owner._follows = _Lying(owner._follows, deletions=lambda _pins: {})

    return tamper


def _refill_without_index(world: World) -> None:
    real = world.expander._backfill
    blind = Backfill(
        _Lying(world.follows, index=lambda **_edges: None),  # type: ignore[arg-type]
        real._publish,
        world.limits,
    )
    world.expander._backfill = SimpleNamespace(follow=real.follow, refill=blind.refill)  # type: ignore[assignment]


def _begun_without_index(expander: Expander, tasks: Sequence[Task]) -> None:
    expander._begun = list(tasks)


def _index_late(handler: str, read: str, is_late: Callable[[Any], bool]) -> Callable[[World], None]:
    """Some rows of the index are written after a handler's first read instead of before it."""

    def tamper(world: World) -> None:
        expander, owner = world.expander, getattr(world.expander, handler)
        port, waiting = expander._follows, {}

        def keep(**written: Sequence[Any]) -> None:
            late = {what: [row for row in rows if is_late(row)] for what, rows in written.items()}
            waiting[getcurrent()] = late
            port.index(**{what: [row for row in rows if row not in late[what]] for what, rows in written.items()})

        def read_first(*args: Any, **named: Any) -> Any:
            result = getattr(port, read)(*args, **named)
            if getcurrent() in waiting:
                port.index(**waiting.pop(getcurrent()))
            return result

        expander._follows = _Lying(port, index=keep)  # type: ignore[assignment]
        owner._follows = _Lying(port, **{read: read_first})

    return tamper


def _no_tombstones(world: World) -> None:
    handler = world.expander._fanout
    port = handler._follows

    def followers(followees: Any, after: Any, limit: int, *, tombstones: bool) -> Any:
        assert isinstance(tombstones, bool)
        return port.followers(followees, after, limit, tombstones=False)

    handler._follows = _Lying(port, followers=followers)  # type: ignore[assignment]


# Unfollows
# --------------------------------------------------------------------------------------------------------------------


def _always_complete() -> Patches:
    real = Purging._lists

    def lists(purging: Purging, actions: Sequence[Unfollowed], read_ms: int) -> dict[Unfollowed, Any]:
        found = real(purging, actions, read_ms)
        return {action: listed._replace(complete=True) for action, listed in found.items()}

    return [(Purging, "_lists", lists)]


def _nothing_recent(_purging: Purging, _followees: object, _since_ms: int) -> Iterator[Any]:
    return iter(())


def _nothing_older() -> Patches:
    real = Purging._lists

    def lists(purging: Purging, actions: Sequence[Unfollowed], read_ms: int) -> dict[Unfollowed, Any]:
        found = real(purging, actions, read_ms)
        cutoff_ms = max(1, read_ms - purging._limits.window_ms)
        recent = {pin.pin for _, pin in purging._saved_since(list({each.followee for each in actions}), cutoff_ms)}
        return {
            action: listed._replace(
                of_followee={each: pin for each, pin in listed.of_followee.items() if each in recent},
                overlapping={each: pin for each, pin in listed.overlapping.items() if each in recent},
            )
            for action, listed in found.items()
        }

    return [(Purging, "_lists", lists)]


def _covered_ignored(world: World) -> None:
    handler = world.expander._purging
    handler._follows = _Lying(handler._follows, edges=lambda _keys: {})  # type: ignore[assignment]


def _no_refill(world: World) -> None:
    real = world.follows.ask_refill

    def ask(users: Iterable[int], cluster: str | None, not_again_within_ms: int) -> int:
        if cluster is None:
            return int(real(users, cluster, not_again_within_ms))
        return int(world.follows.now())

    world.follows.ask_refill = ask


def _refill_with_the_markers() -> Patches:
    real = Purging.unfollow

    def early(purging: Purging, actions: Sequence[Unfollowed], read_ms: int, cluster: str | None) -> None:
        purging._follows.ask_refill([action.follower for action in actions], None, 0)
        real(purging, actions, read_ms, cluster)

    return [(Purging, "unfollow", early)]


# Ages, trims
# --------------------------------------------------------------------------------------------------------------------


def _redate_anything(action: RecordedAction, now_ms: int, standing: Standing) -> Any:
    changes = Changes.none()
    if not isinstance(action, Followed | Unfollowed):
        return _REDATE(action, now_ms, standing)
    asked = (Follow if isinstance(action, Followed) else Unfollow)(action.follower, action.followee)
    return changes, recording._record_edge(asked, now_ms, standing, changes)


_REDATE = recording.redate


def _deliveries_never_late(world: World) -> None:
    for each in world.writers.values():
        each._limits = replace_unchecked(each._limits, delivery_age_ms=2**62)


def _packs_never_late(world: World) -> None:
    for each in world.writers.values():
        real = each.write

        def write(messages: Sequence[Delivery | Hold | Pack], real: Any = real) -> None:
            now_ms = world.follows_store.about_now().latest_ms
            real([replace(body, read_ms=now_ms) if isinstance(body, Pack) else body for body in messages])

        each.write = write  # type: ignore[method-assign]


def _late_pack_brings_back_its_first_action() -> Patches:
    real = Pack.recorded
    return [(Pack, "recorded", lambda pack: real(pack)[:1])]


def _late_pack_brings_back_other_actions() -> Patches:
    """A block counts for the action of the block before it."""

    def recorded(pack: Pack) -> list[RecordedAction]:
        actions = [each.action for each in pack.deliveries()]
        return [*dict.fromkeys([actions[0], *actions[:-1]])]

    return [(Pack, "recorded", recorded)]


def _halves_are_the_first_half() -> Patches:
    real = Pack.halves

    def halves(pack: Pack) -> Any:
        parts = real(pack)
        return parts and (parts[0], parts[0])

    return [(Pack, "halves", halves)]


def _parts_have_each_others_rows() -> Patches:
    real = Pack.divided

    def divided(pack: Pack, buckets: frozenset[int]) -> tuple[Pack, Pack]:
        inside, _ = real(pack, buckets)
        return inside, inside

    return [(Pack, "divided", divided)]


def _first_block_is_parked() -> Patches:
    real = Pack.deliveries
    return [(Pack, "deliveries", lambda pack: iter([next(real(pack))]))]


def _actions_never_late(world: World) -> None:
    world.expander._limits = replace_unchecked(world.expander._limits, action_age_ms=2**62)


def _time_stands_still_for_writers(world: World) -> None:
    for each in world.writers.values():
        heard = world.follows_store.about_now()
        lies = {"about_now": lambda heard=heard: heard, "now_at_the_latest": lambda heard=heard: heard.latest_ms}
        each._follows = _Lying(world.follows, **lies)  # type: ignore[assignment]


def _no_hold_for_the_redated(world: World) -> None:
    def redate(late: Sequence[Task]) -> None:
        for each in late:
            world.follows.redate(each.action)

    world.expander._redate = redate  # type: ignore[method-assign]


def _left_without_hold() -> Patches:
    real = Expander._leave

    def leave(expander: Expander, left: Sequence[RangeTask]) -> None:
        def publish(topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
            if topic is ACTIONS:
                expander._queue.publish(topic, values, partition)

        without = copy(expander)
        without._queue = _Lying(expander._queue, publish=publish)  # type: ignore[assignment]
        real(without, left)

    return [(Expander, "_leave", leave)]


def _without_the_last_range() -> Patches:
    real = fanout.ranges_left
    return [(fanout, "ranges_left", lambda *args: real(*args)[:-1])]


def _first_calls_look_at_deletions() -> Patches:
    real = Fanout.save

    def save(handler: Fanout, actions: Any, read_ms: int, cluster: str | None, within: Any, cells: int) -> Any:
        blind = copy(handler)
        if within is not None:
            blind._follows = _Lying(handler._follows, deletions=lambda _pins: {})  # type: ignore[assignment]
        return real(blind, actions, read_ms, cluster, within, cells)

    return [(Fanout, "save", save)]


def _finished_without_hold() -> Patches:
    real = Writer._finish_purges

    def finish(each: Writer, purges: Sequence[Delivery]) -> None:
        without = copy(each)
        without._progress = _Lying(each._progress, hold_for_refills=list)  # type: ignore[assignment]
        real(without, purges)

    return [(Writer, "_finish_purges", finish)]


def _sent_back_by(change: Callable[[Writer], Writer]) -> Callable[[], Patches]:
    """Late deliveries are dealt with by another writer of the same cluster."""

    def patches() -> Patches:
        real = Writer._send_back

        def send_back(each: Writer, late: Sequence[Delivery | Pack], late_before_ms: int) -> None:
            real(change(copy(each)), late, late_before_ms)

        return [(Writer, "_send_back", send_back)]

    return patches


def _sent_back_without_hold(writer: Writer) -> Writer:
    writer._progress = _Lying(writer._progress, hold=list)  # type: ignore[assignment]
    return writer


def _noted_before_it_is_sent_back(writer: Writer) -> Writer:
    """The note and the hold are written first: a crash after them loses the task."""
    queue, progress = writer._queue, writer._progress
    sent = list[tuple[Topic[object], Sequence[bytes]]]()

    def note(identities: Iterable[bytes], before_ms: int) -> None:
        progress.note_sent_back(identities, before_ms)
        for topic, values in sent:
            queue.publish(topic, values)

    writer._queue = _Lying(queue, publish=lambda topic, values: sent.append((topic, values)))  # type: ignore[assignment]
    writer._progress = _Lying(progress, note_sent_back=note)  # type: ignore[assignment]
    return writer


def _sent_back_once_for_ever(writer: Writer) -> Writer:
    """What was sent back once is not sent back again, even if what came of it is late, too."""
    progress = writer._progress
    writer._progress = _Lying(  # type: ignore[assignment]
        progress, sent_back_after=lambda read_ms: progress.sent_back_after(dict.fromkeys(read_ms, 0))
    )
    return writer


def _ticks_overtake(world: World) -> None:
    for group in (world.bag.expander, *world.bag.writers.values()):

        def ticks(group: Group = group) -> Iterator[Message]:
            for partition, messages in enumerate(group.undone):
                yield from (
                    Message(partition, offset, body) for offset, body in messages.items() if isinstance(body, Tick)
                )

        group.ticks = ticks  # type: ignore[method-assign]


def _partitions_at_start(world: World) -> None:
    """Each writer counts those that there were when it was started, whatever ticks say."""
    count = world.bag.partitions(DELIVERIES)
    for each in world.writers.values():
        each._partitions = lambda _tick: count  # type: ignore[method-assign]


def _sources_at_start(world: World) -> None:
    """The relay sends ticks to the partitions that there were when it was started."""
    count = world.bag.partitions(ACTIONS)
    world.ticker._queue = _Lying(world.ticker._queue, partitions=lambda _topic: count)  # type: ignore[assignment]


def _some_sources_are_enough() -> Patches:
    def settled_ms(settled: Settled) -> int | None:
        return min(settled._by_source.values(), default=None)

    return [(Settled, "settled_ms", settled_ms)]


def _applied_before_landing() -> Patches:
    real = Parking.land

    def land(each: Parking, parked: Sequence[Parked]) -> None:
        # More than any partition has.
        each._progress.note_applied({(NUMBERS[RETRIES], partition): 10**6 for partition in range(10)})
        real(each, parked)

    return [(Parking, "land", land)]


def _parked_without_a_copy(world: World) -> None:
    for each in world.parking.values():
        each._queue = _Lying(each._queue, publish=lambda _topic, _values, _partition: None)


def _parked_without_a_note(world: World) -> None:
    for each in world.parking.values():
        each._progress = _Lying(each._progress, park=lambda _since_ms, _until: None)


def _noted_before_the_copy() -> Patches:
    def keep(each: Parking, copies: Sequence[tuple[Delivery, bytes]], partition: int) -> None:
        if copies:
            since_ms = (delivery.action.committed_ms for delivery, _ in copies)
            applied.note_parked(each._progress, since_ms, each._queue, partition)
            each._queue.publish(RETRIES, [value for _, value in copies], partition)

    return [(Parking, "_keep", keep)]


def replace_unchecked(limits: Any, **values: int) -> Any:
    fields = {name: getattr(limits, name) for name in limits.__dataclass_fields__}
    return SimpleNamespace(**(fields | {"window_ms": limits.window_ms} | values))


def _partial_compaction(
    versions: Iterable[resolution.Version], keep: int | None, now_ms: int, purge_window_ms: int
) -> resolution.Garbage:
    """What a trim does that meets some of the files: it counts cells that markers elsewhere mask."""
    assert keep is None or purge_window_ms <= now_ms
    seen = list(versions)
    kept = sorted({version.column for version in seen if not version.is_marker})[:keep]
    return resolution.Garbage([each for each in seen if not each.is_marker and each.column not in kept], [], [])


def _markers_forgotten(world: World) -> None:
    for store in world.stores.values():
        store._table = replace(store._table, purge_window_ms=0)  # type: ignore[attr-defined]


# What tends to bring each kind of guard into play.
_STUCK = replace(GENERAL, followers=1, sticky=(0.2, 0.5), again=0.02, walk=0)
_LATE = replace(_STUCK, owners=(11,), followees=(user(11),), leap=0.6, steps=450, save=5, delete=0.3)
_PAST = replace(
    _STUCK,
    owners=(11,),
    boards=(21, 22),
    prelude=18,
    prelude_saves=0.8,
    past=1,
    leap=0,
    save=0.5,
    delete=0,
    follow=4,
    unfollow=4,
)
_FULL = replace(_STUCK, prelude=18, past=0, delete=0, leap=0, sweep=1.5, unfollow=4)
_TRIMMED = replace(
    _FULL,
    prelude_saves=0.9,
    follow_all=1,
    follow=0.5,
    save=0.5,
    sweep=3,
    late_sweeps=0.4,
    boards=(21, 23),
    followees=(user(11), user(12)),
    chunks=(1,),
    past=0,
    actions=4,
    steps=150,
)
_SAME_MS = replace(_STUCK, paces=(0.02,), leap=0, past=0, boards=(21,), owners=(11,), delete=0)
_TICKING = replace(GENERAL, ticking=1, tick=0.5, delete=0, walk=0)
_LATE_TICKS = replace(_LATE, followees=(), ticking=1, tick=1, delete=0, prelude=6, follow_all=1, unfollow=1)
_LATE_AGAIN = replace(
    _LATE,
    shards=(1,),
    boards=(21,),
    follow_all=1,
    prelude=3,
    past=0,
    leap=1.5,
    farthest=1,
    save=8,
    follow=1,
    unfollow=0.5,
    delete=0,
    actions=4,
    steps=250,
    sticky=(0,),
    again=0,
    crash=0,
)
_LATE_AND_KILLED = replace(_LATE_AGAIN, leap=1, crash=3, slow=0.45)
_PARKED = replace(
    PARKING,
    followers=1,
    owners=(11,),
    boards=(21,),
    shards=(1,),
    ticking=1,
    park=2,
    rush=4,
    crash=1,
    slow=0.45,
    paces=(0.4,),
    prelude=1,
    actions=3,
    steps=700,
    unfollow=0,
    delete=0,
    again=0,
    walk=0,
    leap=0,
    sweep=0,
)
_GROWN = replace(GROWING, sticky=GENERAL.sticky)
_DELETED = replace(
    DIVIDING, owners=(11,), boards=(21,), followees=(user(11),), follow_all=1, unfollow=0.3, delete=5, slow=0.45, walk=0
)
_DIVIDED = replace(DIVIDING, ticking=1, tick=0.5, delete=0, walk=0, sticky=(0.2, 0.5), again=0)
_REFILLS = replace(
    _STUCK, owners=(11,), walk=4, delete=4, save=5, unfollow=0.5, leap=0, past=0, prelude=4, slow=0.5, crash=0
)
MUTANTS: dict[str, Taken] = {
    each.name: replace(each, found_by=_FOUND_BY.get(each.name, each.found_by))
    for each in (
        Taken(
            "clock_per_edge", 2, "a clock for each edge instead of one per follower", _clock_per_edge, profile=_SAME_MS
        ),
        Taken(
            "no_newer_check",
            4,
            "the follower index takes what comes last instead of what is newest",
            lambda: [(MemoryShard, "index_followers", _overwrite)],
        ),
        Taken("no_look_at_the_edge", 4, "a follow does not look at its edge again", tampered=_no_look_at_the_edge),
        Taken(
            "no_second_look_in_refills",
            4,
            "a refill does not look at its edges again after it read the pins",
            tampered=_no_second_look_in_refills,
            directed=True,
        ),
        Taken(
            "served_by_what_began_before",
            9,
            "a refill serves requests that were recorded after its first read",
            tampered=_served_by_what_began_before,
            directed=True,
        ),
        Taken(
            "served_for_ever",
            8,
            "a refill of which the deliveries came too late passes for done",
            _served_for_ever,
            directed=True,
        ),
        Taken(
            "no_look_at_deletions_in_backfills",
            7,
            "a follow does not look again which pins were deleted",
            tampered=_no_look_at_deletions("_backfill"),
            directed=True,
        ),
        Taken(
            "no_look_at_deletions_in_saves",
            7,
            "a save does not look again whether its pin was deleted",
            tampered=_no_look_at_deletions("_fanout"),
        ),
        Taken(
            "refill_without_index",
            7,
            "a refill does not enter its edges",
            tampered=_refill_without_index,
            profile=_REFILLS,
        ),
        Taken(
            "no_look_at_deletions_in_ranges",
            7,
            "only the first call for a pin looks again whether it was deleted",
            _first_calls_look_at_deletions,
            profile=_DELETED,
        ),
        Taken("no_tombstones", 7, "a deletion leaves out who unfollowed", tampered=_no_tombstones),
        Taken(
            "marker_at_deletion",
            7,
            "a deletion's marker is at the deletion alone",
            lambda: [(fanout, "_markers", _marker_at_deletion)],
        ),
        Taken("pin_time_in_cells", 3, "cells are not dated before their pins", tampered=_pin_time_in_cells),
        Taken("always_complete", 6, "no row read: every list passes for complete", _always_complete, profile=_PAST),
        Taken(
            "no_row_read",
            6,
            "no row read: the writer leaves it out",
            lambda: [(Writer, "_read_row", lambda _writer, _follower, _unfollowed: None)],
            profile=_PAST,
        ),
        Taken(
            "nothing_recent",
            6,
            "an unfollow does not list the pins saved within W",
            lambda: [(Purging, "_saved_since", _nothing_recent)],
        ),
        Taken(
            "nothing_older", 6, "an unfollow does not list the newest of the older pins", _nothing_older, profile=_PAST
        ),
        Taken(
            "no_overlap_lists",
            6,
            "an unfollow does not list what overlapping edges may bring",
            lambda: [(Purging, "_overlapping", lambda _purging, _actions, _since_ms: {})],
            directed=True,
        ),
        Taken("covered_ignored", 5, "an unfollow removes what another edge covers", tampered=_covered_ignored),
        Taken("no_refill", 9, "a purge asks for no refill", tampered=_no_refill, profile=_FULL),
        Taken(
            "refill_with_the_markers",
            9,
            "the refill is asked for when the markers are published, not when they have landed",
            _refill_with_the_markers,
            _no_refill,
            _TRIMMED,
        ),
        Taken(
            "time_stands_still_for_writers",
            8,
            "writers take the time that they heard first for the time that it is",
            tampered=_time_stands_still_for_writers,
            profile=_LATE,
        ),
        Taken(
            "finish_first_part",
            9,
            "what follows a purge follows the first of its parts",
            lambda: [(Writer, "_all_parts_landed", lambda _writer, _action, purge: purge.part == 1)],
            profile=_TRIMMED,
        ),
        Taken(
            "redate_anything",
            8,
            "an edge that waited too long is dated again though it is not the latest",
            lambda: [(recording, "redate", _redate_anything)],
            profile=_LATE,
        ),
        Taken("deliveries_never_late", 8, "old deliveries are applied", tampered=_deliveries_never_late, directed=True),
        Taken("packs_never_late", 8, "old packs are applied", tampered=_packs_never_late, directed=True),
        Taken(
            "late_pack_brings_back_its_first_action",
            8,
            "of a pack that comes too late, one action is sent back",
            _late_pack_brings_back_its_first_action,
            profile=_LATE_AGAIN,
        ),
        Taken(
            "late_pack_brings_back_other_actions",
            8,
            "of a pack that comes too late, the action of the block before is sent back",
            _late_pack_brings_back_other_actions,
            profile=_LATE_AGAIN,
        ),
        Taken("halves_are_the_first_half", 11, "the second half of a pack is lost", _halves_are_the_first_half),
        Taken(
            "parts_have_each_others_rows",
            11,
            "of a pack that is divided by its rows, the rest is lost",
            _parts_have_each_others_rows,
        ),
        Taken(
            "first_block_is_parked",
            11,
            "a pack is parked as its first delivery",
            _first_block_is_parked,
            profile=replace(_PARKED, actions=8, follow_all=1),
        ),
        Taken(
            "actions_never_late", 8, "old actions are expanded as they are", tampered=_actions_never_late, profile=_LATE
        ),
        Taken("markers_forgotten", 8, "markers go before the purge window ends", tampered=_markers_forgotten),
        Taken(
            "partial_compaction",
            9,
            "a trim counts masked cells",
            lambda: [(memory_store, "garbage", _partial_compaction)],
            profile=_FULL,
        ),
        Taken(
            "put_wins",
            3,
            "at the same timestamp the put wins",
            lambda: [(memory_store, "visible", _put_wins), (resolution, "visible", _put_wins)],
        ),
        Taken(
            "index_after_reading_pins",
            4,
            "a follow enters the index after it read the pins",
            tampered=_index_late("_backfill", "newest_pins", lambda row: isinstance(row, Edge) and row.active),
            directed=True,
        ),
        Taken(
            "index_after_reading_followers",
            4,
            "a save enters the index after it read the followers",
            tampered=_index_late("_fanout", "followers", lambda row: isinstance(row, PinSaved)),
            directed=True,
        ),
        Taken(
            "begun_without_index",
            4,
            "what is begun counts as in the indexes, and is not",
            patched=lambda: [(Expander, "begin", _begun_without_index)],
            profile=BEGINNING,
        ),
        Taken(
            "ticks_overtake",
            10,
            "a tick is handled before what is before it is done",
            tampered=_ticks_overtake,
            profile=_TICKING,
        ),
        Taken(
            "partitions_at_start",
            10,
            "a writer counts the partitions that there were when it was started",
            tampered=_partitions_at_start,
            profile=_GROWN,
        ),
        Taken(
            "sources_at_start",
            10,
            "the relay counts the partitions that there were when it was started",
            tampered=_sources_at_start,
            profile=_GROWN,
        ),
        Taken(
            "some_sources_are_enough",
            10,
            "a writer notes what has settled before ticks of all partitions of the actions have come",
            _some_sources_are_enough,
            profile=_GROWN,
        ),
        Taken(
            "no_hold_for_refills",
            10,
            "the watermark does not wait for the refill of a purge",
            _finished_without_hold,
            profile=replace(_TRIMMED, ticking=1, tick=0.5),
        ),
        Taken(
            "no_hold_for_what_is_sent_back",
            10,
            "the watermark does not wait for deliveries that came too late",
            _sent_back_by(_sent_back_without_hold),
            profile=_LATE_TICKS,
        ),
        Taken(
            "noted_before_it_is_sent_back",
            8,
            "what is late is noted as sent back before it is",
            _sent_back_by(_noted_before_it_is_sent_back),
            profile=_LATE_AND_KILLED,
        ),
        Taken(
            "sent_back_once_for_ever",
            8,
            "what is late again is not sent back again",
            _sent_back_by(_sent_back_once_for_ever),
            profile=_LATE_AGAIN,
        ),
        Taken(
            "no_hold_for_the_redated",
            10,
            "the watermark does not wait for actions that were dated again",
            tampered=_no_hold_for_the_redated,
            profile=_LATE_TICKS,
        ),
        Taken(
            "no_hold_for_ranges",
            10,
            "the watermark does not wait for what a call leaves of a fanout",
            _left_without_hold,
            profile=_DIVIDED,
        ),
        Taken(
            "nothing_is_left",
            11,
            "what a call leaves of a fanout is lost",
            lambda: [(Expander, "_leave", lambda _expander, _left: None)],
            profile=DIVIDING,
        ),
        Taken(
            "no_last_range",
            11,
            "the last of the ranges that a call leaves is lost",
            _without_the_last_range,
            profile=DIVIDING,
        ),
        Taken(
            "applied_before_landing",
            10,
            "the watermark no longer waits for what is parked when it is about to land",
            _applied_before_landing,
            directed=True,
        ),
        Taken(
            "parked_without_a_note",
            10,
            "the watermark does not wait for what is parked",
            tampered=_parked_without_a_note,
            profile=_PARKED,
        ),
        Taken(
            "parked_without_a_copy",
            11,
            "what is parked is nowhere",
            tampered=_parked_without_a_copy,
            profile=_PARKED,
        ),
        Taken(
            "noted_before_the_copy",
            10,
            "the watermark waits for what was parked before, and not for this",
            _noted_before_the_copy,
            profile=_PARKED,
        ),
    )
}
