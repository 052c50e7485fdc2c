"""Reading a catalog in HBase."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from feedstore.catalog import checks, rule
from feedstore.catalog.hbase.state import Made
from feedstore.catalog.hbase.tables import NOTHING, About, CatalogStorage
from feedstore.catalog.port import CatalogUnavailableError, Delta, Fetched, Generation
from feedstore.widecolumn.hbase import HBaseCluster

LOOK_EVERY_S: Final = 1.0
"""The longest time that a swap may go unnoticed."""

_ATTEMPTS_MAX: Final = 5
_FETCHES: Final = 16


class HBaseCatalogReader:
    """A `CatalogReader` of a catalog that other processes load and update. Any number of them.

    cluster: closed with it. clock: monotonic seconds, as deadlines are. at_once: how many fetches run in parallel.
    """

    def __init__(
        self, cluster: HBaseCluster, catalog: str, clock: Callable[[], float], at_once: int = _FETCHES
    ) -> None:
        self._tables = CatalogStorage(cluster, catalog, clock)
        self._clock = clock
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="catalog-hbase")
        self._lock = threading.Lock()
        self._about = NOTHING
        self._looked_s = float("-inf")

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:
        """Fetches records in three steps. Their order matters, because a swap, an update and a collection may come
        between any two.

        1. Read the row: the current generation, and `known`, at most a second old. An update that is entered later is
           not promised, whether the next step sees it or not.
        2. Read the updates, and the generation's records at the same time.
        3. Read the row again, after the updates: a collection raises the floor in it before it removes the first
           update. If an update that this generation needs was removed, the floor is now above its as_of. Then either
           another generation is current, and the steps are repeated with that one; or there was a gap, and nothing is
           known after its as_of.

        The table of a generation is kept for some time after its name is gone. A fetch that is slower than that finds
        the table missing, and then another generation is current.
        """
        checks.check_keys(keys)
        asked = list(dict.fromkeys(keys))
        about = self._recent(deadline_s)
        for _ in range(_ATTEMPTS_MAX):
            made = about.state.in_use()
            begun = self._begin(made, asked, deadline_s)
            try:
                updates = self._tables.delta.get(asked, deadline_s)
                latest = self._look(deadline_s)
            except BaseException:
                begun.cancel()
                raise
            is_current = latest.state.current == made.id
            try:
                records = self._ended(begun, deadline_s)
            except CatalogUnavailableError:
                if is_current and made in latest.state.generations:  # and was not loaded again meanwhile
                    raise
            else:
                # A look that began last may have been served first, so what a rollback has ended may still be held.
                was_rolled_back = latest.state.rollbacks != about.state.rollbacks
                if is_current or (not was_rolled_back and rule.is_complete(latest.state.floor_ms, made.as_of_ms)):
                    noted_ms = min(about.known_ms, latest.known_ms)  # it falls if the delta is lost meanwhile
                    known_ms = rule.known_ms(made.as_of_ms, noted_ms, latest.state.floor_ms)
                    return _merged(made, known_ms, asked, updates, records)
            about = latest
        raise CatalogUnavailableError("generations change faster than one can be read")

    def _look(self, deadline_s: float | None = None) -> About:
        """Reads the row as it is now."""
        looked_s = self._clock()
        about = self._tables.row.look(deadline_s)
        with self._lock:
            if looked_s >= self._looked_s:
                self._about, self._looked_s = about, looked_s
        return about

    def generations(self) -> list[Generation]:
        return self._look().state.listed()

    def delta(self) -> Delta:
        about = self._look()
        return Delta(about.state.floor_ms, about.known_ms, about.state.entries)

    def trail(self) -> list[str]:
        return self._look().state.trail

    def check(self) -> None:
        self._tables.open(self._recent(None).state.in_use())

    def rollbacks(self) -> int:
        return self._recent(None).state.rollbacks

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._tables.close()

    def _recent(self, deadline_s: float | None) -> About:
        with self._lock:
            about, looked_s = self._about, self._looked_s
        if 0 <= self._clock() - looked_s < LOOK_EVERY_S:
            return about
        return self._look(deadline_s)

    def _begin(self, made: Made, keys: Sequence[bytes], deadline_s: float | None) -> "Future[list[bytes | None]]":
        try:
            return self._threads.submit(self._tables.records, made, keys, deadline_s)
        except RuntimeError as error:
            raise CatalogUnavailableError("the catalog is closed") from error

    def _ended(self, begun: "Future[list[bytes | None]]", deadline_s: float | None) -> list[bytes | None]:
        try:
            return begun.result(None if deadline_s is None else max(0.0, deadline_s - self._clock()))
        except FutureTimeoutError as error:
            begun.cancel()
            raise CatalogUnavailableError("the generation did not answer by the deadline") from error
        except CancelledError as error:
            raise CatalogUnavailableError("the catalog is closed") from error


def _merged(
    made: Made,
    known_ms: int,
    keys: Sequence[bytes],
    updates: Sequence[rule.Held | None],
    records: Sequence[bytes | None],
) -> Fetched:
    found: dict[bytes, bytes] = {}
    for key, held, of_generation in zip(keys, updates, records, strict=True):
        record = held.record if held is not None and rule.wins(held.time_ms, made.as_of_ms) else of_generation
        if record is not None:
            found[key] = record
    return Fetched(found, made.id, known_ms)
