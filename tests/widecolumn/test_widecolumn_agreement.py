"""Random operations drive every adapter side by side: whatever happens, they show the same."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from widecolumn_adapters import ADAPTERS, EMBEDDED, Opened, in_cells, open_rocks

from feedstore.widecolumn import DeleteColumns, Mutation, Put, Table, Trim, WideColumnStore
from feedstore.widecolumn.rocksdb import cluster as rocksdb
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from tests.effort import part

MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""What is durable is asked elsewhere; here a sync would only cost time."""

ROWS = [b"\x00", b"m", b"\xff"]
COLUMNS = [b"\x00\x00", b"\x00\xff", *[b"c%d" % digit for digit in range(8)], b"\xff\x00", b"\xff\xff"]
WIDTHS = Table("agreement", 1, 2, trim=None, purge_window_ms=3)
TIMES = st.integers(1, 8)
TRIMS = st.builds(Trim, st.integers(1, 3), st.integers(0, 1))


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    rows = draw(st.lists(st.tuples(st.sampled_from(ROWS), TIMES), max_size=3))
    first = draw(st.integers(0, len(COLUMNS) - 1))
    run = COLUMNS[first : first + draw(st.integers(0, len(COLUMNS)))]  # neighbours: they make dead runs
    columns = draw(st.just(run) | st.lists(st.sampled_from(COLUMNS), max_size=4))
    mutation = draw(st.sampled_from([Put, DeleteColumns]))(rows, columns)
    return in_cells(mutation, WIDTHS) if draw(st.booleans()) else mutation


class Agreement(RuleBasedStateMachine):
    """The first store is the model; each adapter follows, RocksDB also as another process reads it."""

    @initialize(trim=st.none() | TRIMS, keys_min=st.integers(1, 4), chunk=st.integers(1, 8))
    def open_everything(self, trim: Trim | None, keys_min: int, chunk: int) -> None:
        self.table = replace(WIDTHS, trim=trim)
        self.directory = Path(tempfile.mkdtemp(prefix="feedstore-agreement-", dir=MEMORY_DISK))
        self.small_chunks = mock.patch.multiple(
            rocksdb, _CHUNK_KEYS=chunk, _SLOW_CHUNK_KEYS_MAX=chunk, _LEARN_KEYS_FIRST=chunk, _LEARN_KEYS_MAX=chunk * 6
        )
        self.small_chunks.start()
        self.openers: dict[str, Callable[[], Opened]] = {
            name: lambda name=name, each=each: each.open(self.directory / name, self.table)
            for name, each in EMBEDDED.items()
            if name != "rocksdb"
        }
        self.openers["rocksdb"] = lambda: open_rocks(self.directory / "rocksdb", self.table, keys_min)
        (self.directory / "rocksdb").mkdir()
        self.clusters = {name: opener() for name, opener in self.openers.items()}
        reader = RocksCluster.open(self.directory / "rocksdb" / "cluster", [self.table], access="read")
        self.clusters["reader"] = Opened(reader.table(self.table.name), reader.close)

    @rule(batch=st.lists(mutations(), max_size=4))
    def apply(self, batch: list[Mutation]) -> None:
        for name in self.openers:
            self.clusters[name].store.apply(batch)

    @rule(row=st.sampled_from(ROWS), after=st.none() | st.sampled_from(COLUMNS), limit=st.integers(1, 14))
    def read(self, row: bytes, after: bytes | None, limit: int) -> None:
        self.same(lambda store: store.read(row, after, limit), read_too=True)

    @rule(row=st.sampled_from(ROWS), limit=st.integers(1, 5))
    def walk(self, row: bytes, limit: int) -> None:
        def pages(store: WideColumnStore) -> list[list[bytes]]:
            walked = [store.read(row, None, limit)]
            while walked[-1]:
                walked.append(store.read(row, walked[-1][-1], limit))
            return walked

        self.same(pages)

    @rule(start=st.binary(max_size=2), stop=st.none() | st.binary(max_size=2))
    def scan(self, start: bytes, stop: bytes | None) -> None:
        self.same(lambda store: list(store.scan(start, stop)), read_too=True)

    @rule(now_ms=st.integers(1, 14))
    def sweep(self, now_ms: int) -> None:
        swept = {self.clusters[name].store.sweep(now_ms) for name in self.openers}
        assert len(swept) == 1, swept

    @rule()
    def reopen(self) -> None:
        for name, opener in self.openers.items():
            if ADAPTERS[name].is_durable:
                self.clusters[name].close()
                self.clusters[name] = opener()

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "clusters"):
            for row in ROWS:
                self.same(
                    lambda store, row=row: (store.cells(row), store.read(row, None, 3), store.masks(row, COLUMNS))
                )

    def same(self, ask: Callable[[WideColumnStore], object], *, read_too: bool = False) -> None:
        """A reader in another process catches up in ms, so it is asked less often."""
        expected = ask(self.clusters["memory"].store)
        for name, cluster in self.clusters.items():
            if read_too or name != "reader":
                assert ask(cluster.store) == expected, name

    def teardown(self) -> None:
        if hasattr(self, "clusters"):
            self.small_chunks.stop()
            for cluster in self.clusters.values():
                cluster.close()
            shutil.rmtree(self.directory)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=part(40), stateful_step_count=30, deadline=None)
