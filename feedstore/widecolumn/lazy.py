"""A cluster that is opened when it is first used, and again until that succeeds."""

from collections.abc import Callable, Iterator, Sequence

from feedstore.lazy import Lazy
from feedstore.widecolumn.port import Cell, Cluster, Mutation, Sweep, UnavailableError, WideColumnStore


class LazyCluster(Lazy[Cluster]):
    """A cluster that may not be there yet: each call opens it, or raises the UnavailableError that opening raised.

    So a reader fails over, and a writer waits, just as where a cluster that was there goes away. Thread-safe.
    """

    def __init__(self, opener: Callable[[], Cluster]) -> None:
        super().__init__(opener, lambda: UnavailableError("the cluster is closed"))

    def table(self, name: str) -> WideColumnStore:
        return _LazyTable(self, name)


class _LazyTable:
    def __init__(self, cluster: LazyCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._table: WideColumnStore | None = None

    def _opened(self) -> WideColumnStore:
        if self._table is None:
            self._table = self._cluster.opened().table(self._name)
        return self._table

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._opened().apply(batch)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        return self._opened().read(row, after, limit, deadline_s)

    def cells(self, row: bytes) -> list[Cell]:
        return self._opened().cells(row)

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        return self._opened().cells_of(rows)

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        return self._opened().masks(row, columns)

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        return self._opened().scan(start, stop)

    def sweep(self, now_ms: int) -> Sweep | None:
        return self._opened().sweep(now_ms)

    def close(self) -> None:
        """Nothing to do here: a cluster is closed as a whole."""
