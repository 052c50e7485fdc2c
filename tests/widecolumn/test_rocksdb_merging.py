"""How many sorted runs pages of a table look into, and when a table is busy."""

from pathlib import Path

import numpy as np
import pytest
from widecolumn_adapters import TABLE

from feedstore.widecolumn import PutCells, Table
from feedstore.widecolumn.rocksdb import files
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from feedstore.widecolumn.rocksdb.files import (
    BUSY_BYTES,
    JUDGED_WRITES,
    MERGED_FROM,
    MERGED_FROM_IF_BUSY,
    REST_BYTES,
    Merging,
)
from tests.cli.command import eventually

OTHER = Table("other", 1, 1, trim=None, purge_window_ms=0)
CELLS = 150_000
"""So many fill a memtable."""


def test_a_table_that_gets_much_is_busy_until_it_gets_little():
    merging = Merging()
    assert _writes(merging, 1, BUSY_BYTES - 1) == {}
    assert _writes(merging, 1, BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY}
    assert _writes(merging, 1, BUSY_BYTES) == {}, "it is busy already"
    assert _writes(merging, 1, REST_BYTES) == {}, "and stays so"
    assert _writes(merging, JUDGED_WRITES, 620) == {"a": MERGED_FROM}, "witnesses are no work"
    assert _writes(merging, 0, 0) == {}
    assert _writes(merging, 1, BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY}, "and is busy again"


def test_each_table_is_judged_by_what_it_got_itself():
    merging = Merging()
    assert _writes(merging, 1, BUSY_BYTES, others=BUSY_BYTES) == {"a": MERGED_FROM_IF_BUSY, "b": MERGED_FROM_IF_BUSY}
    assert _writes(merging, 1, BUSY_BYTES, others=1) == {"b": MERGED_FROM}


def test_runs_are_merged_once_a_table_is_at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    judged_writes = MERGED_FROM_IF_BUSY
    monkeypatch.setattr(files, "JUDGED_WRITES", judged_writes)
    cluster = RocksCluster.open(tmp_path, [TABLE, OTHER])

    def others(count: int) -> None:
        for _ in range(count):
            cluster.table(OTHER.name).apply([PutCells(_bytes(1, 1), _bytes(1, 1), np.ones(1, "int64"))])

    try:
        cluster.table(TABLE.name).apply([_cells(0)])
        others(judged_writes - 1)
        for number in range(1, MERGED_FROM_IF_BUSY - 1):
            cluster.table(TABLE.name).apply([_cells(number)])
        eventually(lambda: _runs(cluster) > MERGED_FROM, "each memtable is a run")
        others(2 * judged_writes)
        eventually(lambda: _runs(cluster) <= MERGED_FROM, "they are merged")
    finally:
        cluster.close()


def _writes(merging: Merging, count: int, size: int, others: int = 0) -> dict[str, int]:
    """What changes by as many writes as are judged together: `count` of them to table a, the others to b."""
    found: dict[str, int] = {}
    for number in range(JUDGED_WRITES):
        found |= merging.wrote("a", size) if number < count else merging.wrote("b", others)
    return found


def _cells(number: int) -> PutCells:
    """A memtable's worth."""
    columns = np.arange(number * CELLS, (number + 1) * CELLS, dtype=">u4").view("uint8").reshape(CELLS, 4)[:, 1:]
    return PutCells(_bytes(CELLS, TABLE.row_bytes), np.ascontiguousarray(columns), np.ones(CELLS, "int64"))


def _bytes(count: int, width: int) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    return np.ones((count, width), "uint8")


def _runs(cluster: RocksCluster) -> int:
    """Files of level 0, and further levels that hold anything."""
    family = cluster.files().families[TABLE.name]
    levels = [int(family.property_value(f"rocksdb.num-files-at-level{level}") or 0) for level in range(7)]
    return levels[0] + sum(1 for files in levels[1:] if files)
