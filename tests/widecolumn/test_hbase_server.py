"""What is particular to a real HBase: tables and their settings, compactions, gateways that are not there."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

import hbase_adapter
import pytest
from hbase_regions import Regions

from deploy.local import Stack
from feedstore.metering import UNCOUNTED
from feedstore.widecolumn import (
    Cell,
    DeleteColumns,
    Put,
    RefusedError,
    Table,
    Trim,
    UnavailableError,
    UnsafeTableError,
)
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.direct import DirectReads
from feedstore.widecolumn.hbase.schema import SchemaChanges, apply, definition, differences
from feedstore.widecolumn.hbase.tables import TableDefinition

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("hbase_server"), pytest.mark.usefixtures("hbase")]

TABLE = Table("server", 9, 16, trim=None, purge_window_ms=432_000_000)
WIDE = Table("following_feed", 9, 16, trim=Trim(1_000, 250), purge_window_ms=432_000_000)
ROW = b"r" * 9


GATEWAY_THREADS, BURST = 256, 16


def column(number: int) -> bytes:
    return number.to_bytes(16, "big")


def opened(*tables: Table, url: str | None = None) -> HBaseCluster:
    return HBaseCluster.open(url or hbase_adapter.made(), tables, check=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[HBaseCluster]:
    """Two tables that are made once; each test that writes uses rows of its own or empties the table."""
    cluster = opened(TABLE, WIDE)
    small = {"MEMSTORE_FLUSHSIZE": str(16 << 20)}
    applied = apply(cluster.administration, [definition(TABLE, small), definition(WIDE, small)])
    assert (applied.created, applied.changed) == (["server", "following_feed"], [])
    yield cluster
    for each in (TABLE, WIDE):
        cluster.administration.drop(each.name)
        cluster.administration.drop(each.name)
    cluster.close()


@pytest.fixture
def make(cluster: HBaseCluster) -> Iterator[Callable[[TableDefinition], None]]:
    made: list[str] = []

    def create(wanted: TableDefinition) -> None:
        made.append(wanted.name)
        cluster.administration.create(wanted)

    yield create
    for name in made:
        cluster.administration.drop(name)


# ---- gateways


def test_a_burst_of_connections_is_served_however_many_there_were_before(cluster: HBaseCluster):
    """A gateway begins a thread for each new connection until it has all of them; later ones pass through a queue."""

    def ask() -> None:
        with closing(opened()) as other:
            assert other.administration.exists(TABLE.name)

    for _ in range(GATEWAY_THREADS):
        ask()
    together = threading.Barrier(BURST)

    def ask_together() -> None:
        together.wait(60)
        ask()

    with ThreadPoolExecutor(BURST) as threads:
        for _ in range(10):
            for asked in [threads.submit(ask_together) for _ in range(BURST)]:
                asked.result()


# ---- tables


def test_a_table_is_made_as_it_must_be(cluster: HBaseCluster):
    found = differences(cluster.administration, [definition(TABLE), definition(WIDE)])
    assert [str(each) for each in found] == ["following_feed: MEMSTORE_FLUSHSIZE is 16777216, expected 536870912"]


def test_what_is_there_is_not_made_again(cluster: HBaseCluster):
    cluster.table("server").apply([Put([(ROW, 5)], [column(1)])])
    assert apply(cluster.administration, [definition(TABLE)]) == SchemaChanges([], [])
    cluster.administration.create(definition(TABLE))
    assert cluster.table("server").cells(ROW) == [Cell(column(1), 5)]


def test_the_feeds_are_split_on_their_first_byte(cluster: HBaseCluster):
    assert len(Regions(hbase_adapter.made(), "following_feed").all()) == 16


def test_a_cluster_names_its_tables_and_the_server_of_their_catalog(cluster: HBaseCluster, stack: Stack):
    assert {"server", "following_feed"} <= set(cluster.administration.names())
    assert cluster.server_of_catalog() == Address("localhost", stack.port("hbase-a", "regionserver"))


def test_a_cluster_opens_on_tables_that_are_safe(cluster: HBaseCluster):
    HBaseCluster.open(hbase_adapter.made(), [TABLE, WIDE], check=True).close()


def test_a_missing_table_is_named():
    with pytest.raises(UnavailableError, match="no table nothing"):
        HBaseCluster.open(hbase_adapter.made(), [Table("nothing", 1, 1, None, 0)], check=True)


def test_an_unsafe_table_is_refused(cluster: HBaseCluster, make: Callable[[TableDefinition], None]):
    table = Table("unsafe", 1, 1, None, 10)
    wanted = definition(table)
    family = {**wanted.families["feed"], "VERSIONS": "2", "NEW_VERSION_BEHAVIOR": "true", "KEEP_DELETED_CELLS": "TRUE"}
    make(TableDefinition("unsafe", {"feed": family}, {}))
    with pytest.raises(UnsafeTableError) as caught:
        HBaseCluster.open(hbase_adapter.made(), [table], check=True)
    assert str(caught.value).split("; ") == [
        "unsafe: VERSIONS is 2, expected 1 (unsafe)",
        "unsafe: KEEP_DELETED_CELLS is TRUE, expected FALSE (unsafe)",
        "unsafe: NEW_VERSION_BEHAVIOR is true, expected false (unsafe)",
        "unsafe: hbase.hstore.time.to.purge.deletes is not set, expected 10 (unsafe)",
    ]


def test_an_impossible_definition_is_refused(make: Callable[[TableDefinition], None]):
    with pytest.raises(RefusedError, match="at least one column family"):
        make(TableDefinition("impossible", {}, {}))


def test_an_emptied_table_is_empty_and_in_use(cluster: HBaseCluster):
    store = cluster.table("server")
    store.apply([Put([(ROW, 5)], [column(1)])])
    cluster.administration.empty("server")
    assert list(store.scan()) == []
    store.apply([Put([(ROW, 4)], [column(1)])])
    assert store.cells(ROW) == [Cell(column(1), 4)]


def test_calls_on_a_table_that_is_missing_are_unavailable():
    """Somebody will make it: nothing of what is to be written may be thrown away."""
    cluster = opened(Table("nothing", 9, 16, None, 0))
    store = cluster.table("nothing")
    for call in (
        lambda: store.apply([Put([(ROW, 1)], [column(1)])]),
        lambda: store.read(ROW, None, 1),
        lambda: store.cells(ROW),
        lambda: list(store.scan()),
    ):
        with pytest.raises(UnavailableError):
            call()
    cluster.close()


def named(changes: Iterable[object]) -> list[str]:
    return [str(each) for each in changes]


def test_a_table_from_before_gets_the_trim_and_what_it_does_not_set(
    cluster: HBaseCluster, make: Callable[[TableDefinition], None]
):
    """Everything else of it stays: the definition goes to HBase as a whole."""
    wanted = definition(Table("grown", 9, 16, Trim(3, 1), 432_000_000))
    plain = {"hbase.hstore.time.to.purge.deletes": "432000000", "MAX_FILESIZE": "1073741824", "mine": "kept"}
    make(TableDefinition("grown", {"feed": {**wanted.families["feed"], "COMPRESSION": "GZ"}}, plain, [b"\x80"]))
    with closing(opened(Table("grown", 9, 16, None, 0))) as other:
        other.table("grown").apply([Put([(ROW, 5)], [column(1)])])
    before = cluster.administration.definition("grown")
    assert before

    applied = apply(cluster.administration, [wanted])
    trim = wanted.settings["coprocessor$1"]
    assert named(applied.changed) == [
        "grown: hbase.hregion.majorcompaction is not set, expected 86400000",
        "grown: hbase.hregion.majorcompaction.jitter is not set, expected 0.5",
        f"grown: trim is not set, expected {trim}",
    ]
    after = cluster.administration.definition("grown")
    assert after == replace(before, settings={**before.settings, **wanted.settings})
    assert named(differences(cluster.administration, [wanted])) == ["grown: COMPRESSION is GZ, expected NONE"]
    with closing(opened(Table("grown", 9, 16, None, 0))) as other:
        assert other.table("grown").cells(ROW) == [Cell(column(1), 5)]
    assert apply(cluster.administration, [wanted]) == SchemaChanges([], [])


def test_another_cap_reaches_the_table_and_its_rows(cluster: HBaseCluster, make: Callable[[TableDefinition], None]):
    table = Table("capped", 9, 16, Trim(3, 1), 432_000_000)
    make(definition(table))
    regions = Regions(hbase_adapter.made(), "capped")

    def kept() -> int:
        with closing(opened(table)) as other:
            other.table("capped").apply([Put([(ROW, 5)], [column(number) for number in range(40)])])
            regions.flush()
            regions.compact(major=True)
            return len(other.table("capped").cells(ROW))

    assert kept() == 4
    applied = apply(cluster.administration, [definition(replace(table, trim=Trim(7, 3)))])
    assert named(applied.changed) == [
        "capped: trim cap is 3, expected 7 (unsafe)",
        "capped: trim slack is 1, expected 3 (unsafe)",
    ]
    assert kept() == 10
    apply(cluster.administration, [definition(replace(table, trim=None))])
    assert kept() == 40


@pytest.mark.parametrize(
    ("trim", "said"),
    [
        ("|feedstore.trim.TrimObserver|1073741823|version=0.1.0,cap=many,slack=1", 'argument cap is "many"'),
        ("|feedstore.trim.TrimObserver|1073741823|version=9.9.9,cap=1,slack=1", "asks for version 9.9.9"),
        ("|feedstore.trim.NoObserver|1073741823|version=0.1.0,cap=1,slack=1", "NoObserver"),
    ],
)
def test_a_trim_that_cannot_work_makes_no_table(
    cluster: HBaseCluster, make: Callable[[TableDefinition], None], trim: str, said: str
):
    wanted = definition(Table("wrong", 9, 16, None, 1))
    with pytest.raises((RefusedError, UnavailableError), match=re.escape(said)):
        make(replace(wanted, settings={**wanted.settings, "coprocessor$1": trim}))
    assert not cluster.administration.exists("wrong")
    make(wanted)
    with pytest.raises((RefusedError, UnavailableError), match=re.escape(said)):
        cluster.administration.change("wrong", {"coprocessor$1": trim})
    there = cluster.administration.definition("wrong")
    assert there
    assert "coprocessor$1" not in there.settings


# ---- data


def test_a_batch_of_many_rows_and_wide_rows_is_read_back(cluster: HBaseCluster):
    store = cluster.table("following_feed")
    rows = [bytes([number % 256]) + number.to_bytes(8, "big") for number in range(1, 5_001)]
    wide = [bytes([number]) * 9 for number in range(200, 210)]
    columns = [column(number) for number in range(1_500)]
    store.apply([Put([(row, 7) for row in rows], columns[:1]), Put([(row, 8) for row in wide], columns)])
    store.apply([DeleteColumns([(wide[0], 8)], columns[:750])])
    found = dict(store.scan())
    expected = dict.fromkeys(rows, columns[:1]) | dict.fromkeys(wide, columns) | {wide[0]: columns[750:]}
    assert found == expected
    assert list(found) == sorted(expected)
    assert dict(store.scan(b"\x40", b"\x50")) == {
        row: cells for row, cells in expected.items() if b"\x40" <= row < b"\x50"
    }
    assert store.read(wide[0], None, 3) == columns[750:753]
    assert store.read(wide[1], columns[1_400], 10_000) == columns[1_401:]


def test_what_was_masked_is_gone_after_a_major_compaction_and_its_marker_is_not(cluster: HBaseCluster):
    """The marker is dated by the clock: inside its window, it masks what comes after the compaction as well."""
    store, regions = cluster.table("server"), Regions(hbase_adapter.made(), "server")
    now = 4_000_000_000_000
    store.apply([Put([(ROW, now)], [column(1), column(2)]), DeleteColumns([(ROW, now)], [column(1)])])
    regions.flush()
    regions.compact(major=True)
    store.apply([Put([(ROW, now - 1)], [column(1)])])
    assert store.read(ROW, None, 10) == [column(2)]


def test_a_marker_beyond_its_window_goes_with_a_major_compaction(cluster: HBaseCluster):
    """It shows that these tests do compact: without it, the late put would stay masked."""
    store, regions = cluster.table("server"), Regions(hbase_adapter.made(), "server")
    row = b"o" * 9
    store.apply([Put([(row, 5)], [column(1)]), DeleteColumns([(row, 5)], [column(1)])])
    store.apply([Put([(row, 5)], [column(1)])])
    assert store.read(row, None, 10) == []
    regions.flush()
    regions.compact(major=True)
    assert store.read(row, None, 10) == []
    store.apply([Put([(row, 5)], [column(1)])])
    assert store.read(row, None, 10) == [column(1)]


# ---- gateways


def test_a_gateway_that_is_not_there_is_passed_over(cluster: HBaseCluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    url = urlsplit(hbase_adapter.made())
    two = url._replace(netloc=f"127.0.0.1:{free},{url.netloc}").geturl()
    other = opened(TABLE, url=two)
    store = other.table("server")
    for number in range(4):
        store.apply([Put([(b"g" * 9, 5)], [column(number)])])
        assert store.read(b"g" * 9, None, 10) == [column(each) for each in range(number + 1)]
        assert list(store.scan(b"g" * 9, b"h")) == [(b"g" * 9, [column(each) for each in range(number + 1)])]
    other.close()


# ---- region servers


def answered(reads: DirectReads, row: bytes) -> list[bytes]:
    """What the region servers answer, as soon as they were found."""
    deadline_s = time.monotonic() + 60
    while (found := reads.cells(row)) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return [column for column, _ in found]


@pytest.fixture
def direct(cluster: HBaseCluster) -> Iterator[DirectReads]:
    with closing(hbase_adapter.region_servers()) as servers:
        yield hbase_adapter.direct_reads(cluster, WIDE, servers)


def test_a_page_after_its_region_was_away(cluster: HBaseCluster, direct: DirectReads, stack: Stack):
    regions, master = Regions(hbase_adapter.made(), WIDE.name), ("127.0.0.1", stack.port("hbase-a", "master"))
    low, high = b"\0" * 9, b"\xff" * 9
    cluster.table(WIDE.name).apply([Put([(low, 5), (high, 5)], [column(1)])])
    assert (answered(direct, low), answered(direct, high)) == ([column(1)], [column(1)])
    with regions.one_away(master) as name:
        assert name.startswith(regions.all()[0].name.partition(b",")[0])
        assert direct.cells(low) is None
        assert direct.cells(high) == [(column(1), 5)], "the others are asked as before"
    assert answered(direct, low) == [column(1)]


def test_pages_of_a_region_that_was_split(cluster: HBaseCluster, direct: DirectReads, stack: Stack):
    regions, master = Regions(hbase_adapter.made(), WIDE.name), ("127.0.0.1", stack.port("hbase-a", "master"))
    rows = [bytes([0x43, number]) + b"s" * 7 for number in range(0, 256, 16)]
    cluster.table(WIDE.name).apply([Put([(row, 5) for row in rows], [column(2)])])
    assert answered(direct, rows[0]) == [column(2)]
    there = regions.all()
    [whole] = [each for each in there if each.name.partition(b",")[2].startswith(b"\x40,")]
    regions.split(whole, b"\x43\x80", master)
    assert [answered(direct, row) for row in rows] == [[column(2)]] * len(rows)
    assert len(regions.all()) == len(there) + 1


def test_where_the_regions_are_is_looked_up_in_the_background(cluster: HBaseCluster):
    """As a web process reads: no read waits for it, and each is right meanwhile."""
    url = hbase_adapter.made().replace("?reads=gateways", "")
    with closing(HBaseCluster.open(url, [WIDE], check=False, direct=UNCOUNTED)) as other:
        store = other.table(WIDE.name)
        store.apply([Put([(ROW, 5)], [column(3)])])
        assert [store.read(ROW, None, 10) for _ in range(200)] == [[column(3)]] * 200
