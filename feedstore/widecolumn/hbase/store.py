"""One table of an HBase cluster, behind the port."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from feedstore.portions import chunks
from feedstore.widecolumn.checks import check_batch, check_range, check_read, check_row
from feedstore.widecolumn.hbase.addresses import Addresses
from feedstore.widecolumn.hbase.direct import DirectReads
from feedstore.widecolumn.hbase.encoding import FAMILY, columns_after
from feedstore.widecolumn.hbase.gateways import Gateways
from feedstore.widecolumn.hbase.parallel import ParallelWriter
from feedstore.widecolumn.hbase.thrift2 import Thrift2Connection, structs
from feedstore.widecolumn.port import Cell, Mutation, Table

if TYPE_CHECKING:
    from feedstore.widecolumn.hbase.frames import Frame, Frames

_FIRST_ROWS = 2
_EVERY_VERSION = 2**31 - 1
_SCAN_CELLS = 2_000
"""About how many cells a scan holds: hundreds of ranges are read side by side. With more a single scan is no faster."""
_SCAN_ROWS_MAX = 1_000
_SCAN_CELLS_MAX = 100_000
"""The most cells that a scan holds if rows that a trim has cut follow short ones: a gateway has little memory."""
_ROWS_AT_ONCE = 16
"""How many whole rows one call reads: some may have a thousand cells."""


class HBaseStore:
    """HBase resolves what is visible itself, in every read: the port's model is its own.

    A cell's value is empty, and its timestamp the mutation's. Every write is synced to the write-ahead log as far as
    `Addresses.sync` says, whatever the table's default is.
    """

    def __init__(
        self,
        table: Table,
        addresses: Addresses,
        thrift2: Gateways[Thrift2Connection],
        parallel: ParallelWriter,
        direct: DirectReads | None,
    ) -> None:
        self._table = table
        self._name = f"{addresses.namespace}:{table.name}".encode()
        self._addresses = addresses
        self._thrift2 = thrift2
        self._parallel = parallel
        self._family = [structs.TColumn(FAMILY)]
        self._frames: Frames | None = None
        self._direct = direct
        self._scan_rows_max = max(1, min(_SCAN_ROWS_MAX, _SCAN_CELLS_MAX // (table.keep or 1)))

    def apply(self, batch: Sequence[Mutation]) -> None:
        """Sends puts and markers in separate requests, in any order: timestamps decide, not arrival.

        HBase does not say which rows of a request failed, so any failure counts for the whole batch.
        """
        check_batch(self._table, batch)
        # They need numpy, which a reader does not load.
        from feedstore.widecolumn.arrays import gathered  # noqa: PLC0415
        from feedstore.widecolumn.hbase.frames import Frames  # noqa: PLC0415

        if self._frames is None:
            self._frames = Frames(self._name, self._table, self._addresses.sync)
        self._parallel.run(self._write, self._frames.of(*gathered(self._table, batch)))

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        check_read(self._table, row, after, limit)
        if self._direct is not None:
            found = self._direct.cells(row, after, limit, deadline_s)
            if found is not None:
                return [column for column, _ in found]
        page = structs.TGet(row, self._family, limit, None if after is None else columns_after(after))
        return [each.qualifier for each in self._get(lambda to: to.pages.get(self._name, page), deadline_s)]

    def cells(self, row: bytes) -> list[Cell]:
        check_row(self._table, row)
        if self._direct is not None:
            found = self._direct.cells(row)
            if found is not None:
                return [*map(Cell._make, found)]
        get = structs.TGet(row, self._family)
        return [Cell(each.qualifier, each.timestamp) for each in self._get(lambda to: to.cells.get(self._name, get))]

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        for row in rows:
            check_row(self._table, row)
        return [cells for some in chunks(rows, _ROWS_AT_ONCE) for cells in self._cells_of(some)]

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        """Uses a raw scan, which returns puts and markers alike, with their timestamps. If a column is not visible, its
        largest timestamp is a marker's.
        """
        check_row(self._table, row)
        raw = structs.TScan(row, row + b"\0", self._family, _EVERY_VERSION, attributes={b"_raw_": b"\xff"})
        found = self._thrift2.call(lambda to: to.cells.getScannerResults(self._name, raw, 1), self._addresses.write_ms)
        newest: dict[bytes, int] = {}
        for cell in found[0].columnValues if found else ():
            newest[cell.qualifier] = max(cell.timestamp, newest.get(cell.qualifier, 0))
        # Read afterwards: a column that is visible by now may have been put in between, and is not masked.
        shown = {cell.column for cell in self.cells(row)}
        return [Cell(column, newest[column]) for column in sorted({*columns} & newest.keys() - shown)]

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        check_range(self._table, start, stop)
        if stop is not None and start >= stop:  # to HBase an empty end means no end
            return iter(())
        return self._rows(start, stop)

    def sweep(self, now_ms: int) -> None:
        """Does nothing: HBase trims when it compacts all files of a region, on the table's own schedule."""

    def _rows(self, position: bytes, stop: bytes | None) -> Iterator[tuple[bytes, list[bytes]]]:
        count = _FIRST_ROWS
        while True:
            rows = self._some_rows(position, stop, count)
            yield from rows
            if len(rows) < count:
                return
            position = rows[-1][0] + b"\0"
            cells = sum(len(columns) for _, columns in rows)
            # As many rows as have the wanted cells, judging by the last rows. It rises slowly, in case those were
            # short.
            count = max(1, min(_SCAN_CELLS * len(rows) // max(1, cells), count * 4, self._scan_rows_max))

    def _some_rows(self, position: bytes, stop: bytes | None, count: int) -> list[tuple[bytes, list[bytes]]]:
        """The first `count` rows at or after a position, in one round trip; fewer only if there are no more.

        The scanner is gone when this returns: a caller may take as long as it likes before it asks for more, and may
        ask another gateway.
        """
        # With the limit, a region server closes its scanner itself together with the last row.
        scan = structs.TScan(position, stop, self._family, limit=count)
        found = self._thrift2.call(
            lambda to: to.pages.getScannerResults(self._name, scan, count), self._addresses.write_ms
        )
        return [(each.row, [cell.qualifier for cell in each.columnValues]) for each in found]

    def _cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        gets = [structs.TGet(row, self._family) for row in rows]
        answers = self._thrift2.call(lambda to: to.cells.getMultiple(self._name, gets), self._addresses.read_ms)
        return [[Cell(each.qualifier, each.timestamp) for each in answer.columnValues] for answer in answers]

    def _write(self, frame: "Frame") -> None:
        self._thrift2.call(lambda to: to.send(frame.call, frame.message), self._addresses.write_ms)

    def _get(self, ask: Callable[[Thrift2Connection], Any], deadline_s: float | None = None) -> Any:
        return self._thrift2.call(ask, self._addresses.read_ms, deadline_s=deadline_s).columnValues
