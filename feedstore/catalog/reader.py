"""A catalog as a process reads it: a batch of keys at a time through a local cache.

    fetch = catalog.begin(keys)    # takes the records that are held, and begins to fetch the others
    ...                            # meanwhile
    got = fetch.result()

A batch may mix records of the cache with fetched ones. All records that one call of the store fetches are of one
generation; those of the cache may be of another one. That is correct, because every generation that is kept gives the
same answers once the updates are complete (docs/catalog.md), and each entry notes how far it was complete. So nothing
is thrown away at a swap, and no stampede follows it. A rollback means that a batch was wrong: older records expire.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from feedstore.catalog.cache import HEARD, Cache, CacheAnswer, CacheEntry, RolledBack, known_ms_of, version_at
from feedstore.catalog.checks import check_keys
from feedstore.catalog.counts import CatalogCounting, CatalogCounts
from feedstore.catalog.flights import Boarded, Flight, Flights, Landed
from feedstore.catalog.heard import Heard
from feedstore.catalog.port import (
    MAX_KEYS,
    CatalogFetcher,
    CatalogRefusedError,
    CatalogUnavailableError,
    Fetched,
    TooFarBehindError,
    Update,
)
from feedstore.catalog.rule import stamp
from feedstore.clocks import behind_ms
from feedstore.errors import OF_ANOTHER_PROCESS
from feedstore.replicas.attempts import Attempt, Reads

T = TypeVar("T")

ROUNDS: Final = 2
"""How often a key is tried. If the fetch of another batch does not bring it, all that waited try it in one fetch."""


class Got(NamedTuple, Generic[T]):
    """The answer of a catalog for some keys.

    records: by key, in the catalog's form. missing: all other keys. unanswered: the keys of `missing` that got no
    answer, or whose record this program cannot read; the others of `missing` are known to have no record. behind_ms:
    the answers have every change that is older than this; None if that is unknown, or nothing was answered.
    stale: keys that were answered from expired entries, because the store did not answer. failure: why keys are
    unanswered or stale; None if none are. generation: the one of the fetched records; None if nothing was fetched, or
    if there were several fetches from different generations.
    """

    records: dict[bytes, T]
    missing: set[bytes]
    unanswered: set[bytes]
    behind_ms: int | None
    stale: set[bytes]
    failure: CatalogUnavailableError | None
    generation: str | None


class AllHeld(NamedTuple, Generic[T]):
    """records: of all keys, in the order asked. behind_ms: they have every older change; None if unknown."""

    records: Sequence[T]
    behind_ms: int | None


class Catalog(Generic[T]):
    """A process's cache of a catalog, the updates that it has heard, and its fetches under way. Thread-safe.

    reads: how the store is called: in place if it is in files, on a bounded number of threads if it is across a
    network. within_s: how long a batch without a deadline may take. A call of the store always gets at least this long,
    because other batches wait for it, too. clock: of deadlines and lifetimes, monotonic, in s. clock_ms: of the source.

    One lock is needed because of one race. A fetch reads an old record; an update arrives and is entered; the fetch
    returns. The old record must never replace the update, nor be entered in its place if the key was not held.
    """

    def __init__(
        self,
        reader: CatalogFetcher,
        reads: Reads,
        cache: Cache[T],
        within_s: float,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._reads = reads
        self.form = cache.form
        self._cache = cache
        self._within_s = within_s
        self.clock = clock
        self.clock_ms = clock_ms
        self.counting = CatalogCounting()
        self._heard = Heard()
        self._flights: Flights[T] = Flights()
        self._rolled_back = RolledBack()
        """Replaced whole, under the lock; any thread may read it."""
        self._lock = threading.Lock()
        self._process = os.getpid()

    # What a batch needs
    # ------------------------------------------------------------------------------------------------------------------

    def begin(
        self, keys: Sequence[bytes], deadline_s: float | None = None, max_behind_ms: int | None = None
    ) -> "Fetch[T]":
        """Takes the records that are held, and begins to fetch the others in one call of the store. They are cached
        even if the result is never asked for.

        keys: up to MAX_KEYS. deadline_s: a time of the clock. max_behind_ms: answers that may be further behind than
        this now are not given.

        Raises CatalogRefusedError: too many keys, or a key is empty or longer than MAX_KEY_BYTES;
        CatalogUnavailableError: this process was forked from the one that opened the catalog.
        """
        if os.getpid() != self._process:
            raise CatalogUnavailableError(f"catalog: {OF_ANOTHER_PROCESS}")
        if len(keys) > MAX_KEYS:
            raise CatalogRefusedError(f"keys: at most {MAX_KEYS} at once, got {len(keys)}; ask in several batches")
        oldest_ms = 0 if max_behind_ms is None else self.clock_ms() - max_behind_ms
        taken = self.take(keys, oldest_ms)
        check_keys(taken.missed)
        if deadline_s is None:
            deadline_s = self.clock() + self._within_s
        return Fetch(self, taken, deadline_s, oldest_ms)

    def all_held(self, keys: Sequence[bytes]) -> AllHeld[T] | None:
        """The records of all keys, if all are held and none has expired; takes half the time of `begin`, and no lock.
        Otherwise None, and nothing has begun.
        """
        following = self._heard.following  # read before any entry, as in `take`
        found = self._cache.all_held(keys, self._now_ms(), following, self._rolled_back)
        if found is None:
            return None
        self.counting.batch(hit=len(keys))
        return AllHeld(found.records, behind_ms(found.known_ms, self.clock_ms()))

    def take(self, keys: Sequence[bytes], oldest_ms: int, *, expired: bool = False) -> CacheAnswer[T]:
        """The entries of some keys, as `Cache.take`. Takes no lock, so a batch whose keys are all held never waits."""
        following = self._heard.following  # read before any entry, or it might include an update that an entry lacks
        return self._cache.take(keys, self._now_ms(), following, self._rolled_back, oldest_ms, expired=expired)

    def take_or_board(
        self, keys: Sequence[bytes], oldest_ms: int, deadline_s: float
    ) -> tuple[CacheAnswer[T], Boarded[T]]:
        """For keys that were missing a moment ago: the entries that have come since, and flights for the other keys.
        The call's own flight is begun.
        """
        now_s = self.clock()
        asked = list(dict.fromkeys(keys))
        with self._lock:
            taken = self.take(asked, oldest_ms)  # a flight may have landed meanwhile
            boarded = self._flights.board(taken.missed, now_s, max(deadline_s, now_s + self._within_s))
        if boarded.own is not None:
            self._start(boarded.own, oldest_ms)
        return taken, boarded

    # What the stream of updates says
    # ------------------------------------------------------------------------------------------------------------------

    def heard_from(self, after_ms: int) -> None:
        """Notes that from now on every update is entered. Call it when the stream is connected, and after every gap.
        Older entries live only for `ttl`, until their keys are fetched or updated again.

        after_ms: by the source's clock. No update after this time is missed: a store that knows everything up to it has
        all that this process may lack.
        """
        with self._lock:
            self._heard.begin(after_ms)

    def entered(self, update: Update) -> None:
        """Takes an update: replaces the entry of its key by a newer one. Updates may repeat and come in any order."""
        version = stamp(update)
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
                # The later an update comes, the shorter it lives.
                late_ms = max(0, self.clock_ms() - update.time_ms)
                expires_ms = max(held.expires_ms, expires_ms - late_ms)
            self._cache.put(update.key, CacheEntry(expires_ms, version, self._heard.follows(version), HEARD, record))
        self.counting.updated()

    def entered_late(self, update: Update, after_ms: int) -> None:
        """Takes an update that is older than a time up to which `note_known`, here or in a store, has claimed to be
        complete. The entry of the key may lack it and still count as newer, so the key is fetched again.

        after_ms: a store that knows everything up to this time has the update. A record from a store that may lack it
        lives only for `ttl`.
        """
        self.entered(update)
        with self._lock:
            self._heard.forget(after_ms)
            held = self._cache.entry(update.key)
            version = stamp(update)
            if held is not None and (held.version > version or (held.version == version and _lacks(held, update))):
                # The entry may be newer than the update, or may lack it: it is complete only up to just before the
                # update.
                expires_ms = min(held.expires_ms, self._now_ms())
                self._cache.put(update.key, held._replace(expires_ms=expires_ms, version=version - 1, stream=0))

    def note_known(self, known_ms: int) -> None:
        """Notes that every update up to this time has been entered, except those that were missed before `heard_from`.
        Entries that the stream follows are then known to be complete up to this time.
        """
        with self._lock:
            self._heard.note_known(known_ms, self._now_ms())

    def heard_ms(self) -> int | None:
        """The time that `note_known` gave last; None if it was not called since `heard_from`."""
        return self._heard.following.known_ms or None

    # What clusters say
    # ------------------------------------------------------------------------------------------------------------------

    def rolled_back(self) -> None:
        """Notes that an older generation has come into use. Records that were fetched until now expire: they are
        fetched again when they are asked for, and are used, as stale, only if the store is away. Fetches under way
        enter nothing: they may be from the wrong batch, too. Updates that were heard stay.

        Call it only when every fetch that begins afterwards reads the generation that is current now.
        """
        with self._lock:
            self._rolled_back = self._rolled_back.again(self._now_ms())
            self._flights.forget()

    # For reports
    # ------------------------------------------------------------------------------------------------------------------

    def counts(self) -> CatalogCounts:
        return self.counting.counts()

    def cache_bytes(self) -> int:
        """How many bytes of memory the cache takes, about."""
        return self._cache.bytes

    def close(self) -> None:
        """Ends this: no new fetch begins. The owner closes the reader."""
        self._reads.close()

    # Flights
    # ------------------------------------------------------------------------------------------------------------------

    def _start(self, flight: Flight[T], oldest_ms: int) -> None:
        read = partial(self._reader.fetch, flight.keys, flight.until_s, oldest_ms)
        attempt = Attempt("catalog", read, partial(self._ended, flight), self.clock)
        try:
            if not self._reads.start(attempt):
                self._fail(flight, CatalogUnavailableError("too many fetches are under way, or the catalog is closed"))
        except BaseException as error:
            # An interrupt while the store was read in place: no batch may wait for a flight that has ended.
            self._fail(flight, CatalogUnavailableError(f"the fetch was interrupted: {error!r}"))
            raise

    def _ended(self, flight: Flight[T], attempt: Attempt[Fetched]) -> None:
        cluster = attempt.answer.cluster if attempt.error is None else None
        self.counting.fetched(cluster, attempt.took_s)
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
            if update is not None and stamp(update) > version:
                version, fetched, rollbacks = stamp(update), update.record, HEARD
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
        return int(self.clock() * 1_000)


class Fetch(Generic[T]):
    """A batch that has begun. For one thread."""

    def __init__(self, catalog: Catalog[T], taken: CacheAnswer[T], deadline_s: float, oldest_ms: int) -> None:
        self._records, self._absent, missed, self._known_ms = taken
        self._hits = len(self._records)
        self._catalog = catalog
        self._deadline_s = deadline_s
        self._oldest_ms = oldest_ms
        self._fetched = self._joined = 0
        self._generations: set[str] = set()
        self._unanswered: set[bytes] = set()
        self._failure: CatalogUnavailableError | None = None
        self._got: Got[T] | None = None
        self._waits: list[tuple[Flight[T], list[bytes], bool]] = []
        if missed:
            self._board(missed)

    def result(self) -> Got[T]:
        """Waits for the fetches under way, until the deadline. If the store has not answered a key by then, its cached
        entry is used if that expired less than `stale_max_ms` ago.

        Raises no CatalogUnavailableError: `unanswered` and `failure` say which keys are not known, and why. Other
        errors of the store are raised.
        """
        if self._got is None:
            stale = self._land() if self._waits else set()
            missing = self._absent | self._unanswered
            self._catalog.counting.batch(
                hit=self._hits,
                missing=len(missing),
                stale=len(stale & self._records.keys()) if stale else 0,
                fetched=self._fetched,
                joined=self._joined,
            )
            behind = behind_ms(self._known_ms, self._catalog.clock_ms())
            generation = self._generations.pop() if len(self._generations) == 1 else None
            self._got = Got(self._records, missing, self._unanswered, behind, stale, self._failure, generation)
        return self._got

    def _board(self, keys: Sequence[bytes]) -> None:
        taken, (own, joined) = self._catalog.take_or_board(keys, self._oldest_ms, self._deadline_s)
        self._hits += len(taken.records)
        self._add(taken)
        # The flights of others first, because they began earlier.
        self._waits = [(flight, theirs, False) for flight, theirs in joined.items()]
        if own is not None:
            self._waits.append((own, list(own.keys), True))

    def _land(self) -> set[bytes]:
        """Waits for all flights, and retries. Returns the keys that were answered from expired entries."""
        for number in range(1, ROUNDS + 1):
            again = self._wait()
            if not again:
                break
            if number == ROUNDS or self._catalog.clock() >= self._deadline_s:
                self._unanswered.update(again)
                break
            self._board(again)
        if not self._unanswered:
            self._failure = None
            return set()
        taken = self._catalog.take(list(self._unanswered), self._oldest_ms, expired=True)
        self._add(taken)
        stale = taken.records.keys() | taken.absent
        self._unanswered -= stale
        return stale

    def _wait(self) -> list[bytes]:
        """Waits for each flight. Returns the keys that flights of others did not deliver."""
        again: list[bytes] = []
        for flight, keys, is_own in self._waits:
            if not flight.wait(self._deadline_s - self._catalog.clock()):
                self._failure = CatalogUnavailableError("the catalog did not answer in time")
                self._unanswered.update(keys)
                continue
            late = keys if flight.error is not None else self._landed(flight, keys, is_own=is_own)
            if not late:
                continue
            self._fail(flight.error, is_own=is_own)
            if is_own:
                self._unanswered.update(late)
            else:
                again += late
        return again

    def _landed(self, flight: Flight[T], keys: Sequence[bytes], *, is_own: bool) -> list[bytes]:
        """Takes the answers that have landed. Returns the keys whose answers are too far behind."""
        before = len(self._records)
        oldest = version_at(self._oldest_ms)
        if is_own and flight.all_records is not None and flight.oldest_version >= oldest:
            self._records.update(flight.all_records)
            versions, late = [flight.oldest_version], list[bytes]()
        else:
            versions, late = self._landed_one_by_one(flight, keys, oldest)
        if versions:
            self._note_known(known_ms_of(min(versions)))
            self._generations.add(flight.generation)
        found = len(self._records) - before
        if is_own:
            self._fetched += found
        else:
            self._joined += found
        return late

    def _landed_one_by_one(
        self, flight: Flight[T], keys: Sequence[bytes], oldest: int
    ) -> tuple[list[int], list[bytes]]:
        """Takes the answers of a flight. Returns their versions, and the keys whose answers are too far behind."""
        versions: list[int] = []
        late: list[bytes] = []
        for key in keys:
            answer = flight.landed[key]
            if isinstance(answer, CatalogUnavailableError):
                self._failure = answer
                self._unanswered.add(key)
                continue
            version, record = answer
            if version < oldest:
                late.append(key)
                continue
            versions.append(version)
            if record is None:
                self._absent.add(key)
            else:
                self._records[key] = record
        return versions, late

    def _fail(self, error: Exception | None, *, is_own: bool) -> None:
        if error is None:
            self._failure = TooFarBehindError("the catalog is further behind than was asked for")
        elif isinstance(error, CatalogUnavailableError):
            self._failure = error
        elif is_own:
            raise error
        else:
            self._failure = CatalogUnavailableError(f"another batch's fetch failed: {error!r}")

    def _add(self, taken: CacheAnswer[T]) -> None:
        self._records.update(taken.records)
        self._absent |= taken.absent
        if taken.known_ms is not None:
            self._note_known(taken.known_ms)

    def _note_known(self, known_ms: int) -> None:
        self._known_ms = known_ms if self._known_ms is None else min(self._known_ms, known_ms)


def _lacks(held: CacheEntry[Any], update: Update) -> bool:
    """Whether an answer with the version of an update lacks the update. The answer of a store that knew everything up
    to the time of a deletion has the same version as the deletion, but may still have the record.
    """
    return update.record is None and held.record is not None
