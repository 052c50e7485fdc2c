"""A builder in HBase that has died, and a table that is being made: in the tables of a model."""

from typing import cast
from unittest import mock

import pytest

from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase.reader import HBaseCatalogReader
from feedstore.catalog.hbase.state import Building
from feedstore.catalog.hbase.store import DEAD_AFTER_S, HBaseCatalogStore
from feedstore.catalog.hbase.tables import CATALOGS, CatalogStorage
from feedstore.catalog.port import CatalogUnavailableError, Delta
from feedstore.widecolumn.hbase import HBaseCluster
from tests.catalog.catalog_adapters import Clock
from tests.catalog.hbase_model import ModelCluster


def test_a_builder_that_died_is_found_out_by_the_next_one():
    cluster, clock = cast("HBaseCluster", ModelCluster()), Clock()
    store = HBaseCatalogStore(cluster, "pins", clock, lambda: clock.wall_ms, clock.unique, clock.pass_s)
    store.use(store.load(10, []).id)
    CatalogStorage(cluster, "pins", clock).row.change(
        lambda state: states.begun(state, Building("dead", "a process that died", 1), None)
    )
    before_s = clock.now_s
    with store.building("the next"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S)
    with store.building("the last"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S), "nothing to wait for"


def test_a_table_that_is_not_enabled_yet_is_not_an_empty_one():
    model, clock = ModelCluster(), Clock()
    reader = HBaseCatalogReader(cast("HBaseCluster", model), "pins", clock)
    assert reader.delta() == Delta(0, 0, 0), "nothing was ever loaded or noted"
    HBaseCatalogStore(
        cast("HBaseCluster", model), "pins", clock, lambda: clock.wall_ms, clock.unique, clock.pass_s
    ).note_known(7)
    model.administration.not_enabled.add(CATALOGS)
    clock.pass_s(2)
    for call in (reader.generations, reader.delta, lambda: reader.fetch([b"a"])):
        with pytest.raises(CatalogUnavailableError, match="'catalogs' is not enabled: if a worker is making it"):
            call()
    model.administration.not_enabled.clear()
    assert reader.delta().known_ms == 7


def test_a_table_that_was_made_between_two_looks_is_read():
    model, clock = ModelCluster(), Clock()
    cluster = cast("HBaseCluster", model)
    HBaseCatalogStore(cluster, "pins", clock, lambda: clock.wall_ms, clock.unique, clock.pass_s).note_known(7)
    model.administration.not_enabled.add(CATALOGS)

    def enabled(name: str, deadline_s: float | None = None) -> bool:
        model.administration.not_enabled.clear()
        return True

    with mock.patch.object(model.administration, "exists", enabled):
        assert HBaseCatalogReader(cluster, "pins", clock).delta().known_ms == 7
