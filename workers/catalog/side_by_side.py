"""Loads one walk of a source into several clusters at the same time: each entry is read once."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final

from feedstore.catalog.port import CatalogError, CatalogStore, Generation

Entry = tuple[bytes, bytes]

AT_ONCE: Final = 1_000
"""The entries are handed over in groups of this many."""

AHEAD_MAX: Final = 32
"""At most this many groups may wait for a load: the walk is as fast as the slowest load."""


def load(
    stores: Mapping[str, CatalogStore], as_of_ms: int, entries: Iterable[Entry]
) -> dict[str, Generation | CatalogError]:
    """Runs the loads and returns the outcome of each. If one fails, the others continue. entries: keys strictly
    ascending.

    Raises the errors of `entries`, and those of a load that are no CatalogError: then nothing that was loaded is in
    use.
    """
    handed = {name: _Handed() for name in stores}
    with ThreadPoolExecutor(max(1, len(stores)), thread_name_prefix="catalog-load") as threads:
        loads = {name: threads.submit(store.load, as_of_ms, handed[name]) for name, store in stores.items()}
        for name, each in loads.items():
            each.add_done_callback(handed[name].close)
        try:
            given = iter(entries)
            while some := list(islice(given, AT_ONCE)):
                taken = [each.put(some) for each in handed.values()]
                if not any(taken):
                    break  # no load is left
        except BaseException as error:
            for each_handed in handed.values():
                each_handed.end(error)
            raise
        for each_handed in handed.values():
            each_handed.end()
        return {name: _outcome(each) for name, each in loads.items()}


def _outcome(load: "Future[Generation]") -> Generation | CatalogError:
    try:
        return load.result()
    except CatalogError as error:
        return error


class _Handed:
    """Entries on their way from the walk to one load."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Sequence[Entry]] = deque()
        self._is_closed = False
        self._is_ended = False
        self._error: BaseException | None = None

    def put(self, some: Sequence[Entry]) -> bool:
        """Waits while the load is far behind. False: it has ended, and takes no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._waiting) < AHEAD_MAX)
            if not self._is_closed:
                self._waiting.append(some)
                self._changed.notify_all()
            return not self._is_closed

    def end(self, error: BaseException | None = None) -> None:
        """Ends the entries. error: the walk has failed, and the load must fail too, because its entries are not
        complete.
        """
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
                some = self._waiting.popleft()
                self._changed.notify_all()
            yield from some
