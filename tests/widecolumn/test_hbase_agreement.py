"""Random operations side by side on the model, RocksDB and a real HBase, with flushes and compactions in between.

HBase purges by its own clock, so nothing that is expired exists in these runs: the sweeps of the others are held at the
beginning of time, and a marker outlives them all.

HBase trims by what its files hold, where it compacts all of them, and the others by everything. So tables with a trim
are compacted in sweeps only, after a flush; in between, markers wait in memory and in files of their own.
"""

import shutil
import tempfile
from pathlib import Path

import hbase_adapter
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_widecolumn_agreement import COLUMNS, ROWS, mutations
from widecolumn_adapters import ADAPTERS, SERVERS, Opened, alone

from feedstore.widecolumn import Mutation, Table, Trim

SWEPT_MS = 1
TRIMS = [None, Trim(1, 0), Trim(2, 1), Trim(4, 1)]


class HBaseAgreement(RuleBasedStateMachine):
    """The first store is the model."""

    @initialize(trim=st.sampled_from(TRIMS))
    def open_everything(self, trim: Trim | None) -> None:
        self.table = Table("agreement", 1, 2, trim=trim, purge_window_ms=10)
        self.directory = Path(tempfile.mkdtemp(prefix="feedstore-agreement-"))
        for name in ADAPTERS:
            (self.directory / name).mkdir()
        self.clusters = {name: self.opened(name) for name in ADAPTERS}
        self.regions = hbase_adapter.regions(self.table)

    def opened(self, name: str) -> Opened:
        if name in SERVERS:
            opener = hbase_adapter.open_hbase if name == "hbase" else hbase_adapter.open_direct
            return alone(opener(self.directory / name, self.table, now_ms=SWEPT_MS))
        return ADAPTERS[name].open(self.directory / name, self.table)

    @rule(batch=st.lists(mutations(), max_size=4))
    def apply(self, batch: list[Mutation]) -> None:
        for cluster in self.clusters.values():
            cluster.store.apply(batch)

    @rule(row=st.sampled_from(ROWS), after=st.none() | st.sampled_from(COLUMNS), limit=st.integers(1, 14))
    def read(self, row: bytes, after: bytes | None, limit: int) -> None:
        pages = {name: cluster.store.read(row, after, limit) for name, cluster in self.clusters.items()}
        assert len({tuple(page) for page in pages.values()}) == 1, pages

    @rule(start=st.binary(max_size=2), stop=st.none() | st.binary(max_size=2))
    def scan(self, start: bytes, stop: bytes | None) -> None:
        scans = {name: list(cluster.store.scan(start, stop)) for name, cluster in self.clusters.items()}
        assert all(each == scans["memory"] for each in scans.values()), scans

    @rule()
    def flush(self) -> None:
        self.regions.flush()

    @precondition(lambda self: self.table.trim is None)
    @rule(major=st.booleans())
    def compact(self, major: bool) -> None:
        self.regions.flush()
        self.regions.compact(major=major)

    @rule()
    def sweep(self) -> None:
        for cluster in self.clusters.values():
            cluster.store.sweep(SWEPT_MS)

    @rule()
    def reopen(self) -> None:
        for name, cluster in self.clusters.items():
            if ADAPTERS[name].is_durable:
                cluster.close()
                self.clusters[name] = self.opened(name)

    @invariant()
    def agree(self) -> None:
        for row in ROWS if hasattr(self, "clusters") else ():
            cells = {name: cluster.store.cells(row) for name, cluster in self.clusters.items()}
            assert all(each == cells["memory"] for each in cells.values()), cells

    def teardown(self) -> None:
        if hasattr(self, "clusters"):
            for cluster in self.clusters.values():
                cluster.close()
            shutil.rmtree(self.directory)


@pytest.mark.stack
@pytest.mark.usefixtures("hbase")
class TestHBaseAgreement(HBaseAgreement.TestCase):
    settings = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
