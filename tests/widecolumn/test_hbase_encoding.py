"""What is sent for a batch, and for a page."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.thrift import TClient, TMessageType
from widecolumn_adapters import delete_cells, in_cells, put_cells

from feedstore.widecolumn import DeleteCells, DeleteColumns, Mutation, Put, PutCells, RefusedError, Table
from feedstore.widecolumn.arrays import gathered
from feedstore.widecolumn.checks import check_batch
from feedstore.widecolumn.hbase.addresses import Sync
from feedstore.widecolumn.hbase.encoding import FAMILY, columns_after
from feedstore.widecolumn.hbase.frames import Call, Frame, Frames
from feedstore.widecolumn.hbase.thrift2 import protocol_on, structs
from tests.widecolumn.written import cells_in

A, B, C = b"aaa", b"bbb", b"ccc"


TABLE = b"default:encoding"


class Request(NamedTuple):
    """A request. items: TPut or TDelete."""

    call: Call
    items: list[Any]


class Wire:
    """What a client sends and is answered."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        found, self.data = self.data[:size], self.data[size:]
        return found

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        pass


def by_the_library(call: str, items: list[object]) -> bytes:
    """The message that thriftpy2 makes of a request."""
    wire = Wire()
    TClient(structs.Writes, protocol_on(wire))._send(call, **{"table": TABLE, ITEMS[call]: items})
    return wire.data


ITEMS = {"putMultiple": "tputs", "deleteMultiple": "tdeletes"}


def decoded(frame: Frame) -> Request:
    """A request as a gateway reads it; the library makes the same bytes of what is read."""
    wire = Wire(frame.message)
    protocol = protocol_on(wire)
    assert protocol.read_message_begin() == (frame.call, TMessageType.CALL, 0)
    arguments = getattr(structs.Writes, frame.call + "_args")()
    arguments.read(protocol)
    assert (arguments.table, wire.data) == (TABLE, b"")
    items = getattr(arguments, ITEMS[frame.call])
    assert by_the_library(frame.call, items) == frame.message
    return Request(frame.call, items)


def sent(batch: list[Mutation], cells_max: int = 100, sync: Sync = "disk") -> list[Request]:
    """What is sent for a batch, all of whose keys have one length."""
    cell = next((cell for mutation in batch for cell in cells_in(mutation)), (b"r1", A, 1))
    table = Table("encoding", len(cell[0]), len(cell[1]), None, 0)
    check_batch(table, batch)
    return [*map(decoded, Frames(TABLE, table, sync).of(*gathered(table, batch), cells_max))]


def cells(request: Request) -> list[tuple[bytes, bytes, int]]:
    """(row, column, timestamp), as HBase would write them."""
    if request.call == "putMultiple":
        return [(item.row, value.qualifier, item.timestamp) for item in request.items for value in item.columnValues]
    return [(item.row, column.qualifier, column.timestamp) for item in request.items for column in item.columns]


def test_puts_of_a_row_at_one_time_are_one_item():
    batch = [Put([(b"r1", 5), (b"r2", 6)], [A, B]), Put([(b"r1", 5)], [C]), Put([(b"r1", 7)], [C])]
    (request,) = sent(batch)
    assert request.call == "putMultiple"
    assert [(item.row, item.timestamp, [v.qualifier for v in item.columnValues]) for item in request.items] == [
        (b"r1", 5, [A, B, C]),
        (b"r1", 7, [C]),
        (b"r2", 6, [A, B]),
    ]
    assert {(v.family, v.value) for item in request.items for v in item.columnValues} == {(FAMILY, b"")}


def test_markers_carry_their_time_in_each_column():
    """A delete's own timestamp counts for nothing once it names columns."""
    batch = [DeleteColumns([(b"r1", 5), (b"r2", 6)], [A, B]), DeleteColumns([(b"r1", 7)], [A])]
    (request,) = sent(batch)
    assert request.call == "deleteMultiple"
    assert [(item.row, [(c.qualifier, c.timestamp) for c in item.columns]) for item in request.items] == [
        (b"r1", [(A, 5), (B, 5)]),
        (b"r1", [(A, 7)]),
        (b"r2", [(A, 6), (B, 6)]),
    ]


BOTH = [Put([(b"r", 1)], [A]), DeleteColumns([(b"r", 1)], [A])]


def test_rule_11_every_write_waits_for_the_log_on_disk_and_a_marker_is_for_older_versions_too():
    items = [item for request in sent(BOTH) for item in request.items]
    assert [item.durability for item in items] == [structs.TDurability.FSYNC_WAL] * 2
    assert items[1].deleteType == 1


def test_where_memory_is_enough_a_write_waits_for_the_log_there():
    items = [item for request in sent(BOTH, sync="memory") for item in request.items]
    assert [item.durability for item in items] == [structs.TDurability.SYNC_WAL] * 2


def test_requests_are_bounded():
    batch = [Put([(b"%03d" % number, 1) for number in range(25)], [A])]
    assert [len(request.items) for request in sent(batch, 10)] == [10, 10, 5]
    batch = [Put([(b"%03d" % number, 1) for number in range(5)], [A, B, C])]
    assert [len(request.items) for request in sent(batch, 10)] == [3, 2]


def test_a_request_holds_neighbours():
    """Rows that are far apart concern many regions, and each of them costs a server the same again."""
    rows = [b"%03d" % (number * 7 % 25) for number in range(25)]
    for kind in (Put, DeleteColumns):
        found = sent([kind([(row, 1)], [A]) for row in rows], 10)
        assert [item.row for request in found for item in request.items] == sorted(rows)


def test_the_cells_of_a_mutation_in_a_row_are_never_parted():
    columns = [b"%03d" % number for number in range(25)]
    for kind in (Put, DeleteColumns):
        found = sent([kind([(b"r1", 1), (b"r2", 1)], columns)], 10)
        assert [len(request.items) for request in found] == [1, 1]
        assert all(len(cells(request)) == 25 for request in found)


@pytest.mark.parametrize("batch", [[], [Put([], [A])], [Put([(b"r", 1)], [])], [DeleteColumns([(b"r", 1)], [])]])
def test_nothing_is_sent_for_nothing(batch: list[Mutation]):
    assert sent(batch) == []


ROWS = st.lists(st.tuples(st.sampled_from([b"r1", b"r2", b"r3"]), st.integers(1, 3)), max_size=4)
COLUMNS = st.lists(st.sampled_from([A, B, C]), max_size=4)
PRODUCTS = st.builds(Put, ROWS, COLUMNS) | st.builds(DeleteColumns, ROWS, COLUMNS)
BATCHES = st.lists(PRODUCTS | PRODUCTS.map(in_cells), max_size=6)


@given(BATCHES, st.integers(1, 8))
def test_every_cell_is_sent_and_no_other(batch: list[Mutation], cells_max: int):
    found = sent(batch, cells_max)
    for call, kinds in (("putMultiple", Put | PutCells), ("deleteMultiple", DeleteColumns | DeleteCells)):
        expected = {cell for mutation in batch if isinstance(mutation, kinds) for cell in cells_in(mutation)}
        assert {cell for request in found if request.call == call for cell in cells(request)} == expected
        requests = [request for request in found if request.call == call]
        assert all(len(cells(request)) <= cells_max or len(request.items) == 1 for request in requests)
        # What is of one row and one time is one item: none of them is in two requests.
        items = [(item.row, cells(Request(call, [item]))[0][2]) for request in requests for item in request.items]
        assert items == sorted({*items})


@given(st.data())
def test_keys_and_times_of_any_bytes_are_sent(data: st.DataObject):
    row_bytes, column_bytes = data.draw(st.integers(1, 64)), data.draw(st.integers(1, 64))
    rows = st.binary(min_size=row_bytes, max_size=row_bytes) | st.sampled_from([bytes(row_bytes), b"\xff" * row_bytes])
    columns = st.binary(min_size=column_bytes, max_size=column_bytes) | st.just(bytes(column_bytes))
    drawn = data.draw(st.lists(st.tuples(rows, columns, st.integers(1, 2**63 - 2)), min_size=1, max_size=8))
    table = Table("encoding", row_bytes, column_bytes, None, 0)
    for made in (put_cells, delete_cells):
        found = [cell for request in sent([made(drawn, table)], 3) for cell in cells(request)]
        assert sorted(found) == sorted(drawn)


def test_more_cells_than_a_gateway_takes_are_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch):
    table = Table("encoding", 2, 3, None, 0)
    frames = Frames(TABLE, table, "disk")
    many = put_cells((b"r1", b"%03d" % number, 5) for number in range(20))
    monkeypatch.setattr("feedstore.widecolumn.hbase.frames.BYTES_MAX", 1_000)
    for puts, markers in ((many, delete_cells([])), (put_cells([(b"r1", A, 1)]), DeleteCells(*many))):
        with pytest.raises(RefusedError, match=r"cells of one row at one timestamp: expected at most 1\d, got 20"):
            frames.of(puts, markers)


def test_the_filter_of_a_page():
    column = bytes.fromhex("7ffffe7416ca93ff00000000000899ed")
    assert columns_after(column) == bytes.fromhex(
        "0a30"
        + b"org.apache.hadoop.hbase.filter.ColumnRangeFilter".hex()
        + "1214"  # what the filter is made of
        + "0a107ffffe7416ca93ff00000000000899ed"  # from this column
        + "1000"  # without it
    )


def test_the_filter_takes_any_column_of_the_port():
    assert columns_after(b"\xff" * 64).endswith(b"\xff" * 64 + b"\x10\x00")
