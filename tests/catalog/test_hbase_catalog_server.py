"""Catalogs in a real HBase: its tables, markers and compactions, and several processes at once."""

import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from feedstore.catalog.hbase.state import GONE_MS
from feedstore.catalog.hbase.store import HBaseCatalogStore
from feedstore.catalog.hbase.tables import CATALOGS, UnsafeCatalogError
from feedstore.catalog.port import (
    BeingBuiltError,
    CatalogReader,
    CatalogRefusedError,
    CatalogStore,
    CatalogUnavailableError,
    NoGenerationError,
    Update,
)
from feedstore.widecolumn.hbase import HBaseCluster, RecordTable
from feedstore.widecolumn.hbase.tables import TableDefinition
from tests.catalog import catalog_hbase
from tests.catalog.catalog_adapters import Clock, Place, in_hbase
from tests.widecolumn.hbase_regions import Regions

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("catalog"), pytest.mark.usefixtures("hbase")]

A, B = b"a", b"b"


@pytest.fixture
def place(tmp_path: Path, clock: Clock) -> Place:
    return in_hbase(tmp_path, clock)


def generation_tables(tmp_path: Path) -> list[str]:
    prefix = f"cat.{catalog_hbase.name(tmp_path)}."
    with closing(catalog_hbase.opened()) as cluster:
        return [name for name in cluster.administration.names() if name.startswith(prefix)]


def test_the_tables_of_generations_come_and_go(store: CatalogStore, clock: Clock, tmp_path: Path):
    first = store.load(10, [(A, b"1")])
    store.load(10, [(A, b"1")])
    second = store.load(20, [(A, b"2")])
    store.use(second.id)
    assert len(generation_tables(tmp_path)) == 3, "a table is removed by a collection only"
    assert store.collect(1).generations == [first.id]
    clock.pass_s(GONE_MS / 1_000)
    store.collect(1)
    assert [name.split("-")[0] for name in generation_tables(tmp_path)] == [f"cat.{catalog_hbase.name(tmp_path)}.20"]
    assert store.fetch([A]).records == {A: b"2"}


def test_a_load_that_failed_leaves_a_table_to_the_next_collection(store: CatalogStore, clock: Clock, tmp_path: Path):
    def failing() -> Iterator[tuple[bytes, bytes]]:
        yield A, b"1"
        raise LookupError

    with pytest.raises(LookupError):
        store.load(10, failing())
    clock.pass_s(GONE_MS / 1_000)
    store.collect(1)
    assert generation_tables(tmp_path) == []


def test_what_was_removed_stays_harmless_through_flushes_and_compactions(store: CatalogStore):
    store.use(store.load(20, [(A, b"2"), (B, b"2")]).id)
    store.update([Update(A, 10, b"1"), Update(B, 25, b"3")])
    regions = Regions(catalog_hbase.url(), CATALOGS)
    regions.flush()
    assert store.collect(1).entries == 1
    store.update([Update(A, 10, b"1")])  # delivered again: masked
    for settle in (regions.flush, lambda: regions.compact(major=True)):
        settle()
        assert store.fetch([A, B]).records == {A: b"2", B: b"3"}
    store.update([Update(A, 10, b"1")])  # and again: the marker is gone
    assert store.fetch([A, B]).records == {A: b"2", B: b"3"}
    store.update([Update(A, 21, b"4"), Update(B, 24, None)])
    regions.flush()
    assert store.fetch([A, B]).records == {A: b"4", B: b"3"}


def test_an_update_that_arrives_while_its_row_is_removed_stays(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    """Between the look at a row and its marker, and after the marker: the marker masks nothing later."""
    store.use(store.load(1_000, []).id)
    store.update([Update(A, 10, b"old"), Update(B, 10, b"old")])
    mask = RecordTable.mask

    def meanwhile(records: RecordTable, rows: Sequence[bytes], timestamp: int) -> None:
        store.update([Update(A, 1_001, b"new")])
        mask(records, rows, timestamp)
        store.update([Update(B, 1_001, b"new")])

    monkeypatch.setattr(RecordTable, "mask", meanwhile)
    assert store.collect(1).entries == 2
    assert store.fetch([A, B]).records == {A: b"new", B: b"new"}


def test_several_processes_update_note_load_and_collect_one_catalog(place: Place):
    stores = [place.store() for _ in range(4)]
    try:
        keys = [bytes([number]) for number in range(40)]

        def load(member: int) -> str:
            return stores[member].load(100 + member, [(key, b"batch") for key in keys]).id

        def work(member: int) -> None:
            mine = stores[member]
            with suppress(CatalogRefusedError):  # another one may have collected it
                mine.use(loaded[member])
            for time_ms in range(201, 211):
                mine.update([Update(key, time_ms, b"%d" % time_ms) for key in keys[member::2]])
                mine.note_known(time_ms, member, len(stores))
                mine.collect(2)

        with ThreadPoolExecutor(len(stores)) as threads:
            loaded = list(threads.map(load, range(len(stores))))
            list(threads.map(work, range(len(stores))))
        for each in stores:
            assert each.delta().known_ms == 210
            assert {*each.fetch(keys).records.values()} == {b"210"}
        stores[0].collect(2)  # the last one may have come before the last use
        listed = stores[0].generations()
        assert {each.id for each in listed} == {*loaded[-2:], *stores[0].trail()[-2:]}
        assert sum(each.current for each in listed) == 1
    finally:
        for each in stores:
            each.close()


def test_a_delta_that_could_lose_updates_is_not_written_to(place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("feedstore.catalog.hbase.tables.CATALOGS", "cat.unsafe")
    with_cluster = catalog_hbase.opened()
    wanted = definition_of(with_cluster.administration.definition, CATALOGS)
    family = {**wanted.families["feed"], "TTL": "86400", "VERSIONS": "3"}
    with_cluster.administration.create(TableDefinition("cat.unsafe", {"feed": family}, wanted.settings))
    with_cluster.close()
    store = place.store()
    try:
        with pytest.raises(UnsafeCatalogError) as caught:
            store.update([Update(A, 10, b"1")])
        assert sorted(str(caught.value).split("; ")) == [
            "cat.unsafe: TTL is 86400, expected 2147483647 (unsafe)",
            "cat.unsafe: VERSIONS is 3, expected 1 (unsafe)",
        ]
    finally:
        store.close()


def definition_of(of: Callable[[str], TableDefinition | None], name: str) -> TableDefinition:
    found = of(name)
    assert found is not None
    return found


def test_a_table_that_was_emptied_claims_nothing(store: CatalogStore, reader: CatalogReader, clock: Clock):
    store.use(store.load(10, [(A, b"1")]).id)
    store.note_known(20)
    with closing(catalog_hbase.opened()) as cluster:
        cluster.administration.empty(CATALOGS)
    for catalog in (store, reader):
        assert catalog.delta() == (0, 0, 0)
        with pytest.raises(NoGenerationError):
            catalog.fetch([A])
    store.use(store.load(30, [(A, b"2")]).id)
    clock.pass_s(2)
    assert reader.fetch([A]).records == {A: b"2"}


def test_a_deadline_is_kept(store: CatalogStore, tmp_path: Path):
    store.use(store.load(10, [(A, b"1")]).id)
    timed = HBaseCatalogStore(
        catalog_hbase.opened(), catalog_hbase.name(tmp_path), time.monotonic, lambda: 0, lambda: "0"
    )
    try:
        assert timed.fetch([A], time.monotonic() + 60).records == {A: b"1"}
        with pytest.raises(CatalogUnavailableError):
            timed.fetch([A], time.monotonic())
    finally:
        timed.close()


def test_a_generation_of_many_blocks_and_parts(
    store: CatalogStore, reader: CatalogReader, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("feedstore.catalog.hbase.blocks.BLOCK_BYTES", 50)
    monkeypatch.setattr("feedstore.catalog.hbase.blocks.PART_KEYS", 100)
    records = {number.to_bytes(4, "big"): b"%d" % number for number in range(0, 20_000, 2)}
    store.use(store.load(10, sorted(records.items())).id)
    for first in range(0, 20_000, 1_000):
        keys = [number.to_bytes(4, "big") for number in range(first, first + 1_000)]
        found = reader.fetch(keys)
        assert found.records == {key: records[key] for key in keys if key in records}
        assert len(found.records) == 500


def build_until_killed(url: str, name: str, connection: multiprocessing.connection.Connection) -> None:
    cluster = HBaseCluster.open(url, [], check=False)
    with HBaseCatalogStore(cluster, name, time.monotonic, lambda: 0, lambda: "dead").building("the child"):
        connection.send(0)
        threading.Event().wait()


def test_a_builder_that_died_is_found_out_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("feedstore.catalog.hbase.store.DEAD_AFTER_S", 1.0)
    monkeypatch.setattr("feedstore.catalog.hbase.store.BEAT_S", 0.05)
    name = catalog_hbase.name(tmp_path)
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=build_until_killed, args=(catalog_hbase.url(), name, sending))
    child.start()
    receiving.recv()
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    stores = [
        HBaseCatalogStore(catalog_hbase.opened(), name, time.monotonic, lambda: 0, lambda unique=unique: unique)
        for unique in "12"
    ]
    try:
        with stores[0].building("the next"), pytest.raises(BeingBuiltError, match="the next"), stores[1].building("x"):
            pytest.fail("both build")
        with stores[1].building("the last"):
            pass
    finally:
        for each in stores:
            each.close()
