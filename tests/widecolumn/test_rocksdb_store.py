"""The embedded adapter alone: one owner, readers in other processes, and disks that fail."""

import ctypes
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import WriteBatch, WriteOptions
from widecolumn_adapters import TABLE, delete_cells, in_cells, put_cells

from feedstore.widecolumn import (
    Access,
    Cell,
    DamagedError,
    DeleteColumns,
    Mutation,
    Put,
    RefusedError,
    Sweep,
    Table,
    UnavailableError,
    UnsafeTableError,
)
from feedstore.widecolumn.lazy import LazyCluster
from feedstore.widecolumn.rocksdb import cluster as rocksdb
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from feedstore.widecolumn.rocksdb.cluster import RocksCluster, RocksStore
from feedstore.widecolumn.rocksdb.files import Files
from tests.disks import fill

ROW = b"r1"
OTHER_TABLE = Table("other", 1, 1, trim=None, purge_window_ms=0)


def column(number: int) -> bytes:
    return number.to_bytes(3, "big")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def owner(path: Path) -> Iterator[RocksCluster]:
    cluster = RocksCluster.open(path, [TABLE, OTHER_TABLE])
    yield cluster
    cluster.close()


@pytest.fixture
def store(owner: RocksCluster) -> RocksStore:
    return owner.table(TABLE.name)


@pytest.mark.parametrize("limit", [1, 127, 128, 129, 300])
def test_columns_are_the_same_however_many_are_cut_at_once(store: RocksStore, limit: int):
    columns = [column(number) for number in range(200)]
    store.apply([Put([(ROW, 5)], columns)])
    assert store.read(ROW, None, limit) == columns[:limit]


# ---- keys

LAYOUT = json.loads((Path(__file__).parents[2] / "schemas" / "cell-layout.json").read_text())
GOLDEN = [
    (bytes.fromhex(row["row"]), bytes.fromhex(each["column"]), timestamp)
    for row in LAYOUT["rows"]
    for each in LAYOUT["columns"]
    for timestamp in (1, 255, 256, 1_341_100_972_000, 2**63 - 2)
]
FEEDS = Table("feeds", 9, 16, trim=None, purge_window_ms=0)


def keys(store: RocksStore) -> list[bytes]:
    """All keys of a table, in the order of the files."""
    return store._take(store._cluster.files().families[store._table.name], b"", 10**6)


def test_keys_of_arrays_are_those_of_products(tmp_path: Path):
    plain, arrays = replace(FEEDS, name="plain"), replace(FEEDS, name="arrays")
    cluster = RocksCluster.open(tmp_path, [plain, arrays])
    for kind, made in ((Put, put_cells), (DeleteColumns, delete_cells)):
        cluster.table("plain").apply([kind([(row, timestamp)], [column]) for row, column, timestamp in GOLDEN])
        cluster.table("arrays").apply([made(GOLDEN, FEEDS)])
        assert keys(cluster.table("arrays")) == keys(cluster.table("plain"))
    tails = [((2**63 - 1 - ts).to_bytes(8, "big") + kind) for _, _, ts in GOLDEN for kind in (b"\0", b"\1")]
    both = [row + column for row, column, _ in GOLDEN for _ in range(2)]
    assert keys(cluster.table("arrays")) == sorted(map(bytes.__add__, both, tails))
    cluster.close()


@given(st.data())
def test_keys_of_arrays_of_any_width(data: st.DataObject):
    row_bytes, column_bytes = data.draw(st.integers(1, 64)), data.draw(st.integers(1, 64))
    cell = st.tuples(
        st.binary(min_size=row_bytes, max_size=row_bytes),
        st.binary(min_size=column_bytes, max_size=column_bytes),
        st.integers(1, 2**63 - 2),
    )
    cells = data.draw(st.lists(cell, max_size=8))
    made = rocksdb._keys(put_cells(cells, Table("any", row_bytes, column_bytes, None, 0)), rocksdb._PUT)
    assert sorted(made) == sorted(row + column + rocksdb._tail(ts, is_marker=False) for row, column, ts in cells)
    assert [key[:8] for key in made] == sorted(key[:8] for key in made)


# ---- tables


def test_tables_do_not_mix(owner: RocksCluster, store: RocksStore):
    owner.table("other").apply([Put([(b"o", 1)], [b"c"])])
    assert list(store.scan()) == []
    assert list(owner.table("other").scan()) == [(b"o", [b"c"])]


def test_a_table_is_not_lost_when_it_is_left_out_once(path: Path):
    for tables in ([TABLE, OTHER_TABLE], [TABLE], [OTHER_TABLE]):
        cluster = RocksCluster.open(path, tables)
        if OTHER_TABLE in tables:
            cluster.table("other").apply([Put([(b"o", 1)], [b"c"])])
            assert cluster.table("other").read(b"o", None, 1) == [b"c"]
        cluster.close()


def test_other_widths_are_for_an_operator(path: Path):
    """The messages for it are good, so it is unavailable and does not refuse them."""
    RocksCluster.open(path, [TABLE]).close()
    with pytest.raises(UnsafeTableError, match="rows of 2 bytes and columns of 3, not 9 and 16"):
        RocksCluster.open(path, [Table(TABLE.name, 9, 16, None, 0)])


@pytest.mark.parametrize("error", [UnsafeTableError("other widths"), OSError("IO error: No space left on device")])
def test_an_opening_that_fails_leaves_the_directory_to_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    """Otherwise an operator would look for another process that has it."""

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(rocksdb_files, "_check_widths", fail)
        with pytest.raises(UnavailableError, match=str(error)) as kept:
            RocksCluster.open(path, [TABLE])
    RocksCluster.open(path, [TABLE]).close()
    assert kept.value.__cause__ is not kept.value


def test_a_name_is_used_once(path: Path):
    with pytest.raises(ValueError, match="different names"):
        RocksCluster.open(path, [TABLE, TABLE])


def test_a_cluster_closes_all_its_tables(owner: RocksCluster, store: RocksStore):
    owner.close()
    owner.close()
    for each in (store, owner.table("other")):
        with pytest.raises(UnavailableError, match="closed"):
            each.sweep(1)


@pytest.mark.parametrize("access", ["write", "read"])
def test_reads_that_go_on_while_a_cluster_is_closed_end_with_an_error(
    owner: RocksCluster, store: RocksStore, path: Path, access: Access
):
    """RocksDB must not be asked once it is closed: the process would crash."""
    store.apply([Put([(ROW, 1)], [column(number) for number in range(500)]), DeleteColumns([(ROW, 1)], [column(7)])])
    cluster = owner if access == "write" else RocksCluster.open(path, [TABLE], access=access)
    table = cluster.table(TABLE.name)
    calls: list[Callable[[], object]] = [
        lambda: table.read(ROW, None, 25),
        lambda: table.cells(ROW),
        lambda: table.masks(ROW, [column(7)]),
        lambda: list(table.scan()),
    ]
    read = threading.Barrier(len(calls) + 1)

    def go_on(call: Callable[[], object]) -> None:
        call()
        read.wait(60)
        while True:
            call()

    with ThreadPoolExecutor(len(calls)) as pool:
        readers = [pool.submit(go_on, call) for call in calls]
        read.wait(60)
        cluster.close()
        assert [type(each.exception(60)) for each in readers] == [UnavailableError] * len(calls)


# ---- one owner, any number of readers


def test_a_second_owner_is_turned_away(owner: RocksCluster, path: Path):
    with pytest.raises(UnavailableError, match="owns this directory"):
        RocksCluster.open(path, [TABLE])


@pytest.mark.processes
def test_a_second_owner_in_another_process_is_turned_away(owner: RocksCluster, path: Path):
    code = f"""
from feedstore.widecolumn import Table, UnavailableError
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
try:
    RocksCluster.open({str(path)!r}, [Table("feed", 2, 3, None, 0)])
except UnavailableError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "owns this directory" in said


def test_the_lock_goes_with_close_whatever_errors_are_kept(path: Path):
    kept = []
    for _ in range(3):
        cluster = RocksCluster.open(path, [TABLE])
        cluster.table("feed").apply([Put([(ROW, 1)], [column(1)])])
        scan = cluster.table("feed").scan()
        next(scan)
        cluster.close()
        with pytest.raises(UnavailableError) as caught:
            cluster.table("feed").read(ROW, None, 1)
        kept.append((caught, scan))


def test_a_reader_beside_sees_each_write(owner: RocksCluster, store: RocksStore, path: Path):
    other = RocksCluster.open(path, [TABLE], access="read")
    reader = other.table(TABLE.name)
    for number in range(5):
        store.apply(
            [Put([(ROW, 5)], [column(number)]), DeleteColumns([(ROW, 5)], [column(number - 1)] if number else [])]
        )
        assert reader.read(ROW, None, 10) == [column(number)]
        assert reader.cells(ROW) == [Cell(column(number), 5)]
        assert list(reader.scan()) == [(ROW, [column(number)])]
    store.sweep(10**9)
    assert reader.read(ROW, None, 10) == [column(4)]
    other.close()
    with pytest.raises(UnavailableError, match="closed"):
        reader.read(ROW, None, 1)


class _Queue:
    """A lock that knows how many have come to it and are not through."""

    def __init__(self) -> None:
        self.inside = 0
        self._counting, self._lock = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._counting:
            self.inside += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        with self._counting:
            self.inside -= 1


def test_reads_that_waited_share_a_look_that_began_after_them(
    store: RocksStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = RocksCluster.open(path, [TABLE], access="read")
    reader, queue, looks = other.table(TABLE.name), _Queue(), 0
    monkeypatch.setattr(reader, "_reading", queue)
    under_way, may_end = threading.Event(), threading.Event()

    def looked() -> Files:
        nonlocal looks
        looks += 1
        files = catch_up()
        under_way.set()
        assert may_end.wait(60)
        return files

    assert other._follower is not None
    catch_up = other._follower.catch_up
    monkeypatch.setattr(other._follower, "catch_up", looked)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(reader.read, ROW, None, 10)
        assert under_way.wait(60)
        store.apply([Put([(ROW, 5)], [column(1)])])
        others = [pool.submit(reader.read, ROW, None, 10) for _ in range(5)]
        while queue.inside < 6:
            pass
        may_end.set()
        assert [each.result(60) for each in others] == [[column(1)]] * 5, "written before they began"
        assert first.result(60) == []
    assert looks == 2
    other.close()


def test_a_look_that_failed_is_shared_with_no_read(store: RocksStore, path: Path, monkeypatch: pytest.MonkeyPatch):
    other = RocksCluster.open(path, [TABLE], access="read")
    store.apply([Put([(ROW, 5)], [column(1)])])
    assert other._follower is not None
    with monkeypatch.context() as patch:
        patch.setattr(other._follower, "catch_up", lambda: (_ for _ in ()).throw(UnavailableError("not now")))
        with pytest.raises(UnavailableError, match="not now"):
            other.table(TABLE.name).read(ROW, None, 10)
    with other.lock:
        files = other.refreshed(other.looks - 1)
    assert files.families[TABLE.name] is not None
    other.close()


@pytest.mark.parametrize("reopens", [False, True])
def test_a_reader_beside_does_not_show_again_what_a_sweep_dropped(path: Path, reopens: bool):
    """It had read the puts from the log; their deletions were flushed and compacted away before it looked again."""
    owner = RocksCluster.open(path, [TABLE])
    columns = [column(number) for number in range(5)]
    owner.table("feed").apply([Put([(ROW, 5)], columns)])
    other = RocksCluster.open(path, [TABLE], access="read")
    assert other.table("feed").read(ROW, None, 10) == columns
    owner.table("feed").apply([DeleteColumns([(ROW, 5)], columns[:1])])
    if reopens:
        owner.close()
        owner = RocksCluster.open(path, [TABLE])
    owner.table("feed").sweep(10_000)
    assert other.table("feed").read(ROW, None, 10) == columns[1:4]
    assert list(other.table("feed").scan()) == [(ROW, columns[1:4])]
    other.close()
    owner.close()


def _bytes_read() -> int:
    """By this process, from whatever it has open."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def test_a_reader_beside_reads_the_log_of_the_owner_once_when_it_opens(store: RocksStore, path: Path):
    columns = [column(number) for number in range(1_000)]
    for timestamp in range(1, 41):
        store.apply([Put([(ROW, timestamp)], columns)])
    log_bytes = sum(each.stat().st_size for each in path.glob("*.log"))
    assert log_bytes > 500_000
    before = _bytes_read()
    other = RocksCluster.open(path, [TABLE], access="read")
    assert log_bytes < _bytes_read() - before < 1.5 * log_bytes
    assert other.table("feed").read(ROW, None, 1_000) == columns
    other.close()


class _Mallinfo(ctypes.Structure):
    """What glibc says of the memory of this process."""

    _fields_ = [(f"other_{n}", ctypes.c_size_t) for n in range(7)] + [
        ("in_use", ctypes.c_size_t),
        ("free", ctypes.c_size_t),
        ("at_top", ctypes.c_size_t),
    ]


_MALLINFO = getattr(ctypes.CDLL(None), "mallinfo2", None)


@pytest.mark.skipif(_MALLINFO is None, reason="another C library")
def test_looking_for_the_files_of_the_owner_again_and_again_takes_no_memory(
    store: RocksStore, path: Path, tmp_path: Path
):
    store.apply([Put([(ROW, 5)], [column(1)])])
    layout = rocksdb_files.layout_of([TABLE, OTHER_TABLE])
    assert _MALLINFO is not None
    _MALLINFO.restype = _Mallinfo

    def taken_by(calls: int) -> int:
        before = _MALLINFO().in_use
        for _ in range(calls):
            rocksdb_files.live_files(path, layout, tmp_path)
        return int(_MALLINFO().in_use - before)

    taken_by(100)
    assert taken_by(400) < 400 * 100


def test_a_reader_beside_writes_nothing(store: RocksStore, path: Path):
    other = RocksCluster.open(path, [TABLE], access="read")
    for call in (
        lambda: other.table("feed").apply([Put([(ROW, 1)], [column(1)])]),
        lambda: other.table("feed").sweep(1),
    ):
        with pytest.raises(RefusedError, match="for reading only"):
            call()
    other.close()


def test_readers_beside_leave_no_files(
    owner: RocksCluster, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(logs))
    other = RocksCluster.open(path, [TABLE], access="read")
    assert list(logs.iterdir())
    other.close()
    with pytest.raises(UnavailableError):
        RocksCluster.open(tmp_path / "nothing", [TABLE], access="read")
    assert list(logs.iterdir()) == []


def test_a_reader_beside_sees_each_write_though_temporary_files_are_cleaned(
    owner: RocksCluster, store: RocksStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(logs))
    other = RocksCluster.open(path, [TABLE], access="read")
    for own in logs.iterdir():
        shutil.rmtree(own)
    store.apply([Put([(ROW, 5)], [column(1)])])
    store.sweep(1_000_000)  # the owner's manifest is another one, so all files are opened again
    assert other.table("feed").read(ROW, None, 10) == [column(1)]
    other.close()
    assert list(logs.iterdir()) == []


def test_a_reader_beside_nothing_is_told_so(path: Path):
    with pytest.raises(UnavailableError, match="no cluster in this directory"):
        RocksCluster.open(path, [TABLE], access="read")
    assert not path.exists()


def test_a_reader_beside_is_told_of_a_missing_table(path: Path):
    owner = RocksCluster.open(path, [TABLE])
    with pytest.raises(UnavailableError, match="has not created other"):
        RocksCluster.open(path, [TABLE, OTHER_TABLE], access="read")
    owner.close()


# ---- a put between a sweep's look and its decision


def test_a_sweep_decides_on_what_stands_when_it_deletes(store: RocksStore, monkeypatch: pytest.MonkeyPatch):
    """The look finds d beyond `keep`; then a is deleted and d refilled, under the very key that was to go."""
    a, b, c, d = (column(number) for number in range(4))
    store.apply([Put([(ROW, 5)], [a, b, c, d])])
    decide = store._sweep_row

    def after_a_refill(*args: object) -> object:
        store.apply([DeleteColumns([(ROW, 6)], [a]), Put([(ROW, 5)], [d])])
        return decide(*args)

    monkeypatch.setattr(store, "_sweep_row", after_a_refill)
    assert store.sweep(6) == Sweep(rows=1, trimmed=0, masked=1, markers=0)
    assert store.read(ROW, None, 10) == [b, c, d]


# ---- dead runs


Form = Callable[[Put | DeleteColumns], Mutation]


@pytest.fixture(params=[lambda mutation: mutation, in_cells], ids=["products", "arrays"])
def form(request: pytest.FixtureRequest) -> Form:
    """How mutations are given."""
    return request.param


@pytest.fixture
def long_row(store: RocksStore, form: Form) -> list[bytes]:
    """1,000 columns on top of 100 others, all of the 1,000 deleted."""
    columns = [column(number) for number in range(1_000, 2_100)]
    store.apply([form(Put([(ROW, 5)], columns)), form(DeleteColumns([(ROW, 6)], columns[:1_000]))])
    return columns[1_000:]


def keys_walked(store: RocksStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    walked: list[int] = []
    take = store._take

    def counting(*args: object) -> list[bytes]:
        keys = take(*args)
        walked.append(len(keys))
        return keys

    monkeypatch.setattr(store, "_take", counting)
    return walked


def test_a_page_steps_over_a_dead_run(store: RocksStore, long_row: list[bytes], monkeypatch: pytest.MonkeyPatch):
    walked = keys_walked(store, monkeypatch)
    assert store.read(ROW, None, 25) == long_row[:25]
    assert walked == [25]


def test_new_pins_on_top_keep_the_dead_run(
    store: RocksStore, long_row: list[bytes], form: Form, monkeypatch: pytest.MonkeyPatch
):
    new = [column(number) for number in (998, 999)]
    store.apply([form(Put([(ROW, 7), (b"r2", 7)], new[::-1]))])
    walked = keys_walked(store, monkeypatch)
    assert store.read(ROW, None, 25) == [*new, *long_row[:23]]
    assert sum(walked) <= 3 * 25


@pytest.mark.parametrize("number", [1_000, 1_500, 1_999])
def test_a_put_inside_a_dead_run_is_seen(store: RocksStore, long_row: list[bytes], form: Form, number: int):
    store.apply([form(Put([(b"r2", 7), (ROW, 7)], [column(number)]))])
    assert store.read(ROW, None, 25) == [column(number), *long_row[:24]]


def test_a_put_that_lands_while_a_page_is_read_is_not_halved(
    store: RocksStore, long_row: list[bytes], form: Form, monkeypatch: pytest.MonkeyPatch
):
    """A mutation is atomic in its row: a reader that stepped over one column must not show the other."""
    inside, behind = column(1_500), column(3_000)
    put = form(Put([(ROW, 7)], [inside, behind]))
    step_over = rocksdb.step_over
    once = iter([put])

    def while_stepping(*args: object) -> bytes:
        position = step_over(*args)
        for each in once:
            store.apply([each])
        return position

    monkeypatch.setattr(rocksdb, "step_over", while_stepping)
    page = store.read(ROW, None, 200)
    assert (inside in page) == (behind in page)


def test_a_put_that_lands_before_a_resolving_page_is_not_halved(
    store: RocksStore, long_row: list[bytes], form: Form, monkeypatch: pytest.MonkeyPatch
):
    """The same for a page that begins above the dead run, where the put lands just before the page takes its view."""
    on_top, inside, behind = column(999), column(1_500), column(3_000)
    store.apply([Put([(ROW, 7)], [on_top])])
    view = store._view

    def after_a_put(*args: object) -> object:
        store.apply([form(Put([(ROW, 7)], [inside, behind]))])
        return view(*args)

    monkeypatch.setattr(store, "_view", after_a_put)
    assert store.read(ROW, None, 200) == [on_top, inside, *long_row, behind]


def test_markers_that_came_one_by_one_are_found_by_a_reader(
    store: RocksStore, form: Form, monkeypatch: pytest.MonkeyPatch
):
    columns = [column(number) for number in range(200)]
    store.apply([Put([(ROW, 5)], columns), DeleteColumns([(ROW, 6)], columns[1:160:2])])
    store.read(ROW, None, 100)
    assert store._dead_runs.rows.get(ROW) == ()
    for each in columns[:160:2]:
        store.apply([form(DeleteColumns([(ROW, 6)], [each]))])
    store.read(ROW, None, 25)
    walked = keys_walked(store, monkeypatch)
    assert store.read(ROW, None, 25) == columns[160:185]
    assert walked == [25]


def test_a_reader_finds_the_dead_run_after_a_restart(path: Path, monkeypatch: pytest.MonkeyPatch):
    columns = [column(number) for number in range(1_100)]
    cluster = RocksCluster.open(path, [TABLE])
    cluster.table("feed").apply([Put([(ROW, 5)], columns), DeleteColumns([(ROW, 6)], columns[:1_000])])
    cluster.close()
    cluster = RocksCluster.open(path, [TABLE])
    store = cluster.table("feed")
    assert store.read(ROW, None, 25) == columns[1_000:1_025]
    walked = keys_walked(store, monkeypatch)
    assert store.read(ROW, None, 25) == columns[1_000:1_025]
    assert walked == [25]
    cluster.close()


def test_known_dead_runs_are_bounded(store: RocksStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("feedstore.widecolumn.rocksdb.dead_runs.ROWS_MAX", 2)
    columns = [column(number) for number in range(100)]
    rows = [b"d%d" % number for number in range(5)]
    for row in rows:
        store.apply([Put([(row, 5)], columns), DeleteColumns([(row, 6)], columns)])
    assert [row for row in rows if store._dead_runs.rows.get(row)] == rows[-2:]


# ---- disks that fail


def test_a_full_disk_refuses_writes_serves_reads_and_heals(small_disk: Path):
    cluster = RocksCluster.open(small_disk / "a", [TABLE])
    store = cluster.table("feed")
    store.apply([Put([(ROW, 5)], [column(1)])])
    ballast = small_disk / "ballast"
    fill(ballast)
    errors = []
    for number in range(2, 10_000):
        try:
            store.apply([Put([(ROW, 5)], [column(number)])])
        except UnavailableError as error:
            errors.append(error)
            break
    for _ in range(2):
        with pytest.raises(UnavailableError, match="No space left on device") as caught:
            store.apply([Put([(ROW, 5)], [column(number)])])
        errors.append(caught.value)
    assert all(str(small_disk / "a") in str(error) for error in errors)
    seen = store.read(ROW, None, 10_000)
    assert seen == [column(n) for n in range(1, number)]
    ballast.unlink()
    store.apply([Put([(ROW, 5)], [column(number)])])
    cluster.close()
    cluster = RocksCluster.open(small_disk / "a", [TABLE])
    assert cluster.table("feed").read(ROW, None, 10_000) == [*seen, column(number)]
    cluster.close()


def test_a_disk_that_is_away_after_a_failed_write_is_unavailable(small_disk: Path):
    cluster = RocksCluster.open(small_disk / "a", [TABLE])
    store = cluster.table("feed")
    fill(small_disk / "ballast")
    with pytest.raises(UnavailableError, match="No space left on device"):
        store.apply([Put([(ROW, 5)], [column(number) for number in range(10_000)])])
    (small_disk / "a").rename(small_disk / "gone")
    with pytest.raises(UnavailableError, match="No such file or directory"):
        store.apply([Put([(ROW, 5)], [column(1)])])
    cluster.close()


def test_a_read_only_disk_is_named(small_disk: Path):
    RocksCluster.open(small_disk / "a", [TABLE]).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(UnavailableError, match=rf"{small_disk}/a: .*Read-only file system"):
        RocksCluster.open(small_disk / "a", [TABLE])


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnavailableError, match=f"^{path}: "):
            RocksCluster.open(path, [TABLE])


@pytest.mark.parametrize("access", ["write", "read"])
@pytest.mark.parametrize("gone", [("CURRENT",), ("CURRENT", "MANIFEST-*"), ("CURRENT", "MANIFEST-*", "*.log")])
def test_files_without_their_head_are_not_started_over(
    path: Path, gone: Sequence[str], access: Literal["write", "read"]
):
    several_files(path)
    for file in [each for pattern in gone for each in path.glob(pattern)]:
        file.unlink()
    left = {*path.iterdir()}
    with pytest.raises(DamagedError, match=f"^{path}: damaged: CURRENT is missing"):
        RocksCluster.open(path, [TABLE], access=access)
    assert {*path.iterdir()} == left


def test_a_damaged_manifest_is_named(path: Path):
    RocksCluster.open(path, [TABLE]).close()
    for manifest in path.glob("MANIFEST-*"):
        manifest.write_bytes(b"not a manifest")
    with pytest.raises(UnavailableError, match=f"^{path}: damaged: Corruption"):
        RocksCluster.open(path, [TABLE])


def test_an_unreadable_block_is_an_error_and_not_the_end(path: Path):
    """An iteration of rocksdict ends silently where a block cannot be read; a feed must not end there."""
    cluster = RocksCluster.open(path, [TABLE])
    rows = [(number.to_bytes(2, "big"), 5) for number in range(20_000)]
    cluster.table("feed").apply([Put(rows, [column(1)])])
    cluster.table("feed").sweep(6)
    cluster.close()
    table_file = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
    with table_file.open("r+b") as file:
        file.seek(table_file.stat().st_size // 2)
        file.write(os.urandom(64))
    cluster = RocksCluster.open(path, [TABLE])
    store = cluster.table("feed")
    assert store.read(rows[0][0], None, 10) == [column(1)]
    with pytest.raises(UnavailableError, match="Corruption"):
        list(store.scan())
    with pytest.raises(UnavailableError, match="Corruption"):
        store.sweep(7)
    unread = 0
    for row, _ in rows:
        try:
            assert store.read(row, None, 10) == [column(1)]
        except UnavailableError:
            unread += 1
    assert 0 < unread < 2_000
    cluster.close()


# ---- durability


def test_every_write_waits_for_the_disk(store: RocksStore, monkeypatch: pytest.MonkeyPatch):
    """A kill leaves what the system has not yet written; a power cut does not, and no test here can cut it."""
    synced: list[bool] = []
    write = rocksdb_files.write

    def noting(files: rocksdb_files.Files, batch: WriteBatch, options: WriteOptions) -> None:
        synced.append(options.sync)
        write(files, batch, options)

    monkeypatch.setattr(rocksdb_files, "write", noting)
    store.apply([Put([(ROW, 5)], [column(1)])])
    store.apply([DeleteColumns([(ROW, 5)], [column(1)])])
    assert synced == [True, True]


def write_until_killed(path: Path, connection: multiprocessing.connection.Connection) -> None:
    store = RocksCluster.open(path, [TABLE]).table("feed")
    for number in count():
        store.apply([Put([(ROW, 5), (b"r2", 5)], [column(number)])])
        connection.send(number)


@pytest.mark.processes
def test_what_was_acknowledged_survives_kill_9(path: Path):
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=write_until_killed, args=(path, sending))
    child.start()
    sending.close()
    acknowledged = -1
    while acknowledged < 200:
        acknowledged = receiving.recv()
    os.kill(child.pid, signal.SIGKILL)
    try:
        while True:
            acknowledged = receiving.recv()
    except EOFError:
        pass
    child.join()
    cluster = RocksCluster.open(path, [TABLE])
    for row in (ROW, b"r2"):
        written = cluster.table("feed").read(row, None, 10_000)
        assert written[: acknowledged + 1] == [column(number) for number in range(acknowledged + 1)]
        assert len(written) <= acknowledged + 2
    cluster.close()


def test_a_directory_that_is_put_in_place_of_an_open_one_stays_as_it_is(path: Path):
    several_files(path)
    copy, moved = path.with_name("copy"), path.with_name("moved")
    shutil.copytree(path, copy)
    cluster = RocksCluster.open(path, [TABLE])
    store = cluster.table(TABLE.name)
    store.apply([Put([(ROW, 5)], [column(1)])])
    store.sweep(6)  # it merges all files of before into new ones
    path.rename(moved)
    copy.rename(path)
    content = {file.name: file.read_bytes() for file in path.iterdir()}

    for call in (lambda: store.apply([Put([(ROW, 5)], [column(2)])]), lambda: store.sweep(7)):
        with pytest.raises(UnavailableError, match=f"^{path}: this is no longer the directory that was opened"):
            call()
    path.rename(copy)
    moved.rename(path)
    store.apply([Put([(ROW, 5)], [column(3)])])
    assert store.read(ROW, None, 10) == [column(1), column(3)]
    path.rename(moved)
    copy.rename(path)
    cluster.close()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == content


def test_a_torn_tail_of_the_log_loses_only_what_was_not_acknowledged(path: Path):
    cluster = RocksCluster.open(path, [TABLE])
    for number in range(10):
        cluster.table("feed").apply([Put([(ROW, 5)], [column(number)])])
    crashed = path.with_name("crashed")
    shutil.copytree(path, crashed)  # as the disk would look after a crash now
    cluster.close()
    log = max(crashed.glob("*.log"))
    os.truncate(log, log.stat().st_size - 3)
    cluster = RocksCluster.open(crashed, [TABLE])
    assert cluster.table("feed").read(ROW, None, 100) == [column(number) for number in range(9)]
    cluster.close()


def several_files(path: Path) -> Path:
    """A cluster of several files; returns one of them, which holds cells that no other file has."""
    for number in range(1, 4):
        cluster = RocksCluster.open(path, [TABLE])
        rows = [((1_000 * number + row).to_bytes(2), number) for row in range(500)]
        cluster.table(TABLE.name).apply([Put(rows, [column(number)])])
        cluster._files.families[TABLE.name].flush()
        cluster.close()
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("how", ["missing", "cut"])
@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
def test_a_reader_names_a_file_that_is_gone_or_cut_and_shows_nothing_older(path: Path, how: str, when: str) -> None:
    file = several_files(path)
    kept = file.read_bytes()
    late = LazyCluster(lambda: RocksCluster.open(path, [TABLE], access="read"))
    store = late.table(TABLE.name)
    if when == "while it is open":
        assert len(list(store.scan())) == 1_500
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(kept[: len(kept) // 2])

    for _ in range(2):
        with pytest.raises(DamagedError, match=f"damaged: .*{file.name}"):
            store.read((1_000).to_bytes(2), None, 10)
        with pytest.raises(DamagedError):
            list(store.scan())
    with pytest.raises(DamagedError):
        RocksCluster.open(path, [TABLE])

    file.write_bytes(kept)
    assert len(list(store.scan())) == 1_500
    late.close()


def test_a_byte_that_flipped_is_an_error_and_never_a_wrong_page(path: Path) -> None:
    file = several_files(path)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    cluster = RocksCluster.open(path, [TABLE], access="read")

    with pytest.raises(DamagedError, match="checksum"):
        list(cluster.table(TABLE.name).scan())
    cluster.close()
