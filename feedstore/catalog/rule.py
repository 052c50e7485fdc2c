"""The rule of catalogs as pure functions; every adapter decides by these."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from feedstore.catalog.port import Delta, Update

TRAIL_MAX: Final = 100
"""The most generations of a trail: as many as a collection can be told to keep."""


DEAD_LOAD_MS: Final = 86_400_000
"""A load that has taken longer than this has died: a collection removes its remains."""


def wins(time_ms: int, as_of_ms: int) -> bool:
    """Whether an update of the delta wins over the generation's record. If it is not later than the generation's as_of,
    the generation has it, or a later one, which the delta may have lost to a collection.
    """
    return time_ms > as_of_ms


def stamp(update: Update) -> int:
    """The order of an update among those of its key: by the source's time; at equal times the deletion is later."""
    return 2 * update.time_ms + (update.record is None)


class Held(NamedTuple):
    """An update in the delta. record: None if the key was deleted."""

    time_ms: int
    record: bytes | None


def held(stamp: int, record: bytes) -> Held:
    """The update that a delta holds under a stamp."""
    return Held(stamp >> 1, None if stamp & 1 else record)


def replaces(new_stamp: int, old_stamp: int | None) -> bool:
    """Whether an update takes the place of the one that the delta holds, if it holds one."""
    return old_stamp is None or new_stamp > old_stamp


def is_complete(floor_ms: int, as_of_ms: int) -> bool:
    """Whether the delta has every update that a generation may need: those after its as_of."""
    return floor_ms <= as_of_ms


def known_ms(as_of_ms: int, delta_known_ms: int, floor_ms: int) -> int:
    """The time up to which a generation and the delta together have every change."""
    return max(as_of_ms, delta_known_ms) if is_complete(floor_ms, as_of_ms) else as_of_ms


def kept(ids: Sequence[str], keep: int, trail: Sequence[str]) -> list[str]:
    """The generations that a collection keeps: the `keep` latest, and the `keep` latest of the trail. The trail counts
    separately so that a rollback still has a target if many generations were loaded and refused. ids: oldest first.
    """
    latest = {*ids[-keep:], *trail[-keep:]}
    return [each for each in ids if each in latest]


def trail(noted: Sequence[str], ids: Sequence[str], current: str | None) -> list[str]:
    """The generations that came into use and were not rolled back, oldest first: the last one is the current one, and a
    rollback goes to the one before it.

    noted: the stored trail, which `extended` has made; some of its generations may be removed. It is empty if an old
    program wrote it, and then all generations up to the current one count. ids: of all that there are, oldest first.
    """
    if current is None:
        return []
    before = noted or [each for each in ids if is_later(current, each)]
    return [*(each for each in before if each in ids and each != current), current]


def extended(trail: Sequence[str], name: str) -> list[str]:
    """The trail after a generation came into use. If it is an older one, the generations after it are rolled back."""
    return [*(each for each in trail if is_later(name, each)), name][-TRAIL_MAX:]


def is_later(one: str, other: str) -> bool:
    """Whether one generation comes after another."""
    return place(one) > place(other)


def rolls_back(before: str | None, after: str) -> bool:
    """Whether a generation that comes into use differs from the one before and is not later. If two batches of the same
    time differ, one is wrong, so that counts as a rollback as well.
    """
    return before is not None and before != after and as_of_ms(after) <= as_of_ms(before)


def collectable_ms(as_ofs_ms: Iterable[int]) -> int:
    """The time up to which every generation that is kept or is being loaded has all updates; 0 if there is none."""
    return min(as_ofs_ms, default=0)


def noted(delta: Delta, known_ms: int, sources_ms: Sequence[int]) -> Delta:
    """The delta after `note_known`. A delta lacks what was committed before it began, so the first times that its
    sources note are floors.

    sources_ms: the time that each of the sources has noted by now; 0: none.
    """
    floor_ms = delta.floor_ms if delta.known_ms else max(delta.floor_ms, known_ms)
    return delta._replace(floor_ms=floor_ms, known_ms=max(delta.known_ms, min(sources_ms)))


def as_of_ms(generation_id: str) -> int:
    return int(generation_id.partition("-")[0])


def in_order(ids: Iterable[str]) -> list[str]:
    """The ids sorted, oldest first."""
    return sorted(ids, key=place)


def place(generation_id: str) -> tuple[int, str]:
    """The place of a generation in the order of all, oldest first: by as_of, then by hash."""
    return as_of_ms(generation_id), generation_id
