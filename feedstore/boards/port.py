"""The arguments, results and errors of `store.Boards`."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from feedstore.boards.sequences import SPACING, Spot
from feedstore.domain import InvalidValueError, check_id
from feedstore.errors import NeverError, NotNowError
from feedstore.follows.arranging import LineKey, Way

MAX_PAGE: Final = 500
"""The most pins of a page."""

MAX_MARKS: Final = 8
"""The most pins that a place remembers."""

MAX_BETWEEN: Final = 10
"""The most pins that a refusal names."""

MAX_ROWS: Final = 512
"""The most rows that one transaction of re-spacing, or of a reset, writes."""

Reason = Literal["pin_unknown", "pin_deleted", "pin_elsewhere", "neighbours_apart", "neighbours_reversed"]


class ReorderRefusedError(NeverError):
    """Never: the pins are not where the request says. Nothing was changed. `reason` is a stable word, the message is
    for people.

    reason: `pin_unknown`, `pin_deleted`, `pin_elsewhere` (on another board): of the pin itself or of a neighbour that
        was named. `neighbours_apart`: other pins are between the neighbours. `neighbours_reversed`: `before` is below
        `after`.
    pin: the pin that the reason is about; None if it is about both neighbours.
    between: up to MAX_BETWEEN pins between the two neighbours, from the top down: a client can choose a new place
        without another read. Empty for the other reasons.
    """

    def __init__(self, reason: Reason, message: str, pin: int | None = None, between: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.pin = pin
        self.between = between


class BoardCrowdedError(NotNowError):
    """Not now: there is no room there until it is re-spaced, which has been asked for. Repeat the call in a second."""


@dataclass(frozen=True)
class Move:
    """A request to move a pin of a board to a new place.

    before: the pin that is to be directly above it. after: the pin that is to be directly below it. One of the two is
    enough. to: the very top or the very bottom, instead of neighbours.

    Raises InvalidValueError: no place is named, or two, or a pin is named twice.
    """

    board: int
    pin: int
    before: int | None = None
    after: int | None = None
    to: Literal["top", "bottom"] | None = None

    def __post_init__(self) -> None:
        check_id("board", self.board)
        check_id("pin", self.pin)
        for field, neighbour in (("before", self.before), ("after", self.after)):
            if neighbour is not None:
                check_id(field, neighbour)
        named = self.pins()
        if len(set(named)) < len(named):
            raise InvalidValueError("pin, before, after", named, "pins that are all different")
        if self.to is None and len(named) == 1:
            raise InvalidValueError("before, after or to", None, "at least one of them")
        if self.to is not None and (self.to not in {"top", "bottom"} or len(named) > 1):
            raise InvalidValueError("to", self.to, "top or bottom, without neighbours")

    def pins(self) -> list[int]:
        """The pin and the neighbours that are named."""
        return [self.pin, *(each for each in (self.before, self.after) if each is not None)]


class Placed(NamedTuple):
    """Where a pin is now.

    moved_ms: when it was last moved, by the store's clock; larger after each move. 0: never.
    changed: False if it was at that place already, and nothing was written.
    room: how many more drops are guaranteed to fit into the smaller of the two gaps next to it.
    """

    board: int
    pin: int
    sequence: int
    moved_ms: int
    changed: bool
    room: int


class BoardPin(NamedTuple):
    """A pin of a page. moved_ms: 0 if it was never moved."""

    pin: int
    created_ms: int
    sequence: int
    moved_ms: int

    @property
    def spot(self) -> Spot:
        return Spot(self.sequence, self.pin)


class Mark(NamedTuple):
    """A pin that was shown, and its moved_ms at that time."""

    pin: int
    created_ms: int
    moved_ms: int


class Place(NamedTuple):
    """Where a page begins, and its direction. A page that goes down begins below the last marked pin that was not moved
    since, wherever re-spacing has put that pin; if all were moved or deleted, or there are none, below `spot`. A page
    that goes up begins above it in the same way. The marked pins are not shown again. `cursors.encode` makes text of
    it.

    seen: a place further on, if the page before ended among the lines of moved pins, behind the last pin that it
        showed. All pins up to there that are not placed were shown.
    """

    spot: Spot
    marks: tuple[Mark, ...] = ()
    way: Way = "down"
    seen: Spot | None = None


FROM_BOTTOM: Final = Place(SPACING.bottom, (), "up")
"""The last pins of a board."""


class BoardPage(NamedTuple):
    """pins: from the top down, whichever way the page was read. after: where the page below it begins; None at the end
    of the board. above: where the page above it begins, which goes up; None at the top. A short page, even an empty
    one, does not mean the end.
    """

    pins: list[BoardPin]
    after: Place | None
    above: Place | None


class CheckedTo(NamedTuple):
    """Where the next part of a check begins. spot: the place up to which the board was read. above: the last pin before
    that place, of any part; None if there was none. The place itself may be that of a pin that was moved or deleted.
    """

    spot: Spot
    above: Spot | None


class BoardFindings(NamedTuple):
    """The state of a part of a board. What `narrow`, `ties` and `dead` hold is a fault if it is still there after the
    handlers are done.

    pins: how many there are in this part.
    narrow: the lower pin of each gap that has less room than the threshold. Re-spacing should have been asked for
        there.
    ties: pairs of pins with the same sequence. A pin that is saved with a time in the past may tie with a placed one; a
        tie is a fault only if both pins are placed.
    dead: placed rows without a living pin, by the keys of their missing lines. They count neither in `pins` nor for
        gaps.
    after: where the next part begins; None at the end of the board.
    """

    pins: int
    narrow: list[int]
    ties: list[tuple[int, int]]
    dead: list[LineKey]
    after: CheckedTo | None


class RoomSpread(NamedTuple):
    """The progress of a re-spacing that needs several transactions; see `ordering.spread`. If it is lost, begin again
    without it: the pins that were already moved are in their right places.

    above, below: the sequences just outside of the window. members: the pins in it.
    at: the place of the pin that was looked at last. passed: how many pins were looked at in this pass.
    lower, skipped: the values of `at` and `passed` with which the second pass begins.
    falling: whether this is the second pass.
    seen: where the pin at `at` was before this re-spacing moved it. All pins between the two places that are not placed
        were looked at, unless the board has changed since.
    quiet: the number that `BoardRows.quiet` gave then, which shows if the board has changed.
    """

    above: int
    below: int
    members: int
    at: Spot
    passed: int
    lower: Spot
    skipped: int
    falling: bool
    seen: Spot | None = None
    quiet: int | None = None


class Respaced(NamedTuple):
    """The result of one transaction of re-spacing. done: nothing is left to do. rows: how many it wrote. window: how
    many pins the window has, 0 if there is none. going: for the next call.
    """

    done: bool
    rows: int
    window: int
    going: RoomSpread | None
