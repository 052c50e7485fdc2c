"""A table of records by key: a row has one record, the one with the latest timestamp."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from feedstore.portions import chunks, portions
from feedstore.widecolumn.hbase.addresses import Addresses
from feedstore.widecolumn.hbase.encoding import DELETE_COLUMNS, DURABILITY, FAMILY
from feedstore.widecolumn.hbase.gateways import Gateways
from feedstore.widecolumn.hbase.parallel import ParallelWriter
from feedstore.widecolumn.hbase.thrift2 import Thrift2Connection, structs

RECORD: Final = b"r"
"""The column of a record."""
_RECORDS_MAX: Final = 1_000
"""The most records in one request."""
_BYTES_MAX: Final = 1 << 20
"""About how many bytes of records one request has at most; one record may be larger."""
_KEYS_ONLY: Final = b"KeyOnlyFilter()"


class Record(NamedTuple):
    """The content of a row of records: a value, and a timestamp that orders the values of the row."""

    timestamp: int
    value: bytes


class RecordTable:
    """HBase itself resolves which record of a row is the latest. Every write may be repeated, and is synced to the
    write-ahead log as far as `Addresses.sync` says. Thread-safe.

    Every method raises UnavailableError, WillNotError if the table is missing; a write may have been done in part.
    """

    def __init__(
        self, name: str, addresses: Addresses, thrift2: Gateways[Thrift2Connection], parallel: ParallelWriter
    ) -> None:
        self._name = f"{addresses.namespace}:{name}".encode()
        self._addresses = addresses
        self._thrift2 = thrift2
        self._parallel = parallel
        self._durability = DURABILITY[addresses.sync]
        self._columns = [structs.TColumn(FAMILY, RECORD)]
        self._family = [structs.TColumn(FAMILY)]

    def get(self, rows: Sequence[bytes], deadline_s: float | None = None) -> list[Record | None]:
        """The records of some rows, in one round trip. deadline_s: of `time.monotonic`."""
        if not rows:
            return []
        gets = [structs.TGet(row, self._columns) for row in rows]
        found = self._read(lambda to: to.records.getMultiple(self._name, gets), deadline_s)
        return [
            Record(each.columnValues[0].timestamp, each.columnValues[0].value) if each.columnValues else None
            for each in found
        ]

    def put(self, records: Iterable[tuple[bytes, Record]]) -> None:
        """Writes any number of records, a few bounded requests at a time; neighbours should follow each other. What
        `records` raises is passed on.
        """
        some = portions(records, lambda each: len(each[0]) + len(each[1].value), _BYTES_MAX, _RECORDS_MAX)
        self._parallel.run(self._put, ([self._put_of(row, RECORD, record) for row, record in each] for each in some))

    def mask(self, rows: Sequence[bytes], timestamp: int) -> None:
        """Removes the records of some rows up to a timestamp. A record that is put later with such a timestamp is
        masked too, until a compaction removes the marker.
        """
        columns = [structs.TColumn(FAMILY, RECORD, timestamp)]
        deletes = [structs.TDelete(row, columns, DELETE_COLUMNS, self._durability) for row in rows]
        self._parallel.run(self._delete, chunks(deletes, _RECORDS_MAX))

    def timestamps(self, start: bytes, stop: bytes, count: int) -> list[tuple[bytes, int]]:
        """The first rows from `start` to before `stop`, at most `count`, and the timestamps of their records."""
        scan = structs.TScan(start, stop, self._columns, filterString=_KEYS_ONLY, limit=count)
        found = self._thrift2.call(
            lambda to: to.records.getScannerResults(self._name, scan, count), self._addresses.write_ms
        )
        return [(each.row, each.columnValues[0].timestamp) for each in found]

    # A row with other columns
    # ----------------------------------------------------------------------------------------------------------------

    def cells(self, row: bytes, deadline_s: float | None = None) -> dict[bytes, Record]:
        """All columns of a row, as they are at one moment."""
        get = structs.TGet(row, self._family)
        found = self._read(lambda to: to.records.get(self._name, get), deadline_s)
        return {each.qualifier: Record(each.timestamp, each.value) for each in found.columnValues}

    def put_cell(self, row: bytes, column: bytes, record: Record) -> None:
        self._put([self._put_of(row, column, record)])

    def replace_cell(self, row: bytes, column: bytes, expected: bytes | None, record: Record) -> bool:
        """Writes a cell if it has the expected value (None: if it is missing). Returns whether it had. If not, an
        earlier try of the same call may have written it.
        """
        put = self._put_of(row, column, record)
        return bool(
            self._thrift2.call(
                lambda to: to.records.checkAndPut(self._name, row, FAMILY, column, expected, put),
                self._addresses.write_ms,
            )
        )

    def _read(self, ask: Callable[[Thrift2Connection], Any], deadline_s: float | None) -> Any:
        return self._thrift2.call(ask, self._addresses.read_ms, deadline_s=deadline_s)

    def _put_of(self, row: bytes, column: bytes, record: Record) -> Any:
        cells = [structs.TColumnValue(FAMILY, column, record.value)]
        return structs.TPut(row, cells, record.timestamp, self._durability)

    def _put(self, puts: list[Any]) -> None:
        self._thrift2.call(lambda to: to.writes.putMultiple(self._name, puts), self._addresses.write_ms)

    def _delete(self, deletes: list[Any]) -> None:
        self._thrift2.call(lambda to: to.writes.deleteMultiple(self._name, deletes), self._addresses.write_ms)
