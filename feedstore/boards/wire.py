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
    str,
    Meta(
        min_length=1,
        max_length=CURSOR_CHARS_MAX,
        description="The cursor that another page of the same board gave. Send it back unchanged",
    ),
]
Sequence = Annotated[
    str,
    Meta(
        pattern="^[0-9]{1,38}$",
        description="Up to 38 digits. It is text, because a number in JavaScript does not hold so many digits exactly",
    ),
]

_START = "^(top|bottom|[0-9]{1,38})$"
_A_START = "top, bottom, or a sequence of up to 38 digits"
_is_start = re.compile(_START).fullmatch
"""`fullmatch`, because Python's `$` also matches before a newline at the end. It is in the pattern for clients."""

Start = Annotated[
    str,
    Meta(
        pattern=_START,
        description="Where the page begins: `top`, `bottom` (the last pins), or a sequence. With a sequence, the page"
        " begins with the pin that has it, or with the first one below",
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
    """The new place of a pin. before: the pin that is directly above the place. after: the pin that is directly below
    it. One of the two is enough. to: the top or the bottom of the board; give it instead of `before` and `after`.
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
    """A pin of a board. sequence: its place; a board shows its pins by descending sequence. moved_ms: when it was last
    moved; null if it was never moved.
    """

    pin: Id
    created_ms: int
    sequence: Sequence
    moved_ms: int | None


class BoardPage(msgspec.Struct, frozen=True):
    """A page of a board. pins: always from the top down. cursor: the cursor of the page below this one; null if this is
    the last page. above: the cursor of the page above this one; null if this is the first page. A page may have fewer
    pins than `limit`, or none, and still have a cursor: then more pages follow.
    """

    board: Id
    pins: list[BoardPinLine]
    cursor: Cursor | None
    above: Cursor | None


class PlacedLine(msgspec.Struct, frozen=True):
    """Where a pin is now. changed: false if it was at this place already. room: how many more pins, at least, can be
    dropped into the smaller of the two gaps above and below the pin.
    """

    board: Id
    pin: Id
    sequence: Sequence
    moved_ms: int | None
    changed: bool
    room: int


class OrderReset(msgspec.Struct, frozen=True):
    """The result of a reset. done: false if the board has more moved pins than one request can reset. Then send the
    request again.
    """

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
