"""A catalog as a process reads it: a batch of keys at a time through a local cache.

    fetch = catalog.begin(keys)    # takes the records that are held, and begins to fetch the others
    ...                            # meanwhile
    got = fetch.result()

A batch may mix records of the cache with fetched ones. All records that one call of the store fetches are of one
generation; those of the cache may have come from another one. That is right, because every generation that is kept
gives the same answers once the updates are complete (docs/catalog.md), and each entry says how far it was complete. So
nothing is thrown away at a swap, and no stampede follows it. A rollback says that a batch was wrong: records that were
fetched before it expire.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from feedstore.catalog.cache import Cache, CacheAnswer, known_ms_of, version_at
from feedstore.catalog.counts import CatalogCounting, CatalogCounts
from feedstore.catalog.flights import Flight
from feedstore.catalog.heard import Heard
from feedstore.catalog.holdings import Holdings
from feedstore.catalog.port import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    CatalogReader,
    CatalogRefusedError,
    CatalogUnavailableError,
    TooFarBehindError,
    Update,
)
from feedstore.clocks import behind_ms
from feedstore.errors import NotNowError
from feedstore.replicas.attempts import Reads

T = TypeVar("T")

ROUNDS: Final = 2
"""Keys that a batch waited for and did not get are tried once more, by all that waited, together."""


class Got(NamedTuple, Generic[T]):
    """The answer of a catalog for some keys.

    records: by key, in the catalog's form. missing: all other keys. unanswered: those of `missing` of which nothing was
    learned, or whose record this program cannot read; of the others it is known that they have no record. behind_ms:
    every change that is older than this is in the answers; None if that is unknown, or nothing was answered.
    stale: keys that were answered although their time was up, because the store did not answer. failure: why keys are
    unanswered or stale; None if none are. generation: the one of the fetched records; None if nothing was
    fetched, or if several fetches were waited for and they differ.
    """

    records: dict[bytes, T]
    missing: set[bytes]
    unanswered: set[bytes]
    behind_ms: int | None
    stale: set[bytes]
    failure: CatalogUnavailableError | None
    generation: str | None


class AllHeld(NamedTuple, Generic[T]):
    """records: of all keys, in the order asked. behind_ms: as of `Got`."""

    records: Sequence[T]
    behind_ms: int | None


class Catalog(Generic[T]):
    """Thread-safe.

    reads: how the store is called: in place for one in files, on a bounded number of threads for one across a network.
    within_s: how long a batch without a deadline may take; a call of the store may take so long in any case, because
    others wait for it, too. clock: of deadlines and lifetimes, monotonic, in s. clock_ms: of the source.
    """

    def __init__(
        self,
        reader: CatalogReader,
        reads: Reads,
        cache: Cache[T],
        within_s: float,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._reads = reads
        self._cache = cache
        self._within_s = within_s
        self._clock = clock
        self._clock_ms = clock_ms
        self._counting = CatalogCounting()
        self._holdings: Holdings[T] = Holdings(reader, reads, cache, Heard(), self._counting, within_s, clock, clock_ms)

    def begin(
        self, keys: Sequence[bytes], deadline_s: float | None = None, max_behind_ms: int | None = None
    ) -> "Fetch[T]":
        """Takes the records that are held, and begins to fetch the others in one call of the store. The cache gets them
        also if the result is never asked for.

        keys: up to MAX_KEYS; one generation answers so many at once. deadline_s: a time of the clock. max_behind_ms: an
        answer that may be further behind, as of now, is not given.

        Raises CatalogRefusedError: too many keys, or a key is empty or longer than MAX_KEY_BYTES.
        """
        if len(keys) > MAX_KEYS:
            raise CatalogRefusedError(f"keys: at most {MAX_KEYS} at once, got {len(keys)}; ask in several batches")
        oldest_ms = 0 if max_behind_ms is None else self._clock_ms() - max_behind_ms
        puts = self._holdings.puts  # before the look
        taken = self._holdings.take(keys, oldest_ms)
        sizes = list(map(len, taken.missed))
        if sizes and not 0 < min(sizes) <= max(sizes) <= MAX_KEY_BYTES:
            raise CatalogRefusedError(f"keys: 1 to {MAX_KEY_BYTES} bytes each, got {min(sizes)} to {max(sizes)}")
        if deadline_s is None:
            deadline_s = self._clock() + self._within_s
        return Fetch(taken, puts, self._holdings, self._counting, deadline_s, oldest_ms, self._clock, self._clock_ms)

    def all_held(self, keys: Sequence[bytes]) -> AllHeld[T] | None:
        """The answer of `begin`, in half of its time: if there is a record of each key, all of them are held,
        and none has expired. Else None, and nothing has begun.
        """
        found = self._holdings.all_held(keys)
        if found is None:
            return None
        self._counting.batch(hit=len(keys))
        return AllHeld(found.records, behind_ms(found.known_ms, self._clock_ms()))

    def heard_from(self, after_ms: int) -> None:
        """From now on every update is entered. Call it when the stream is connected, and after every gap. An
        entry from before lives for `ttl` alone, until its key is fetched or updated again.

        after_ms: by the source's clock. A store that knows everything up to then has every update that may have been
        missed.
        """
        self._holdings.heard_from(after_ms)

    def entered(self, update: Update) -> None:
        """A key has changed: its entry is replaced, if this update is newer. Repeats and any order are fine."""
        self._holdings.entered(update)

    def entered_late(self, update: Update, after_ms: int) -> None:
        """The same for an update of before the time that `note_known`, of this process or of a store, has said. The
        entry of the key may lack it and count as newer: the key is fetched again.

        after_ms: as of `heard_from`, for this update. A record from a store that may lack it lives for `ttl`.
        """
        self._holdings.entered_late(update, after_ms)

    def note_known(self, known_ms: int) -> None:
        """Every update up to this time has been entered, if it was not missed before `heard_from`. Entries that
        the stream follows are known to be complete up to then.
        """
        self._holdings.note_known(known_ms)

    def heard_ms(self) -> int | None:
        """`note_known` said so last; None: nothing since `heard_from`."""
        return self._holdings.heard_ms

    def rolled_back(self) -> None:
        """An older generation has come into use. Records that were fetched until now have expired: they are fetched
        again when they are asked for, and are answered, as stale, only if the store is away. Updates that were heard
        stay.

        A fetch that begins after this call must read the generation that is current now.
        """
        self._holdings.rolled_back()

    def count_source(self, keys: int) -> None:
        """Counts keys that the caller has looked for in the source itself."""
        self._counting.source(keys)

    def counts(self) -> CatalogCounts:
        return self._counting.counts()

    def cache_bytes(self) -> int:
        """How many bytes of memory the cache takes, about."""
        return self._cache.bytes

    def close(self) -> None:
        """Begins no new fetch. The reader is closed by its owner."""
        self._reads.close()


class Fetch(Generic[T]):
    """A batch that has begun. For one thread."""

    def __init__(
        self,
        taken: CacheAnswer[T],
        puts: int,
        holdings: Holdings[T],
        counting: CatalogCounting,
        deadline_s: float,
        oldest_ms: int,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._records, self._absent, missed, self._known_ms = taken
        self._hits = len(self._records)
        self._holdings = holdings
        self._counting = counting
        self._deadline_s = deadline_s
        self._oldest_ms = oldest_ms
        self._clock = clock
        self._clock_ms = clock_ms
        self._fetched = self._joined = 0
        self._generations: set[str] = set()
        self._unanswered: set[bytes] = set()
        self._failure: CatalogUnavailableError | None = None
        self._got: Got[T] | None = None
        self._waits: list[tuple[Flight[T], list[bytes], bool]] = []
        if missed:
            self._board(missed, puts)

    def result(self) -> Got[T]:
        """Waits for the fetches under way, until the deadline. A key that the store has not answered by then gets its
        entry of the cache, if that expired less than `stale_max_ms` ago.

        Raises no CatalogUnavailableError: `unanswered` and `failure` say which keys are not known, and why. An error of
        the store of any other kind is raised.
        """
        if self._got is None:
            stale = self._land() if self._waits else set()
            missing = self._absent | self._unanswered
            self._counting.batch(
                hit=self._hits,
                missing=len(missing),
                stale=len(stale & self._records.keys()) if stale else 0,
                fetched=self._fetched,
                joined=self._joined,
            )
            behind = behind_ms(self._known_ms, self._clock_ms())
            generation = self._generations.pop() if len(self._generations) == 1 else None
            self._got = Got(self._records, missing, self._unanswered, behind, stale, self._failure, generation)
        return self._got

    def _board(self, keys: Sequence[bytes], puts: int | None = None) -> None:
        taken, (own, joined) = self._holdings.take_or_board(keys, self._oldest_ms, self._deadline_s, puts)
        self._hits += len(taken.records)
        self._add(taken)
        # The others' first: they began before.
        self._waits = [(flight, theirs, False) for flight, theirs in joined.items()]
        if own is not None:
            self._waits.append((own, list(own.keys), True))

    def _land(self) -> set[bytes]:
        """Returns the keys that were answered late."""
        for number in range(1, ROUNDS + 1):
            again = self._wait()
            if not again:
                break
            if number == ROUNDS or self._clock() >= self._deadline_s:
                self._unanswered.update(again)
                break
            self._board(again)
        if not self._unanswered:
            self._failure = None
            return set()
        taken = self._holdings.take(list(self._unanswered), self._oldest_ms, expired=True)
        self._add(taken)
        stale = taken.records.keys() | taken.absent
        self._unanswered -= stale
        return stale

    def _wait(self) -> list[bytes]:
        """Waits for each flight. Returns the keys that it did not get from the flights of others."""
        again: list[bytes] = []
        for flight, keys, is_own in self._waits:
            if not flight.wait(self._deadline_s - self._clock()):
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
            self._know(known_ms_of(min(versions)))
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
        """The same, whatever the answers are: their versions, and the keys whose answers are too far behind."""
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
        elif isinstance(error, NotNowError):
            self._failure = CatalogUnavailableError(str(error))
        elif is_own:
            raise error
        else:
            self._failure = CatalogUnavailableError(f"another batch's fetch failed: {error!r}")

    def _add(self, taken: CacheAnswer[T]) -> None:
        self._records.update(taken.records)
        self._absent |= taken.absent
        if taken.known_ms is not None:
            self._know(taken.known_ms)

    def _know(self, known_ms: int) -> None:
        self._known_ms = known_ms if self._known_ms is None else min(self._known_ms, known_ms)
