"""Rows of a board's own order, and the reads of a transaction on them: shards and `feedstore.boards` share them.

A **line** is a row of the pin index of the board; a **placed pin** has a row with its sequence. The arithmetic is not
here: a shard compares sequences, and computes none.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

Way = Literal["down", "up"]
"""Down a board: by descending sequence, and by ascending pin if sequences are equal. Up: the reverse."""


class LineKey(NamedTuple):
    """A line of a board."""

    created_ms: int
    pin: int


class PlacedRow(NamedTuple):
    """A placed pin. place_ms: the created_ms of the lines nearest to its place. moved_ms: when a person last moved it,
    strictly rising for the pin; 0 if only re-spacing moved it.
    """

    pin: int
    sequence: int
    place_ms: int
    created_ms: int
    moved_ms: int


class Start(NamedTuple):
    """Where a reading begins: after (sequence, pin) among the placed pins, and after (created_ms, line) among the
    lines, in the direction of the reading.
    """

    sequence: int
    pin: int
    created_ms: int
    line: int


class PinAt(NamedTuple):
    """A pin that has a line. alive: False if the line is marked deleted. sequence: None if the pin is not placed."""

    pin: int
    created_ms: int
    alive: bool
    sequence: int | None
    moved_ms: int


class Run(NamedTuple):
    """The result of a reading, in its direction.

    placed: up to `limit` placed pins. Each has a living line: a transaction that marks a line deleted also drops the
        row of its placed pin.
    lines: up to `limit` living lines of pins that are not placed. If `placed` is full, lines that are past the place_ms
        of all of these may be left out.
    looked_to: the last line that was looked at; None if `limit` lines were found, or the board ended.
    marked: the pins that were asked for by their keys, without those that have no line.
    """

    placed: list[PlacedRow]
    lines: list[LineKey]
    looked_to: LineKey | None
    marked: list[PinAt]


class BoardRows(Protocol):
    """One board in a transaction that holds it: no other transaction moves its pins. Pins may be saved and deleted."""

    def pins(self, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        """These pins by id; those without a line are left out. None can be deleted before this transaction ends."""

    def run(self, way: Way, start: Start, limit: int, look: int) -> Run:
        """As `FollowStore.board_run`, but as this transaction sees the board."""

    def quiet(self) -> int | None:
        """A number: as long as it is the same, no living line of an unplaced pin was added. None if that is unknown."""


class Arranged(NamedTuple):
    """The writes of a transaction. placed: each replaces the row of its pin. dropped: pins whose rows are removed.
    outbox: encoded actions.
    """

    placed: Sequence[PlacedRow] = ()
    dropped: Sequence[int] = ()
    outbox: Sequence[bytes] = ()


Result = TypeVar("Result")

Arrange = Callable[[int, BoardRows], tuple[Arranged | None, Result]]
"""Gets the transaction's time and the board's rows. Returns what to write, or None to undo the transaction, and a
result. It runs again if the transaction is repeated.
"""
