"""How the tests open each adapter; HBase only where a test asks for the fixture `hbase`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hbase_adapter

from feedstore.widecolumn import Table, Trim, WideColumnStore
from feedstore.widecolumn.memory import MemoryStore
from feedstore.widecolumn.rocksdb.cluster import RocksCluster

TABLE = Table(name="feed", row_bytes=2, column_bytes=3, trim=Trim(2, 1), purge_window_ms=1_000)


def open_rocks(directory: Path, table: Table, dead_run_keys_min: int = 4) -> WideColumnStore:
    """Closing the only store of a cluster closes the cluster."""
    return RocksCluster.open(directory / "cluster", [table], dead_run_keys_min=dead_run_keys_min).table(table.name)


@dataclass(frozen=True)
class Adapter:
    """open: opens a table on what it held when it was last closed, if `is_durable`."""

    open: Callable[[Path, Table], WideColumnStore]
    is_durable: bool


EMBEDDED = {
    "memory": Adapter(open=lambda _, table: MemoryStore(table), is_durable=False),
    "rocksdb": Adapter(open=open_rocks, is_durable=True),
}
SERVERS = {"hbase": Adapter(open=hbase_adapter.open_hbase, is_durable=True)}
ADAPTERS = EMBEDDED | SERVERS
