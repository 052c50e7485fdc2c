"""The guards of boards, each taken out."""

from collections.abc import Sequence
from typing import Any, Final

from feedstore.boards import BoardPin, Boards, Place, RoomSpread, Spacing, Spot, ordering, store
from feedstore.boards.sequences import between
from feedstore.follows.arranging import Arranged, BoardRows, LineKey, PinAt, Run
from feedstore.follows.store import FollowStore
from tests.simulation.boards import Mutant, World
from tests.simulation.memory_shard import MemoryShard, _Rows

Patches = Sequence[tuple[Any, str, Any]]


# Re-spacing
# --------------------------------------------------------------------------------------------------------------------


def _top_down_whatever_the_direction() -> Patches:
    def rises(going: RoomSpread, pins: Sequence[BoardPin], _rows: BoardRows, _spacing: Spacing) -> Any:
        chosen = []
        for passed, pin in enumerate(pins, going.passed + 1):
            if passed > going.members:
                return chosen, None
            chosen.append((pin, ordering.target(going.above, going.below, going.members, passed)))
        if not pins:
            return [], None
        return chosen, ordering._further(going, pins, chosen)

    real = ordering.begin

    def begin(spacing: Spacing, window: ordering.Window, pins: Sequence[BoardPin]) -> RoomSpread | None:
        going = real(spacing, window, pins)
        if going is None:
            return None
        return going._replace(at=pins[window.first - 1].spot, passed=0, falling=False)

    return [(ordering, "_rises", rises), (ordering, "begin", begin)]


def _never_compared_again() -> Patches:
    """A plan is carried out as it was made, whatever is there now."""
    plans: dict[tuple[int, int, Spot], list[tuple[BoardPin, int]]] = {}
    real = ordering.begin

    def begin(spacing: Spacing, window: ordering.Window, pins: Sequence[BoardPin]) -> RoomSpread | None:
        going = real(spacing, window, pins)
        if going is not None:
            inside = pins[window.first : window.first + len(window.targets)]
            moves = list(zip(inside, window.targets, strict=True))
            rising = [(pin, to) for pin, to in moves if to > pin.sequence]
            falling = [(pin, to) for pin, to in reversed(moves) if to < pin.sequence]
            plans[going.above, going.below, going.lower] = [*rising, *falling]
        return going

    def spread(spacing: Spacing, going: RoomSpread, limit: int, rows: BoardRows) -> Any:
        plan = plans[going.above, going.below, going.lower]
        some, plan[:] = plan[:limit], plan[limit:]
        at = rows.pins([LineKey(pin.created_ms, pin.pin) for pin, _ in some])
        alive = [(pin, to) for pin, to in some if pin.pin in at and at[pin.pin].alive]
        return Arranged(placed=ordering._rows(spacing, alive)), (len(alive), going if plan else None)

    return [(ordering, "begin", begin), (ordering, "spread", spread)]


def _moved_by_the_job() -> Patches:
    real = ordering._rows

    def rows(spacing: Spacing, chosen: Any) -> Any:
        return [row._replace(moved_ms=row.moved_ms + 1) for row in real(spacing, chosen)]

    return [(ordering, "_rows", rows)]


def _topmost_is_a_member() -> Patches:
    real = ordering.spread_evenly

    def spread_evenly(spacing: Spacing, sequences: Sequence[int], upper: int, *, is_top: bool, is_bottom: bool) -> Any:
        if not is_top or upper < 0:
            return real(spacing, sequences, upper, is_top=is_top, is_bottom=is_bottom)
        # The ceiling is the bound: as if there were one more pin, at the ceiling.
        found = real(spacing, [spacing.ceiling, *sequences], upper + 1, is_top=True, is_bottom=is_bottom)
        return None if found is None else found._replace(first=found.first - 1)

    def begin(spacing: Spacing, window: ordering.Window, pins: Sequence[BoardPin]) -> RoomSpread | None:
        return begins(spacing, window._replace(first=window.first + 1), [BoardPin(0, 0, spacing.ceiling, 0), *pins])

    begins = ordering.begin
    rises = ordering._rises

    def raising(going: RoomSpread, pins: Sequence[BoardPin], rows: BoardRows, spacing: Spacing) -> Any:
        class Ceiling:
            def run(self, way: Any, *args: Any) -> Run:
                found = rows.run(way, *args)
                if way == "up" and not found.placed and not found.lines:
                    return found._replace(placed=[spacing.row(0, spacing.ceiling, 0, 0)])
                return found

        return rises(going, pins, Ceiling(), spacing)  # type: ignore[arg-type]

    return [(ordering, "spread_evenly", spread_evenly), (ordering, "begin", begin), (ordering, "_rises", raising)]


def _lines_enter_unseen() -> Patches:
    """A board stays quiet whatever is entered on it."""
    return [(MemoryShard, "_changed", lambda _shard, _board: None)]


def _below_zero() -> Patches:
    def floor(spacing: Spacing, lowest: int, above: int, members: int) -> int:
        return min(lowest - 1, above - (members + 1) * spacing.lift)

    return [(ordering, "_floor", floor)]


# Reorders
# --------------------------------------------------------------------------------------------------------------------


def _deletion_decided_by_the_record_alone() -> Patches:
    real = _Rows.pins

    def pins(rows: _Rows, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        return {pin: at._replace(alive=True) for pin, at in real(rows, keys).items()}

    return [(_Rows, "pins", pins)]


def _asked_in_another_transaction(world: World) -> None:
    """The request for room is recorded after the reorder's commit; the process may be killed between."""
    real = world.follows.arrange

    def arrange(board: int, named: Any, decide: Any, *, synced: bool = True) -> Any:
        left: list[bytes] = []

        def without(now_ms: int, rows: BoardRows) -> Any:
            arranged, answer = decide(now_ms, rows)
            left[:] = [] if arranged is None else arranged.outbox
            return None if arranged is None else arranged._replace(outbox=()), answer

        answer = real(board, named, without, synced=synced)
        if left and world.rng.random() < 0.5:
            world.store.arrange(board, (), lambda _now, _rows: (Arranged(outbox=left), None))
        return answer

    world.follows.arrange = arrange


def _time_of_a_move_may_repeat() -> Patches:
    real = ordering.reorder

    def reorder(spacing: Spacing, move: Any, keys: Any, now_ms: int, rows: BoardRows) -> Any:
        arranged, answer = real(spacing, move, keys, now_ms, rows)
        if arranged is None or not arranged.placed:
            return arranged, answer
        *others, row = arranged.placed
        return arranged._replace(placed=[*others, row._replace(moved_ms=now_ms)]), answer

    return [(ordering, "reorder", reorder)]


def _middle_to_the_ceiling() -> Patches:
    return [(Spacing, "above_all", lambda spacing, _now_ms, top: between(spacing.ceiling, top))]


def _a_millisecond_above_the_top() -> Patches:
    return [(Spacing, "above_all", lambda spacing, now_ms, top: max(now_ms * spacing.unit, top + 8 * spacing.unit))]


def _no_second_look_at_ties() -> Patches:
    real = Spacing.start

    def start(spacing: Spacing, way: Any, spot: Spot) -> Any:
        return real(spacing, way, Spot(spot.sequence, spacing.last_id if way == "down" else 0))

    return [(Spacing, "start", start)]


# Pages
# --------------------------------------------------------------------------------------------------------------------


def _cursor_without_stamps() -> Patches:
    def anchor(boards: Boards, after: Place, marked: Sequence[PinAt]) -> Spot:
        at = {pin.pin: pin for pin in marked if pin.alive}
        for mark in reversed(after.marks):
            if mark.pin in at:
                return ordering.board_pin(boards._spacing, at[mark.pin]).spot
        return after.spot

    return [(Boards, "_anchor", anchor)]


def _cursor_is_a_sequence() -> Patches:
    return [(Boards, "_anchor", lambda _boards, after, _marked: after.spot)]


def _marks_are_shown_again() -> Patches:
    return [(store, "_not_marked", lambda pins, _after: list(pins))]


def _holes_forget_what_was_shown() -> Patches:
    real = Boards._onward

    def onward(boards: Boards, after: Place, shown: Sequence[BoardPin], end: Spot | None) -> Place | None:
        place = real(boards, after, shown, end)
        return place if place is None or place.seen is None else Place(place.seen, (), place.way)

    return [(Boards, "_onward", onward)]


def _two_statements_a_page(world: World) -> None:
    def board_run(*args: Any) -> Run:
        placed = world.store.board_run(*args)
        world._meanwhile()
        lines = world.store.board_run(*args)
        return placed._replace(lines=lines.lines, looked_to=lines.looked_to)

    world.follows.board_run = board_run


# Deletions
# --------------------------------------------------------------------------------------------------------------------


def _rows_outlive_their_pins() -> Patches:
    return [(MemoryShard, "_drop_placed", lambda _shard, _board, _pin: None)]


def _rows_are_dropped_later(world: World) -> None:
    """The index is written in one transaction, and the row is dropped in another; the process may be killed between."""
    real = FollowStore.index

    def index(**written: Any) -> None:
        if written.get("deletions") and world.rng.random() < 0.3:
            drop = MemoryShard._drop_placed
            try:
                MemoryShard._drop_placed = lambda _shard, _board, _pin: None  # type: ignore[method-assign]
                real(world.store, **written)
            finally:
                MemoryShard._drop_placed = drop  # type: ignore[method-assign]
        else:
            real(world.store, **written)

    world.store.index = index  # type: ignore[method-assign]


BELOW_ZERO: Final = Mutant("below_zero", "a window at the bottom takes numbers below 0", _below_zero)
"""Hardly any seed finds it; `above_zero` does."""
HOLES_FORGET: Final = Mutant(
    "holes_forget", "a page that ends in a hole forgets what was shown", _holes_forget_what_was_shown
)
"""Hardly any seed finds it; `past_a_hole` does."""

FOUND_BY: Final = {
    "top_down_only": 0,
    "planned_once": 0,
    "lines_enter_unseen": 138,
    "moved_by_the_job": 87,
    "topmost_is_a_member": 1,
    "deletion_by_record": 15,
    "asked_apart": 0,
    "same_time_twice": 6,
    "middle_to_the_ceiling": 1,
    "ms_above_the_top": 1,
    "ties_unseen": 179,
    "no_stamps": 5,
    "cursor_is_a_sequence": 87,
    "marks_shown_again": 1,
    "two_statements": 14,
    "rows_outlive_pins": 0,
    "dropped_later": 0,
}
"""A seed that found each (`python -m tests.simulation.board_search --all`); it may have ceased to."""

MUTANTS: Final[dict[str, Mutant]] = {
    each.name: each
    for each in (
        Mutant(
            "top_down_only", "a window is written top down, whatever the direction", _top_down_whatever_the_direction
        ),
        Mutant("planned_once", "a plan is not compared with what is there", _never_compared_again),
        Mutant("lines_enter_unseen", "lines that enter a board do not end its quiet", _lines_enter_unseen),
        Mutant("moved_by_the_job", "re-spacing changes the time of a move", _moved_by_the_job),
        Mutant("topmost_is_a_member", "re-spacing raises the topmost pin", _topmost_is_a_member),
        Mutant(
            "deletion_by_record",
            "a deletion is looked for before the transaction only",
            _deletion_decided_by_the_record_alone,
        ),
        Mutant("asked_apart", "room is asked for in another transaction", tampered=_asked_in_another_transaction),
        Mutant("same_time_twice", "two moves of a pin may have the same time", _time_of_a_move_may_repeat),
        Mutant("middle_to_the_ceiling", "the top is the middle to the ceiling", _middle_to_the_ceiling),
        Mutant("ms_above_the_top", "the top is some ms above the topmost pin", _a_millisecond_above_the_top),
        Mutant("ties_unseen", "a reading does not tell apart pins with one number", _no_second_look_at_ties),
        Mutant("no_stamps", "a cursor does not know when its pins were moved", _cursor_without_stamps),
        Mutant("cursor_is_a_sequence", "a cursor is a number", _cursor_is_a_sequence),
        Mutant("marks_shown_again", "a page shows marked pins again", _marks_are_shown_again),
        Mutant("two_statements", "a page is two statements", tampered=_two_statements_a_page),
        Mutant("rows_outlive_pins", "a deletion leaves the row of its pin", _rows_outlive_their_pins),
        Mutant(
            "dropped_later",
            "the row of a deleted pin is dropped in another transaction",
            tampered=_rows_are_dropped_later,
        ),
    )
}
