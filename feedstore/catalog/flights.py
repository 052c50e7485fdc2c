"""Fetches that are under way, and the calls that wait for them: each key is fetched once, even if many calls ask."""

import threading
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from feedstore.catalog.port import CatalogUnavailableError, Update
from feedstore.catalog.rule import stamp

T = TypeVar("T")


class Landed(NamedTuple, Generic[T]):
    """The answer to a key. record: in its form; None: there is none."""

    version: int
    record: T | None


class Flight(Generic[T]):
    """One call of the store. until_s: if the call has not ended by then, it hangs.

    After `wait` has returned True, either `error` is set or `landed` has every key: its answer, or why its record
    cannot be read.
    """

    def __init__(self, keys: Sequence[bytes], until_s: float) -> None:
        self.keys = keys
        self.until_s = until_s
        self.landed: dict[bytes, Landed[T] | CatalogUnavailableError] = {}
        self.all_records: dict[bytes, T] | None = None
        """The records of all keys, if each has one; `oldest_version` is the least of their versions. With these, the
        batch that began the flight takes all records in one step, as is nearly always the case.
        """
        self.oldest_version = 0
        self.generation = ""
        """The generation that the answer is from."""
        self.error: Exception | None = None
        self.heard: dict[bytes, Update] = {}
        """The newest update of each key that was heard during the flight, which the store's answer may lack."""
        self._done = threading.Event()

    def wait(self, within_s: float) -> bool:
        """Waits up to a time. True if the flight has landed or failed."""
        return self._done.wait(max(0.0, within_s))

    def end(self) -> None:
        """Wakes all waiting threads."""
        self._done.set()


class Boarded(NamedTuple, Generic[T]):
    """own: a new flight for all keys that are not being fetched; the caller must begin it. joined: flights of others,
    each with the keys to wait for.
    """

    own: Flight[T] | None
    joined: dict[Flight[T], list[bytes]]


class Flights(Generic[T]):
    """The flights by key. Not thread-safe. At most one flight counts for a key; that flight *has* the key."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def board(self, keys: Sequence[bytes], now_s: float, until_s: float) -> Boarded[T]:
        """Joins the flights that have the keys, and makes one for the rest. Flights that are overdue are not joined."""
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
        if before is None or stamp(before) < stamp(update):
            flight.heard[update.key] = update

    def forget(self) -> None:
        """Takes all keys from the flights under way: calls that wait get their answers, but these are not cached."""
        self._by_key.clear()

    def land(self, flight: Flight[T]) -> list[bytes]:
        """Takes from a flight the keys that it still has, and returns them."""
        kept = [key for key in flight.keys if self._by_key.get(key) is flight]
        for key in kept:
            del self._by_key[key]
        return kept
