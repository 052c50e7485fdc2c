"""Steps in several clusters: a failure in one does not stop the others. A walk of a source is loaded into all of them
at the same time, so that each entry is read once.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, Generic, NamedTuple, TypeVar

from feedstore.catalog.port import CatalogError, CatalogStore, Generation

Entry = tuple[bytes, bytes]

T = TypeVar("T")

AT_ONCE: Final = 1_000
"""The entries are handed over in groups of this many."""

AHEAD_MAX: Final = 32
AHEAD_BYTES: Final = 64 << 20
"""At most this many groups, and about this many bytes, may wait for a load: the walk is as fast as the slowest load."""


class Outcomes(NamedTuple, Generic[T]):
    """What became of a step, by cluster: its result or its error."""

    done: dict[str, T]
    failed: dict[str, CatalogError]


def in_each(clusters: Iterable[str], step: Callable[[str], T]) -> Outcomes[T]:
    """Takes a step in each cluster, one after the other."""
    done: dict[str, T] = {}
    failed: dict[str, CatalogError] = {}
    for each in clusters:
        try:
            done[each] = step(each)
        except CatalogError as error:
            failed[each] = error
    return Outcomes(done, failed)


def load(stores: Mapping[str, CatalogStore], as_of_ms: int, entries: Iterable[Entry]) -> Outcomes[Generation]:
    """Runs the loads, and returns the outcome of each. entries: keys strictly ascending.

    Raises the errors of `entries`, and those of a load that are no CatalogError: then nothing loaded is in use.
    """
    handed = {name: _Handed() for name in stores}
    with ThreadPoolExecutor(max(1, len(stores)), thread_name_prefix="catalog-load") as threads:
        loads: dict[str, Future[Generation]] = {}
        try:
            # If the machine has no thread for a load, those that have begun must end: they wait for entries.
            for name, store in stores.items():
                loads[name] = threads.submit(store.load, as_of_ms, handed[name])
                loads[name].add_done_callback(handed[name].close)
            given = iter(entries)
            while some := list(islice(given, AT_ONCE)):
                size = sum(map(len, chain.from_iterable(some)))
                taken = [each.put(some, size) for each in handed.values()]
                if not any(taken):
                    break  # no load is left
        except BaseException as error:
            for each_handed in handed.values():
                each_handed.end(error)
            raise
        for each_handed in handed.values():
            each_handed.end()
        return in_each(loads, lambda name: loads[name].result())


class _Handed:
    """Entries on their way from the walk to one load."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Sequence[Entry], int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._is_ended = False
        self._error: BaseException | None = None

    def put(self, some: Sequence[Entry], size: int) -> bool:
        """Waits while the load is far behind. size: of the entries, in bytes. False: the load has ended."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (len(self._waiting) < AHEAD_MAX and self._bytes < AHEAD_BYTES)
            )
            if not self._is_closed:
                self._waiting.append((some, size))
                self._bytes += size
                self._changed.notify_all()
            return not self._is_closed

    def end(self, error: BaseException | None = None) -> None:
        """Ends the entries. error: the walk has failed, and the load must fail too: its entries are not complete."""
        with self._changed:
            self._error, self._is_ended = error, True
            self._changed.notify_all()

    def close(self, _load: object) -> None:
        """Notes that the load has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Entry]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ended)
                if self._error is not None:
                    raise self._error
                if not self._waiting:
                    return
                some, size = self._waiting.popleft()
                self._bytes -= size
                self._changed.notify_all()
            yield from some
