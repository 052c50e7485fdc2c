"""What a bulk load writes, and that nothing of it is left; and the regions as drills see them."""

import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from deploy.drills import bulk as bulk_loading
from deploy.drills.bulk import BulkLoad, write
from deploy.drills.regions import Region, regions
from feedstore.following import entries_of, feed_table, row_key
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.regions import TableRegion
from tests.cli.command import eventually, has_ended
from tests.widecolumn.memory_store import MemoryStore

FIRST, TS = 1 << 50, 1_700_000_000_000


class Flaky(MemoryStore):
    """Refuses every other batch once, after it was applied in part."""

    refused = False

    def apply(self, batch: Any) -> None:
        super().apply(batch)
        self.refused = not self.refused
        if self.refused:
            raise UnavailableError("later")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = Flaky(feed_table(1_000, 250, 1 << 40))
    cluster = SimpleNamespace(table=lambda _: made, close=lambda: None)
    monkeypatch.setattr(HBaseCluster, "open", lambda *_, **__: cluster)
    monkeypatch.setattr(bulk_loading, "CELLS_EACH", 6_000)
    monkeypatch.setattr(bulk_loading, "_AGAIN_S", 0.0)
    return made


def entries(store: MemoryStore) -> int:
    return sum(len(entries_of(MemoryStore.read(store, row_key(FIRST + user), None, 100))) for user in range(1_000))


def test_all_of_it_is_written_whatever_fails_and_nothing_of_it_is_left(store: MemoryStore) -> None:
    begun = SimpleNamespace(value=0)
    write("hbase://127.0.0.1:1/", [], FIRST, TS, begun)
    assert (begun.value, entries(store)) == (3, 6_000)
    load = BulkLoad("hbase://127.0.0.1:1/", [], FIRST, TS)
    load.remove()
    assert entries(store) == 6_000  # it began none of them
    load._writers.append((None, begun))  # type: ignore[arg-type]
    load.remove()
    assert entries(store) == 0


@pytest.mark.parametrize(("begun", "status", "cells"), [(0, -15, 0), (1, -15, 0), (3, -15, 4_000), (150, 0, 300_000)])
def test_the_batch_that_a_writer_was_ended_in_is_not_counted(begun: int, status: int, cells: int) -> None:
    load = BulkLoad("hbase://127.0.0.1:1/", [], FIRST, TS)
    ended = SimpleNamespace(
        exitcode=status, terminate=lambda: None, join=lambda *_: None, is_alive=lambda: False, kill=lambda: None
    )
    load._writers.append((ended, SimpleNamespace(value=begun)))  # type: ignore[arg-type]
    assert load.stop() == cells


@pytest.mark.processes
def test_its_processes_end_with_a_drill_that_was_killed() -> None:
    # Nothing listens there: they try their first batch again and again.
    program = """
import time
from deploy.drills.bulk import BulkLoad
from feedstore.following import feed_table
load = BulkLoad("hbase://127.0.0.1:1/", [feed_table(1_000, 250, 1 << 40)], 1 << 50, 1)
load.start()
while not all(begun.value for _, begun in load._writers):
    time.sleep(0.01)
print(*(process.pid for process, _ in load._writers), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as drill:
        assert drill.stdout is not None
        writers = [psutil.Process(int(pid)) for pid in drill.stdout.readline().split()]
        assert writers
        drill.kill()
    try:
        eventually(lambda: all(map(has_ended, writers)), "they have ended")
    finally:
        for each in writers:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def test_a_region_ends_where_the_next_one_begins_and_may_be_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [TableRegion(b"", b"t,,1.", Address("a-host-1.zone", 16020)), TableRegion(b"\x80", b"t,\x80,1.", None)]
    monkeypatch.setattr(HBaseCluster, "regions", lambda *_: found)
    assert regions("hbase://127.0.0.1:1/") == [Region(b"", b"\x80", "a-host-1"), Region(b"\x80", b"", "")]
    found.clear()
    assert regions("hbase://127.0.0.1:1/") == []
