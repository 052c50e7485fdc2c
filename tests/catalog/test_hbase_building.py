"""Who builds a catalog in HBase, if the one that did has died: in the tables of a model."""

from typing import cast

import pytest

from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase.state import Building
from feedstore.catalog.hbase.store import DEAD_AFTER_S, HBaseCatalogStore
from feedstore.catalog.hbase.tables import CatalogStorage
from feedstore.widecolumn.hbase import HBaseCluster
from tests.catalog.catalog_adapters import Clock
from tests.catalog.hbase_model import ModelCluster


def test_a_builder_that_died_is_found_out_by_the_next_one():
    cluster, clock = cast("HBaseCluster", ModelCluster()), Clock()
    store = HBaseCatalogStore(cluster, "pins", clock, lambda: clock.wall_ms, clock.unique, clock.pass_s)
    store.use(store.load(10, []).id)
    CatalogStorage(cluster, "pins").row.change(
        lambda state: states.begun(state, Building("dead", "a process that died", 1), None)
    )
    before_s = clock.now_s
    with store.building("the next"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S)
    with store.building("the last"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S), "nothing to wait for"
