"""Boards in their own order: the decisions of `ordering`, carried out in transactions of the follow store.

A board shows its pins by descending sequence. People move single pins; every other pin keeps its place among the rest.
Moving a pin writes one row, whatever the board's size and the distance. `tests/follows` runs the contract on SQLite and
MySQL, with one shard and with three.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Final

from feedstore.boards import ordering
from feedstore.boards.ordering import Answer, Crowded
from feedstore.boards.port import (
    MAX_MARKS,
    MAX_PAGE,
    MAX_ROWS,
    BoardCrowdedError,
    BoardFindings,
    BoardPage,
    BoardPin,
    CheckedTo,
    Mark,
    Move,
    Place,
    Placed,
    ReorderRefusedError,
    Respaced,
    RoomSpread,
)
from feedstore.boards.sequences import SPACING, Spacing, Spot, room
from feedstore.domain import InvalidValueError, RespaceAsked, check_id
from feedstore.follows.arranging import Arranged, BoardRows, LineKey, PinAt, PlacedRow, Run, Start, Way
from feedstore.follows.port import PinState
from feedstore.follows.store import FollowStore

WINDOW_HALF: Final = 65_536
"""The most pins above a gap, and below it, that a window of re-spacing may have. If that is not enough, as in a run of
that many pins of one ms, the window gets less room.
"""

_FIRST_HALF: Final = 64
_ANCHOR_TRIES: Final = 8
LOOK: Final = 100


class Boards:
    """The boards of a follow store. Thread-safe. Every method raises FollowStoreUnavailableError: repeat the whole call
    later; repeating is harmless, even if the outcome of the first call is unknown.

    spacing, look: only tests change the defaults. look: how many lines a page looks at, in addition to two for each
    pin. If there are more lines of moved pins than that, the page is short.
    """

    def __init__(self, follows: FollowStore, spacing: Spacing = SPACING, look: int = LOOK) -> None:
        self._follows = follows
        self._spacing = spacing
        self._look = look

    # Reorders
    # ------------------------------------------------------------------------------------------------------------

    def reorder(self, move: Move) -> Placed:
        """Puts a pin at a place of its board; every other pin keeps its place among the others. Durable when it
        returns.

        The reorders of one board take effect one after the other. If the pin is there already, nothing changes. A pin
        that is moved to the top counts as saved now: pins that are saved later are above it.

        Raises ReorderRefusedError, BoardCrowdedError: nothing was moved.
        """
        # Pins never change, except that they are deleted: the transaction checks that.
        states = self.pins(move.board, move.pins())
        keys = [LineKey(state.pin.created_ms, state.pin.pin) for state in states]

        def decide(now_ms: int, rows: BoardRows) -> tuple[Arranged | None, Answer]:
            return ordering.reorder(self._spacing, move, keys, now_ms, rows)

        answer = self._follows.arrange(move.board, states, decide)
        if isinstance(answer, ReorderRefusedError):
            raise answer
        if isinstance(answer, Crowded):
            raise BoardCrowdedError(f"there is no room next to pin {answer.pin} yet: try again in a second")
        return answer

    def pins(self, board: int, pins: Sequence[int]) -> list[PinState]:
        """The records of pins of a board, in the given order. Raises ReorderRefusedError if one is not there."""
        found = self._follows.pins(pins)
        for pin in pins:
            state = found.get(pin)
            if state is None:
                raise ReorderRefusedError("pin_unknown", f"pin {pin} was never saved", pin)
            if state.deleted_ms is not None:
                raise ReorderRefusedError("pin_deleted", f"pin {pin} was deleted", pin)
            if state.pin.board != board:
                raise ReorderRefusedError("pin_elsewhere", f"pin {pin} is on board {state.pin.board}", pin)
        return [found[pin] for pin in pins]

    # Pages
    # ------------------------------------------------------------------------------------------------------------

    def page(self, board: int, limit: int, after: Place | None) -> BoardPage:
        """A part of a board: up to `limit` (1..MAX_PAGE) pins from a place (None: from the top, down), as they are at
        one moment. The cost does not depend on the size of the board or on the place.

        A walk, down or up, shows each pin that is not moved meanwhile exactly once. A board without pins is an empty
        page.

        Raises InvalidValueError.
        """
        after = after or Place(self._spacing.top)
        # One pin more than the page shows whether the board ends there.
        most = limit + len(after.marks) + 1
        run = self._read(board, limit, most, after)
        pins, end = ordering.merged(self._spacing, after.way, run, most)
        shown = _not_marked(pins, after)
        if len(shown) > limit:
            shown, end = shown[:limit], shown[limit - 1].spot
        onward, back = self._onward(after, shown, end), self._back(after, shown, end)
        if after.way == "down":
            return BoardPage(shown, onward, back)
        return BoardPage(shown[::-1], back, onward)

    def _onward(self, after: Place, shown: Sequence[BoardPin], end: Spot | None) -> Place | None:
        """Where the next page of a walk begins. shown: in the direction of the walk. end: as `ordering.merged`."""
        if end is None:
            return None
        spot = shown[-1].spot if shown else after.spot
        marks = (*after.marks, *map(_mark, shown[-MAX_MARKS:]))[-MAX_MARKS:]
        # If all lines that were looked at are of moved pins, `end` may be far from the last pin shown. Re-spacing may
        # move pins across `end`, but never across a pin. So placed pins are read from the last pin shown, and other
        # lines from `end`.
        seen = end if after.seen is None or ordering.is_further(after.way, end, after.seen) else after.seen
        return Place(spot, marks, after.way, seen if ordering.is_further(after.way, seen, spot) else None)

    def _back(self, after: Place, shown: Sequence[BoardPin], end: Spot | None) -> Place | None:
        """Where a page in the other direction begins, from the first pin of this one."""
        top, bottom = self._spacing.top, self._spacing.bottom
        way: Way = "up" if after.way == "down" else "down"
        near, far = (top, bottom) if after.way == "down" else (bottom, top)
        if after.spot == near:
            return None
        if not shown:
            return Place(end or far, (), way)
        return Place(shown[0].spot, tuple(map(_mark, shown[MAX_MARKS - 1 :: -1])), way)

    def _read(self, board: int, limit: int, most: int, after: Place) -> Run:
        """The rows of pins from a place on. One statement reads the rows and where the marked pins are now; if these
        show another place, the rows are read again from there. limit: the size of the page. most: how many rows to
        read, including those of marked pins.
        """
        check_id("board", board)
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidValueError("limit", limit, f"1 to {MAX_PAGE} pins")
        keys = [LineKey(mark.created_ms, mark.pin) for mark in after.marks]
        spot, tries = after.spot, 0
        while True:
            tries += 1
            start = ordering.start_of(self._spacing, after.way, spot, after.seen)
            run = self._follows.board_run(board, after.way, start, most, 2 * limit + self._look, keys)
            anchor = self._anchor(after, run.marked)
            if anchor == spot or tries == _ANCHOR_TRIES:
                return run
            spot = anchor

    def _anchor(self, after: Place, marked: Sequence[PinAt]) -> Spot:
        """Where a page begins, given where the marked pins are now."""
        at = {pin.pin: pin for pin in marked if pin.alive}
        for mark in reversed(after.marks):
            found = at.get(mark.pin)
            if found is not None and found.moved_ms == mark.moved_ms:
                return ordering.board_pin(self._spacing, found).spot
        return after.spot

    def next_arranged(self, after: int) -> int | None:
        """The smallest id larger than `after` of a board with placed pins; None if there are no more. 0: the first."""
        return self._follows.next_arranged_board(after)

    def check(self, board: int, after: CheckedTo | None, limit: int = MAX_PAGE) -> BoardFindings:
        """Looks at a part of a board, as `page` does, and returns what is wrong with it. Changes nothing. after: of the
        part before it; None: from the top.

        Raises InvalidValueError.
        """
        after = after or CheckedTo(self._spacing.top, None)
        run = self._read(board, limit, limit, Place(after.spot))
        found, end = ordering.merged(self._spacing, "down", run, limit)
        dead = self._dead(board, run.placed)
        gone = {key.pin for key in dead}
        pins = [pin.spot for pin in found if pin.pin not in gone]
        neighbours = pins if after.above is None else [after.above, *pins]
        pairs = list(itertools.pairwise(neighbours))
        return BoardFindings(
            pins=len(pins),
            narrow=[
                lower.pin for upper, lower in pairs if room(upper.sequence - lower.sequence) < self._spacing.threshold
            ],
            ties=[(upper.pin, lower.pin) for upper, lower in pairs if upper.sequence == lower.sequence],
            dead=dead,
            after=None if end is None else CheckedTo(end, neighbours[-1] if neighbours else None),
        )

    def _dead(self, board: int, placed: Sequence[PlacedRow]) -> list[LineKey]:
        keys = [LineKey(row.created_ms, row.pin) for row in placed]
        at = {pin.pin: pin for pin in self._follows.board_pins(board, keys)}
        # A pin without a place was deleted since the rows were read, and its row was dropped with its line.
        gone = {pin.pin for pin in at.values() if not pin.alive and pin.sequence is not None}
        return [key for key in keys if key.pin not in at or key.pin in gone]

    def drop_dead(self, board: int, dead: Sequence[LineKey]) -> int:
        """Drops the places of those given pins (at most MAX_PAGE) that have no living line, and returns how many these
        are. A place is normally dropped along with its pin, so there are such places only if the store was damaged.
        """
        if len(dead) > MAX_PAGE:
            raise InvalidValueError("dead", len(dead), f"at most {MAX_PAGE} pins")

        def drop(_: int, rows: BoardRows) -> tuple[Arranged, int]:
            gone = ordering.dead(rows, dead)
            return Arranged(dropped=gone), len(gone)

        return self._follows.arrange(board, (), drop)

    # Re-spacing
    # ------------------------------------------------------------------------------------------------------------

    def respace(self, asked: RespaceAsked, rows: int = MAX_ROWS, going: RoomSpread | None = None) -> Respaced:
        """Makes room around a pin, one step at a time: at most one transaction, which writes at most `rows`
        (1..MAX_ROWS) rows. Repeat the call with the `going` that it returned until it is done. Only then, or after
        `ask_respace`, does the change survive a failure of the machine.

        No order changes, at any moment. The topmost pin is never raised. No gap becomes narrower than both its old
        width and the even width of the window.
        """
        _check_rows(rows)
        going = going or self._plan(asked)
        if going is None:
            return Respaced(True, 0, 0, None)
        step = partial(ordering.spread, self._spacing, going, rows)
        written, then = self._follows.arrange(asked.board, (), lambda _, board_rows: step(board_rows), synced=False)
        if then is None:
            # The caller will be told that it is done, so it must survive a failure of the machine.
            self._follows.sync_arranged(asked.board)
        return Respaced(False, written, going.members, then)

    def _plan(self, asked: RespaceAsked) -> RoomSpread | None:
        """Plans a window around the narrowest gap near a pin; None if no gap is narrow, or the pin is gone. The pins
        are read without locks, in several statements: each write checks them again.
        """
        state = self._follows.pins([asked.pin]).get(asked.pin)
        if state is None or state.deleted_ms is not None or state.pin.board != asked.board:
            return None
        found = self._follows.board_pins(asked.board, [LineKey(state.pin.created_ms, asked.pin)])
        if not found or not found[0].alive:
            return None
        pin = ordering.board_pin(self._spacing, found[0])
        read = partial(self._run, asked.board)
        above = ordering.following(self._spacing, read, "up", pin.spot, ordering.NEARBY)
        below = ordering.following(self._spacing, read, "down", pin.spot, ordering.NEARBY)
        near = [*reversed(above), pin, *below]
        upper = ordering.narrowest(self._spacing, near)
        return None if upper is None else self._window(asked.board, near[upper], near[upper + 1])

    def _window(self, board: int, upper: BoardPin, lower: BoardPin) -> RoomSpread | None:
        read = partial(self._run, board)
        half = _FIRST_HALF
        while True:
            above = ordering.following(self._spacing, read, "up", upper.spot, half)
            below = ordering.following(self._spacing, read, "down", lower.spot, half)
            pins = [*reversed(above), upper, lower, *below]
            is_top, is_bottom = len(above) < half, len(below) < half
            window = ordering.spread_evenly(
                self._spacing, [pin.sequence for pin in pins], len(above), is_top=is_top, is_bottom=is_bottom
            )
            if (window is not None and window.content) or (is_top and is_bottom) or half >= WINDOW_HALF:
                break
            half = min(4 * half, WINDOW_HALF)
        return None if window is None else ordering.begin(self._spacing, window, pins)

    def _run(self, board: int, way: Way, start: Start, limit: int, look: int) -> Run:
        return self._follows.board_run(board, way, start, limit, look, ())

    def ask_respace(self, board: int, pin: int) -> None:
        """Asks for re-spacing around a pin through the outbox, as a reorder does if a gap becomes narrow."""
        self._follows.arrange(
            board, (), lambda now_ms, _: (Arranged(outbox=[ordering.asked(board, pin, now_ms)]), None)
        )

    def reset(self, board: int, rows: int = MAX_ROWS) -> bool:
        """Brings a board back into the order of time, at most `rows` pins a call; True if nothing is left to do. A walk
        that began before may show a pin twice, or not at all.
        """
        _check_rows(rows)
        top = self._spacing.start("down", self._spacing.top)

        def drop(_: int, board_rows: BoardRows) -> tuple[Arranged, bool]:
            placed = board_rows.run("down", top, rows, 1).placed
            return Arranged(dropped=[row.pin for row in placed]), len(placed) < rows

        return self._follows.arrange(board, (), drop)


def _not_marked(pins: Sequence[BoardPin], after: Place) -> list[BoardPin]:
    """The pins that are not marked as shown."""
    known = {mark.pin for mark in after.marks}
    return [pin for pin in pins if pin.pin not in known]


def _mark(pin: BoardPin) -> Mark:
    return Mark(pin.pin, pin.created_ms, pin.moved_ms)


def _check_rows(rows: int) -> None:
    if not 1 <= rows <= MAX_ROWS:
        raise InvalidValueError("rows", rows, f"1 to {MAX_ROWS} rows")
