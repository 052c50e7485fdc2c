"""How many sorted runs pages of a table look into, and when a table is busy."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from widecolumn_adapters import TABLE

from feedstore.widecolumn import PutCells, Table
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from feedstore.widecolumn.rocksdb.files import BUSY_BYTES, MERGED_FROM, MERGED_FROM_IF_BUSY, REST_WRITES, Merging

OTHER = Table("other", 1, 1, trim=None, purge_window_ms=0)
CELLS = 150_000
"""So many fill a memtable."""


def test_a_table_is_busy_once_it_has_got_much_without_a_rest():
    merging = Merging()
    assert merging.wrote("a", BUSY_BYTES - 1) == {}
    assert merging.wrote("a", 1) == {"a": MERGED_FROM_IF_BUSY}
    assert merging.wrote("a", BUSY_BYTES) == {}, "it is busy already"


def test_little_now_and_then_makes_no_table_busy():
    merging = Merging()
    for _ in range(10):
        assert merging.wrote("a", BUSY_BYTES - 1) == {}
        assert _others(merging, REST_WRITES) == {}


def test_a_table_comes_to_rest_while_others_are_written():
    merging = Merging()
    assert merging.wrote("a", BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY}
    assert _others(merging, REST_WRITES - 1) == {}
    assert _others(merging, 1) == {"a": MERGED_FROM}
    assert _others(merging, REST_WRITES) == {}
    assert merging.wrote("a", BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY}, "and is busy again"


def test_a_write_now_and_then_keeps_a_busy_table_busy():
    merging = Merging()
    assert merging.wrote("a", BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY}
    for _ in range(10):
        assert _others(merging, REST_WRITES - 1) == {}
        assert merging.wrote("a", 1) == {}


def test_runs_are_merged_once_a_table_is_at_rest(tmp_path: Path):
    cluster = RocksCluster.open(tmp_path, [TABLE, OTHER])
    try:
        for number in range(MERGED_FROM_IF_BUSY - 1):
            cluster.table(TABLE.name).apply([_cells(number)])
        eventually(lambda: _runs(cluster) > MERGED_FROM, "each memtable is a run")
        for _ in range(REST_WRITES):
            cluster.table(OTHER.name).apply([PutCells(_bytes(1, 1), _bytes(1, 1), np.ones(1, "int64"))])
        eventually(lambda: _runs(cluster) <= MERGED_FROM, "they are merged")
    finally:
        cluster.close()


def _others(merging: Merging, count: int) -> dict[str, int]:
    """What so many writes to another table change."""
    return {name: runs for _ in range(count) for name, runs in merging.wrote("b", 0).items()}


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s, f"timed out waiting until {what}"
        time.sleep(0.02)


def _cells(number: int) -> PutCells:
    """A memtable's worth."""
    columns = np.arange(number * CELLS, (number + 1) * CELLS, dtype=">u4").view("uint8").reshape(CELLS, 4)[:, 1:]
    return PutCells(_bytes(CELLS, TABLE.row_bytes), np.ascontiguousarray(columns), np.ones(CELLS, "int64"))


def _bytes(count: int, width: int) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    return np.ones((count, width), "uint8")


def _runs(cluster: RocksCluster) -> int:
    """Files of level 0, and further levels that hold anything."""
    family = cluster.files(TABLE.name).families[TABLE.name]
    levels = [int(family.property_value(f"rocksdb.num-files-at-level{level}") or 0) for level in range(7)]
    return levels[0] + sum(1 for files in levels[1:] if files)
