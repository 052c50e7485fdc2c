"""The rule of catalogs as pure functions; every adapter decides by these."""

from collections.abc import Iterable, Sequence
from typing import Final

from feedstore.catalog.port import Delta, Update

TRAIL_MAX: Final = 100
"""As many as a collection can be told to keep."""


def wins(time_ms: int, as_of_ms: int) -> bool:
    """Whether an update of the delta decides, and not the generation's record. If it is not later than the generation's
    as_of, the generation has it, or has what came after it: the delta may have lost that to a collection.
    """
    return time_ms > as_of_ms


def stamp(update: Update) -> int:
    """The place of an update among those of its key: by the source's time; at equal times the deletion is later."""
    return 2 * update.time_ms + (update.record is None)


def replaces(new_stamp: int, old_stamp: int | None) -> bool:
    """Whether an update takes the place of the one that the delta holds, if it holds one."""
    return old_stamp is None or new_stamp > old_stamp


def is_complete(floor_ms: int, as_of_ms: int) -> bool:
    """Whether the delta has every update that a generation may need: those after its as_of."""
    return floor_ms <= as_of_ms


def known_ms(as_of_ms: int, delta_known_ms: int, floor_ms: int) -> int:
    """Up to when every change is in what a generation and the delta say together."""
    return max(as_of_ms, delta_known_ms) if is_complete(floor_ms, as_of_ms) else as_of_ms


def kept(ids: Sequence[str], keep: int, trail: Sequence[str]) -> list[str]:
    """The generations that a collection keeps: the `keep` latest, and the `keep` latest of the trail: others, that were
    loaded and refused, leave a rollback where to go. ids: oldest first.
    """
    latest = {*ids[-keep:], *trail[-keep:]}
    return [each for each in ids if each in latest]


def trail(noted: Sequence[str], ids: Sequence[str], current: str | None) -> list[str]:
    """The generations that came into use and were not rolled back, oldest first: the last one is the current one, and a
    rollback goes to the one before it.

    noted: as `extended` says; of those some may be removed. Empty: programs once noted none; then it is all generations
    up to the current one. ids: of all that there are, oldest first.
    """
    if current is None:
        return []
    before = noted or [each for each in ids if is_later(current, each)]
    return [*(each for each in before if each in ids and each != current), current]


def extended(trail: Sequence[str], name: str) -> list[str]:
    """The trail after a generation came into use. If it is an older one, those that came after it are rolled back."""
    return [*(each for each in trail if is_later(name, each)), name][-TRAIL_MAX:]


def is_later(one: str, other: str) -> bool:
    """Whether one generation comes after another in the order of all."""
    return _place(one) > _place(other)


def rolls_back(before: str | None, after: str) -> bool:
    """Whether a generation that comes into use is another one than before, and not later. Of two batches of one time
    that differ, one is wrong.
    """
    return before is not None and before != after and as_of_ms(after) <= as_of_ms(before)


def collectable_ms(as_ofs_ms: Iterable[int]) -> int:
    """Updates up to this time are in every generation that is kept or is being loaded; 0 if there is none."""
    return min(as_ofs_ms, default=0)


def noted(delta: Delta, known_ms: int, sources_ms: Sequence[int]) -> Delta:
    """After `note_known`. What was committed before a delta began is not in it: what its sources note first is a floor.

    sources_ms: what each of the sources has noted by now; 0: nothing.
    """
    floor_ms = delta.floor_ms if delta.known_ms else max(delta.floor_ms, known_ms)
    return delta._replace(floor_ms=floor_ms, known_ms=max(delta.known_ms, min(sources_ms)))


def as_of_ms(generation_id: str) -> int:
    return int(generation_id.partition("-")[0])


def in_order(ids: Iterable[str]) -> list[str]:
    """Oldest first."""
    return sorted(ids, key=_place)


def _place(generation_id: str) -> tuple[int, str]:
    return as_of_ms(generation_id), generation_id
