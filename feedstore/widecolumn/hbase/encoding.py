"""How mutations and pages become requests. Pure: no connection is needed.

Thrift structs are passed in, so this module does not import Thrift.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol, assert_never

from feedstore.widecolumn.cells import cells_in
from feedstore.widecolumn.hbase.addresses import Sync
from feedstore.widecolumn.port import DeleteCells, DeleteColumns, Mutation, Put, PutCells

FAMILY = b"feed"

CELLS_MAX = 1_000
"""The most cells in one request, one row's own excepted. Requests of one batch are written side by side, and hold
neighbours: that a batch becomes more of them gives the servers no more to do.
"""


RECORD = b"r"
"""The column of a record (`RecordTable`)."""

BYTES_MAX = 1 << 20
"""About how many bytes of records one request has at most; one record may be larger."""


class Structs(Protocol):
    """The Thrift structs of a write."""

    TPut: Any
    TDelete: Any
    TColumn: Any
    TColumnValue: Any


class Record(NamedTuple):
    """What a row of records has: a value, and a timestamp that orders the values of the row."""

    timestamp: int
    value: bytes


class Request(NamedTuple):
    """items: TPut or TDelete, one for each row (and timestamp, where it is a put)."""

    call: Literal["putMultiple", "deleteMultiple"]
    items: list[Any]


# HBase's names for its log in the memory of the servers that get it (hflush), and on their disks (hsync). Each mutation
# says it: the default of a table, or of a server, is somebody else's to change.
_DURABILITY: Mapping[Sync, int] = {"memory": 3, "disk": 4}  # SYNC_WAL, FSYNC_WAL
_DELETE_COLUMNS = 1


def requests(
    structs: Structs, batch: Sequence[Mutation], sync: Sync = "disk", cells_max: int = CELLS_MAX
) -> Iterator[Request]:
    """The requests that write a batch, row after row: a request of neighbours concerns fewer regions, and for each of
    these a server does the same work, a sync of its log among it, however few rows there are.

    All puts of a row that share a timestamp become one TPut, whose own timestamp serves every cell of it; all markers
    of a row become one TDelete, where each column needs the timestamp again, because a TDelete's own is ignored as
    soon as it names columns. The cells of one mutation in one row are never parted: they are atomic.
    """
    durability = _DURABILITY[sync]
    puts: defaultdict[tuple[bytes, int], list[Any]] = defaultdict(list)
    deletes: defaultdict[bytes, list[Any]] = defaultdict(list)
    value, column_of = structs.TColumnValue, structs.TColumn
    for mutation in chain.from_iterable(map(_products, batch)):
        rows, columns = mutation
        if isinstance(mutation, Put):
            # One object for a column, whatever the number of rows: encoding them is most of the client's work.
            values = [value(FAMILY, column, b"") for column in columns]
            if len(values) == 1:
                only = values[0]
                for row, timestamp in rows:
                    puts[row, timestamp].append(only)
            else:
                for row, timestamp in rows if values else ():
                    puts[row, timestamp] += values
        else:
            for row, timestamp in rows if columns else ():
                deletes[row] += [column_of(FAMILY, column, timestamp) for column in columns]
    yield from _bounded(
        "putMultiple",
        ((structs.TPut(row, puts[row, ts], ts, durability), len(puts[row, ts])) for row, ts in sorted(puts)),
        cells_max,
    )
    yield from _bounded(
        "deleteMultiple",
        (
            (structs.TDelete(row, deletes[row], _DELETE_COLUMNS, durability), len(deletes[row]))
            for row in sorted(deletes)
        ),
        cells_max,
    )


def _products(mutation: Mutation) -> Iterable[Put | DeleteColumns]:
    match mutation:
        case Put() | DeleteColumns():
            return (mutation,)
        case PutCells() | DeleteCells():
            kind = Put if isinstance(mutation, PutCells) else DeleteColumns
            return (kind([(row, timestamp)], [column]) for row, column, timestamp in cells_in(mutation))
        case _:
            assert_never(mutation)


def put_of(structs: Structs, row: bytes, column: bytes, record: Record, sync: Sync) -> Any:
    """A TPut of one cell with a value."""
    cells = [structs.TColumnValue(FAMILY, column, record.value)]
    return structs.TPut(row, cells, record.timestamp, _DURABILITY[sync])


def record_requests(structs: Structs, records: Iterable[tuple[bytes, Record]], sync: Sync) -> Iterator[Request]:
    """The requests that write records, in the order in which they come: neighbours are best."""
    puts: list[Any] = []
    size = 0
    for row, record in records:
        more = len(row) + len(record.value)
        if puts and (len(puts) == CELLS_MAX or size + more > BYTES_MAX):
            yield Request("putMultiple", puts)
            puts, size = [], 0
        puts.append(put_of(structs, row, RECORD, record, sync))
        size += more
    if puts:
        yield Request("putMultiple", puts)


def mask_requests(structs: Structs, rows: Iterable[bytes], timestamp: int, sync: Sync) -> Iterator[Request]:
    """The requests that mask the records of rows up to a timestamp."""
    columns = [structs.TColumn(FAMILY, RECORD, timestamp)]
    durability = _DURABILITY[sync]
    return _bounded(
        "deleteMultiple", ((structs.TDelete(row, columns, _DELETE_COLUMNS, durability), 1) for row in rows), CELLS_MAX
    )


def _bounded(
    call: Literal["putMultiple", "deleteMultiple"], items: Iterator[tuple[Any, int]], cells_max: int
) -> Iterator[Request]:
    request: list[Any] = []
    cells = 0
    for item, size in items:
        if request and cells + size > cells_max:
            yield Request(call, request)
            request, cells = [], 0
        request.append(item)
        cells += size
    if request:
        yield Request(call, request)


_RANGE_FILTER = b"org.apache.hadoop.hbase.filter.ColumnRangeFilter"


def columns_after(column: bytes) -> bytes:
    """The filter that passes columns strictly after one, as HBase's own protobuf: unlike its filter language, that
    carries any bytes, and the region server seeks to the column instead of walking there.
    """
    column_range = _field(1, column) + b"\x10\x00"  # the lower end, exclusive; no upper end
    return _field(1, _RANGE_FILTER) + _field(2, column_range)


def _field(number: int, value: bytes) -> bytes:
    """A protobuf field of bytes, shorter than 128."""
    if len(value) > 127:
        raise ValueError(f"expected at most 127 bytes, got {len(value)}")
    return bytes((number << 3 | 2, len(value))) + value
