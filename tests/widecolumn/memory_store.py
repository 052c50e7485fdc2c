"""The model: a table in memory, written for reading. Every other adapter must agree with it."""

import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from feedstore.widecolumn.checks import check_batch, check_range, check_read, check_row
from feedstore.widecolumn.port import Cell, DeleteCells, DeleteColumns, Mutation, Sweep, Table, UnavailableError
from feedstore.widecolumn.resolution import Version, garbage, masks, visible
from tests.widecolumn.written import cells_in


class _Row:
    """All versions of a row. Those that decide, the newest put and the newest marker of each column, are kept at hand,
    and so is what they show until a write: rows are read more often than written, and have many versions of a column.
    """

    def __init__(self, versions: Iterable[Version] = ()) -> None:
        self.versions: set[Version] = set()
        self._newest: dict[tuple[bytes, bool], Version] = {}
        self._cells: list[Cell] | None = None
        for version in versions:
            self.add(version)

    def add(self, version: Version) -> None:
        self.versions.add(version)
        key = version.column, version.is_marker
        if key not in self._newest or version.timestamp > self._newest[key].timestamp:
            self._newest[key] = version
            self._cells = None

    def cells(self) -> list[Cell]:
        if self._cells is None:
            self._cells = visible(self._newest.values())
        return self._cells.copy()


class MemoryStore:
    """A table as a set of versions per row. Nothing is ever overwritten, so order and repetition cannot matter."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: defaultdict[bytes, _Row] = defaultdict(_Row)
        self._closed = False
        self._lock = threading.Lock()

    def apply(self, batch: Sequence[Mutation]) -> None:
        check_batch(self._table, batch)
        with self._lock:
            self._check_open()
            for mutation in batch:
                is_marker = isinstance(mutation, DeleteColumns | DeleteCells)
                for row, column, timestamp in cells_in(mutation):
                    self._rows[row].add(Version(column, timestamp, is_marker))

    def read(
        self,
        row: bytes,
        after: bytes | None,
        limit: int,
        deadline_s: float | None = None,  # never waits
    ) -> list[bytes]:
        check_read(self._table, row, after, limit)
        columns = [cell.column for cell in self.cells(row)]
        first = 0 if after is None else bisect_right(columns, after)
        return columns[first : first + limit]

    def cells(self, row: bytes) -> list[Cell]:
        check_row(self._table, row)
        with self._lock:
            self._check_open()
            return self._rows[row].cells() if row in self._rows else []

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        return [self.cells(row) for row in rows]

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        check_row(self._table, row)
        with self._lock:
            self._check_open()
            return masks(self.versions_of(row), columns)

    def versions_of(self, row: bytes) -> Collection[Version]:
        """All that is stored of a row, visible or not."""
        return self._rows[row].versions if row in self._rows else ()

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        check_range(self._table, start, stop)
        with self._lock:
            self._check_open()
            rows = sorted(row for row in self._rows if start <= row and (stop is None or row < stop))
        return ((row, columns) for row in rows if (columns := [cell.column for cell in self.cells(row)]))

    def sweep(self, now_ms: int) -> Sweep:
        with self._lock:
            self._check_open()
            done = Sweep(rows=len(self._rows))
            for row, stored in list(self._rows.items()):
                drop = garbage(stored.versions, self._table.keep, now_ms, self._table.purge_window_ms)
                done = Sweep(
                    rows=done.rows,
                    trimmed=done.trimmed + len(drop.trimmed),
                    masked=done.masked + len(drop.masked),
                    markers=done.markers + len(drop.markers),
                )
                if left := stored.versions.difference(*drop):
                    self._rows[row] = _Row(left) if any(drop) else stored
                else:
                    del self._rows[row]
            return done

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError(f"{self._table.name}: the store is closed")
