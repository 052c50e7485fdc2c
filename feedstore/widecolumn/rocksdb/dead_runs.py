"""Stretches of a row in which nothing is visible, so that a reader can step over them with one seek.

An unfollow may put a thousand markers on top of a row. Until a sweep drops them, the first page would walk over every
marker and everything they mask. The runs live in memory only: they are found by reading a row, at most a few thousand
rows have one, and to forget one costs time, never an answer.

Every method is called under the lock that its store writes under. `rows` is read without it: a run stays true until a
put lands in it, and a put narrows the run before it is written. A reader that finds the same object after it has read
knows that nothing landed meanwhile.
"""

from collections import defaultdict
from collections.abc import Sequence

from feedstore.widecolumn.port import DeleteCells, PutCells, lines

Run = tuple[bytes, bytes]
"""[begin, end): no key at or after `begin` and before `end` belongs to a visible column."""

ROWS_MAX = 4_096
KEYS_MIN = 64
"""The fewest keys of a run that is worth knowing."""


class DeadRuns:
    """The known dead runs of a table.

    column_end: where the column ends in a key.
    past_row: what sorts behind every key of a row when it is appended to the row.
    past_column: what sorts behind every version of a column when it is appended to row and column.
    """

    def __init__(self, column_end: int, past_row: bytes, past_column: bytes) -> None:
        self._column_end = column_end
        self._past_row = past_row
        self._past_column = past_column
        self.keys_min = KEYS_MIN
        self.rows: dict[bytes, tuple[Run, ...]] = {}
        """The runs of each row that was looked at, in key order. Only changed here."""

    def learn(self, row: bytes, keys: Sequence[bytes], marker: int, *, whole: bool) -> None:
        """Finds the runs in the first keys of a row. whole: these are all keys of the row."""
        runs = []
        begin, count, column = row, 0, b""
        for key in keys:
            prefix = key[: self._column_end]
            if prefix == column or key[-1] == marker:
                count += 1
            else:
                if count >= self.keys_min:
                    runs.append((begin, prefix))
                begin, count = prefix + self._past_column, 0
            column = prefix
        if count >= self.keys_min:
            runs.append((begin, row + self._past_row if whole else column))
        self.rows.pop(row, None)
        self.rows[row] = tuple(runs)
        if len(self.rows) > ROWS_MAX:
            del self.rows[next(iter(self.rows))]

    def put(self, cells: PutCells) -> None:
        """Call it before cells are written. The part of a run up to the last of the cells in it is forgotten. New pins
        arrive on top of a row, so most of the run stays.
        """
        if not self.rows:
            return
        columns: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for at, row in enumerate(lines(cells.rows)):
            if self.rows.get(row):
                columns[row].append(cells.columns[at].tobytes())
        for row, inside in columns.items():
            narrowed = (self._narrowed(run, row, inside) for run in self.rows[row])
            self.rows[row] = tuple(run for run in narrowed if run[0] < run[1])

    def mark(self, cells: DeleteCells) -> None:
        """Call it before markers are written. They end no run, but a row may get its first: it is looked at again."""
        if not self.rows:
            return
        for row in lines(cells.rows):
            if self.rows.get(row) == ():
                del self.rows[row]

    def clear(self) -> None:
        self.rows.clear()

    def _narrowed(self, run: Run, row: bytes, columns: Sequence[bytes]) -> Run:
        begin, end = run
        inside = max((key for column in columns if begin <= (key := row + column) < end), default=None)
        return run if inside is None else (inside + self._past_column, end)


def step_over(runs: Sequence[Run], position: bytes) -> bytes:
    """Where to continue reading from `position`."""
    for begin, end in runs:
        if position < begin:
            break
        if position < end:
            return end
    return position
