"""The real HBase for the tests of the port: one namespace for a run, one table, a row prefix for each test.

A table takes seconds to make, so each test gets a prefix that goes before its row keys; HBase does not care how long
they are.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hbase_regions import Regions

from deploy.local import Stack
from feedstore.widecolumn import Cell, Mutation, Sweep, Table, WideColumnStore
from feedstore.widecolumn.checks import check_batch, check_range, check_read, check_row
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.schema import definition

NAME = "contract"
PREFIX_BYTES = 8
FOR_EVER_MS = 10**15
"""The tests write at times such as 5 ms after 1970; markers that old must survive the compactions."""


_urls: list[str] = []


@contextmanager
def used(stack: Stack) -> Iterator[None]:
    """Meanwhile a cluster of the stack has a namespace of ours, with the table in it."""
    stack.up("cluster-a")
    thrift2, thrift1 = (f"127.0.0.1:{stack.port(name)}" for name in ("thrift2-a", "thrift1-a"))
    url = f"hbase://{thrift2}/feedtest_{uuid.uuid4().hex[:12]}?thrift1={thrift1}"
    table = Table(NAME, PREFIX_BYTES + 1, 1, keep=None, purge_window_ms=FOR_EVER_MS)
    cluster = HBaseCluster.open(url, [table], check=False)
    cluster.administration.create_namespace()
    cluster.administration.create(definition(table, {"MEMSTORE_FLUSHSIZE": str(16 << 20)}))
    _urls[:] = [url]
    yield
    stack.up("cluster-a")
    cluster.administration.drop(NAME)
    cluster.administration.drop_namespace()
    cluster.close()


def made() -> str:
    """The url of a cluster with a namespace of our own, in which the table is."""
    assert _urls, "the test does not ask for the fixture `hbase`"
    return _urls[0]


def regions() -> Regions:
    return Regions(made(), NAME)


class PrefixedStore:
    """A store whose rows begin with a prefix that its users do not see."""

    def __init__(self, directory: Path, table: Table) -> None:
        self._table = table
        self._prefix = sha256(str(directory).encode()).digest()[:PREFIX_BYTES]
        inner = Table(NAME, PREFIX_BYTES + table.row_bytes, table.column_bytes, None, FOR_EVER_MS)
        self._cluster = HBaseCluster.open(made(), [inner], check=False)
        self._inner = self._cluster.table(NAME)

    def apply(self, batch: Sequence[Mutation]) -> None:
        check_batch(self._table, batch)
        self._inner.apply([type(m)([(self._prefix + row, ts) for row, ts in m.rows], m.columns) for m in batch])

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        check_read(self._table, row, after, limit)
        return self._inner.read(self._prefix + row, after, limit, deadline_s)

    def cells(self, row: bytes) -> list[Cell]:
        check_row(self._table, row)
        return self._inner.cells(self._prefix + row)

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        check_range(self._table, start, stop)
        past = (int.from_bytes(self._prefix, "big") + 1).to_bytes(PREFIX_BYTES, "big")
        rows = self._inner.scan(self._prefix + start, past if stop is None else self._prefix + stop)
        return ((row[PREFIX_BYTES:], columns) for row, columns in rows)

    def sweep(self, now_ms: int) -> Sweep:
        return self._inner.sweep(now_ms)

    def close(self) -> None:
        self._inner.close()
        self._cluster.close()


def open_hbase(directory: Path, table: Table) -> WideColumnStore:
    return PrefixedStore(directory, table)
