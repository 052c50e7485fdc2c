"""The real HBase for the tests of the port: one namespace for a run, a table for each trim and purge window that a test
asks for, a row prefix for each test.

A table takes seconds to make, so tests share them: each gets a prefix that goes before its row keys; HBase does not
care how long they are. And HBase purges by its own clock, where the tests say what time it is: times are translated.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from hbase_regions import Regions

from deploy.local import Stack
from feedstore.metering import UNCOUNTED
from feedstore.widecolumn import (
    Cell,
    DeleteCells,
    DeleteColumns,
    Mutation,
    Put,
    PutCells,
    Table,
    Trim,
)
from feedstore.widecolumn.checks import check_batch, check_range, check_read, check_row
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.direct import DirectReads, RegionServers
from feedstore.widecolumn.hbase.regionserver import RegionServerConnection
from feedstore.widecolumn.hbase.schema import definition
from feedstore.widecolumn.hbase.sockets import DeadlineSocket

PREFIX_BYTES = 8
NOW = 1_000_000
"""When the tests of the port sweep."""

_UNIT_MS = 1_000_000
_TRANSLATED_MAX = 10 * NOW


class Times:
    """The times of a test as times of HBase: a ms of the test is `_UNIT_MS` long, its `now` lies half of that ahead.

    So whatever is older than a purge window when a test sweeps is older for HBase, and what is not is not, as long as
    the test takes less than that half.
    """

    def __init__(self, now_ms: int) -> None:
        self._now = now_ms
        self._there = time.time_ns() // 1_000_000 + _UNIT_MS // 2

    def there(self, ms: int) -> int:
        if ms > _TRANSLATED_MAX:
            return ms  # the ends of the range, which no age is counted from
        return self._there + (ms - self._now) * _UNIT_MS

    def here(self, ms: int) -> int:
        here = (ms - self._there) // _UNIT_MS + self._now
        return ms if here > _TRANSLATED_MAX else here


_urls: list[str] = []
_made: dict[tuple[Trim | None, int], str] = {}
_times: dict[Path, Times] = {}


@contextmanager
def used(stack: Stack) -> Iterator[None]:
    """Meanwhile a cluster of the stack has a namespace of ours."""
    stack.up("cluster-a")
    url = f"hbase://127.0.0.1:{stack.port('thrift2-a')}/feedtest_{uuid.uuid4().hex[:12]}?reads=gateways"
    cluster = HBaseCluster.open(url, [], check=False)
    cluster.administration.create_namespace()
    _urls[:] = [url]
    yield
    stack.up("cluster-a")
    for name in _made.values():
        cluster.administration.drop(name)
    cluster.administration.drop_namespace()
    cluster.close()


def made() -> str:
    """The url of a cluster with a namespace of our own."""
    assert _urls, "the test does not ask for the fixture `hbase`"
    return _urls[0]


def there(table: Table) -> Table:
    """The table that serves one of the tests', with room for a prefix; made where it is the first of its kind."""
    kind = (table.trim, table.purge_window_ms)
    name = _made.get(kind, f"contract{len(_made)}")
    window_ms = table.purge_window_ms * _UNIT_MS
    inner = Table(name, PREFIX_BYTES + table.row_bytes, table.column_bytes, table.trim, window_ms)
    if kind not in _made:
        cluster = HBaseCluster.open(made(), [], check=False)
        settings = {"MEMSTORE_FLUSHSIZE": str(16 << 20)}
        if table.trim is not None:  # trimmed when a test sweeps, and at no moment of HBase's own choice
            settings["hbase.hstore.compaction.min"] = "1000"
        cluster.administration.create(definition(inner, settings))
        cluster.close()
        _made[kind] = name
    return inner


def regions(table: Table) -> Regions:
    return Regions(made(), there(table).name)


class PrefixedStore:
    """A store whose rows begin with a prefix that its users do not see."""

    def __init__(self, directory: Path, table: Table, times: Times) -> None:
        self._table = table
        self._times = times
        self._prefix = sha256(str(directory).encode()).digest()[:PREFIX_BYTES]
        inner = there(table)
        self._regions = Regions(made(), inner.name)
        self._cluster = HBaseCluster.open(made(), [inner], check=False)
        self._inner = self._cluster.table(inner.name)

    def apply(self, batch: Sequence[Mutation]) -> None:
        check_batch(self._table, batch)
        self._inner.apply([*map(self._there, batch)])

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        check_read(self._table, row, after, limit)
        return self._inner.read(self._prefix + row, after, limit, deadline_s)

    def cells(self, row: bytes) -> list[Cell]:
        check_row(self._table, row)
        found = self._inner.cells(self._prefix + row)
        return [Cell(cell.column, self._times.here(cell.timestamp)) for cell in found]

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        for row in rows:
            check_row(self._table, row)
        found = self._inner.cells_of([self._prefix + row for row in rows])
        return [[Cell(cell.column, self._times.here(cell.timestamp)) for cell in cells] for cells in found]

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        check_row(self._table, row)
        found = self._inner.masks(self._prefix + row, columns)
        return [Cell(cell.column, self._times.here(cell.timestamp)) for cell in found]

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        check_range(self._table, start, stop)
        past = (int.from_bytes(self._prefix, "big") + 1).to_bytes(PREFIX_BYTES, "big")
        rows = self._inner.scan(self._prefix + start, past if stop is None else self._prefix + stop)
        return ((row[PREFIX_BYTES:], columns) for row, columns in rows)

    def sweep(self, now_ms: int) -> None:  # HBase goes by its own clock
        """HBase trims where it compacts all files, when it likes; here that is now."""
        self._regions.flush()
        self._regions.compact(major=True)

    def _there(self, mutation: Mutation) -> Mutation:
        at = self._times.there
        match mutation:
            case Put(rows, columns) | DeleteColumns(rows, columns):
                return type(mutation)([(self._prefix + row, at(ts)) for row, ts in rows], columns)
            case PutCells(rows, columns, timestamps) | DeleteCells(rows, columns, timestamps):
                prefixes = np.tile(np.frombuffer(self._prefix, np.uint8), (len(rows), 1))
                times = np.array([*map(at, timestamps.tolist())], np.int64)
                return type(mutation)(np.hstack([prefixes, rows]), columns, times)

    def close(self) -> None:
        self._cluster.close()


def open_hbase(directory: Path, table: Table, now_ms: int = NOW) -> PrefixedStore:
    """now_ms: the time at which the test sweeps."""
    return PrefixedStore(directory, table, _times.setdefault(directory, Times(now_ms)))


def look_at_once(look: Callable[[], None]) -> None:
    look()


def region_servers() -> RegionServers:
    return RegionServers(
        lambda to, left_s: RegionServerConnection(DeadlineSocket.connect(to, left_s)), 16, time.monotonic
    )


def direct_reads(cluster: HBaseCluster, table: Table, servers: RegionServers) -> DirectReads:
    """Reads of region servers alone: what they do not answer is None. A look for them takes place at once."""
    return DirectReads(
        "a", table, lambda: cluster.regions(table.name), servers, 5_000, time.monotonic, look_at_once, UNCOUNTED
    )


class DirectStore(PrefixedStore):
    """One of which rows are read without a gateway."""

    def __init__(self, directory: Path, table: Table, times: Times) -> None:
        super().__init__(directory, table, times)
        self._servers = region_servers()
        self._direct = direct_reads(self._cluster, there(table), self._servers)
        self._direct.cells(self._prefix + bytes(table.row_bytes))  # it does not wait for its look

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        super().read(row, after, limit, deadline_s)  # it checks the arguments, and that the store is open
        found = self._direct.cells(self._prefix + row, after, limit)
        assert found is not None
        return [column for column, _ in found]

    def cells(self, row: bytes) -> list[Cell]:
        super().cells(row)
        found = self._direct.cells(self._prefix + row)
        assert found is not None
        return [Cell(column, self._times.here(ts)) for column, ts in found]

    def close(self) -> None:
        super().close()
        self._servers.close()


def open_direct(directory: Path, table: Table, now_ms: int = NOW) -> DirectStore:
    return DirectStore(directory, table, _times.setdefault(directory, Times(now_ms)))
