"""What is sent for a batch, and for a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from widecolumn_adapters import in_cells

from feedstore.widecolumn import DeleteCells, DeleteColumns, Mutation, Put, PutCells, Table
from feedstore.widecolumn.cells import cells_in
from feedstore.widecolumn.hbase.encoding import FAMILY, Request, columns_after, requests
from feedstore.widecolumn.hbase.thrift2 import structs

A, B, C = b"aaa", b"bbb", b"ccc"


def sent(batch: list[Mutation], cells_max: int = 100) -> list[Request]:
    return list(requests(structs, batch, cells_max=cells_max))


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
        (b"r1", [(A, 5), (B, 5), (A, 7)]),
        (b"r2", [(A, 6), (B, 6)]),
    ]


BOTH = [Put([(b"r", 1)], [A]), DeleteColumns([(b"r", 1)], [A])]


def test_rule_11_every_write_waits_for_the_log_on_disk_and_a_marker_is_for_older_versions_too():
    items = [item for request in sent(BOTH) for item in request.items]
    assert [item.durability for item in items] == [structs.TDurability.FSYNC_WAL] * 2
    assert items[1].deleteType == 1


def test_where_memory_is_enough_a_write_waits_for_the_log_there():
    items = [item for request in requests(structs, BOTH, "memory") for item in request.items]
    assert [item.durability for item in items] == [structs.TDurability.SYNC_WAL] * 2


def test_requests_are_bounded():
    batch = [Put([(b"%03d" % number, 1) for number in range(25)], [A])]
    assert [len(request.items) for request in sent(batch, 10)] == [10, 10, 5]
    batch = [Put([(b"%03d" % number, 1) for number in range(5)], [A, B, C])]
    assert [len(request.items) for request in sent(batch, 10)] == [3, 2]


def test_a_request_holds_neighbours():
    """What stands far apart concerns many regions, and each of them costs a server the same again."""
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
WIDTHS = Table("encoding", 2, 3, trim=None, purge_window_ms=0)
BATCHES = st.lists(PRODUCTS | PRODUCTS.map(lambda mutation: in_cells(mutation, WIDTHS)), max_size=6)


@given(BATCHES, st.integers(1, 8))
def test_every_cell_is_sent_and_no_other(batch: list[Mutation], cells_max: int):
    found = sent(batch, cells_max)
    for call, kinds in (("putMultiple", Put | PutCells), ("deleteMultiple", DeleteColumns | DeleteCells)):
        expected = {cell for mutation in batch if isinstance(mutation, kinds) for cell in cells_in(mutation)}
        assert {cell for request in found if request.call == call for cell in cells(request)} == expected


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
    with pytest.raises(ValueError, match="at most 127"):
        columns_after(b"c" * 128)
