"""Rows of a board's own order, and the reads of a transaction on them: shards and `feedstore.boards` share them.

A **line** is a row of the pin index of the board; a **placed pin** has a row with its sequence. The arithmetic is not
here: a shard compares sequences, and computes none.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

Way = Literal["down", "up"]
"""Down a board: by descending sequence, and by ascending pin where sequences are equal. Up: the reverse."""


class LineKey(NamedTuple):
    """A line of a board."""

    created_ms: int
    pin: int


class PlacedRow(NamedTuple):
    """A placed pin. place_ms: the created_ms of the lines that are nearest. moved_ms: when a person last moved it,
    strictly rising for the pin; 0 if only re-spacing did.
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
    """A pin whose line is there: alive unless its line is marked deleted; sequence None if it is not placed."""

    pin: int
    created_ms: int
    alive: bool
    sequence: int | None
    moved_ms: int


class Run(NamedTuple):
    """The result of a reading, in its direction.

    placed: up to `limit` placed pins. Each has a living line: what marks a line deleted drops the row with it, in one
        transaction.
    lines: up to `limit` living lines of pins that are not placed. If `placed` is full, lines that are past the ms of
        the last of them may be left out. looked_to: the last line that was looked at, if looking ended before `limit`
        lines were found and before the board ended.
    marked: the pins that were asked for by their keys and have a line.
    """

    placed: list[PlacedRow]
    lines: list[LineKey]
    looked_to: LineKey | None
    marked: list[PinAt]


class BoardRows(Protocol):
    """One board in a transaction that holds it: no other transaction moves its pins. Pins may be saved and deleted."""

    def pins(self, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        """These pins, by id, those without a line left out. They are not deleted before this transaction ends."""
        ...

    def run(self, way: Way, start: Start, limit: int, look: int) -> Run:
        """As `FollowStore.board_run`, with what this transaction sees."""
        ...

    def quiet(self) -> int | None:
        """A number that a later transaction gets again only if there is no living line of a pin that is not placed
        which was not there in this one. None: that is not known.
        """
        ...


class Arranged(NamedTuple):
    """The writes of a transaction. placed: each replaces the row of its pin. dropped: pins whose rows go. outbox:
    encoded actions.
    """

    placed: Sequence[PlacedRow] = ()
    dropped: Sequence[int] = ()
    outbox: Sequence[bytes] = ()


Result = TypeVar("Result")

Arrange = Callable[[int, BoardRows], tuple[Arranged | None, Result]]
"""From the transaction's time and the board's rows to what is written; None: the transaction is undone. It may run
again if the transaction is repeated.
"""
