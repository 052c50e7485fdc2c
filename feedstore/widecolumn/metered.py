"""A table whose calls are counted: how long each took, and how each failed call failed."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from feedstore.metering import Meter
from feedstore.widecolumn import metrics
from feedstore.widecolumn.port import (
    Cell,
    DamagedError,
    Mutation,
    RefusedError,
    Sweep,
    UnavailableError,
    WideColumnStore,
)


class Metered:
    """Counts the calls of a table. store: the table. cluster: the name of its cluster. clock: monotonic seconds."""

    def __init__(self, store: WideColumnStore, cluster: str, meter: Meter, clock: Callable[[], float]) -> None:
        self._store = store
        self._cluster = cluster
        self._meter = meter
        self._clock = clock
        # Every series begins at 0, so that the first failure of a kind is an increase, too.
        _, calls, reasons = metrics.FAILURES.labels
        for call in calls.values:
            for reason in reasons.values:
                meter.add(metrics.FAILURES, 0, cluster, call, reason)

    def apply(self, batch: Sequence[Mutation]) -> None:
        with self._counted("apply"):
            self._store.apply(batch)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        with self._counted("read"):
            return self._store.read(row, after, limit, deadline_s)

    def cells(self, row: bytes) -> list[Cell]:
        with self._counted("cells"):
            return self._store.cells(row)

    def cells_of(self, rows: Sequence[bytes]) -> list[list[Cell]]:
        with self._counted("cells"):
            return self._store.cells_of(rows)

    def masks(self, row: bytes, columns: Sequence[bytes]) -> list[Cell]:
        with self._counted("masks"):
            return self._store.masks(row, columns)

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, list[bytes]]]:
        """Not counted: a scan takes as long as its reader does."""
        return self._store.scan(start, stop)

    def sweep(self, now_ms: int) -> Sweep | None:
        with self._counted("sweep"):
            return self._store.sweep(now_ms)

    @contextlib.contextmanager
    def _counted(self, call: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            yield
        except DamagedError:
            self._meter.add(metrics.FAILURES, 1, self._cluster, call, "damaged")
            raise
        except UnavailableError:
            self._meter.add(metrics.FAILURES, 1, self._cluster, call, "unavailable")
            raise
        except RefusedError:
            self._meter.add(metrics.FAILURES, 1, self._cluster, call, "refused")
            raise
        finally:
            self._meter.observe(metrics.CALL_SECONDS, [self._clock() - began_s], self._cluster, call)
