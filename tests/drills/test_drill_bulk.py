"""What a bulk load writes, and that nothing of it is left; and whom the regions are asked of."""

from types import SimpleNamespace
from typing import Any

import pytest

from deploy.drills import bulk as bulk_loading
from deploy.drills import regions as asking
from deploy.drills.bulk import BulkLoad, write
from deploy.drills.regions import Region, regions
from feedstore.following import entries_of, feed_table, row_key
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.addresses import Address
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
    write("hbase://127.0.0.1:1/?thrift1=127.0.0.1:2", [], FIRST, TS, begun)
    assert (begun.value, entries(store)) == (3, 6_000)
    load = BulkLoad("hbase://127.0.0.1:1/?thrift1=127.0.0.1:2", [], FIRST, TS)
    load.remove()
    assert entries(store) == 6_000  # it began none of them
    load._writers.append((None, begun))  # type: ignore[arg-type]
    load.remove()
    assert entries(store) == 0


@pytest.mark.parametrize(("begun", "status", "cells"), [(0, -15, 0), (1, -15, 0), (3, -15, 4_000), (150, 0, 300_000)])
def test_the_batch_that_a_writer_was_ended_in_is_not_counted(begun: int, status: int, cells: int) -> None:
    load = BulkLoad("hbase://127.0.0.1:1/?thrift1=127.0.0.1:2", [], FIRST, TS)
    ended = SimpleNamespace(
        exitcode=status, terminate=lambda: None, join=lambda *_: None, is_alive=lambda: False, kill=lambda: None
    )
    load._writers.append((ended, SimpleNamespace(value=begun)))  # type: ignore[arg-type]
    assert load.stop() == cells


def test_the_regions_are_asked_of_the_gateway_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def asked(gateway: Address, table: str) -> list[Region]:
        tried.append(gateway.port)
        if gateway.port in away:
            raise UnavailableError(f"{gateway} is away")
        return [Region(b"\x80", b"", "a-host-2"), Region(b"", b"\x80", "a-host-1")]

    monkeypatch.setattr(asking, "_asked", asked)
    url = "hbase://127.0.0.1:1/?thrift1=127.0.0.1:3,127.0.0.1:4"
    away = {3}
    assert [region.server for region in regions(url)] == ["a-host-1", "a-host-2"]
    assert tried == [3, 4]
    away = {3, 4}
    with pytest.raises(UnavailableError, match=r"3 is away; .*4 is away"):
        regions(url)
