"""The state of a catalog as one document, and each step from one state to the next. Pure.

The document is one cell of one row and is replaced by compare-and-set (`CatalogRow.change`), so every step sees what
all earlier ones did. An announced load keeps the floor of each later collection from rising above its as_of, and a
load that comes after a collection finds that floor. Tables are made after they are announced and removed before they
are forgotten, so every existing table has its name here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from feedstore.catalog import checks, rule
from feedstore.catalog.port import (
    BeingBuiltError,
    BuiltBy,
    CatalogRefusedError,
    CatalogUnavailableError,
    Generation,
    InUse,
    NoGenerationError,
)

GONE_MS: Final = 10_000
"""How long the table of a generation is kept after it is gone: longer than a fetch that began before takes."""


class Made(msgspec.Struct, frozen=True):
    """A generation. table: where its records are. took_ms: how long it took to load."""

    id: str
    table: str
    records: int
    sha256: str
    took_ms: int = 0

    @property
    def as_of_ms(self) -> int:
        return rule.as_of_ms(self.id)


class Loading(msgspec.Struct, frozen=True):
    """A load that is announced. began_ms: by the clock of the process that loads. build: the id of the build that it is
    part of, if any.
    """

    table: str
    as_of_ms: int
    began_ms: int
    build: str = ""


class Building(msgspec.Struct, frozen=True):
    """A process that builds. id: unique. since_ms: by its clock. beat: a number that it counts up while it is alive."""

    id: str
    who: str
    since_ms: int
    beat: int = 0


class Gone(msgspec.Struct, frozen=True):
    """A table that is to be removed once nothing reads it. since_ms: by the clock of the process that noted this."""

    table: str
    since_ms: int


class StoredState(msgspec.Struct, frozen=True, omit_defaults=True):
    """version: counts the steps. current: the generation that fetches read. rollbacks: how many there were. noted: the
    trail as `rule.extended` makes it; some of its generations may be removed. floor_ms: of the delta. walk: the id of
    the last walk over the delta, which may be under way. collected_ms: the time up to which walks remove updates from
    it. entries: how many it had when they were last counted. generations: oldest first. building: the process that
    builds; None if there is none.
    """

    version: int = 0
    current: str | None = None
    rollbacks: int = 0
    noted: tuple[str, ...] = ()
    floor_ms: int = 0
    collected_ms: int = 0
    entries: int = 0
    walk: str = ""
    generations: tuple[Made, ...] = ()
    loading: tuple[Loading, ...] = ()
    gone: tuple[Gone, ...] = ()
    building: Building | None = None

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.generations]

    @property
    def trail(self) -> list[str]:
        return rule.trail(self.noted, self.ids, self.current)

    def listed(self) -> list[Generation]:
        used = self.trail
        return [
            Generation(
                each.id,
                each.as_of_ms,
                each.records,
                0,
                each.sha256,
                current=each.id == self.current,
                took_ms=each.took_ms,
                used=each.id in used,
            )
            for each in self.generations
        ]

    def generation(self, name: str) -> Made:
        """A generation by its id. Raises CatalogRefusedError if there is none."""
        for each in self.generations:
            if each.id == name:
                return each
        raise CatalogRefusedError(f"there is no generation {name!r}")

    def in_use(self) -> Made:
        """The current generation. Raises NoGenerationError if there is none."""
        if self.current is None:
            raise NoGenerationError("no generation of this catalog is in use: build or load one")
        return self.generation(self.current)


def next_version(state: StoredState) -> StoredState:
    return _with(state, version=state.version + 1)


def encoded(state: StoredState) -> bytes:
    return msgspec.json.encode(state)


def decoded(document: bytes) -> StoredState:
    """The state in a document. Raises CatalogUnavailableError if it cannot be read."""
    try:
        return msgspec.json.decode(document, type=StoredState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CatalogUnavailableError(f"the row of this catalog cannot be read by this program: {error}") from error


def known_ms(noted: Mapping[tuple[int, int], int]) -> int:
    """The time up to which the delta has every update. noted: the same for each source, by `sources` and source.

    If the number of sources has grown, what the fewer ones had noted is still true.
    """
    groups: dict[int, list[int]] = {}
    for (sources, _), noted_ms in noted.items():
        groups.setdefault(sources, []).append(noted_ms)
    return max((min(each) for sources, each in groups.items() if len(each) == sources), default=0)


# Steps. Each may be taken twice, because a process may not learn that its step was taken.
# --------------------------------------------------------------------------------------------------------------------


def raised(state: StoredState, floor_ms: int) -> StoredState:
    """Raises the floor to a time, if it is lower."""
    return _with(state, floor_ms=max(state.floor_ms, floor_ms))


def announced(state: StoredState, load: Loading) -> StoredState:
    """A load begins. Raises CatalogRefusedError if the delta may lack updates that it needs."""
    checks.check_floor(state.floor_ms, load.as_of_ms)
    return state if load in state.loading else _with(state, loading=(*state.loading, load))


def finished(state: StoredState, made: Made, now_ms: int) -> StoredState:
    """A load has ended. If the same generation is there already, its table may be damaged or lost: the new table takes
    its place, and the old one is to be removed.

    Raises CatalogUnavailableError if the load seemed dead and was removed, unless the same generation is there.
    """
    if all(each.table != made.table for each in state.loading):
        if made.id in state.ids:
            return abandoned(state, made.table, now_ms)
        raise CatalogUnavailableError(
            f"the load of {made.id} took longer than a day, or its process hung: it was removed: load it again"
        )
    others = [each for each in state.generations if each.id != made.id]
    replaced = (Gone(each.table, now_ms) for each in state.generations if each.id == made.id)
    return _with(
        state,
        generations=tuple(sorted((*others, made), key=lambda each: rule.place(each.id))),
        loading=_without(state.loading, made.table),
        gone=(*state.gone, *replaced),
    )


def abandoned(state: StoredState, table: str, now_ms: int) -> StoredState:
    """A load has failed. Its table is to be removed later, because a slow cluster may still be making it. If another
    process has removed the load, and its table, the load may have made the table since then.
    """
    if table in {*(each.table for each in state.generations), *(each.table for each in state.gone)}:
        return state
    return _with(state, loading=_without(state.loading, table), gone=(*state.gone, Gone(table, now_ms)))


def begun(state: StoredState, mine: Building, dead: Building | None) -> StoredState:
    """A build begins. What others have begun to load is to be removed: they have ended, or are dead. dead: a builder
    that was found to have died, and may be replaced. Raises BeingBuiltError.
    """
    there = state.building
    if there is not None and there != dead and there.id != mine.id:
        raise BeingBuiltError(BuiltBy(there.who, there.since_ms))
    for each in state.loading:
        if each.build not in {"", mine.id}:
            state = abandoned(state, each.table, mine.since_ms)
    return _with(state, building=mine)


def beaten(state: StoredState, build: str) -> StoredState:
    """Counts up the beat of a builder, unless it was replaced because it seemed dead."""
    there = state.building
    if there is None or there.id != build:
        return state
    return _with(state, building=msgspec.structs.replace(there, beat=there.beat + 1))


def ended(state: StoredState, build: str) -> StoredState:
    there = state.building
    return state if there is None or there.id != build else _with(state, building=None)


def used(state: StoredState, name: str, before: InUse | None = None) -> StoredState:
    """Makes a generation current, unless something other than `before` is in use. Raises CatalogRefusedError if there
    is none of that name.
    """
    if before not in {None, (state.current, state.rollbacks)}:
        return state
    rollbacks = state.rollbacks + rule.rolls_back(state.current, name)
    noted = tuple(rule.extended(state.trail, name))
    return _with(state, current=state.generation(name).id, rollbacks=rollbacks, noted=noted)


def collected(state: StoredState, keep: int, now_ms: int) -> StoredState:
    """Forgets the generations that are not kept, and raises the floor to where all others have every update."""
    kept = {*rule.kept(state.ids, keep, state.trail)}
    dead = [each for each in state.loading if now_ms - each.began_ms > rule.DEAD_LOAD_MS]
    gone = [*(each.table for each in dead), *(each.table for each in state.generations if each.id not in kept)]
    left = _with(
        state,
        generations=tuple(each for each in state.generations if each.id in kept),
        loading=tuple(each for each in state.loading if each not in dead),
        gone=(*state.gone, *(Gone(table, now_ms) for table in gone)),
    )
    return raised(left, limit_ms(left))


def limit_ms(state: StoredState) -> int:
    """The time up to which no generation that may still be read needs updates."""
    return rule.collectable_ms(
        [*(each.as_of_ms for each in state.generations), *(each.as_of_ms for each in state.loading)]
    )


def removable(state: StoredState, now_ms: int) -> list[str]:
    """The tables that no fetch reads any more."""
    return [each.table for each in state.gone if now_ms - each.since_ms >= GONE_MS]


def forgotten(state: StoredState, tables: Iterable[str]) -> StoredState:
    """Forgets tables that were removed."""
    removed = {*tables}
    return _with(state, gone=tuple(each for each in state.gone if each.table not in removed))


def walked(state: StoredState, walk: str, before: str, limit_ms: int) -> StoredState:
    """Begins a walk over the delta, which removes the updates up to `limit_ms`; not if one has begun since `before`."""
    if state.walk != before:
        return state
    return _with(state, walk=walk, collected_ms=max(state.collected_ms, limit_ms))


def counted(state: StoredState, entries: int) -> StoredState:
    """Notes how many entries a walk has left."""
    return _with(state, entries=entries)


def _with(state: StoredState, **changes: object) -> StoredState:
    return msgspec.structs.replace(state, **changes)


def _without(loading: Iterable[Loading], table: str) -> tuple[Loading, ...]:
    return tuple(each for each in loading if each.table != table)
