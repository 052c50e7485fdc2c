"""The changes of reorders and re-spacing: rows in, rows out. The only state is what `BoardRows` reads in a transaction.

**Re-spacing** spreads a window of neighbouring pins evenly. The window begins as the two pins at the narrowest gap, and
is doubled until an even spacing gives the wanted room. Its bounds are the sequences just outside. The topmost pin of
the board is always a bound: if it were raised, it would be above pins that are saved later. At the lower end of the
board the window takes the room it needs below the last pin, but not below 0.

A window may need more rows than one transaction writes. Then the pins that rise are written first, from the top down,
and then the pins that fall, from the bottom up. The order never changes: a rising pin stays below its upper neighbour,
which already is at its target or above it; for a falling pin it is the reverse. The board may have changed since the
window was planned, so each write is checked against the neighbour that is there now.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from feedstore.boards.port import MAX_BETWEEN, BoardPin, Move, Placed, ReorderRefusedError, RoomSpread
from feedstore.boards.sequences import Spacing, Spot, between, room
from feedstore.domain import RespaceAsked
from feedstore.follows.arranging import Arranged, BoardRows, LineKey, PinAt, PlacedRow, Run, Start, Way

FIRST_LOOK: Final = 16
LOOK_MAX: Final = 16_384
"""The most lines that one statement looks at. The first look takes fewer: the next pin is mostly among them."""

AROUND: Final = 128
"""The most pins above a gap, and below it, that a reorder may move to make room."""

NEARBY: Final = 8
"""How many pins above and below a pin re-spacing looks at for a narrow gap."""

MODEST: Final = 2
"""How much room beyond the threshold is enough for a window if no larger window may be used."""

SPARED: Final = 24
"""Directly below the topmost pin, where most drops are, re-spacing can make room on one side only. If the gap there has
fewer than this many bits beyond what re-spacing gives, a pin is put at its lower end, not at its middle: millions fit.
"""

_encoder: Final = msgspec.json.Encoder()

Read = Callable[[Way, Start, int, int], Run]
"""Reads the next pins from a start: (way, start, limit, look)."""


# Reading
# --------------------------------------------------------------------------------------------------------------------


def merged(spacing: Spacing, way: Way, run: Run, limit: int) -> tuple[list[BoardPin], Spot | None]:
    """The pins of a reading in order, and the place up to which it is complete; None: to the end of the board."""

    def order(spot: Spot) -> tuple[int, int]:
        ahead, pin = spot.order()
        return (ahead, pin) if way == "down" else (-ahead, -pin)

    pins = [BoardPin(pin, created_ms, sequence, moved_ms) for pin, sequence, _, created_ms, moved_ms in run.placed]
    pins += [BoardPin(pin, created_ms, spacing.virtual(created_ms, pin), 0) for created_ms, pin in run.lines]
    known: list[Spot] = []
    if len(run.placed) >= limit:
        known.append(Spot(run.placed[-1].sequence, run.placed[-1].pin))
    if run.looked_to is not None or len(run.lines) >= limit:
        created_ms, pin = run.looked_to or run.lines[-1]
        known.append(Spot(spacing.virtual(created_ms, pin), pin))
    pins.sort(key=lambda pin: order(pin.spot))
    if not known:
        return pins, None
    end = min(known, key=order)
    return [pin for pin in pins if order(pin.spot) <= order(end)], end


def following(
    spacing: Spacing, read: Read, way: Way, spot: Spot, count: int, seen: Spot | None = None
) -> list[BoardPin]:
    """The next `count` pins below a place, or above it; fewer if the board ends.

    seen: a place further on. All pins between the two places are known to be placed ones.
    """
    found: list[BoardPin] = []
    end: Spot | None = spot
    look = FIRST_LOOK
    while end is not None and len(found) < count:
        limit = count - len(found)
        start = start_of(spacing, way, end, seen)
        pins, end = merged(spacing, way, read(way, start, limit, max(look, limit)), limit)
        found += pins
        look = min(16 * look, LOOK_MAX)
    return found[:count]


def start_of(spacing: Spacing, way: Way, spot: Spot, seen: Spot | None) -> Start:
    """Where a reading from a place begins. seen: a place further on, up to which all pins are known to be placed."""
    start = spacing.start(way, spot)
    if seen is None or not is_further(way, seen, spot):
        return start
    further = spacing.start(way, seen)
    return start._replace(created_ms=further.created_ms, line=further.line)


def is_further(way: Way, one: Spot, other: Spot) -> bool:
    """Whether a place comes after another one in the direction of a reading."""
    return other.order() < one.order() if way == "down" else one.order() < other.order()


# Reorders
# --------------------------------------------------------------------------------------------------------------------


class Crowded(NamedTuple):
    """The answer if there is no room at this pin until it is re-spaced."""

    pin: int


Answer = Placed | ReorderRefusedError | Crowded


class _Gap(NamedTuple):
    """Where the pin goes: below `upper`, above `lower`; None at an end of the board."""

    upper: BoardPin | None
    lower: BoardPin | None


def reorder(
    spacing: Spacing, move: Move, keys: Sequence[LineKey], now_ms: int, rows: BoardRows
) -> tuple[Arranged | None, Answer]:
    """Decides a reorder: what to write, and the answer. keys: the lines of `move.pins()`, all of which exist."""
    at = rows.pins(keys)
    for pin in move.pins():
        if pin not in at or not at[pin].alive:
            return None, ReorderRefusedError("pin_deleted", f"pin {pin} was deleted", pin)
    moved = board_pin(spacing, at[move.pin])
    gap = _gap(spacing, move, at, rows)
    if isinstance(gap, ReorderRefusedError):
        return None, gap
    if gap is None:
        return Arranged(), Placed(
            move.board, move.pin, moved.sequence, moved.moved_ms, False, _room_at(spacing, rows, moved)
        )
    written: dict[int, PlacedRow] = {}
    sequence = _sequence(spacing, gap, now_ms, rows)
    if sequence is None:
        gap, written = _with_room(spacing, gap, moved, rows)
        sequence = _sequence(spacing, gap, now_ms, rows)
    if sequence is None:
        near = gap.lower or gap.upper
        assert near is not None
        return Arranged(outbox=[asked(move.board, near.pin, now_ms)]), Crowded(near.pin)
    placed = spacing.row(move.pin, sequence, moved.created_ms, max(now_ms, moved.moved_ms + 1))
    left = room(min(_gaps(gap, sequence)))
    return (
        Arranged(
            placed=[*written.values(), placed],
            outbox=[asked(move.board, move.pin, now_ms)] if left < spacing.threshold else [],
        ),
        Placed(move.board, move.pin, sequence, placed.moved_ms, True, left),
    )


def asked(board: int, pin: int, now_ms: int) -> bytes:
    """The encoded request for re-spacing around a pin."""
    return _encoder.encode(RespaceAsked(board, pin, now_ms))


def board_pin(spacing: Spacing, at: PinAt) -> BoardPin:
    sequence = spacing.virtual(at.created_ms, at.pin) if at.sequence is None else at.sequence
    return BoardPin(at.pin, at.created_ms, sequence, at.moved_ms)


def _gap(spacing: Spacing, move: Move, at: dict[int, PinAt], rows: BoardRows) -> _Gap | ReorderRefusedError | None:
    """Where the pin goes; None if it is there already."""
    known = {neighbour: board_pin(spacing, at[neighbour]) for neighbour in move.pins()[1:]}
    if move.before is not None and move.after is not None:
        return _between_both(spacing, move.pin, known[move.before], known[move.after], rows)
    # The gap is next to the neighbour that is named, or to an end of the board.
    [near] = known.values() or [None]
    way: Way = "down" if move.before is not None or move.to == "top" else "up"
    end = spacing.top if way == "down" else spacing.bottom
    pins = following(spacing, rows.run, way, end if near is None else near.spot, 1)
    far = pins[0] if pins else None
    if far is not None and far.pin == move.pin:
        return None
    return _Gap(near, far) if way == "down" else _Gap(far, near)


def _between_both(
    spacing: Spacing, pin: int, upper: BoardPin, lower: BoardPin, rows: BoardRows
) -> _Gap | ReorderRefusedError | None:
    if upper.spot.order() > lower.spot.order():
        inside = _between(spacing, pin, lower, upper, rows)
        message = f"pin {upper.pin} is below pin {lower.pin}, so it cannot be `before`"
        return ReorderRefusedError("neighbours_reversed", message, None, inside)
    pins = following(spacing, rows.run, "down", upper.spot, 2)
    others = [each.pin for each in pins if each.pin != pin]
    if others[:1] != [lower.pin]:
        inside = _between(spacing, pin, upper, lower, rows)
        listed = ", ".join([*map(str, inside), *(["..."] if len(inside) == MAX_BETWEEN else [])])
        message = f"between pins {upper.pin} and {lower.pin} there are other pins: {listed}"
        return ReorderRefusedError("neighbours_apart", message, None, inside)
    return None if pins[0].pin == pin else _Gap(upper, lower)


def _between(spacing: Spacing, pin: int, upper: BoardPin, lower: BoardPin, rows: BoardRows) -> tuple[int, ...]:
    pins = following(spacing, rows.run, "down", upper.spot, MAX_BETWEEN + 1)
    inside = [each.pin for each in pins if each.spot.order() < lower.spot.order() and each.pin != pin]
    return tuple(inside[:MAX_BETWEEN])


def _sequence(spacing: Spacing, gap: _Gap, now_ms: int, rows: BoardRows) -> int | None:
    match gap:
        case (None, BoardPin() as lower):
            return spacing.above_all(now_ms, lower.sequence)
        case (BoardPin() as upper, None):
            return spacing.below_all(upper.sequence)
        case (BoardPin() as upper, BoardPin() as lower):
            left = room(upper.sequence - lower.sequence)
            is_narrow = spacing.restored < left < spacing.restored + SPARED
            if is_narrow and not following(spacing, rows.run, "up", upper.spot, 1):  # `upper` is the topmost pin
                return lower.sequence + spacing.lift
            return between(upper.sequence, lower.sequence)
        case _:
            raise AssertionError("a pin that is alone on its board is where it is to be")


def _gaps(gap: _Gap, sequence: int) -> list[int]:
    """The widths of the new gaps above and below a pin at `sequence`. An end of the board has no gap to keep wide."""
    above = [] if gap.upper is None else [gap.upper.sequence - sequence]
    return above if gap.lower is None else [*above, sequence - gap.lower.sequence]


def _room_at(spacing: Spacing, rows: BoardRows, pin: BoardPin) -> int:
    above = following(spacing, rows.run, "up", pin.spot, 1)
    below = following(spacing, rows.run, "down", pin.spot, 1)
    gaps = [each.sequence - pin.sequence for each in above] + [pin.sequence - each.sequence for each in below]
    return room(min(gaps, default=spacing.ceiling))


def _beyond(spacing: Spacing, rows: BoardRows, way: Way, pin: BoardPin | None) -> tuple[list[BoardPin], bool]:
    """A pin next to a gap, and those beyond it; and whether the board ends there. None: it ends at the gap."""
    if pin is None:
        return [], True
    found = following(spacing, rows.run, way, pin.spot, AROUND)
    return [pin, *found], len(found) < AROUND


def _with_room(spacing: Spacing, gap: _Gap, moved: BoardPin, rows: BoardRows) -> tuple[_Gap, dict[int, PlacedRow]]:
    """Moves the neighbours of a gap apart for a drop. Returns the wider gap and the new rows of the neighbours; if
    there is no room to move them, the gap as it was.
    """
    above, is_top = _beyond(spacing, rows, "up", gap.upper)
    below, is_bottom = _beyond(spacing, rows, "down", gap.lower)
    pins = [pin for pin in [*reversed(above), *below] if pin.pin != moved.pin]
    upper = -1 if gap.upper is None else pins.index(gap.upper)
    window = spread_evenly(spacing, [pin.sequence for pin in pins], upper, is_top=is_top, is_bottom=is_bottom)
    if window is None or not alive(spacing, rows, pins[window.first : window.first + len(window.targets)]):
        return gap, {}
    written: dict[int, PlacedRow] = {}
    for number, target in enumerate(window.targets, window.first):
        pin = pins[number]
        if target != pin.sequence:
            written[pin.pin] = spacing.row(pin.pin, target, pin.created_ms, pin.moved_ms)
            pins[number] = pin._replace(sequence=target)
    now = {pin.pin: pin for pin in pins}
    return _Gap(gap.upper and now[gap.upper.pin], gap.lower and now[gap.lower.pin]), written


def alive(spacing: Spacing, rows: BoardRows, pins: Sequence[BoardPin]) -> bool:
    """Whether these pins are alive and still where they were read. If so, they stay so until the transaction ends: if
    one were deleted meanwhile, its new row would never be removed.
    """
    at = rows.pins([LineKey(pin.created_ms, pin.pin) for pin in pins])
    return all(pin.pin in at and at[pin.pin].alive and board_pin(spacing, at[pin.pin]) == pin for pin in pins)


def dead(rows: BoardRows, keys: Sequence[LineKey]) -> list[int]:
    """The ids of the pins without a living line, whose rows are to be dropped."""
    at = rows.pins(keys)
    return [key.pin for key in keys if key.pin not in at or not at[key.pin].alive]


# Windows
# --------------------------------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """Neighbouring pins to be spaced evenly. first: the index of the first one among the pins that were looked at.
    content: whether they get all the wanted room.
    """

    first: int
    above: int
    below: int
    targets: list[int]
    content: bool


def target(above: int, below: int, members: int, number: int) -> int:
    """The new sequence of a pin in a window. number: the pin's, from 1 at the top. members: how many pins it has."""
    return above - number * (above - below) // (members + 1)


def spread_evenly(
    spacing: Spacing, sequences: Sequence[int], upper: int, *, is_top: bool, is_bottom: bool
) -> Window | None:
    """The smallest window around a gap that gives the wanted room; else the smallest one that gives a modest room; else
    the largest one. None if no window would widen the gap.

    sequences: of neighbouring pins, descending. upper: the index of the pin above the gap; -1: the gap is above all of
    them. is_top, is_bottom: whether the first is the topmost of the board, and the last the lowest.
    """
    # The topmost pin is a bound: if it were raised, it would be above pins that are saved later. If the gap is above
    # it, the pin may only be lowered.
    least = 1 if not is_top or upper >= 0 else 0
    most = len(sequences) - 1 if is_bottom else len(sequences) - 2
    first, last = max(least, upper), min(most, upper + 1)
    narrow = (sequences[upper] if upper >= 0 else spacing.ceiling) - (
        sequences[upper + 1] if upper + 1 < len(sequences) else 0
    )
    modest: Window | None = None
    best: Window | None = None
    while first <= last:
        members = last - first + 1
        above = sequences[first - 1] if first > 0 else spacing.ceiling
        below = sequences[last + 1] if last + 1 < len(sequences) else _floor(spacing, sequences[last], above, members)
        width = (above - below) // (members + 1)
        if width > narrow:
            content = room(width) >= spacing.restored
            targets = [target(above, below, members, number) for number in range(1, members + 1)]
            best = Window(first, above, below, targets, content)
            if content:
                return best
            if modest is None and room(width) >= spacing.threshold + MODEST:
                modest = best
        if first == least and last == most:
            break
        up = min((members + 1) // 2, first - least)
        down = min(members - up, most - last)
        up = min(members - down, first - least)
        first, last = first - up, last + down
    return modest or best


def _floor(spacing: Spacing, lowest: int, above: int, members: int) -> int:
    """The lower bound of a window that has no pin below it: as low as the window needs, but not below 0."""
    return max(0, min(lowest - 1, above - (members + 1) * spacing.lift))


# Re-spacing in several transactions
# --------------------------------------------------------------------------------------------------------------------


def narrowest(spacing: Spacing, pins: Sequence[BoardPin]) -> int | None:
    """The index of the pin above the narrowest gap, if that has less room than the threshold."""
    gaps = [upper.sequence - lower.sequence for upper, lower in itertools.pairwise(pins)]
    if not gaps or room(min(gaps)) >= spacing.threshold:
        return None
    return gaps.index(min(gaps))


def begin(spacing: Spacing, window: Window, pins: Sequence[BoardPin]) -> RoomSpread | None:
    """Plans re-spacing a window of these pins. Each pass begins at the first pin that moves. None if no pin moves."""
    members = len(window.targets)
    inside = pins[window.first : window.first + members]
    rising = [number for number, to in enumerate(window.targets) if to > inside[number].sequence]
    falling = [number for number, to in enumerate(window.targets) if to < inside[number].sequence]
    if not rising and not falling:
        return None
    skipped = members - 1 - falling[-1] if falling else members
    below = window.first + members - skipped
    lower = pins[below].spot if below < len(pins) else spacing.bottom
    first = rising[0] if rising else 0
    return RoomSpread(
        above=window.above,
        below=window.below,
        members=members,
        at=pins[window.first + first - 1].spot if rising else lower,
        passed=first if rising else skipped,
        lower=lower,
        skipped=skipped,
        falling=not rising,
    )


def spread(
    spacing: Spacing, going: RoomSpread, limit: int, rows: BoardRows
) -> tuple[Arranged | None, tuple[int, RoomSpread | None]]:
    """One transaction of re-spacing a window: decides what to write of up to `limit` pins. Also returns how many rows
    that is, and how to continue; None if the window is done, or is no longer as it was planned.
    """
    way: Way = "up" if going.falling else "down"
    # The lines of all pins that this re-spacing has moved lie between the last of them and the next pin, and reading
    # each costs time. `seen` skips them.
    quiet = rows.quiet() if going.members > limit else None
    seen = going.seen if quiet is not None and quiet == going.quiet else None
    pins = following(spacing, rows.run, way, going.at, limit, seen)
    going = going._replace(quiet=quiet)
    chosen, then = _falls(going, pins, rows, spacing) if going.falling else _rises(going, pins, rows, spacing)
    if not alive(spacing, rows, [pin for pin, _ in chosen]):
        # A row outlives its pin only if the store was damaged. Such a row would block the window for good, so it is
        # dropped.
        gone = dead(rows, [LineKey(pin.created_ms, pin.pin) for pin, _ in chosen])
        return Arranged(dropped=gone) if gone else None, (len(gone), None)
    return Arranged(placed=_rows(spacing, chosen)), (len(chosen), then)


_Chosen = list[tuple[BoardPin, int]]


def _rises(
    going: RoomSpread, pins: Sequence[BoardPin], rows: BoardRows, spacing: Spacing
) -> tuple[_Chosen, RoomSpread | None]:
    """The pins that go up, from the top down."""
    fall = going._replace(at=going.lower, passed=going.skipped, falling=True, seen=None)
    if not pins:
        return [], fall
    bound = _next_to(going.at, "down", pins[0], rows, spacing)
    if bound is None:
        return [], None  # the pin is the topmost of the board now
    chosen: _Chosen = []
    for passed, pin in enumerate(pins, going.passed + 1):
        if passed > going.members or pin.sequence <= going.below:
            return chosen, fall
        to = target(going.above, going.below, going.members, passed)
        if to > pin.sequence:
            if to >= bound:
                return chosen, None  # a pin was moved into the window
            chosen.append((pin, to))
        bound = max(pin.sequence, to)
    return chosen, _further(going, pins, chosen)


def _falls(
    going: RoomSpread, pins: Sequence[BoardPin], rows: BoardRows, spacing: Spacing
) -> tuple[_Chosen, RoomSpread | None]:
    """The pins that go down, from the bottom up."""
    if not pins:
        return [], None
    bound = _next_to(going.at, "up", pins[0], rows, spacing) or 0
    chosen: _Chosen = []
    for passed, pin in enumerate(pins, going.passed + 1):
        # A pin that is saved with a time in the past may have the number of the bound: then it is the window's first.
        tie = pin.sequence == going.above and passed < going.members
        if passed > going.members or pin.sequence > going.above or tie:
            return chosen, None
        to = target(going.above, going.below, going.members, going.members + 1 - passed)
        if to < pin.sequence:
            if to <= bound:
                return chosen, None
            chosen.append((pin, to))
        bound = min(pin.sequence, to)
    return chosen, _further(going, pins, chosen)


def _next_to(at: Spot, way: Way, pin: BoardPin, rows: BoardRows, spacing: Spacing) -> int | None:
    """The sequence of the pin directly before `pin`, which is the first pin read from `at`; None at the end of the
    board.

    Mostly it is the pin at `at`, which one read by key finds. Otherwise it is searched for, past the lines of all pins
    that were moved away.
    """
    if 0 < at.pin < spacing.last_id:  # not an end of the board
        start = spacing.start(way, at)
        there = rows.run(way, start._replace(pin=at.pin - 1 if way == "down" else at.pin + 1), 1, 1)
        if [(row.sequence, row.pin) for row in there.placed] == [(at.sequence, at.pin)]:
            return at.sequence
    found = following(spacing, rows.run, "up" if way == "down" else "down", pin.spot, 1)
    return found[0].sequence if found else None


def _further(going: RoomSpread, pins: Sequence[BoardPin], chosen: _Chosen) -> RoomSpread:
    last = pins[-1]
    # Where this transaction puts the pin that was looked at last.
    at = Spot(chosen[-1][1], last.pin) if chosen and chosen[-1][0] == last else last.spot
    return going._replace(at=at, passed=going.passed + len(pins), seen=last.spot)


def _rows(spacing: Spacing, chosen: Iterable[tuple[BoardPin, int]]) -> list[PlacedRow]:
    return [spacing.row(pin.pin, sequence, pin.created_ms, pin.moved_ms) for pin, sequence in chosen]
