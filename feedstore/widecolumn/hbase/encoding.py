"""How records and pages become requests. Pure: no connection is needed. Cells have a module of their own (`frames`)."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

from feedstore.portions import portions
from feedstore.widecolumn.hbase.addresses import Sync
from feedstore.widecolumn.hbase.protobuf import number, text
from feedstore.widecolumn.hbase.thrift2 import structs

FAMILY = b"feed"

RECORDS_MAX = 1_000
"""The most records in one request."""

RECORD = b"r"
"""The column of a record (`RecordTable`)."""

BYTES_MAX = 1 << 20
"""About how many bytes of records one request has at most; one record may be larger."""


class Record(NamedTuple):
    """The content of a row of records: a value, and a timestamp that orders the values of the row."""

    timestamp: int
    value: bytes


class ThriftRequest(NamedTuple):
    """A request that writes. items: TPut, one for each row and timestamp, or TDelete, one for each row."""

    call: Literal["putMultiple", "deleteMultiple"]
    items: list[Any]


# HBase's names for its log in the memory of the servers that get it (hflush), and on their disks (hsync). Each mutation
# says which, because somebody else may change the default of a table, or of a server.
DURABILITY: Mapping[Sync, int] = {"memory": 3, "disk": 4}  # SYNC_WAL, FSYNC_WAL
DELETE_COLUMNS = 1


def put_of(row: bytes, column: bytes, record: Record, sync: Sync) -> Any:
    """A TPut of one cell with a value."""
    cells = [structs.TColumnValue(FAMILY, column, record.value)]
    return structs.TPut(row, cells, record.timestamp, DURABILITY[sync])


def record_requests(records: Iterable[tuple[bytes, Record]], sync: Sync) -> Iterator[ThriftRequest]:
    """The requests that write records, in the order in which they come: best if neighbours follow each other."""
    for some in portions(records, lambda each: len(each[0]) + len(each[1].value), BYTES_MAX, RECORDS_MAX):
        yield ThriftRequest("putMultiple", [put_of(row, RECORD, record, sync) for row, record in some])


def mask_requests(rows: Iterable[bytes], timestamp: int, sync: Sync) -> Iterator[ThriftRequest]:
    """The requests that mask the records of rows up to a timestamp."""
    columns = [structs.TColumn(FAMILY, RECORD, timestamp)]
    deletes = (structs.TDelete(row, columns, DELETE_COLUMNS, DURABILITY[sync]) for row in rows)
    while some := [*islice(deletes, RECORDS_MAX)]:
        yield ThriftRequest("deleteMultiple", some)


_RANGE_FILTER = b"org.apache.hadoop.hbase.filter.ColumnRangeFilter"


def columns_after(column: bytes) -> bytes:
    """The filter that passes columns strictly after one, as HBase's own protobuf. Unlike its filter language, protobuf
    carries any bytes, and the region server seeks to the column instead of walking there.
    """
    column_range = text(1, column) + number(2, 0)  # the lower end, exclusive; no upper end
    return text(1, _RANGE_FILTER) + text(2, column_range)
