"""How the tests open each adapter; HBase only where a test asks for the fixture `hbase`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import hbase_adapter
import numpy as np

from feedstore.widecolumn import DeleteCells, DeleteColumns, Mutation, Put, PutCells, Table, Trim, WideColumnStore
from feedstore.widecolumn.rocksdb import dead_runs
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from tests.widecolumn.memory_store import MemoryStore
from tests.widecolumn.written import cells_in

TABLE = Table(name="feed", row_bytes=2, column_bytes=3, trim=Trim(2, 1), purge_window_ms=1_000)


def put_cells(cells: Iterable[tuple[bytes, bytes, int]], table: Table = TABLE) -> PutCells:
    """cells: (row, column, timestamp)."""
    rows, columns, timestamps = [*zip(*cells, strict=True)] or ((), (), ())
    return PutCells(
        np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), table.row_bytes),
        np.frombuffer(b"".join(columns), np.uint8).reshape(len(columns), table.column_bytes),
        np.array(timestamps, np.int64),
    )


def delete_cells(cells: Iterable[tuple[bytes, bytes, int]], table: Table = TABLE) -> DeleteCells:
    return DeleteCells(*put_cells(cells, table))


def in_cells(mutation: Put | DeleteColumns, table: Table = TABLE) -> Mutation:
    """The same in arrays."""
    return (put_cells if isinstance(mutation, Put) else delete_cells)(cells_in(mutation), table)


class Opened(NamedTuple):
    """The one table of a cluster. close: closes the cluster."""

    store: WideColumnStore
    close: Callable[[], None]


def alone(store: MemoryStore | hbase_adapter.PrefixedStore) -> Opened:
    """One that is its cluster, too."""
    return Opened(store, store.close)


def open_rocks(directory: Path, table: Table, dead_run_keys_min: int = 4) -> Opened:
    with mock.patch.object(dead_runs, "KEYS_MIN", dead_run_keys_min):
        cluster = RocksCluster.open(directory / "cluster", [table])
    return Opened(cluster.table(table.name), cluster.close)


@dataclass(frozen=True)
class Adapter:
    """open: opens a cluster of one table on what it held when it was last closed, if `is_durable`."""

    open: Callable[[Path, Table], Opened]
    is_durable: bool


EMBEDDED = {
    "memory": Adapter(open=lambda _, table: alone(MemoryStore(table)), is_durable=False),
    "rocksdb": Adapter(open=open_rocks, is_durable=True),
}
SERVERS = {
    "hbase": Adapter(open=lambda *place: alone(hbase_adapter.open_hbase(*place)), is_durable=True),
    "hbase-direct": Adapter(open=lambda *place: alone(hbase_adapter.open_direct(*place)), is_durable=True),
}
ADAPTERS = EMBEDDED | SERVERS
