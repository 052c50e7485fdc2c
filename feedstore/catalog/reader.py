"""A catalog as a process reads it: a batch of keys at a time through a local cache.

    fetch = catalog.begin(keys)    # takes the records that are held, and begins to fetch the others
    ...                            # meanwhile
    got = fetch.result()

A batch may mix records of the cache with fetched ones. All records that one call of the store fetches are of one
generation; those of the cache may be of another one. That is correct, because every generation that is kept gives the
same answers once the updates are complete (docs/catalog.md), and each entry notes how far it was complete. So nothing
is thrown away at a swap, and no stampede follows it. A rollback means that a batch was wrong: records that were fetched
before it expire.
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
"""How often a key is tried. If a batch does not get a key from the fetch of another one, all that waited try it again,
in one fetch.
"""


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
    """records: of all keys, in the order asked. behind_ms: they have every change that is older than this; None if
    unknown.
    """

    records: Sequence[T]
    behind_ms: int | None


class Catalog(Generic[T]):
    """Thread-safe.

    reads: how the store is called: in place if it is in files, on a bounded number of threads if it is across a
    network. within_s: how long a batch without a deadline may take. A call of the store always gets at least this long,
    because other batches wait for it, too. clock: of deadlines and lifetimes, monotonic, in s. clock_ms: of the source.
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
        self.form = cache.form
        self._cache = cache
        self._within_s = within_s
        self._clock = clock
        self._clock_ms = clock_ms
        self._counting = CatalogCounting()
        self._holdings: Holdings[T] = Holdings(reader, reads, cache, Heard(), self._counting, within_s, clock, clock_ms)

    def begin(
        self, keys: Sequence[bytes], deadline_s: float | None = None, max_behind_ms: int | None = None
    ) -> "Fetch[T]":
        """Takes the records that are held, and begins to fetch the others in one call of the store. They are cached
        even if the result is never asked for.

        keys: up to MAX_KEYS. deadline_s: a time of the clock. max_behind_ms: answers that may be further behind than
        this now are not given.

        Raises CatalogRefusedError: too many keys, or a key is empty or longer than MAX_KEY_BYTES.
        """
        if len(keys) > MAX_KEYS:
            raise CatalogRefusedError(f"keys: at most {MAX_KEYS} at once, got {len(keys)}; ask in several batches")
        oldest_ms = 0 if max_behind_ms is None else self._clock_ms() - max_behind_ms
        puts = self._holdings.puts  # read before the entries
        taken = self._holdings.take(keys, oldest_ms)
        sizes = list(map(len, taken.missed))
        if sizes and not 0 < min(sizes) <= max(sizes) <= MAX_KEY_BYTES:
            raise CatalogRefusedError(f"keys: 1 to {MAX_KEY_BYTES} bytes each, got {min(sizes)} to {max(sizes)}")
        if deadline_s is None:
            deadline_s = self._clock() + self._within_s
        return Fetch(taken, puts, self._holdings, self._counting, deadline_s, oldest_ms, self._clock, self._clock_ms)

    def all_held(self, keys: Sequence[bytes]) -> AllHeld[T] | None:
        """The records of all keys, if all are held and none has expired; takes half the time of `begin`. Otherwise
        None, and nothing has begun.
        """
        found = self._holdings.all_held(keys)
        if found is None:
            return None
        self._counting.batch(hit=len(keys))
        return AllHeld(found.records, behind_ms(found.known_ms, self._clock_ms()))

    def heard_from(self, after_ms: int) -> None:
        """Notes that from now on every update is entered. Call it when the stream is connected, and after every gap.
        Older entries live only for `ttl`, until their keys are fetched or updated again.

        after_ms: by the source's clock. No update after this time is missed: a store that knows everything up to it has
        all that this process may lack.
        """
        self._holdings.heard_from(after_ms)

    def entered(self, update: Update) -> None:
        """Takes an update: replaces the entry of its key, if the update is newer. Updates may repeat and come in any
        order.
        """
        self._holdings.entered(update)

    def entered_late(self, update: Update, after_ms: int) -> None:
        """Takes an update that is older than a time up to which `note_known`, here or in a store, has claimed to be
        complete. The entry of the key may lack it and still count as newer, so the key is fetched again.

        after_ms: a store that knows everything up to this time has the update. A record from a store that may lack it
        lives only for `ttl`.
        """
        self._holdings.entered_late(update, after_ms)

    def note_known(self, known_ms: int) -> None:
        """Notes that every update up to this time has been entered, except those that were missed before `heard_from`.
        Entries that the stream follows are then known to be complete up to this time.
        """
        self._holdings.note_known(known_ms)

    def heard_ms(self) -> int | None:
        """The time that `note_known` gave last; None if it was not called since `heard_from`."""
        return self._holdings.heard_ms

    def rolled_back(self) -> None:
        """Notes that an older generation has come into use. Records that were fetched until now expire: they are
        fetched again when they are asked for, and are used, as stale, only if the store is away. Updates that were
        heard stay.

        Call it only when every fetch that begins afterwards reads the generation that is current now.
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
        """Ends this: no new fetch begins. The owner closes the reader."""
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
        """Waits for the fetches under way, until the deadline. If the store has not answered a key by then, its cached
        entry is used if that expired less than `stale_max_ms` ago.

        Raises no CatalogUnavailableError: `unanswered` and `failure` say which keys are not known, and why. Other
        errors of the store are raised.
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
        """Waits for each flight. Returns the keys that flights of others did not deliver."""
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
        """Takes the answers of a flight one by one. Returns their versions, and the keys whose answers are too far
        behind.
        """
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
