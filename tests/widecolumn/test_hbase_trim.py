"""What a trim inside HBase's compactions keeps, with markers and late puts wherever they may be (rule 9).

Each of these fails where the trim counts what markers mask, counts versions instead of columns, works in a flush or in
a compaction of some of the files, or lets a marker go early.
"""

import threading
import time
from collections.abc import Callable, Iterator

import hbase_adapter
import pytest
from hbase_regions import Regions

from feedstore.widecolumn import DeleteColumns, Put, Table, Trim
from feedstore.widecolumn.hbase import HBaseCluster, HBaseStore
from feedstore.widecolumn.hbase.schema import definition
from feedstore.widecolumn.hbase.tables import Tables
from tests.threads import running

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("hbase_trim"), pytest.mark.usefixtures("hbase")]

HOUR_MS = 3_600_000
TRIM = Trim(cap=4, slack=2)
KEEP = TRIM.keep
TABLE = Table("trimmed", 9, 16, TRIM, 24 * HOUR_MS)
SHORT = Table("shortwindow", 9, 16, TRIM, HOUR_MS)
SETTINGS = {
    "MEMSTORE_FLUSHSIZE": str(16 << 20),
    # Files below this are small to HBase, and are compacted together with whatever there is: here none is.
    "hbase.hstore.compaction.min.size": "1",
    # Fewer files than this HBase leaves alone: by default three that a test has just flushed may be compacted at once,
    # and are cut before the test looks.
    "hbase.hstore.compaction.min": "6",
}
COLUMNS = [number.to_bytes(16, "big") for number in range(10 * KEEP)]


class Trimmed:
    """A table, what looks after its files, and a row for each test."""

    def __init__(self, cluster: HBaseCluster, name: str, row: bytes) -> None:
        self.store: HBaseStore = cluster.table(name)
        self.regions = Regions(hbase_adapter.made(), name)
        self.tables: Tables = cluster.administration
        self.row = row
        self.name = name
        self.now = time.time_ns() // 1_000_000

    def put(self, columns: list[bytes], at: int, row: bytes | None = None) -> None:
        self.store.apply([Put([(row or self.row, at)], columns)])

    def mask(self, columns: list[bytes], at: int) -> None:
        self.store.apply([DeleteColumns([(self.row, at)], columns)])

    def seen(self, row: bytes | None = None) -> list[bytes]:
        return self.store.read(row or self.row, None, 10_000)

    def compact_all(self) -> None:
        self.regions.compact(major=True)

    def settle(self) -> None:
        """Everything goes into one file."""
        self.regions.flush()
        self.compact_all()


@pytest.fixture(scope="module")
def cluster() -> Iterator[HBaseCluster]:
    cluster = HBaseCluster.open(hbase_adapter.made(), [TABLE, SHORT], check=False)
    for table in (TABLE, SHORT):
        cluster.administration.create(definition(table, SETTINGS))
    yield cluster
    for table in (TABLE, SHORT):
        cluster.administration.drop(table.name)
    cluster.close()


@pytest.fixture
def row(request: pytest.FixtureRequest) -> bytes:
    return hash(request.node.nodeid).to_bytes(9, "big", signed=True)


@pytest.fixture
def trimmed(cluster: HBaseCluster, row: bytes) -> Trimmed:
    return Trimmed(cluster, TABLE.name, row)


def test_a_row_ten_times_too_long_is_cut_in_one_compaction_of_all_files(trimmed: Trimmed):
    for start in range(3):
        trimmed.put(COLUMNS[start::3], trimmed.now)
        trimmed.regions.flush()
    assert trimmed.seen() == COLUMNS
    trimmed.compact_all()
    assert trimmed.seen() == COLUMNS[:KEEP]
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[:KEEP]


def test_a_flush_cuts_nothing(trimmed: Trimmed):
    """A marker may lie in a file, and what it masks in memory."""
    trimmed.put(COLUMNS, trimmed.now)
    trimmed.mask(COLUMNS[:20], trimmed.now)
    trimmed.settle()
    trimmed.put(COLUMNS, trimmed.now)
    trimmed.regions.flush()
    assert trimmed.seen() == COLUMNS[20:]


@pytest.mark.parametrize("flushes", [False, True], ids=["one-file", "a-file-each"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_what_markers_mask_does_not_count(trimmed: Trimmed, order: tuple[int, ...], flushes: bool):
    steps: list[Callable[[], None]] = [
        lambda: trimmed.put(COLUMNS, trimmed.now),
        lambda: trimmed.mask(COLUMNS[:20], trimmed.now),
        lambda: trimmed.put(COLUMNS[:20], trimmed.now - 1),
    ]
    for step in order:
        steps[step]()
        if flushes:
            trimmed.regions.flush()
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[20 : 20 + KEEP]
    trimmed.put(COLUMNS[:20], trimmed.now)  # late once more: it arrives masked, and must not push live ones out
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[20 : 20 + KEEP]


def test_versions_of_a_column_count_once(trimmed: Trimmed):
    for age in range(5):
        trimmed.put(COLUMNS[:3], trimmed.now - age)
        trimmed.regions.flush()
    trimmed.put(COLUMNS[3:], trimmed.now)
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[:KEEP]


def test_a_column_that_was_cut_may_come_back(trimmed: Trimmed):
    trimmed.put(COLUMNS, trimmed.now)
    trimmed.settle()
    trimmed.mask(COLUMNS[:KEEP], trimmed.now)
    assert trimmed.seen() == []
    trimmed.put(COLUMNS[30:34], trimmed.now)  # under the timestamp that was cut
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[30:34]


def test_a_compaction_of_some_files_cuts_nothing(trimmed: Trimmed):
    """The markers lie in the file that is too large to be chosen; what they mask would count as live."""
    trimmed.tables.empty(trimmed.name)
    filler = [number.to_bytes(9, "big") for number in range(2_000)]
    trimmed.store.apply([Put([(each, trimmed.now) for each in filler], COLUMNS[:KEEP])])
    trimmed.mask(COLUMNS[:20], trimmed.now)
    trimmed.settle()
    for start in range(6):  # HBase may compact these by itself, after the last
        trimmed.put(COLUMNS[start::6], trimmed.now)
        trimmed.regions.flush()
    trimmed.regions.compact(major=False)
    assert 1 < trimmed.regions.files() < 7
    assert trimmed.seen() == COLUMNS[20:]
    trimmed.settle()
    assert trimmed.seen() == COLUMNS[20 : 20 + KEEP]


def test_slack_is_for_markers_that_a_compaction_cannot_see(trimmed: Trimmed):
    trimmed.put(COLUMNS, trimmed.now)
    trimmed.regions.flush()
    trimmed.mask(COLUMNS[: TRIM.slack], trimmed.now)
    trimmed.compact_all()
    assert trimmed.seen()[: TRIM.cap] == COLUMNS[TRIM.slack :][: TRIM.cap]


def test_more_markers_than_slack_need_a_refill(trimmed: Trimmed):
    """That is what makes the refill of rule 9 unconditional: no caller knows what was in memory."""
    trimmed.put(COLUMNS, trimmed.now)
    trimmed.regions.flush()
    trimmed.mask(COLUMNS[: TRIM.slack + 1], trimmed.now)
    trimmed.compact_all()
    wanted = COLUMNS[TRIM.slack + 1 :][: TRIM.cap]
    assert trimmed.seen() == wanted[:-1]
    trimmed.put(wanted, trimmed.now)
    trimmed.settle()
    assert trimmed.seen() == wanted


@pytest.mark.parametrize("age_ms", [0, HOUR_MS // 2, HOUR_MS - 300_000])
def test_a_late_put_stays_masked_for_the_whole_window(cluster: HBaseCluster, row: bytes, age_ms: int):
    short = Trimmed(cluster, SHORT.name, row)
    marked = short.now - age_ms
    short.put(COLUMNS, marked)
    short.mask(COLUMNS[:20], marked)
    for _ in range(3):
        short.settle()
        assert short.seen() == COLUMNS[20 : 20 + KEEP]
        short.put(COLUMNS[:20], marked)
        assert short.seen() == COLUMNS[20 : 20 + KEEP]


def test_after_the_window_a_late_put_shows(cluster: HBaseCluster, row: bytes):
    """Why a delivery may never be older than that (rule 8)."""
    short = Trimmed(cluster, SHORT.name, row)
    marked = short.now - HOUR_MS - 1_000
    short.put(COLUMNS, marked)
    short.mask(COLUMNS[:20], marked)
    assert short.seen() == COLUMNS[20:]
    short.settle()
    assert short.seen() == COLUMNS[20 : 20 + KEEP]
    short.put(COLUMNS[:2], marked)
    assert short.seen() == COLUMNS[:2] + COLUMNS[20 : 20 + KEEP]


def test_a_marker_of_a_column_that_is_cut_stays(trimmed: Trimmed):
    """It is far behind the end of the row, and masks what is still on its way there."""
    trimmed.put(COLUMNS[:KEEP], trimmed.now)
    trimmed.mask(COLUMNS[50:], trimmed.now)
    trimmed.settle()
    trimmed.put(COLUMNS[40:], trimmed.now)
    assert trimmed.seen() == COLUMNS[:KEEP] + COLUMNS[40:50]


def test_pages_read_meanwhile_are_whole(trimmed: Trimmed):
    """A reader meets the row before or after a trim; the first `keep` are the same either way."""
    rows = [trimmed.row[:7] + number.to_bytes(2, "big") for number in range(50)]
    trimmed.store.apply([Put([(row, trimmed.now) for row in rows], COLUMNS)])
    over, wrong, reads = threading.Event(), list[list[bytes]](), list[int]()

    def read() -> None:
        while not over.is_set():
            found = trimmed.seen(rows[len(reads) % len(rows)])
            reads.append(len(found))
            if len(found) < KEEP or found != COLUMNS[: len(found)]:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    with running(readers, over):
        for _ in range(5):
            trimmed.store.apply([Put([(row, trimmed.now) for row in rows], COLUMNS)])
            trimmed.settle()
    assert wrong == []
    assert len(reads) > len(rows)
    assert {tuple(trimmed.seen(row)) for row in rows} == {tuple(COLUMNS[:KEEP])}


def test_a_scanner_that_is_open_meanwhile_changes_nothing(trimmed: Trimmed):
    """For its sake HBase leaves masked and older versions in what a compaction reads. They must not count."""
    rows = [trimmed.row[:8] + bytes([number]) for number in range(3)]
    trimmed.store.apply([Put([(row, trimmed.now - 1) for row in rows], COLUMNS)])
    trimmed.regions.flush()
    with trimmed.regions.scanner(rows[0], rows[-1] + b"\0") as scan:
        first = scan(1)
        trimmed.store.apply([Put([(row, trimmed.now) for row in rows], COLUMNS)])
        trimmed.store.apply([DeleteColumns([(row, trimmed.now) for row in rows], COLUMNS[:20])])
        trimmed.settle()
        assert {tuple(trimmed.seen(row)) for row in rows} == {tuple(COLUMNS[20 : 20 + KEEP])}
        others = scan(len(rows))
    assert first + others == rows
    trimmed.settle()
    assert {tuple(trimmed.seen(row)) for row in rows} == {tuple(COLUMNS[20 : 20 + KEEP])}
