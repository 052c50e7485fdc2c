"""Boards in their own order, in SQLite.

Sequences are blobs of 16 bytes, the most significant first: they sort as numbers do, and SQLite does not convert them.
Its own integers have only 64 bits, and decimals in a column would become floats.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from feedstore.domain import MAX_ID
from feedstore.follows.arranging import LineKey, PinAt, PlacedRow, Run, Start, Way
from feedstore.follows.shard import PinIndexRow
from feedstore.portions import chunks

_BYTES: Final = 16
_MARKS: Final = (2, 4, 8)
"""How many marked pins one statement can look up. There are few sizes, so that the statements stay prepared."""

_PLACED_OF_LINE: Final = "p.board = l.followee AND p.pin = l.pin"

# ?1 board, ?2 sequence, ?3 pin, ?4 limit, ?5 created_ms, ?6 line, ?7 look, from ?8 on the marked pins. Parts: 0 the
# marked pins, 1 the placed ones, 2 the lines of those that are not placed, 3 the last line that is looked at. The
# reader stops when it has enough lines: the rest then costs nothing.
_MARKED: Final = (
    " SELECT 0, l.created_ms, l.pin, l.deleted_ms IS NULL, p.sequence, p.moved_ms, NULL FROM wanted AS w"
    " CROSS JOIN pin_index AS l ON l.kind = 0 AND l.followee = ?1 AND l.created_ms = w.created_ms AND l.pin = w.pin"
    f" LEFT JOIN placed_pins AS p ON {_PLACED_OF_LINE}"
)


def _wanted(size: int) -> str:
    values = ", ".join(f"(?{8 + 2 * number}, ?{9 + 2 * number})" for number in range(size))
    return f"wanted (created_ms, pin) AS (VALUES {values})"


def _near(past: str, order: str) -> str:
    return f"near AS (SELECT * FROM placed_pins WHERE board = ?1 AND {past} ORDER BY {order} LIMIT ?4)"


def _lines(in_ms: str, past_ms: str, edge: str) -> str:
    """The next lines of a board. in_ms, past_ms: the conditions of lines with the ms of the start, and of lines past
    it.

    They are two searches. A single one would walk over all lines of that ms that come before the start, and an import
    may have 100,000 lines in one ms.
    """
    lines = "SELECT followee, created_ms, pin, deleted_ms FROM pin_index WHERE kind = 0 AND followee = ?1"
    return (
        f"SELECT * FROM ({lines} AND created_ms = ?5 AND {edge} AND {in_ms} LIMIT ?7)"
        f" UNION ALL SELECT * FROM ({lines} AND {edge} AND {past_ms} LIMIT ?7)"
    )


def _run(lines: str) -> str:
    # Most lines next to placed pins are their own: the pins just read (`near`) tell that sooner than the whole table
    # does. If a board was never arranged, that is found out once, and not for each line.
    return (
        " SELECT 1, created_ms, pin, 1, sequence, moved_ms, place_ms FROM near"
        f" UNION ALL SELECT 2, l.created_ms, l.pin, 1, NULL, NULL, NULL FROM ({lines} LIMIT ?7) AS l"
        " WHERE l.deleted_ms IS NULL AND l.pin NOT IN (SELECT pin FROM near)"
        " AND ((SELECT NOT EXISTS (SELECT 1 FROM placed_pins WHERE board = ?1))"
        f" OR NOT EXISTS (SELECT 1 FROM placed_pins AS p WHERE {_PLACED_OF_LINE}))"
        f" UNION ALL SELECT 3, created_ms, pin, 1, NULL, NULL, NULL FROM ({lines} LIMIT 1 OFFSET ?7 - 1)"
    )


# If the placed pins fill the page, lines beyond the ms of the last of them are not needed.
_LAST: Final = "(SELECT {}(place_ms) FROM near HAVING count(*) = ?4)"
_NEAR: Final[dict[Way, str]] = {
    "down": _near("sequence <= ?2 AND (sequence < ?2 OR pin > ?3)", "sequence DESC, pin"),
    "up": _near("sequence >= ?2 AND (sequence > ?2 OR pin < ?3)", "sequence, pin DESC"),
}
_READ: Final[dict[Way, str]] = {
    "down": _run(
        _lines(
            "pin > ?6 ORDER BY pin",
            "created_ms < ?5 ORDER BY created_ms DESC, pin",
            f"created_ms >= coalesce({_LAST.format('min')}, 0)",
        )
    ),
    "up": _run(
        _lines(
            "pin < ?6 ORDER BY pin DESC",
            "created_ms > ?5 ORDER BY created_ms, pin DESC",
            f"created_ms <= coalesce({_LAST.format('max')}, {MAX_ID})",
        )
    ),
}
_LOOK_UP: Final = {size: f"WITH {_wanted(size)}{_MARKED}" for size in _MARKS}
_RUN: Final[dict[Way, str]] = {way: f"WITH {_NEAR[way]}{_READ[way]}" for way in _READ}
_PAGE: Final[dict[Way, str]] = {
    way: f"WITH {_wanted(_MARKS[-1])}, {_NEAR[way]}{_MARKED} UNION ALL{_READ[way]}" for way in _READ
}

_ENTER: Final = (
    "INSERT INTO pin_index (kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_REMOVE: Final = "DELETE FROM pin_index WHERE kind = ? AND followee = ? AND created_ms = ? AND pin = ?"
# If the row exists, it is only moved: one row is written.
_MOVE: Final = "UPDATE placed_pins SET sequence = ?, place_ms = ?, moved_ms = ? WHERE board = ? AND pin = ?"
_PLACE: Final = (
    "INSERT INTO placed_pins (board, sequence, pin, place_ms, created_ms, moved_ms) VALUES (?, ?, ?, ?, ?, ?)"
)
_DROP: Final = "DELETE FROM placed_pins WHERE board = ? AND pin = ?"

QUIET_MAX: Final = 16
"""The most boards that are quiet at once: every index write looks at all of them."""
_QUIET: Final = "SELECT number FROM quiet_boards WHERE board = ?"
_ALL_QUIET: Final = "SELECT board FROM quiet_boards"
_BECOME_QUIET: Final = "INSERT INTO quiet_boards (board) VALUES (?)"
_NO_LONGER_QUIET: Final = "DELETE FROM quiet_boards WHERE board = ?"
_OLD_QUIET: Final = "DELETE FROM quiet_boards WHERE number <= ?"


def run(
    connection: sqlite3.Connection,
    board: int,
    way: Way,
    start: Start,
    limit: int,
    look: int,
    marked: Sequence[LineKey],
) -> Run:
    """The next pins of a board, as `FollowStore.board_run` has them. At most eight pins may be marked."""
    if len(marked) > _MARKS[-1]:
        raise ValueError(f"{len(marked)} marked pins, at most {_MARKS[-1]} are looked up")
    bound: list[Any] = [board, start.sequence.to_bytes(_BYTES, "big"), start.pin, limit, start.created_ms, start.line]
    text = _PAGE[way] if marked else _RUN[way]
    rows = connection.execute(text, [*bound, look, *(_padded(marked, _MARKS[-1]) if marked else ())])
    placed: list[PlacedRow] = []
    found: list[PinAt] = []
    lines: list[LineKey] = []
    last: LineKey | None = None
    for part, created_ms, pin, alive, sequence, moved_ms, place_ms in rows:
        if part == 2:
            lines.append(LineKey(created_ms, pin))
            if len(lines) == limit:
                break
        elif part == 1:
            placed.append(PlacedRow(pin, int.from_bytes(sequence, "big"), place_ms, created_ms, moved_ms))
        elif part == 3:
            last = LineKey(created_ms, pin)
        else:
            found.append(_pin_at(created_ms, pin, alive, sequence, moved_ms))
    rows.close()
    return Run(placed, lines, last, found)


def pins(connection: sqlite3.Connection, board: int, keys: Sequence[LineKey]) -> Iterator[PinAt]:
    for chunk in chunks(keys, _MARKS[-1]):
        size = next(size for size in _MARKS if size >= len(chunk))
        bound = [board, None, None, None, None, None, None, *_padded(chunk, size)]
        for _, created_ms, pin, alive, sequence, moved_ms, _ in connection.execute(_LOOK_UP[size], bound):
            yield _pin_at(created_ms, pin, alive, sequence, moved_ms)


def _pin_at(created_ms: int, pin: int, alive: int, sequence: bytes | None, moved_ms: int | None) -> PinAt:
    number = None if sequence is None else int.from_bytes(sequence, "big")
    return PinAt(pin, created_ms, bool(alive), number, moved_ms or 0)


def _padded(keys: Sequence[LineKey], size: int) -> Iterator[int | None]:
    """The keys, filled up with nulls, which match nothing."""
    yield from itertools.chain.from_iterable(keys)
    yield from itertools.repeat(None, 2 * (size - len(keys)))


class SQLiteBoardRows:
    """Implements `BoardRows` on the connection that writes: no other one writes meanwhile."""

    def __init__(self, connection: sqlite3.Connection, board: int) -> None:
        self._connection = connection
        self._board = board
        self._at: dict[int, PinAt] = {}

    def pins(self, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        left = [key for key in keys if key.pin not in self._at]
        self._at |= {found.pin: found for found in pins(self._connection, self._board, left)}
        return {key.pin: self._at[key.pin] for key in keys if key.pin in self._at}

    def enter(self, lines: Sequence[PinIndexRow]) -> list[PinIndexRow]:
        """Enters the lines that are missing; returns them."""
        at = self.pins([LineKey(row[2], row[3]) for row in lines])
        missing = [row for row in lines if row[3] not in at]
        if missing:
            self._connection.executemany(_ENTER, missing)
            end_quiet(self._connection, {self._board})
        self._at |= {row[3]: PinAt(row[3], row[2], alive=True, sequence=None, moved_ms=0) for row in missing}
        return missing

    def run(self, way: Way, start: Start, limit: int, look: int) -> Run:
        return run(self._connection, self._board, way, start, limit, look, ())

    def quiet(self) -> int | None:
        found = self._connection.execute(_QUIET, (self._board,)).fetchone()
        if found is not None:
            return int(found[0])
        number = self._connection.execute(_BECOME_QUIET, (self._board,)).lastrowid
        assert number is not None
        # A board that is forgotten here gets another number later: then more of it is read than necessary.
        self._connection.execute(_OLD_QUIET, (number - QUIET_MAX,))
        return number


def end_quiet(connection: sqlite3.Connection, boards: Iterable[int]) -> None:
    """Makes boards quiet no longer. Call it when lines were entered on them, or living pins lost their places."""
    if quiet := connection.execute(_ALL_QUIET).fetchall():  # mostly there are none
        changed_ones = set(boards)
        connection.executemany(_NO_LONGER_QUIET, [row for row in quiet if row[0] in changed_ones])


def remove(connection: sqlite3.Connection, lines: Sequence[PinIndexRow]) -> None:
    """Removes lines that this transaction has entered."""
    connection.executemany(_REMOVE, [row[:4] for row in lines])


def write(connection: sqlite3.Connection, board: int, placed: Sequence[PlacedRow], dropped: Sequence[int]) -> None:
    for pin, sequence, place_ms, created_ms, moved_ms in placed:
        stored = sequence.to_bytes(_BYTES, "big")
        if not connection.execute(_MOVE, (stored, place_ms, moved_ms, board, pin)).rowcount:
            connection.execute(_PLACE, (board, stored, pin, place_ms, created_ms, moved_ms))
    if dropped:
        drop(connection, [(board, pin) for pin in dropped])
        end_quiet(connection, {board})


def drop(connection: sqlite3.Connection, rows: Sequence[tuple[int, int]]) -> None:
    """Drops the places of pins. rows: (board, pin); pins that are not placed are fine."""
    connection.executemany(_DROP, rows)
