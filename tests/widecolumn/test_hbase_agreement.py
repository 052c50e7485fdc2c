"""Random operations side by side on the model, RocksDB and a real HBase, with flushes and compactions in between.

HBase purges by its own clock and does not trim here, so nothing that is expired or beyond `keep` exists in these runs:
the times are small, the table keeps its markers for ever, and the sweeps of the others are held at the beginning of
time, where they only drop what is masked.
"""

import shutil
import tempfile
from pathlib import Path

import hbase_adapter
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_widecolumn_agreement import COLUMNS, ROWS, mutations
from widecolumn_adapters import ADAPTERS

from feedstore.widecolumn import Mutation, Table

TABLE = Table("agreement", 1, 2, trim=None, purge_window_ms=10)


class HBaseAgreement(RuleBasedStateMachine):
    """The first store is the model."""

    @initialize()
    def open_everything(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="feedstore-agreement-"))
        for name in ADAPTERS:
            (self.directory / name).mkdir()
        self.stores = {name: each.open(self.directory / name, TABLE) for name, each in ADAPTERS.items()}
        self.regions = hbase_adapter.regions()

    @rule(batch=st.lists(mutations(), max_size=4))
    def apply(self, batch: list[Mutation]) -> None:
        for store in self.stores.values():
            store.apply(batch)

    @rule(row=st.sampled_from(ROWS), after=st.none() | st.sampled_from(COLUMNS), limit=st.integers(1, 14))
    def read(self, row: bytes, after: bytes | None, limit: int) -> None:
        pages = {name: store.read(row, after, limit) for name, store in self.stores.items()}
        assert len({tuple(page) for page in pages.values()}) == 1, pages

    @rule(start=st.binary(max_size=2), stop=st.none() | st.binary(max_size=2))
    def scan(self, start: bytes, stop: bytes | None) -> None:
        scans = {name: list(store.scan(start, stop)) for name, store in self.stores.items()}
        assert all(each == scans["memory"] for each in scans.values()), scans

    @rule()
    def flush(self) -> None:
        self.regions.flush()

    @rule(major=st.booleans())
    def compact(self, major: bool) -> None:
        self.regions.flush()
        self.regions.compact(major=major)

    @rule()
    def sweep(self) -> None:
        for store in self.stores.values():
            store.sweep(1)

    @rule()
    def reopen(self) -> None:
        for name, store in self.stores.items():
            if ADAPTERS[name].is_durable:
                store.close()
                self.stores[name] = ADAPTERS[name].open(self.directory / name, TABLE)

    @invariant()
    def agree(self) -> None:
        for row in ROWS if hasattr(self, "stores") else ():
            cells = {name: store.cells(row) for name, store in self.stores.items()}
            assert all(each == cells["memory"] for each in cells.values()), cells

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            for store in self.stores.values():
                store.close()
            shutil.rmtree(self.directory)


@pytest.mark.stack
@pytest.mark.usefixtures("hbase")
class TestHBaseAgreement(HBaseAgreement.TestCase):
    settings = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
