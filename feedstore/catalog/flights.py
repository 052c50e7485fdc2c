"""Fetches that are under way, and the calls that wait for them: each key is fetched once, however many ask for it."""

import threading
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from feedstore.catalog.cache import version_of
from feedstore.catalog.port import CatalogUnavailableError, Update

T = TypeVar("T")


class Landed(NamedTuple, Generic[T]):
    """The answer to a key. record: in its form; None: there is none."""

    version: int
    record: T | None


class Flight(Generic[T]):
    """One call of the store. until_s: the call ends by then, or hangs.

    After `wait` has returned True, either `error` is set or `landed` has every key: its answer, or why its record
    cannot be read.
    """

    __slots__ = (
        "_done",
        "all_records",
        "error",
        "generation",
        "heard",
        "keys",
        "landed",
        "oldest_version",
        "until_s",
    )

    def __init__(self, keys: Sequence[bytes], until_s: float) -> None:
        self.keys = keys
        self.until_s = until_s
        self.landed: dict[bytes, Landed[T] | CatalogUnavailableError] = {}
        self.all_records: dict[bytes, T] | None = None
        """Those of all keys, if there are; with the least of their versions. So the batch that began it takes them in
        one step, as it does nearly always.
        """
        self.oldest_version = 0
        self.generation = ""
        """The one that the store answered by."""
        self.error: Exception | None = None
        self.heard: dict[bytes, Update] = {}
        """The newest update of each key that was heard meanwhile: the store may have been read before."""
        self._done = threading.Event()

    def wait(self, within_s: float) -> bool:
        """Whether it has landed, or failed."""
        return self._done.wait(max(0.0, within_s))

    def end(self) -> None:
        """Wakes all who wait."""
        self._done.set()


class Boarded(NamedTuple, Generic[T]):
    """own: a flight that the caller must begin, for all keys that are not being fetched. joined: others' flights, each
    with the keys for which to wait.
    """

    own: Flight[T] | None
    joined: dict[Flight[T], list[bytes]]


class Flights(Generic[T]):
    """Not thread-safe. At most one flight a key counts; it *has* the key."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def board(self, keys: Sequence[bytes], now_s: float, until_s: float) -> Boarded[T]:
        """Joins the flights that have the keys, unless they should have ended by now, and makes one for the rest."""
        joined: dict[Flight[T], list[bytes]] = {}
        rest: Sequence[bytes] = keys
        flights = list(map(self._by_key.get, keys))
        if any(flights):
            rest = []
            for key, flight in zip(keys, flights, strict=True):
                if flight is None or flight.until_s <= now_s:
                    rest.append(key)
                else:
                    joined.setdefault(flight, []).append(key)
        if not rest:
            return Boarded(None, joined)
        own = Flight[T](rest, until_s)
        self._by_key.update(dict.fromkeys(rest, own))
        return Boarded(own, joined)

    def hear(self, update: Update) -> None:
        """Notes an update for the flight that has its key."""
        flight = self._by_key.get(update.key)
        if flight is None:
            return
        before = flight.heard.get(update.key)
        if before is None or version_of(before) < version_of(update):
            flight.heard[update.key] = update

    def forget(self) -> None:
        """No flight that is under way has any key: those who wait get its answer, and nothing of it is held."""
        self._by_key.clear()

    def land(self, flight: Flight[T]) -> list[bytes]:
        """The keys that the flight still has; then it has none."""
        kept = [key for key in flight.keys if self._by_key.get(key) is flight]
        for key in kept:
            del self._by_key[key]
        return kept
