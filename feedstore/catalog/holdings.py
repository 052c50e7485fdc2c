"""A process's cache of a catalog, the updates that it has heard, and its fetches under way, under one lock.

One lock is needed because of one race. A fetch reads an old record; an update arrives and is entered; the fetch
returns. The old record must never replace the update, nor be entered in its place if the key was not held.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from feedstore.catalog.cache import HEARD, AllGood, Cache, CacheAnswer, CacheEntry, RolledBack, version_at, version_of
from feedstore.catalog.counts import CatalogCounting
from feedstore.catalog.flights import Boarded, Flight, Flights, Landed
from feedstore.catalog.heard import Heard
from feedstore.catalog.port import CatalogReader, CatalogUnavailableError, Fetched, Update
from feedstore.replicas.attempts import Attempt, Reads

T = TypeVar("T")

NOTHING_HELD: Final[CacheAnswer[Any]] = CacheAnswer({}, set(), [], None)


class Holdings(Generic[T]):
    """Thread-safe. The arguments are those of `Catalog`."""

    def __init__(
        self,
        reader: CatalogReader,
        reads: Reads,
        cache: Cache[T],
        heard: Heard,
        counting: CatalogCounting,
        within_s: float,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._reads = reads
        self._cache = cache
        self._heard = heard
        self._counting = counting
        self._within_s = within_s
        self._clock = clock
        self._clock_ms = clock_ms
        self._flights: Flights[T] = Flights()
        self._rolled_back = RolledBack()
        """Replaced whole, under the lock; any thread may read it."""
        self._lock = threading.Lock()

    # What a batch needs
    # ------------------------------------------------------------------------------------------------------------------

    def take(self, keys: Sequence[bytes], oldest_ms: int, *, expired: bool = False) -> CacheAnswer[T]:
        """The entries of some keys, as `Cache.take`. Takes no lock, so a batch whose keys are all held never waits."""
        following = self._heard.following  # read before any entry, or it might include an update that an entry lacks
        return self._cache.take(keys, self._now_ms(), following, self._rolled_back, oldest_ms, expired=expired)

    def all_held(self, keys: Sequence[bytes]) -> AllGood[T] | None:
        """As `Cache.all_held`. Takes no lock."""
        following = self._heard.following  # read before any entry, as in `take`
        return self._cache.all_held(keys, self._now_ms(), following, self._rolled_back)

    @property
    def puts(self) -> int:
        """A count that changes with each entry of the cache."""
        return self._cache.puts

    def take_or_board(
        self, keys: Sequence[bytes], oldest_ms: int, deadline_s: float, puts: int | None
    ) -> tuple[CacheAnswer[T], Boarded[T]]:
        """For keys that were missing a moment ago: the entries that have come since, and flights for the other keys.
        The call's own flight is begun.

        puts: the count before the look that missed the keys, which is repeated if the count has changed; None: always
        repeat it.
        """
        now_s = self._clock()
        asked = list(dict.fromkeys(keys))
        with self._lock:
            # A flight may have landed meanwhile.
            taken = NOTHING_HELD if puts == self._cache.puts else self.take(asked, oldest_ms)
            missed = asked if taken is NOTHING_HELD else taken.missed
            boarded = self._flights.board(missed, now_s, max(deadline_s, now_s + self._within_s))
        if boarded.own is not None:
            self._start(boarded.own)
        return taken, boarded

    # What the stream of updates says
    # ------------------------------------------------------------------------------------------------------------------

    def heard_from(self, after_ms: int) -> None:
        with self._lock:
            self._heard.begin(after_ms)

    def note_known(self, known_ms: int) -> None:
        with self._lock:
            self._heard.note_known(known_ms, self._now_ms())

    @property
    def heard_ms(self) -> int | None:
        """Everything up to this time has been heard; None if that is not known."""
        return self._heard.following.known_ms or None

    def entered(self, update: Update) -> None:
        version = version_of(update)
        with self._lock:
            self._heard.add(update)
            self._flights.hear(update)
            held = self._cache.entry(update.key)
            if held is None or held.version >= version:
                return
            now_ms = self._now_ms()
            try:
                record = self._made(update.key, update.record)
            except CatalogUnavailableError:
                # The next call that asks for the key fetches it, and gets the error.
                expires_ms = min(held.expires_ms, now_ms)
                self._cache.put(update.key, held._replace(expires_ms=expires_ms, stream=0))
                return
            expires_ms = self._cache.expiry_ms(record, now_ms)
            if record is not None:
                # If an update comes late, its time to live is shorter by that.
                late_ms = max(0, self._clock_ms() - update.time_ms)
                expires_ms = max(held.expires_ms, expires_ms - late_ms)
            self._cache.put(update.key, CacheEntry(expires_ms, version, self._heard.follows(version), HEARD, record))
        self._counting.updated()

    def entered_late(self, update: Update, after_ms: int) -> None:
        self.entered(update)
        with self._lock:
            self._heard.forget(after_ms)
            held = self._cache.entry(update.key)
            version = version_of(update)
            if held is not None and (held.version > version or (held.version == version and _lacks(held, update))):
                # The entry may be newer than the update, or may lack it: it is complete only up to just before the
                # update.
                expires_ms = min(held.expires_ms, self._now_ms())
                self._cache.put(update.key, held._replace(expires_ms=expires_ms, version=version - 1, stream=0))

    # What clusters say
    # ------------------------------------------------------------------------------------------------------------------

    def rolled_back(self) -> None:
        """Expires the records that were fetched, and keeps fetches under way from entering anything: both may be from a
        wrong batch. Updates that were heard stay.
        """
        with self._lock:
            self._rolled_back = RolledBack(self._rolled_back.number + 1, self._now_ms())
            self._flights.forget()

    # Flights
    # ------------------------------------------------------------------------------------------------------------------

    def _start(self, flight: Flight[T]) -> None:
        read = partial(self._reader.fetch, flight.keys, flight.until_s)
        attempt = Attempt("catalog", read, partial(self._ended, flight), self._clock)
        try:
            if not self._reads.start(attempt):
                self._fail(flight, CatalogUnavailableError("too many fetches are under way, or the catalog is closed"))
        except BaseException as error:
            # An interrupt while the store was read in place: no batch may wait for a flight that has ended.
            self._fail(flight, CatalogUnavailableError(f"the fetch was interrupted: {error!r}"))
            raise

    def _ended(self, flight: Flight[T], attempt: Attempt[Fetched]) -> None:
        cluster = attempt.answer.cluster if attempt.error is None else None
        self._counting.fetched(len(flight.keys), cluster, attempt.took_s)
        if attempt.error is not None:
            self._fail(flight, attempt.error)
            return
        try:
            with self._lock:
                self._enter(flight, attempt.answer)
        finally:
            flight.end()

    def _fail(self, flight: Flight[T], error: Exception) -> None:
        """A failure is not cached: the next batch asks again."""
        with self._lock:
            self._flights.land(flight)
        flight.error = error
        flight.end()

    def _enter(self, flight: Flight[T], fetched: Fetched) -> None:
        """Enters, for each key, the newest of three, and answers with it: the fetched record, an update that was heard,
        and the entry of the cache. Called under the lock.
        """
        now_ms = self._now_ms()
        flight.generation = fetched.generation
        fetched_version = version_at(fetched.known_ms)
        # Keys that were taken from this flight are not entered: it has not heard their updates since.
        landed = {*self._flights.land(flight)}
        versions: list[int] = []
        records: dict[bytes, T] = {}
        for key in flight.keys:
            try:
                if key in landed:
                    answer = self._entered(flight, key, fetched_version, fetched.records.get(key), now_ms)
                else:
                    answer = Landed(fetched_version, self._made(key, fetched.records.get(key)))
            except CatalogUnavailableError as error:
                flight.landed[key] = error
                continue
            flight.landed[key] = answer
            version, record = answer
            versions.append(version)
            if record is not None:
                records[key] = record
        if len(records) == len(flight.keys):
            flight.all_records, flight.oldest_version = records, min(versions)

    def _entered(self, flight: Flight[T], key: bytes, version: int, fetched: bytes | None, now_ms: int) -> Landed[T]:
        """Raises CatalogUnavailableError if the newest record cannot be read; then the entry of the cache stays."""
        rollbacks = self._rolled_back.number  # none was noticed since the flight began, or it would not have the key
        for update in (flight.heard.get(key), self._heard.newest(key)):
            if update is not None and version_of(update) > version:
                version, fetched, rollbacks = version_of(update), update.record, HEARD
        held = self._cache.entry(key)
        # An entry that a rollback has ended does not count: its version may be from a wrong batch.
        if held is not None and held.version > version and held.rollbacks >= self._rolled_back.number:
            version, record, rollbacks = held.version, held.record, held.rollbacks
            # The store is behind the held entry, but perhaps not for long, so the entry is kept only a short time more.
            expires_ms = max(held.expires_ms, self._cache.expiry_ms(None, now_ms))
        else:
            record = self._made(key, fetched)
            expires_ms = self._cache.expiry_ms(record, now_ms)
        self._cache.put(key, CacheEntry(expires_ms, version, self._heard.follows(version), rollbacks, record))
        return Landed(version, record)

    def _made(self, key: bytes, record: bytes | None) -> T | None:
        return None if record is None else self._cache.form.made(key, record)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)


def _lacks(held: CacheEntry[Any], update: Update) -> bool:
    """Whether an answer with the version of an update lacks the update. The answer of a store that knew everything up
    to the time of a deletion has the same version as the deletion, but may still have the record.
    """
    return update.record is None and held.record is not None
