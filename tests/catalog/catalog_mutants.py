"""The guards of the rule, each taken out of the model. Those of the order of steps in files are in
`test_catalog_races`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from feedstore.catalog import checks, rule
from feedstore.catalog.port import Delta, Update
from tests.catalog.memory_catalog import MemoryCatalog
from tests.catalog.schedules import Mutant, Patches, World


def _delta_wins_always(_world: World) -> Patches:
    return [(rule, "wins", lambda _time_ms, _as_of_ms: True)]


def _delta_wins_at_equal_times(_world: World) -> Patches:
    """The generation has all updates of that time; the delta may have lost the later one of two to a collection."""
    return [(rule, "wins", lambda time_ms, as_of_ms: time_ms >= as_of_ms)]


def _generation_wins_always(_world: World) -> Patches:
    return [(rule, "wins", lambda _time_ms, _as_of_ms: False)]


def _last_arrival_wins(_world: World) -> Patches:
    return [(rule, "replaces", lambda _new, _old: True)]


def _ties_to_the_record(_world: World) -> Patches:
    def stamp(update: Update) -> int:
        return 2 * update.time_ms + (update.record is not None)

    return [(rule, "stamp", stamp)]


def _collects_too_young(_world: World) -> Patches:
    return [(rule, "collectable_ms", lambda as_ofs_ms: max(as_ofs_ms, default=0))]


def _floor_of_the_current_one(world: World) -> Patches:
    def collectable_ms(as_ofs_ms: Iterable[int]) -> int:
        found = [*as_ofs_ms]
        current = rule.as_of_ms(world.current) if world.current else 0
        return current if current in found else min(found, default=0)

    return [(rule, "collectable_ms", collectable_ms)]


def _floor_not_checked(_world: World) -> Patches:
    return [(checks, "check_floor", lambda _floor_ms, _as_of_ms: None)]


def _collected_without_a_floor(_world: World) -> Patches:
    def note_gap(catalog: MemoryCatalog, until_ms: int) -> None:
        catalog._delta = catalog._delta._replace(floor_ms=max(catalog._delta.floor_ms, until_ms))

    return [
        (MemoryCatalog, "note_gap", note_gap),
        (MemoryCatalog, "_raise_floor", lambda _catalog, _floor_ms: None),
    ]


def _gaps_ignored(_world: World) -> Patches:
    return [(MemoryCatalog, "note_gap", lambda _catalog, _until_ms: None)]


def _known_whatever_is_missing(_world: World) -> Patches:
    return [(rule, "known_ms", lambda as_of_ms, known_ms, _floor_ms: max(as_of_ms, known_ms))]


def _no_floor_of_a_new_delta(_world: World) -> Patches:
    def noted(before: Delta, _known_ms: int, sources_ms: Sequence[int]) -> Delta:
        return before._replace(known_ms=max(before.known_ms, min(sources_ms)))

    return [(rule, "noted", noted)]


def _current_is_collected(_world: World) -> Patches:
    return [(rule, "kept", lambda ids, keep, _current: [*ids[-keep:]])]


def _rollbacks_uncounted(_world: World) -> Patches:
    return [(rule, "rolls_back", lambda _before, _after: False)]


def _equal_times_no_rollback(_world: World) -> Patches:
    def rolls_back(before: str | None, after: str) -> bool:
        return before is not None and rule.as_of_ms(after) < rule.as_of_ms(before)

    return [(rule, "rolls_back", rolls_back)]


class _Unseen(list[int]):
    def __iter__(self) -> Any:
        return iter(())


def _loads_under_way_ignored(world: World) -> Patches:
    return [(world.owner, "_loading", _Unseen())]


FOUND_BY: Final = {
    "as_of_at_the_end": 4,
    "delta_wins_always": 151,
    "wins_at_equal_times": 2388,
    "generation_wins_always": 1,
    "last_arrival_wins": 1,
    "ties_to_the_record": 16,
    "collects_too_young": 1,
    "floor_of_current": 57,
    "floor_not_checked": 327,
    "gaps_ignored": 0,
    "known_whatever": 54,
    "no_first_floor": 58,
    "current_collected": 60,
    "loads_ignored": 57,
    "rollbacks_uncounted": 8,
    "equal_no_rollback": 8,
}
"""A seed that found each mutant (`python -m tests.catalog --all --runs 20000`); it may find it no more."""
NO_FLOOR: Final = Mutant("no_floor", "a collection notes no floor", _collected_without_a_floor)
"""Hardly any seed finds this mutant; a schedule made for it does."""

MUTANTS: Final[dict[str, Mutant]] = {
    each.name: each
    for each in (
        Mutant("as_of_at_the_end", "as_of is taken when the batch has been read", as_of_at_the_end=True),
        Mutant("delta_wins_always", "an update decides, whatever its time", _delta_wins_always),
        Mutant("wins_at_equal_times", "an update of the very as_of decides", _delta_wins_at_equal_times),
        Mutant("generation_wins_always", "an update never decides", _generation_wins_always),
        Mutant("last_arrival_wins", "the update that came last stays", _last_arrival_wins),
        Mutant("ties_to_the_record", "at equal times the record wins", _ties_to_the_record),
        Mutant("collects_too_young", "a collection goes up to the latest as_of", _collects_too_young),
        Mutant("floor_of_current", "a collection goes up to the current as_of", _floor_of_the_current_one),
        Mutant("floor_not_checked", "a load below the floor is taken", _floor_not_checked),
        Mutant("gaps_ignored", "a gap is not noted", _gaps_ignored),
        Mutant("known_whatever", "the floor does not bound what is known", _known_whatever_is_missing),
        Mutant("no_first_floor", "a new delta has no floor", _no_floor_of_a_new_delta),
        Mutant("current_collected", "the current generation may go", _current_is_collected),
        Mutant("rollbacks_uncounted", "a rollback is not counted", _rollbacks_uncounted),
        Mutant("equal_no_rollback", "of two batches of one time, neither is wrong", _equal_times_no_rollback),
        Mutant("loads_ignored", "a collection does not look at loads", _loads_under_way_ignored),
    )
}
