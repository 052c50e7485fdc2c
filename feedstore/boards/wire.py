"""Queries, bodies and answers about boards, as they travel."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.boards.port import MAX_PAGE, BoardPin, Placed
from feedstore.domain import InvalidValueError, id_of
from feedstore.http.wire import GivenId, Id
from feedstore.validation import words

CURSOR_CHARS_MAX = 320

Cursor = Annotated[
    str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX, description="The cursor of the page before; opaque")
]
Sequence = Annotated[
    str, Meta(pattern="^[0-9]{1,38}$", description="Up to 38 digits: no number of JSON holds them exactly")
]

_START = "^(top|bottom|[0-9]{1,38})$"
_A_START = "top, bottom, or a sequence of up to 38 digits"
_is_start = re.compile(_START).fullmatch
"""`fullmatch`, because Python's `$` also matches before a newline at the end. The pattern has it because clients read
it.
"""

Start = Annotated[
    str,
    Meta(
        pattern=_START,
        description="The top, the bottom, or a sequence: then the page begins with the pin that is there or next below",
        extra=words(_A_START),
    ),
]


class BoardQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 25
    cursor: Cursor | UnsetType = UNSET
    start: Start | UnsetType = UNSET

    def place(self) -> int | Literal["top", "bottom"]:
        """Where the page begins if there is no cursor. Raises InvalidValueError."""
        if isinstance(self.start, UnsetType):
            return "top"
        if _is_start(self.start) is None:
            raise InvalidValueError("start", self.start, _A_START)
        if not isinstance(self.cursor, UnsetType):
            raise InvalidValueError("start", self.start, "a cursor, or a place to start at, and not both")
        match self.start:
            case "top" | "bottom" as end:
                return end
            case digits:
                return int(digits)


class PlaceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a pin is to go. before: the pin directly above the place. after: the one directly below it. Either is
    enough. to: the very top or bottom, instead of neighbours.
    """

    before: GivenId | UnsetType = UNSET
    after: GivenId | UnsetType = UNSET
    to: Literal["top", "bottom"] | UnsetType = UNSET

    def neighbours(self) -> tuple[int | None, int | None]:
        """`before` and `after`. Raises InvalidValueError."""
        before = None if isinstance(self.before, UnsetType) else id_of("before", self.before)
        after = None if isinstance(self.after, UnsetType) else id_of("after", self.after)
        return before, after


class BoardPinLine(msgspec.Struct, frozen=True, gc=False):
    """A pin of a board. Pins are shown by descending sequence. moved_ms: when it was last moved, null if never."""

    pin: Id
    created_ms: int
    sequence: Sequence
    moved_ms: int | None


class BoardPage(msgspec.Struct, frozen=True):
    """From the top down, whichever way it was read. cursor: of the page below it, null at the end. above: of the page
    above it, null at the top. A short page, even an empty one, is no end.
    """

    board: Id
    pins: list[BoardPinLine]
    cursor: Cursor | None
    above: Cursor | None


class PlacedLine(msgspec.Struct, frozen=True):
    """Where a pin is now. changed: false if it was there already. room: how many more drops the smaller of the gaps
    next to it is sure to take.
    """

    board: Id
    pin: Id
    sequence: Sequence
    moved_ms: int | None
    changed: bool
    room: int


class OrderReset(msgspec.Struct, frozen=True):
    """done: false if the board has more moved pins than one request resets: send it again."""

    board: Id
    done: bool


def line_of_pin(pin: BoardPin) -> BoardPinLine:
    return BoardPinLine(str(pin.pin), pin.created_ms, str(pin.sequence), pin.moved_ms or None)


def line_of_placed(placed: Placed) -> PlacedLine:
    return PlacedLine(
        str(placed.board),
        str(placed.pin),
        str(placed.sequence),
        placed.moved_ms or None,
        placed.changed,
        placed.room,
    )
