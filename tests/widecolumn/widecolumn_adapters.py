"""How the tests open each adapter. A real HBase joins the whole suite by one more entry in `ADAPTERS`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from feedstore.widecolumn import Table, WideColumnStore
from feedstore.widecolumn.memory import MemoryStore
from feedstore.widecolumn.rocksdb import RocksCluster

TABLE = Table(name="feed", row_bytes=2, column_bytes=3, keep=3, purge_window_ms=1_000)


def open_rocks(directory: Path, table: Table, dead_run_keys_min: int = 4) -> WideColumnStore:
    """Closing the only store of a cluster closes the cluster."""
    return RocksCluster.open(directory / "cluster", [table], dead_run_keys_min=dead_run_keys_min).table(table.name)


@dataclass(frozen=True)
class Adapter:
    """open: opens a table on what it held when it was last closed, if `is_durable`."""

    open: Callable[[Path, Table], WideColumnStore]
    is_durable: bool


ADAPTERS = {
    "memory": Adapter(open=lambda _, table: MemoryStore(table), is_durable=False),
    "rocksdb": Adapter(open=open_rocks, is_durable=True),
}
