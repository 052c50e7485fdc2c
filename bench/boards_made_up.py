"""Boards that are made up, and how people and adversaries drag on them. Everything follows from a seed.

Boards of millions of pins are written in bulk, past the port: the rows are those that the handlers write.
"""

import random
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from feedstore.boards import SPACING, Boards
from feedstore.clocks import wall_ms
from feedstore.domain import RespaceAsked
from feedstore.follows import sqlite
from feedstore.follows.port import actions_in
from feedstore.follows.store import FollowStore
from workers.boards import Respacing

OWNER: Final = 7
STEP_MS: Final = 60
"""Pins of a made-up board are from 1 to so many ms apart."""


@dataclass(frozen=True)
class Board:
    """A board in a store: its pins have the ids first .. first + pins - 1, in the order of their times."""

    number: int
    first: int
    pins: int

    def pin(self, place: int) -> int:
        """The pin at a place of the untouched board, from 0 at the top."""
        return self.first + self.pins - 1 - place


class Filling:
    """A store in a file that boards are written into; `open` ends that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rng = random.Random(0)
        self._pins = 1
        self._boards = 1
        sqlite.create([path])
        self._connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000", "temp_store = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")

    def board(self, pins: int, *, step_ms: int = STEP_MS) -> Board:
        """A board of so many pins. step_ms: 0 gives all of them one ms, with adjacent ids."""
        made = Board(self._boards, self._pins, pins)
        self._boards, self._pins = self._boards + 1, self._pins + pins
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO pin_index (kind, followee, created_ms, pin, owner, board, saved_ms)"
            " VALUES (0, ?, ?, ?, ?, ?, ?)",
            ((made.number, ms, pin, OWNER, made.number, ms) for pin, ms in self._times(made, step_ms)),
        )
        self._connection.execute(
            "INSERT INTO pins SELECT pin, owner, board, created_ms, saved_ms, NULL FROM pin_index"
            " WHERE kind = 0 AND followee = ? ORDER BY pin",
            (made.number,),
        )
        self._connection.execute("COMMIT")
        return made

    def _times(self, board: Board, step_ms: int) -> Iterator[tuple[int, int]]:
        ms = wall_ms() - board.pins * (step_ms // 2 + 1) - 1_000_000
        for pin in range(board.first, board.first + board.pins):
            yield pin, ms
            if step_ms:
                ms += self._rng.randint(1, step_ms)

    def place(self, board: Board, sequence: Callable[[int, int, int], int | None]) -> None:
        """Places pins of a board. sequence: of its number among the pins, its id and its time; None: not placed."""
        rows = self._connection.execute(
            "SELECT pin, created_ms FROM pin_index WHERE kind = 0 AND followee = ? ORDER BY created_ms DESC, pin",
            (board.number,),
        )
        self._connection.execute("BEGIN")
        writer = self._connection.cursor()
        writer.executemany(
            "INSERT INTO placed_pins (board, sequence, pin, place_ms, created_ms, moved_ms) VALUES (?, ?, ?, ?, ?, 1)",
            (
                (board.number, to.to_bytes(16, "big"), pin, to // SPACING.unit, ms)
                for number, (pin, ms) in enumerate(rows)
                if (to := sequence(number, pin, ms)) is not None
            ),
        )
        self._connection.execute("COMMIT")

    def arrange(self, board: Board) -> None:
        """Places every pin of a board: pairs of neighbours change their places."""
        before: list[int] = []

        def swapped(_number: int, pin: int, created_ms: int) -> int:
            # A little below its upper neighbour's own place, or its own: each is directly past another pin.
            own = SPACING.virtual(created_ms, pin)
            sequence = own - 1 if not before else before.pop()
            before[:] = [own]
            return sequence + 1

        self.place(board, swapped)

    def move_to_the_top(self, board: Board, first: int, pins: int) -> None:
        """As if so many pins, from a place on, had been moved to the top one after the other."""
        now = wall_ms() * SPACING.unit

        def to(number: int, _pin: int, _created_ms: int) -> int | None:
            return now + (pins - number + first) * SPACING.lift if first <= number < first + pins else None

        self.place(board, to)

    def open(self) -> FollowStore:
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA optimize"):
            self._connection.execute(statement)
        self._connection.close()
        return sqlite.open_store([self._path], wall_ms)


# Who drags what
# --------------------------------------------------------------------------------------------------------------------

Drag = tuple[int, int]
"""(from, to): a pin of the board at a place, to directly below the one at another place of what is left."""


def people(rng: random.Random, pins: int) -> Iterator[Drag]:
    """Near the top, mostly; in bursts in which one pin is dragged several times."""
    while True:
        pin = min(pins - 1, int(rng.paretovariate(1.1)) - 1)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            to = min(pins - 2, int(rng.paretovariate(1.1)) - 1)
            yield pin, to
            pin = to + 1


def one_spot(rng: random.Random, pins: int) -> Iterator[Drag]:
    """Always directly below the same pin, in the middle, from below it."""
    while True:
        yield rng.randrange(pins // 2 + 2, pins), pins // 2


def below_the_top(rng: random.Random, pins: int) -> Iterator[Drag]:
    """Always directly below the topmost pin, which re-spacing cannot move: all pins that were dropped have to."""
    while True:
        yield rng.randrange(2, pins), 0


def ping_pong(_rng: random.Random, pins: int) -> Iterator[Drag]:
    """Two pins that change their places for ever, in the middle."""
    while True:
        yield pins // 2, pins // 2


def reversing(_rng: random.Random, pins: int) -> Iterator[Drag]:
    """Every pin below the last one, again and again."""
    while True:
        for place in range(pins - 1, 0, -1):
            yield 0, place - 1


DRAGGERS: Final = {
    "people": people,
    "one spot": one_spot,
    "below the topmost pin": below_the_top,
    "ping-pong": ping_pong,
    "reversing": reversing,
}


# The naive way
# --------------------------------------------------------------------------------------------------------------------


LEAN: Final = (
    "CREATE TABLE pins (pin INTEGER PRIMARY KEY, position INTEGER NOT NULL)",
    "CREATE INDEX positions ON pins (position)",
)
"""The least that one board takes: two columns, and nothing that says of which board a pin is."""

WITH_PINS: Final = (
    """
    CREATE TABLE pins (
        pin INTEGER PRIMARY KEY, owner INTEGER NOT NULL DEFAULT 7, board INTEGER NOT NULL DEFAULT 1,
        created_ms INTEGER NOT NULL DEFAULT 1700000000000, saved_ms INTEGER NOT NULL DEFAULT 1700000000000,
        deleted_ms INTEGER, position INTEGER NOT NULL
    )
    """,
    "CREATE INDEX positions ON pins (board, position)",
)
"""A position for each pin in the table of pins, and an index for pages of a board."""

LIKE_OURS: Final = (
    """
    CREATE TABLE pins (
        board INTEGER NOT NULL DEFAULT 1, position INTEGER NOT NULL, pin INTEGER NOT NULL,
        created_ms INTEGER NOT NULL DEFAULT 1700000000000, moved_ms INTEGER NOT NULL DEFAULT 1,
        PRIMARY KEY (board, position, pin)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX pins_pin ON pins (board, pin)",
)
"""The table of placed pins, with positions for sequences."""


class Renumbered:
    """A board whose positions are consecutive integers, in a file: moving a pin renumbers all in between. tables: LEAN,
    WITH_PINS or LIKE_OURS.
    """

    def __init__(self, path: Path, pins: int, tables: Sequence[str]) -> None:
        # What the statements below need to find a row in each.
        self._of_board = "" if tables is LEAN else "board = 1 AND "
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        for statement in tables:
            self._connection.execute(statement)
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO pins (pin, position) VALUES (?, ?)", ((pin, pin) for pin in range(pins))
        )
        self._connection.execute("COMMIT")

    def move(self, pin: int, distance: int) -> None:
        execute, of_board = self._connection.execute, self._of_board
        execute("BEGIN IMMEDIATE")
        (position,) = execute(f"SELECT position FROM pins WHERE {of_board}pin = ?", (pin,)).fetchone()
        to = position + distance
        low, high, by = (position + 1, to, -1) if distance > 0 else (to, position - 1, 1)
        execute(f"UPDATE pins SET position = position + ? WHERE {of_board}position BETWEEN ? AND ?", (by, low, high))
        execute(f"UPDATE pins SET position = ? WHERE {of_board}pin = ?", (to, pin))
        execute("COMMIT")

    def touch(self, pin: int) -> None:
        """The least that a durable change of one row takes."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute(f"UPDATE pins SET position = position + 0 WHERE {self._of_board}pin = ?", (pin,))
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def main() -> None:
    """Makes room around a pin: FILE BOARD PIN."""
    path, board, pin = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with closing(sqlite.open_store([path], wall_ms)) as store:
        boards = Boards(store)
        asked = [RespaceAsked(board, pin, 1)]
        while asked:
            Respacing(boards, lambda: 0.0).respace(asked)
            rows = store.unrelayed(1_000)
            again = [each for each in actions_in(rows) if isinstance(each, RespaceAsked)]
            store.mark_relayed(rows)
            asked = [each for each in again if each.pin == pin]


if __name__ == "__main__":
    main()
