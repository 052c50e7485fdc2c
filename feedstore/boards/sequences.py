"""The arithmetic of a board's order: pure, on Python's integers.

A pin's **sequence** is a number of 38 digits; a board shows its pins by descending sequence, ties by ascending pin. A
pin that was never moved has a *virtual* sequence, which is computed from its time and its id, and is not stored.
Floats, `decimal.Decimal` with its 28 digits, and the integers of a database are all too narrow for this arithmetic.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from feedstore.domain import MAX_ID
from feedstore.follows.arranging import PlacedRow, Start, Way


class Spot(NamedTuple):
    """A place in a board, where a pin is or could be."""

    sequence: int
    pin: int

    def order(self) -> tuple[int, int]:
        """Ascends from the top of the board to its bottom."""
        return -self.sequence, self.pin


@dataclass(frozen=True)
class Spacing:
    """How sequences are chosen. Tests use few labels, so that running out of room is the rule.

    unit: the labels of one millisecond. step: the labels between two adjacent ids of one ms. last_id: the largest id;
        `last_id * step < unit`. ceiling: every sequence is below it, and above 0.
    threshold: a gap with less room than this, in bits, must be re-spaced. restored: the bits that it then gets.
    """

    unit: int = 10**25
    step: int = 10**4
    last_id: int = MAX_ID
    ceiling: int = 10**38
    threshold: int = 10
    restored: int = 40

    @property
    def lift(self) -> int:
        """How far above the topmost pin a pin is placed if the current time is not above that pin already. The gap has
        the room that re-spacing would give it. It is much less than a ms: pins that are saved later are above both.
        """
        return 1 << self.restored

    def virtual(self, created_ms: int, pin: int) -> int:
        """The sequence of a pin that was never moved. Descending, these give the order of feeds, without ties."""
        return created_ms * self.unit + (self.last_id - pin) * self.step

    def above_all(self, now_ms: int, top: int) -> int | None:
        """A sequence above the topmost one, as if the pin were saved now. None if there is none below the ceiling.

        The middle between the topmost one and the ceiling would be above all pins of the next centuries.
        """
        wanted = max(now_ms * self.unit, top + self.lift)
        return wanted if wanted < self.ceiling else between(self.ceiling, top)

    def below_all(self, bottom: int) -> int | None:
        """A sequence below the lowest one; None if there is none above 0."""
        return bottom - self.lift if bottom > 2 * self.lift else between(bottom, 0)

    def row(self, pin: int, sequence: int, created_ms: int, moved_ms: int) -> PlacedRow:
        return PlacedRow(pin, sequence, sequence // self.unit, created_ms, moved_ms)

    @property
    def top(self) -> Spot:
        """A place above every pin."""
        return Spot(self.ceiling, 0)

    @property
    def bottom(self) -> Spot:
        """A place below every pin."""
        return Spot(0, self.last_id)

    def start(self, way: Way, spot: Spot) -> Start:
        """Where a reading down or up from a place begins, excluding the place itself: among the placed pins, and among
        the lines of the pins that are not placed.
        """
        created_ms, rest = divmod(spot.sequence, self.unit)
        whole, part = divmod(rest, self.step)
        line = self.last_id - whole  # the id, in that ms, with this sequence, or the one directly below it
        if part == 0 and (spot.pin < line if way == "down" else spot.pin > line):
            # A tie: of two pins with the same sequence, the smaller id is above. This line comes after the place, so
            # the reading must include it.
            line += -1 if way == "down" else 1
        elif part > 0 and way == "down":
            line -= 1
        return Start(spot.sequence, spot.pin, created_ms, max(0, min(line, self.last_id)))


SPACING: Final = Spacing()
"""The spacing of stored boards; it never changes."""


def room(gap: int) -> int:
    """How many drops are guaranteed to fit into a gap, each at its middle; -1 for a gap of 0."""
    return gap.bit_length() - 1


def between(above: int, below: int) -> int | None:
    """The middle of two sequences; None if there is nothing strictly between them."""
    middle = (above + below) // 2
    return middle if below < middle < above else None
