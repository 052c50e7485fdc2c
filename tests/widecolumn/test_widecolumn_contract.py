"""Every promise of the port, asked of every adapter."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import permutations, product

import numpy as np
import pytest
from widecolumn_adapters import TABLE, Adapter, Opened, delete_cells, in_cells, put_cells

from feedstore.widecolumn import (
    MAX_LIMIT,
    Cell,
    DeleteCells,
    DeleteColumns,
    Mutation,
    Put,
    PutCells,
    RefusedError,
    Sweep,
    Table,
    Trim,
    UnavailableError,
    WideColumnStore,
)

OpenCluster = Callable[[Table], Opened]

ROW, OTHER = b"r1", b"r2"
A, B, C, D, E = b"aaa", b"bbb", b"ccc", b"ddd", b"eee"
NOW = 1_000_000


def put(timestamp: int, *columns: bytes, row: bytes = ROW) -> Put:
    return Put([(row, timestamp)], columns)


def delete(timestamp: int, *columns: bytes, row: bytes = ROW) -> DeleteColumns:
    return DeleteColumns([(row, timestamp)], columns)


# ---- what is visible


def test_a_row_that_was_never_written_is_empty(store: WideColumnStore):
    assert store.read(ROW, None, 10) == []
    assert store.cells(ROW) == []
    assert list(store.scan()) == []


def test_a_mutation_is_the_product_of_rows_and_columns(store: WideColumnStore):
    store.apply([Put([(ROW, 5), (OTHER, 6)], [B, A])])
    assert store.cells(ROW) == [Cell(A, 5), Cell(B, 5)]
    assert store.cells(OTHER) == [Cell(A, 6), Cell(B, 6)]


def test_cells_of_several_rows_come_in_their_order(store: WideColumnStore):
    store.apply([Put([(ROW, 5), (OTHER, 6)], [B, A]), delete(7, A)])
    assert store.cells_of([OTHER, b"r3", ROW]) == [[Cell(A, 6), Cell(B, 6)], [], [Cell(B, 5)]]
    assert store.cells_of([]) == []


def test_cells_of_many_rows_come_in_their_order(store: WideColumnStore):
    rows = [b"%02d" % number for number in range(50)]
    store.apply([Put([(row, 1 + number)], [A]) for number, row in enumerate(rows) if number % 3])
    assert store.cells_of(rows[::-1]) == [
        [Cell(A, 1 + number)] if number % 3 else [] for number in reversed(range(len(rows)))
    ]


def test_the_largest_timestamp_is_visible_once(store: WideColumnStore):
    store.apply([put(3, A), put(5, A), put(4, A)])
    assert store.cells(ROW) == [Cell(A, 5)]
    assert store.read(ROW, None, 10) == [A]


@pytest.mark.parametrize(("marker", "seen"), [(4, [Cell(A, 5)]), (5, []), (6, [])])
def test_a_put_must_be_strictly_newer_than_the_marker(store: WideColumnStore, marker: int, seen: list[Cell]):
    store.apply([put(5, A), delete(marker, A)])
    assert store.cells(ROW) == seen
    assert store.read(ROW, None, 10) == [cell.column for cell in seen]


def test_a_marker_masks_every_older_version(store: WideColumnStore):
    store.apply([put(3, A), put(5, A), put(7, A), delete(5, A)])
    assert store.cells(ROW) == [Cell(A, 7)]
    store.apply([delete(7, A)])
    assert store.cells(ROW) == []


def test_a_late_put_below_a_marker_stays_masked(store: WideColumnStore):
    store.apply([delete(5, A)])
    store.apply([put(5, A), put(4, A)])
    assert store.read(ROW, None, 10) == []


def test_a_marker_touches_its_own_row_and_columns_only(store: WideColumnStore):
    store.apply([Put([(ROW, 5), (OTHER, 5)], [A, B]), delete(9, A)])
    assert store.read(ROW, None, 10) == [B]
    assert store.read(OTHER, None, 10) == [A, B]


@pytest.mark.parametrize("timestamp", [1, 2**63 - 2])
def test_the_whole_range_of_timestamps_is_stored(store: WideColumnStore, timestamp: int):
    store.apply([put(timestamp, A)])
    assert store.cells(ROW) == [Cell(A, timestamp)]
    store.apply([delete(timestamp, A)])
    assert store.cells(ROW) == []


def test_keys_sort_as_unsigned_bytes(store: WideColumnStore):
    columns = [b"\x00\x00\x00", b"\x00\x00\xff", b"\x7f\xff\xff", b"\x80\x00\x00", b"\xff\xff\xff"]
    rows = [b"\x00\x00", b"\x7f\xff", b"\x80\x00", b"\xff\xff"]
    store.apply([Put([(row, 1) for row in reversed(rows)], columns[::-1])])
    assert list(store.scan()) == [(row, columns) for row in rows]
    for row in rows:
        assert [store.read(row, after, 1) for after in [None, *columns]] == [[c] for c in columns] + [[]]


# ---- apply


NO_CELLS = [Put([], [A]), Put([(ROW, 1)], []), DeleteColumns([], []), put_cells([]), delete_cells([])]


@pytest.mark.parametrize("batch", [[], *([each] for each in NO_CELLS)])
def test_a_batch_without_cells_writes_nothing(store: WideColumnStore, batch: list[Mutation]):
    store.apply(batch)
    assert list(store.scan()) == []


def test_repeating_a_batch_changes_nothing(store: WideColumnStore):
    batch = [put(5, A, B, C), delete(5, B), put(6, C)]
    store.apply(batch)
    before = store.cells(ROW)
    for _ in range(3):
        store.apply(batch)
        store.apply(batch[::-1])
    assert store.cells(ROW) == before == [Cell(A, 5), Cell(C, 6)]


def test_every_order_gives_the_same(store: WideColumnStore):
    mutations = [put(2, A, B), put(4, A), delete(3, A, B), delete(4, B), put(5, B)]
    rows = [bytes(pair) for pair in product(range(12), repeat=2)]
    for number, (row, order) in enumerate(zip(rows, permutations(range(5)), strict=False)):
        for index in order:
            columns = mutations[index].columns
            mutation = type(mutations[index])([(row, mutations[index].rows[0][1])], columns)
            store.apply([in_cells(mutation) if number >> index & 1 else mutation])
        assert store.cells(row) == [Cell(A, 4), Cell(B, 5)], order


BAD_ROWS = [(b"", 1), (b"r", 1), (b"r12", 1), ("r1", 1), (bytearray(b"r1"), 1)]
BAD_TIMES = [(ROW, 0), (ROW, -1), (ROW, 2**63 - 1), (ROW, 2**63), (ROW, 1.0), (ROW, True), (ROW, None)]
BAD_COLUMNS = [b"", b"cc", b"cccc", "ccc", None]


@pytest.mark.parametrize("kind", [Put, DeleteColumns])
@pytest.mark.parametrize(
    "bad",
    [*[([(OTHER, 1), row], [A]) for row in BAD_ROWS + BAD_TIMES], *[([(OTHER, 1)], [A, each]) for each in BAD_COLUMNS]],
)
def test_a_refused_batch_leaves_nothing_written(store: WideColumnStore, kind: type, bad: tuple):
    with pytest.raises(RefusedError, match="feed: "):
        store.apply([put(5, A), kind(*bad)])
    assert list(store.scan()) == []


def test_cells_in_arrays_come_in_any_order_and_may_repeat(store: WideColumnStore):
    store.apply([put_cells([(OTHER, A, 6), (ROW, C, 5), (ROW, A, 4), (ROW, A, 5), (OTHER, A, 6), (ROW, B, 3)])])
    assert store.cells(ROW) == [Cell(A, 5), Cell(B, 3), Cell(C, 5)]
    assert store.cells(OTHER) == [Cell(A, 6)]
    store.apply([delete_cells([(ROW, C, 5), (OTHER, A, 5), (ROW, A, 4), (ROW, C, 1), (ROW, B, 3)])])
    assert store.cells(ROW) == [Cell(A, 5)]
    assert store.cells(OTHER) == [Cell(A, 6)]


def test_a_batch_may_mix_everything(store: WideColumnStore):
    store.apply([put(5, A), in_cells(put(5, B, C)), delete(5, B), in_cells(delete(5, C)), in_cells(put(6, C))])
    assert store.cells(ROW) == [Cell(A, 5), Cell(C, 6)]


def test_every_byte_of_arrays_is_stored(store: WideColumnStore):
    """Zeros at an end are part of a key, and sort as everywhere."""
    rows = [b"\0\0", b"\0\xff", b"\xff\0", b"\xff\xff"]
    columns = [b"\0\0\0", b"\0\xff\0", b"\xff\0\0", b"\xff\xff\xff"]
    store.apply([put_cells((row, column, 2**63 - 2) for row in reversed(rows) for column in reversed(columns))])
    assert list(store.scan()) == [(row, columns) for row in rows]
    assert store.cells(rows[0]) == [Cell(column, 2**63 - 2) for column in columns]
    store.apply([delete_cells((row, columns[0], 2**63 - 2) for row in rows[1:])])
    assert list(store.scan()) == [(rows[0], columns), *((row, columns[1:]) for row in rows[1:])]


def test_arrays_that_are_shared_stay_as_they_are(store: WideColumnStore):
    cells = put_cells([(OTHER, B, 6), (ROW, A, 5)])
    for array in cells:
        array.flags.writeable = False
    store.apply([cells, DeleteCells(*cells)])
    assert [array.tolist() for array in cells] == [[[*OTHER], [*ROW]], [[*B], [*A]], [6, 5]]
    assert list(store.scan()) == []


CELLS = put_cells([(ROW, A, 5), (OTHER, B, 6)])
BAD_ARRAYS = {
    "rows of another width": CELLS._replace(rows=CELLS.columns),
    "columns of another width": CELLS._replace(columns=CELLS.rows),
    "fewer rows": CELLS._replace(rows=CELLS.rows[:1]),
    "fewer columns": CELLS._replace(columns=CELLS.columns[:1]),
    "fewer times": CELLS._replace(timestamps=CELLS.timestamps[:1]),
    "rows in one line": CELLS._replace(rows=CELLS.rows.reshape(-1)),
    "times in two": CELLS._replace(timestamps=CELLS.timestamps.reshape(1, 2)),
    "a number": CELLS._replace(timestamps=np.array(5)),
    "signed rows": CELLS._replace(rows=CELLS.rows.astype(np.int8)),
    "columns of one field": CELLS._replace(columns=CELLS.columns.view("S3")),
    "times of other bytes": CELLS._replace(timestamps=CELLS.timestamps.astype(">i8" if np.little_endian else "<i8")),
    "unsigned times": CELLS._replace(timestamps=CELLS.timestamps.astype(np.uint64)),
    "times with fractions": CELLS._replace(timestamps=CELLS.timestamps.astype(np.float64)),
    "rows backwards": CELLS._replace(rows=CELLS.rows[:, ::-1]),
    "every second time": CELLS._replace(timestamps=np.arange(1, 5)[::2]),
    "no arrays": PutCells([ROW, OTHER], [A, B], [5, 6]),
    "no rows at all": CELLS._replace(rows=None),
    "times from nothing": CELLS._replace(timestamps=np.array([5, 0])),
    "times from before": CELLS._replace(timestamps=np.array([-1, 5])),
    "times without end": CELLS._replace(timestamps=np.array([5, 2**63 - 1])),
}


@pytest.mark.parametrize("kind", [PutCells, DeleteCells])
@pytest.mark.parametrize("bad", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_refused_arrays_leave_nothing_written(store: WideColumnStore, kind: type, bad: PutCells):
    with pytest.raises(RefusedError, match="feed: "):
        store.apply([put(5, A), CELLS, kind(*bad)])
    assert list(store.scan()) == []


# ---- read


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6, MAX_LIMIT])
def test_a_read_gives_at_most_limit_columns_in_order(store: WideColumnStore, limit: int):
    store.apply([put(1, E, C, A, D, B)])
    assert store.read(ROW, None, limit) == [A, B, C, D, E][:limit]


def test_a_read_begins_strictly_after(store: WideColumnStore):
    store.apply([put(1, A, C, E), delete(9, C)])
    assert store.read(ROW, A, 10) == [E]
    assert store.read(ROW, B, 10) == [E]
    assert store.read(ROW, E, 10) == []
    assert store.read(ROW, b"\xff" * 3, 10) == []


def test_a_read_stays_in_its_row(store: WideColumnStore):
    store.apply([Put([(b"r0", 1), (ROW, 1), (OTHER, 1)], [A]), delete(2, A)])
    assert store.read(ROW, None, 10) == []
    assert store.read(b"r0", None, 10) == [A]


def test_pages_walk_over_everything_between_masked_columns(store: WideColumnStore):
    columns = [number.to_bytes(3, "big") for number in range(300)]
    dead = [c for i, c in enumerate(columns) if i % 7 < 3 or 50 <= i < 200]
    live = [c for c in columns if c not in dead]
    store.apply([put(5, *columns), put(6, *columns[::2]), delete(6, *dead)])
    for limit in (1, 3, 10, 100):
        walked: list[bytes] = []
        while page := store.read(ROW, walked[-1] if walked else None, limit):
            walked += page
        assert walked == live


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1, 1.0, None])
def test_a_limit_out_of_range_is_refused(store: WideColumnStore, limit: int):
    with pytest.raises(RefusedError, match="limit"):
        store.read(ROW, None, limit)


@pytest.mark.parametrize(("row", "after"), [(b"r", None), ("r1", None), (ROW, b"cc"), (ROW, "ccc")])
def test_a_read_of_what_cannot_be_is_refused(store: WideColumnStore, row: bytes, after: bytes | None):
    with pytest.raises(RefusedError):
        store.read(row, after, 1)


def test_cells_of_what_cannot_be_are_refused(store: WideColumnStore):
    with pytest.raises(RefusedError):
        store.cells(b"r")


# ---- masks


def test_masks_are_the_largest_markers_of_columns_that_show_nothing(store: WideColumnStore):
    store.apply([put(5, A, B, C), delete(5, A), delete(4, B), delete(3, A), delete(9, D), delete(8, A, row=OTHER)])
    assert store.masks(ROW, [D, C, B, A, E]) == [Cell(A, 5), Cell(D, 9)]
    assert store.masks(ROW, [D]) == [Cell(D, 9)]
    assert store.masks(ROW, []) == []


def test_a_later_put_ends_a_mask(store: WideColumnStore):
    store.apply([put(5, A), delete(7, A)])
    assert store.masks(ROW, [A]) == [Cell(A, 7)]
    store.apply([put(7, A)])
    assert store.masks(ROW, [A]) == [Cell(A, 7)]
    store.apply([put(8, A)])
    assert store.masks(ROW, [A]) == []


def test_masks_outlive_a_sweep_until_they_expire(store: WideColumnStore):
    young, old = NOW - TABLE.purge_window_ms, NOW - TABLE.purge_window_ms - 1
    store.apply([put(5, A, B), delete(young, A), delete(old, B)])
    store.sweep(NOW)
    assert store.masks(ROW, [A, B]) == [Cell(A, young)]


def test_masks_of_what_cannot_be_are_refused(store: WideColumnStore):
    with pytest.raises(RefusedError):
        store.masks(b"r", [A])


# ---- scan


def test_a_scan_leaves_out_rows_with_nothing_visible(store: WideColumnStore):
    store.apply([Put([(b"r1", 1), (b"r2", 1), (b"r3", 1)], [A, B]), delete(1, A, B, row=b"r2"), delete(9, B)])
    assert list(store.scan()) == [(b"r1", [A]), (b"r3", [A, B])]


@pytest.mark.parametrize(
    ("start", "stop", "seen"),
    [
        (b"", None, ["b1", "b2", "c1"]),
        (b"b2", None, ["b2", "c1"]),
        (b"b", b"c", ["b1", "b2"]),
        (b"b1\0", None, ["b2", "c1"]),
        (b"b1\xff\xff\xff\xff\xff\xff", None, ["b2", "c1"]),
        (b"", b"b2", ["b1"]),
        (b"", b"b2\0", ["b1", "b2"]),
        (b"c2", None, []),
        (b"b2", b"b1", []),
        (b"", b"", []),
    ],
)
def test_a_scan_takes_start_and_leaves_stop(store: WideColumnStore, start: bytes, stop: bytes | None, seen: list[str]):
    store.apply([Put([(b"b1", 1), (b"b2", 1), (b"c1", 1)], [b"\xff\xff\xff", A])])
    assert [row.decode() for row, _ in store.scan(start, stop)] == seen


@pytest.mark.parametrize(("start", "stop"), [("b", None), (None, None), (b"", "c")])
def test_a_scan_of_what_cannot_be_is_refused(store: WideColumnStore, start: bytes, stop: bytes | None):
    with pytest.raises(RefusedError):
        store.scan(start, stop)


def test_a_scan_can_be_left_and_begun_again_after_the_last_row(store: WideColumnStore):
    rows = [bytes(pair) for pair in product(range(8), repeat=2)]
    store.apply([Put([(row, 1) for row in rows], [A])])
    first = []
    for row, _ in store.scan():
        first.append(row)
        if len(first) == 20:
            break
    assert first + [row for row, _ in store.scan(first[-1] + b"\0")] == rows


# ---- sweep


def says(swept: Sweep | None, **numbers: int) -> bool:
    """Whether a sweep did so much, as far as the store tells."""
    return swept is None or all(getattr(swept, name) == number for name, number in numbers.items())


def test_a_sweep_keeps_the_first_columns(store: WideColumnStore):
    store.apply([put(5, A, B, C, D, E), put(5, A, row=OTHER)])
    assert says(store.sweep(NOW), rows=2, trimmed=2)
    assert store.read(ROW, None, 10) == [A, B, C]
    assert store.read(OTHER, None, 10) == [A]


def test_a_sweep_counts_live_distinct_columns_only(store: WideColumnStore):
    store.apply([put(NOW, A, B, C, D, E), put(NOW + 1, A, B), delete(NOW + 1, A, C)])
    store.sweep(NOW)
    assert store.cells(ROW) == [Cell(B, NOW + 1), Cell(D, NOW), Cell(E, NOW)]


def test_a_sweep_without_keep_trims_nothing(open_cluster: OpenCluster):
    store, _ = open_cluster(Table("all", 2, 3, trim=None, purge_window_ms=0))
    columns = [number.to_bytes(3, "big") for number in range(500)]
    store.apply([put(5, *columns)])
    assert says(store.sweep(NOW), trimmed=0)
    assert store.read(ROW, None, MAX_LIMIT) == columns


def test_a_trimmed_column_may_come_back(store: WideColumnStore):
    store.apply([put(5, A, B, C, D)])
    store.sweep(NOW)
    store.apply([delete(5, A), put(5, D)])
    store.sweep(NOW)
    assert store.read(ROW, None, 10) == [B, C, D]


def test_a_marker_inside_its_window_stays(store: WideColumnStore):
    marker = NOW - TABLE.purge_window_ms
    store.apply([put(marker, A), delete(marker, A)])
    assert says(store.sweep(NOW), markers=0)
    store.apply([put(marker, A)])
    assert store.read(ROW, None, 10) == []


def test_an_older_marker_goes_with_what_it_masks_and_masks_nothing_after(store: WideColumnStore):
    marker = NOW - TABLE.purge_window_ms - 1
    store.apply([put(marker, A), put(marker - 1, A), delete(marker, A)])
    assert says(store.sweep(NOW), masked=2, markers=1)
    assert store.read(ROW, None, 10) == []
    store.apply([put(marker, A)])
    assert store.read(ROW, None, 10) == [A]


def test_a_sweep_drops_superseded_versions_unseen(store: WideColumnStore):
    store.apply([put(5, A), put(7, A), put(6, A)])
    assert says(store.sweep(NOW), masked=2)
    assert store.cells(ROW) == [Cell(A, 7)]


def test_a_second_sweep_finds_nothing(store: WideColumnStore):
    store.apply([put(5, A, B, C, D, E), put(6, A), delete(6, B), delete(NOW, C)])
    store.sweep(NOW)
    cells = store.cells(ROW)
    assert says(store.sweep(NOW), trimmed=0, masked=0, markers=0)
    assert store.cells(ROW) == cells


def test_a_sweep_beside_writers_loses_nothing(open_cluster: OpenCluster):
    """Writers refill under the very timestamps that the sweep drops; what they wrote last must stay."""
    store, _ = open_cluster(Table("feed", 2, 3, trim=Trim(3, 1), purge_window_ms=10**9))
    columns = [number.to_bytes(3, "big") for number in range(8)]
    writers_count, rounds = 2, 30
    start = threading.Barrier(writers_count + 1)
    errors: list[Exception] = []

    def write(row: bytes) -> None:
        try:
            start.wait()
            for tick in range(1, rounds):
                store.apply([put(tick, *columns, row=row)])
                store.apply([delete(tick, *columns[:4], row=row)])
                store.apply([put(tick, *columns[4:], row=row)])  # the refill, at the same timestamp
                assert store.read(row, None, 10) == columns[4:]
        except Exception as error:  # noqa: BLE001  # asserted below
            errors.append(error)

    writers = [threading.Thread(target=write, args=(b"w%d" % number,)) for number in range(writers_count)]
    for writer in writers:
        writer.start()
    start.wait()
    while any(writer.is_alive() for writer in writers):
        store.sweep(NOW)
    for writer in writers:
        writer.join()
    assert errors == []
    for number in range(writers_count):
        assert store.read(b"w%d" % number, None, 10) == columns[4:]


def test_many_threads_lose_nothing(store: WideColumnStore):
    threads = [
        threading.Thread(
            target=lambda row: [
                store.apply([put(t, A, B, row=row)]) and store.read(row, None, 9) for t in range(1, 50)
            ],
            args=(b"t%d" % number,),
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.cells(b"t%d" % number) for number in range(4)] == [[Cell(A, 49), Cell(B, 49)]] * 4


# ---- life


def test_what_was_applied_is_there_after_reopening(adapter: Adapter, open_cluster: OpenCluster):
    if not adapter.is_durable:
        pytest.skip("lives in memory")
    store, close = open_cluster(TABLE)
    store.apply([put(NOW, A, B, C, D), delete(NOW, B)])
    store.sweep(NOW)
    store.apply([put(NOW + 1, E)])
    close()
    again, _ = open_cluster(TABLE)
    assert again.cells(ROW) == [Cell(A, NOW), Cell(C, NOW), Cell(D, NOW), Cell(E, NOW + 1)]
    again.apply([put(NOW, B)])
    assert again.read(ROW, None, 10) == [A, C, D, E]


CALLS: list[Callable[[WideColumnStore], object]] = [
    lambda store: store.apply([put(1, A)]),
    lambda store: store.read(ROW, None, 1),
    lambda store: store.cells(ROW),
    lambda store: store.cells_of([ROW]),
    lambda store: store.masks(ROW, [A]),
    lambda store: list(store.scan()),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_cluster_says_so(opened: Opened, call: Callable[[WideColumnStore], object]):
    store, close = opened
    store.apply([put(1, A)])
    close()
    close()
    with pytest.raises(UnavailableError, match="closed"):
        call(store)


def test_a_closed_cluster_is_not_swept(opened: Opened):
    store, close = opened
    sweeps_by_itself = store.sweep(NOW) is None
    close()
    with nullcontext() if sweeps_by_itself else pytest.raises(UnavailableError, match="closed"):
        store.sweep(NOW)


def test_closing_ends_a_scan_with_an_error(opened: Opened):
    store, close = opened
    rows = [(bytes(pair), 1) for pair in product(range(256), range(100))]
    store.apply([Put(rows, [A])])
    scan = store.scan()
    next(scan)
    close()
    with pytest.raises(UnavailableError, match="closed"):
        list(scan)
