"""The calls of a web tier about boards in their own order. `services.open_boards` makes one from a `feed.toml`.

What may be raised, sorted by what the caller should do:
- `InvalidValueError`, `MalformedCursorError` (both ValueError): the request is wrong; it will never be right.
- `ReorderRefusedError`: the pins are not where the request says; its `reason` is a stable word.
- `BoardCrowdedError`: repeat it in a second.
- `FollowStoreUnavailableError`: not now. A pin may have been moved or not; repeating the call is harmless.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from feedstore.boards import cursors, metrics
from feedstore.boards.port import (
    FROM_BOTTOM,
    BoardCrowdedError,
    BoardPin,
    Move,
    Place,
    Placed,
    ReorderRefusedError,
)
from feedstore.boards.sequences import SPACING, Spot
from feedstore.boards.store import Boards
from feedstore.domain import InvalidValueError
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.metering import UNCOUNTED, Meter

RESETS_MAX: Final = 16
"""The most transactions that one call of `reset` makes."""


class BoardPins(NamedTuple):
    """A part of a board, from the top down. cursor: of the page below it; None at the end. above: the cursor of the
    page above it; None at the top. A short page, even an empty one, does not mean the end.
    """

    pins: list[BoardPin]
    cursor: str | None
    above: str | None


class BoardService:
    """Thread-safe. clock: in s, to measure how long a reorder takes. meter: counts reorders."""

    def __init__(self, boards: Boards, clock: Callable[[], float], meter: Meter = UNCOUNTED) -> None:
        self._boards = boards
        self._clock = clock
        self._meter = meter
        # From the beginning: the first of a kind is an increase, too.
        [outcomes] = metrics.REORDERS.labels
        for outcome in outcomes.values:
            meter.add(metrics.REORDERS, 0, outcome)
        for histogram in (metrics.REORDER_SECONDS, metrics.ROOM):
            meter.observe(histogram, [])

    def reorder_board_pin(
        self,
        board: int,
        pin: int,
        before: int | None = None,
        after: int | None = None,
        to: Literal["top", "bottom"] | None = None,
    ) -> Placed:
        """Puts a pin between two others of its board: directly below `before` and directly above `after`, of which one
        is enough; or `to` the top or the bottom. Every other pin keeps its place. Durable when it returns.

        If the pin is there already, nothing changes, so a call may be repeated.

        Raises InvalidValueError, ReorderRefusedError, BoardCrowdedError, FollowStoreUnavailableError.
        """
        move = Move(board, pin, before, after, to)
        began_s = self._clock()
        try:
            placed = self._boards.reorder(move)
        except ReorderRefusedError as error:
            self._meter.add(metrics.REORDERS, 1, error.reason)
            raise
        except BoardCrowdedError:
            self._meter.add(metrics.REORDERS, 1, "crowded")
            raise
        except FollowStoreUnavailableError:
            self._meter.add(metrics.REORDERS, 1, "unavailable")
            raise
        self._meter.add(metrics.REORDERS, 1, "moved" if placed.changed else "unchanged")
        self._meter.observe(metrics.REORDER_SECONDS, [self._clock() - began_s])
        if placed.changed:
            self._meter.observe(metrics.ROOM, [placed.room])
        return placed

    def page(
        self,
        board: int,
        limit: int = 25,
        cursor: str | None = None,
        start: int | Literal["top", "bottom"] = "top",
    ) -> BoardPins:
        """Up to `limit` (1..MAX_PAGE) pins of a board in its order. `start` says where: the first ones, the last ones,
        or those at or below a sequence. With a cursor, the page continues another one instead.

        A walk shows each pin that is not moved meanwhile exactly once. A board without pins is an empty page.

        Raises InvalidValueError, MalformedCursorError, FollowStoreUnavailableError.
        """
        place = _place(start) if cursor is None else cursors.decode(board, cursor)
        page = self._boards.page(board, limit, place)
        return BoardPins(page.pins, *cursors.around(board, page))

    def reset(self, board: int) -> bool:
        """Brings a board back into the order of time: forgets the places of at most RESETS_MAX x MAX_ROWS pins. True if
        nothing is left to do; otherwise call it again.

        Raises InvalidValueError, FollowStoreUnavailableError.
        """
        return any(self._boards.reset(board) for _ in range(RESETS_MAX))


def _place(start: int | Literal["top", "bottom"]) -> Place | None:
    match start:
        case "top":
            return None
        case "bottom":
            return FROM_BOTTOM
        case int() if 0 <= start < SPACING.ceiling:
            return Place(Spot(start, 0))
        case _:
            raise InvalidValueError("start", start, "top, bottom, or a sequence of up to 38 digits")
