"""How the tests open each adapter of catalogs."""

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import cast

from feedstore.catalog.hbase.reader import HBaseCatalogReader
from feedstore.catalog.hbase.store import HBaseCatalogStore
from feedstore.catalog.hbase.tables import CatalogStorage
from feedstore.catalog.port import CatalogReader, CatalogStore
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.widecolumn.hbase import HBaseCluster
from tests.catalog import catalog_hbase
from tests.catalog.hbase_model import ModelCluster
from tests.catalog.memory_catalog import MemoryCatalog


class Clock:
    """Both clocks of an adapter; they move when a test says so. The wall clock begins at that of the files."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.wall_ms = time.time_ns() // 1_000_000
        self._uniques = count(1)

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_ms += int(seconds * 1_000)

    def unique(self) -> str:
        return f"{next(self._uniques):032x}"


@dataclass(frozen=True)
class Place:
    """One catalog of one cluster. store: opens it as its owner; its contents are there again if `is_durable`. reader:
    opens it as another process does. lose: loses the records of all generations.
    """

    store: Callable[[], CatalogStore]
    reader: Callable[[], CatalogReader]
    is_durable: bool
    lose: Callable[[], None] = lambda: None


def in_memory(_directory: Path, _clock: Clock) -> Place:
    catalog = MemoryCatalog()
    return Place(lambda: catalog, lambda: catalog, is_durable=False)


def in_files(directory: Path, clock: Clock) -> Place:
    path = directory / "a.catalog" / "pins"
    return Place(
        lambda: RocksCatalogStore(path, clock, lambda: clock.wall_ms, clock.unique),
        lambda: RocksCatalogReader(path, clock),
        is_durable=True,
        lose=lambda: _lose_files(path),
    )


def in_hbase(directory: Path, clock: Clock) -> Place:
    name = catalog_hbase.name(directory)
    return Place(
        lambda: HBaseCatalogStore(catalog_hbase.opened(), name, clock, lambda: clock.wall_ms, clock.unique),
        lambda: HBaseCatalogReader(catalog_hbase.opened(), name, clock),
        is_durable=True,
        lose=lambda: _lose_tables(catalog_hbase.opened(), name, clock),
    )


def in_a_model_of_hbase(_directory: Path, clock: Clock) -> Place:
    model = ModelCluster()
    return Place(
        lambda: store_in(model, clock, lambda seconds: time.sleep(seconds / 20)),
        lambda: reader_in(model, clock),
        is_durable=True,
        lose=lambda: _lose_tables(as_cluster(model), "pins", clock),
    )


def as_cluster(model: ModelCluster) -> HBaseCluster:
    return cast("HBaseCluster", model)


def store_in(model: ModelCluster, clock: Clock, pause: Callable[[float], None] | None = None) -> HBaseCatalogStore:
    """pause: without one, the clock moves instead of a wait."""
    return HBaseCatalogStore(
        as_cluster(model), "pins", clock, lambda: clock.wall_ms, clock.unique, pause or clock.pass_s
    )


def reader_in(model: ModelCluster, clock: Clock) -> HBaseCatalogReader:
    return HBaseCatalogReader(as_cluster(model), "pins", clock)


def storage_in(model: ModelCluster, clock: Callable[[], float]) -> CatalogStorage:
    return CatalogStorage(as_cluster(model), "pins", clock)


def _lose_files(path: Path) -> None:
    for each in path.glob("gen-*"):
        shutil.rmtree(each)


def _lose_tables(cluster: HBaseCluster, name: str, clock: Clock) -> None:
    with closing(CatalogStorage(cluster, name, clock)) as tables:
        for made in tables.row.look().state.generations:
            tables.remove(made.table)


EMBEDDED: dict[str, Callable[[Path, Clock], Place]] = {
    "memory": in_memory,
    "rocksdb": in_files,
    "hbase-model": in_a_model_of_hbase,
}
SERVERS: dict[str, Callable[[Path, Clock], Place]] = {"hbase": in_hbase}
ADAPTERS = EMBEDDED | SERVERS
"""Every test of the port runs against every adapter."""
