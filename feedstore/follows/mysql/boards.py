"""Boards in their own order, in MySQL: statements, and a board inside a transaction.

**Locks.** A transaction on the order of a board takes the board's row of `board_orders` alone; then the lines of the
pins that it names, shared, so that they are not marked deleted before it is committed; then the state of the shard,
shared, because what it decides depends on the time. Only then does it enter the lines that are missing, read the board,
take the lines of the pins that make room, shared, and write placed rows. An index write takes lines and then placed
rows, and never the state of the shard. So the caller that settles may have to wait for a board's transaction, and that
one for an index write.

Sequences go out as integers of up to 39 digits, which the server takes for decimals. They come back as
`decimal.Decimal`, which holds every digit as long as nothing is computed with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from feedstore.domain import MAX_ID
from feedstore.follows.arranging import Arranged, LineKey, PinAt, PlacedRow, Run, Start, Way
from feedstore.follows.mysql.connections import MySQLConnection, Reply
from feedstore.follows.shard import KIND_CODES, PinIndexRow
from feedstore.portions import chunks

LOCKED: Final = " LOCK IN SHARE MODE"

_BOARD: Final = KIND_CODES["board"]
_KEYS_A_STATEMENT: Final = 400
_ROWS_A_STATEMENT: Final = 500

_LINES: Final = "SELECT created_ms, pin, deleted_ms FROM pin_index FORCE INDEX (PRIMARY)"


# Statements
# --------------------------------------------------------------------------------------------------------------------


def lock(board: int) -> str:
    return f"SELECT board FROM board_orders FORCE INDEX (PRIMARY) WHERE board = {board:d} FOR UPDATE"


def insert_lock(board: int) -> str:
    return f"INSERT INTO board_orders (board) VALUES ({board:d})"


def next_arranged(after: int) -> str:
    return f"SELECT MIN(board) FROM placed_pins FORCE INDEX (PRIMARY) WHERE board > {after:d}"


def lines(board: int, keys: Sequence[LineKey]) -> Iterator[str]:
    """(created_ms, pin, deleted_ms), under shared locks."""
    for chunk in chunks(sorted(keys, key=_feed_order), _KEYS_A_STATEMENT):
        yield f"{_LINES} WHERE {_in_lines(board, chunk)}{LOCKED}"


def placed(board: int, pins: Iterable[int]) -> Iterator[str]:
    """(pin, sequence, moved_ms)."""
    for chunk in chunks(sorted(pins), _KEYS_A_STATEMENT):
        yield (
            "SELECT pin, sequence, moved_ms FROM placed_pins FORCE INDEX (placed_pins_pin)"
            f" WHERE board = {board:d} AND pin IN ({', '.join(f'{pin:d}' for pin in chunk)})"
        )


def board_run(board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> str:
    """(part, created_ms, pin, alive, sequence, moved_ms, place_ms). Parts: 0 the marked pins, 1 the placed ones, 2 the
    lines of those that are not placed, 3 the last line that is looked at.
    """
    past, first, down, up = ("<", ">", " DESC", "") if way == "down" else (">", "<", "", " DESC")
    of_placed = (
        f"board = {board:d} AND sequence {past}= {start.sequence:d}"
        f" AND (sequence {past} {start.sequence:d} OR pin {first} {start.pin:d})"
    )
    # Two ranges of the key, in the ms at the start and past it: a bound on the ms alone would pass over all lines of it
    # that come before the start, and an import may have 100,000 in one ms.
    of_lines = (
        f"kind = {_BOARD} AND followee = {board:d} AND ((created_ms = {start.created_ms:d}"
        f" AND pin {first} {start.line:d}) OR created_ms {past} {start.created_ms:d})"
    )
    in_order, by_sequence = f"ORDER BY created_ms{down}, pin{up}", f"ORDER BY sequence{down}, pin{up}"
    page = f"{_LINES} WHERE {of_lines} {in_order}"
    of_pins = (
        "(SELECT 1 AS part, created_ms, pin, 1 AS alive, sequence, moved_ms, place_ms"
        f" FROM placed_pins FORCE INDEX (PRIMARY) WHERE {of_placed} {by_sequence} LIMIT {limit:d})"
    )
    # If the placed pins fill the page, lines beyond the ms of the last of them are not needed.
    last_placed = f"FROM placed_pins FORCE INDEX (PRIMARY) WHERE {of_placed} {by_sequence} LIMIT 1 OFFSET {limit - 1:d}"
    past_all = 0 if way == "down" else MAX_ID
    unmoved = (
        "(SELECT STRAIGHT_JOIN 2, l.created_ms, l.pin, 1, NULL, 0, NULL"
        f" FROM ({page} LIMIT {look:d}) AS l LEFT JOIN placed_pins AS p FORCE INDEX (placed_pins_pin)"
        f" ON p.board = {board:d} AND p.pin = l.pin"
        f" WHERE l.created_ms {first}= COALESCE((SELECT place_ms {last_placed}), {past_all:d})"
        " AND l.deleted_ms IS NULL AND p.pin IS NULL"
        f" ORDER BY l.created_ms{down}, l.pin{up} LIMIT {limit:d})"
    )
    parts = [
        of_pins,
        unmoved,
        f"(SELECT 3, created_ms, pin, 1, NULL, 0, NULL FROM ({page} LIMIT 1 OFFSET {look - 1:d}) AS e)",
    ]
    if marked:
        parts.append(f"({_pins(board, marked)})")
    return " UNION ALL ".join(parts)


def board_pins(board: int, keys: Sequence[LineKey]) -> Iterator[str]:
    """Rows as those of part 0 of `board_run`."""
    return (_pins(board, chunk) for chunk in chunks(keys, _KEYS_A_STATEMENT))


def _pins(board: int, keys: Sequence[LineKey]) -> str:
    return (
        "SELECT STRAIGHT_JOIN 0, l.created_ms, l.pin, l.deleted_ms IS NULL, p.sequence, p.moved_ms, NULL"
        " FROM pin_index AS l FORCE INDEX (PRIMARY) LEFT JOIN placed_pins AS p FORCE INDEX (placed_pins_pin)"
        f" ON p.board = {board:d} AND p.pin = l.pin WHERE {_in_lines(board, keys, 'l.')}"
    )


def move(board: int, row: PlacedRow) -> str:
    return (
        f"UPDATE placed_pins FORCE INDEX (placed_pins_pin) SET sequence = {row.sequence:d},"
        f" place_ms = {row.place_ms:d}, moved_ms = {row.moved_ms:d}"
        f" WHERE board = {board:d} AND pin = {row.pin:d}"
    )


def place(board: int, rows: Sequence[PlacedRow]) -> Iterator[str]:
    for chunk in chunks(rows, _ROWS_A_STATEMENT):
        values = ", ".join(
            "(%d, %d, %d, %d, %d, %d)" % (board, row.sequence, row.pin, row.place_ms, row.created_ms, row.moved_ms)
            for row in chunk
        )
        yield f"INSERT INTO placed_pins (board, sequence, pin, place_ms, created_ms, moved_ms) VALUES {values}"


def drop(rows: Iterable[tuple[int, int]]) -> Iterator[str]:
    """rows: (board, pin)."""
    for chunk in chunks(sorted(set(rows)), _KEYS_A_STATEMENT):
        keys = ", ".join("(%d, %d)" % row for row in chunk)
        yield f"DELETE placed_pins FROM placed_pins FORCE INDEX (placed_pins_pin) WHERE (board, pin) IN ({keys})"


def enter(rows: Sequence[PinIndexRow]) -> str:
    """A plain INSERT: if the handler was faster, the transaction fails on the duplicate and begins again."""
    in_order = sorted(rows, key=lambda row: (-row[2], row[3]))
    values = ", ".join("(%d, %d, %d, %d, %d, %d, %d, NULL)" % row[:7] for row in in_order)
    into = "pin_index (kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms)"
    return f"INSERT INTO {into} VALUES {values}"


def _in_lines(board: int, keys: Sequence[LineKey], table: str = "") -> str:
    # Each as a key of its own: a list of rows that begins with constants would become a scan of the board.
    each = " OR ".join(f"({table}created_ms = {created_ms:d} AND {table}pin = {pin:d})" for created_ms, pin in keys)
    return f"{table}kind = {_BOARD} AND {table}followee = {board:d} AND ({each})"


def _feed_order(key: LineKey) -> tuple[int, int]:
    return -key.created_ms, key.pin


# Rows
# --------------------------------------------------------------------------------------------------------------------


def run_of(rows: Iterable[tuple[Any, ...]], way: Way, limit: int) -> Run:
    """From the rows of `board_run`, in any order."""
    parts: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: [], 3: []}
    for row in rows:
        parts[row[0]].append(row[1:])
    sign = -1 if way == "down" else 1
    placed_rows = [
        PlacedRow(pin, int(sequence), place_ms, created_ms, moved_ms)
        for created_ms, pin, _, sequence, moved_ms, place_ms in parts[1]
    ]
    placed_rows.sort(key=lambda row: (sign * row.sequence, -sign * row.pin))
    found = [LineKey(created_ms, pin) for created_ms, pin, *_ in parts[2]]
    found.sort(key=lambda key: (sign * key.created_ms, -sign * key.pin))
    last = [LineKey(created_ms, pin) for created_ms, pin, *_ in parts[3]]
    return Run(
        placed_rows,
        found,
        last[0] if last and len(found) < limit else None,
        [pin_at(*row[:5]) for row in parts[0]],
    )


def pin_at(created_ms: int, pin: int, alive: int, sequence: Any, moved_ms: int | None) -> PinAt:
    return PinAt(pin, created_ms, bool(alive), None if sequence is None else int(sequence), moved_ms or 0)


class Look:
    """The statements that look pins up and hold their lines, and what they answer."""

    def __init__(self, board: int, keys: Sequence[LineKey]) -> None:
        self._lines = list(lines(board, keys))
        self.statements = [*self._lines, *placed(board, [key.pin for key in keys])]

    def found(self, replies: Sequence[Reply]) -> dict[int, PinAt]:
        of_lines, of_placed = replies[: len(self._lines)], replies[len(self._lines) : len(self.statements)]
        rows = {pin: (sequence, moved_ms) for reply in of_placed for pin, sequence, moved_ms in reply.rows}
        return {
            pin: pin_at(created_ms, pin, deleted_ms is None, *rows.get(pin, (None, None)))
            for reply in of_lines
            for created_ms, pin, deleted_ms in reply.rows
        }


class MySQLBoardRows:
    """Implements `BoardRows` on a connection whose transaction holds the board. at: the pins that it holds already."""

    def __init__(self, connection: MySQLConnection, board: int, at: dict[int, PinAt]) -> None:
        self._connection = connection
        self._board = board
        self._at = at

    def pins(self, keys: Sequence[LineKey]) -> dict[int, PinAt]:
        left = [key for key in keys if key.pin not in self._at]
        if left:
            look = Look(self._board, left)
            self._at |= look.found(self._connection.run(look.statements))
        return {key.pin: self._at[key.pin] for key in keys if key.pin in self._at}

    def run(self, way: Way, start: Start, limit: int, look: int) -> Run:
        return run_of(self._connection.rows(board_run(self._board, way, start, limit, look, ())), way, limit)

    def quiet(self) -> int | None:
        # An index write may have looked before this transaction began, and commit after it.
        return None

    def writes(self, arranged: Arranged) -> Iterator[str]:
        """A row that exists is moved by one write. The pins were all looked up."""
        there = [row for row in arranged.placed if self._at[row.pin].sequence is not None]
        yield from (move(self._board, row) for row in there)
        yield from place(self._board, [row for row in arranged.placed if self._at[row.pin].sequence is None])
        yield from drop((self._board, pin) for pin in arranged.dropped)
