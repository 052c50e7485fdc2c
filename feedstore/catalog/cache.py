"""The cache of a catalog in a process: the latest answers, in the catalog's *form*, within a bound in bytes.

An entry is a plain tuple of numbers and of what its form makes of a record, which the garbage collector does not walk:
it lets go of such a tuple the first time that it sees it, so that it has nothing to walk however much is held.
Lru-dict, which keeps them, is not walked either (decision 0040). How new an answer is, is its *version*, twice a time
of the source's clock and one more for what came last at that time, as the delta orders its updates:

    an update at T: 2T            a deletion at T: 2T + 1            what a store knew up to K: 2K + 1

So one comparison tells whether an answer may lack a change that another one has.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from lru import LRU

from feedstore.catalog.port import Update

JITTER: Final = 0.10
"""Up to this share of `ttl` is taken off, at random: records that were loaded together do not expire together."""

ENTRY_BYTES: Final = 330
"""How many bytes an entry takes besides its key and its record, about."""

HEARD: Final = 2**32 - 1
"""In place of a number of rollbacks: every generation agrees with the stream of updates."""

T = TypeVar("T")

_Held = tuple[int, int, int, int, T | None]
"""The fields of an Entry. A named tuple stays with the garbage collector for good."""


def version_of(update: Update) -> int:
    """The version of an update's answer. At equal times the deletion is the newer one."""
    return 2 * update.time_ms + (update.record is None)


def version_at(known_ms: int) -> int:
    """The version of an answer that has everything up to a time."""
    return 2 * known_ms + 1


def known_ms_of(version: int) -> int:
    """Every change of the key up to this time is in its answer. Of an update at T, a deletion at T may yet come."""
    return (version - 1) // 2


_NO_STREAM: Final = -1


class Lifetimes(NamedTuple):
    """How long answers are held. All in ms of a monotonic clock.

    ttl_ms: a record, since it was loaded or the stream of updates last said that it has not changed. negative_ttl_ms:
    that there is none. followed_ttl_ms: a record that the stream follows, since it was loaded, whatever the stream
    says; at least ttl_ms. stale_max_ms: so much longer if the store is away.
    """

    ttl_ms: int = 300_000
    negative_ttl_ms: int = 2_000
    followed_ttl_ms: int = 3_600_000
    stale_max_ms: int = 600_000


class StreamState(NamedTuple):
    """How fresh the entries are that the stream of updates follows.

    stream: the number of the connection without a gap, from 1; 0 if there is none. known_ms: everything up to this time
    has been heard. heard_at_ms: when that was said, by the monotonic clock.
    """

    stream: int = 0
    known_ms: int = 0
    heard_at_ms: int = 0


class RolledBack(NamedTuple):
    """The last rollback that this process has noticed.

    number: counts those that it has noticed. at_ms: when it noticed this one, by the monotonic clock.
    """

    number: int = 0
    at_ms: int = 0


class Form(Protocol[T]):
    """The object that the cache keeps of a record. It is made once instead of at each look, and the garbage collector
    does not walk it.
    """

    def made(self, key: bytes, record: bytes) -> T:
        """Raises CatalogUnavailableError: this program cannot read the record."""
        ...

    def size(self, held: T) -> int:
        """How many bytes of memory it takes, about."""
        ...


class AsBytes:
    """Records as they are: a `Form`."""

    def made(self, _key: bytes, record: bytes) -> bytes:
        return record

    def size(self, held: bytes) -> int:
        return len(held)


AS_BYTES: Final = AsBytes()


class CacheEntry(NamedTuple, Generic[T]):
    """expires_ms: by the monotonic clock. stream: the connection that follows it, or 0. rollbacks: how many had been
    noticed when it was fetched; HEARD: it was not fetched. record: in its form; None if it has none.
    """

    expires_ms: int
    version: int
    stream: int
    rollbacks: int
    record: T | None


class CacheAnswer(NamedTuple, Generic[T]):
    """The answers of the cache for some keys. missed: in the order asked. known_ms: the least of `records` and
    `absent`; None if there are none.
    """

    records: dict[bytes, T]
    absent: set[bytes]
    missed: list[bytes]
    known_ms: int | None


class AllGood(NamedTuple, Generic[T]):
    """records: of all keys, in the order asked. known_ms: as of `CacheAnswer`."""

    records: Sequence[T]
    known_ms: int


class Cache(Generic[T]):
    """One thread at a time may call `put` and `entry`; any thread `take` and `all_held` at any time. Time is an
    argument.

    bound_bytes: of all entries; the least recently used ones go. random: from 0 to 1.
    """

    def __init__(self, bound_bytes: int, lifetimes: Lifetimes, random: Callable[[], float], form: Form[T]) -> None:
        # The count never binds: every entry takes more than ENTRY_BYTES, and `put` adds one before it removes any.
        self._entries: LRU[bytes, _Held[T]] = LRU(bound_bytes // ENTRY_BYTES + 1)
        self._bound_bytes = bound_bytes
        self._random = random
        self.form = form
        self.lifetimes = lifetimes
        self.bytes = 0
        self.puts = 0
        """How many there were."""

    def __len__(self) -> int:
        return len(self._entries)

    def take(
        self,
        keys: Sequence[bytes],
        now_ms: int,
        following: StreamState,
        rolled_back: RolledBack,
        oldest_ms: int,
        *,
        expired: bool = False,
    ) -> CacheAnswer[T]:
        """The entries that have not expired and know of every change up to `oldest_ms` (0: however old). Records that
        were fetched before a rollback was noticed expired at that moment at the latest.

        following, rolled_back: as they were before this call. expired: also entries that expired up to `stale_max_ms`
        ago.
        """
        entries = list(map(self._entries.get, keys))
        if not any(entries):
            return CacheAnswer({}, set(), list(keys), None)
        bounds = self._bounds(now_ms, following, rolled_back, oldest_ms, expired=expired)
        missed: list[bytes] = []
        held: Sequence[Any] = entries
        held_keys = keys
        if not all(entries):
            missed = [key for key, entry in zip(keys, entries, strict=True) if entry is None]
            held = [entry for entry in entries if entry is not None]
            held_keys = [key for key, entry in zip(keys, entries, strict=True) if entry is not None]
        good = _all_good(held, bounds)
        if good is None:
            return _one_by_one(keys, entries, bounds)
        return CacheAnswer(dict(zip(held_keys, good.records, strict=True)), set(), missed, good.known_ms)

    def all_held(
        self, keys: Sequence[bytes], now_ms: int, following: StreamState, rolled_back: RolledBack
    ) -> AllGood[T] | None:
        """The same if it has records of all keys, and none has expired; else None. As on nearly every page."""
        entries = list(map(self._entries.get, keys))
        if not all(entries):
            return None
        return _all_good(entries, self._bounds(now_ms, following, rolled_back, 0, expired=False))

    def _bounds(
        self, now_ms: int, following: StreamState, rolled_back: RolledBack, oldest_ms: int, *, expired: bool
    ) -> "_Bounds":
        ttl_ms, _, followed_ttl_ms, stale_max_ms = self.lifetimes
        since_ms = now_ms - stale_max_ms if expired else now_ms
        followed_since_ms = since_ms
        if since_ms < following.heard_at_ms + ttl_ms:
            followed_since_ms -= followed_ttl_ms - ttl_ms
        rollbacks_min = rolled_back.number if rolled_back.at_ms <= since_ms else 0
        stream = following.stream or _NO_STREAM
        heard, oldest = version_at(following.known_ms), version_at(oldest_ms)
        return _Bounds(since_ms, followed_since_ms, stream, heard, oldest, rollbacks_min)

    def entry(self, key: bytes) -> CacheEntry[T] | None:
        """The entry of a key, expired or not."""
        held = self._entries.get(key)
        return None if held is None else CacheEntry._make(held)

    def expiry_ms(self, record: T | None, now_ms: int) -> int:
        """When an answer expires that is loaded now."""
        if record is None:
            return now_ms + self.lifetimes.negative_ttl_ms
        return now_ms + int(self.lifetimes.ttl_ms * (1 - JITTER * self._random()))

    def put(self, key: bytes, entry: CacheEntry[T]) -> None:
        """Replaces the entry of the key."""
        self.puts += 1
        before = self._entries.get(key)
        self._entries[key] = entry[:]  # a slice of a named tuple is a plain one
        self.bytes += self._size(key, entry.record) - (0 if before is None else self._size(key, before[-1]))
        while self.bytes > self._bound_bytes:
            oldest, held = self._entries.popitem(least_recent=True)
            self.bytes -= self._size(oldest, held[-1])

    def _size(self, key: bytes, record: T | None) -> int:
        return ENTRY_BYTES + len(key) + (0 if record is None else self.form.size(record))


class _Bounds(NamedTuple):
    """Which entries are good. An entry must expire after `since_ms`. One that the stream follows lives longer while the
    stream speaks: it must expire after `followed_since_ms`, and its version counts as at least `heard`. Both must be of
    version `oldest` or a later one, and of at least so many rollbacks: a rollback ends the entries from before it.
    """

    since_ms: int
    followed_since_ms: int
    stream: int
    heard: int
    oldest: int
    rollbacks_min: int


def _all_good(entries: Sequence[Any], bounds: _Bounds) -> AllGood[Any] | None:
    """All of it, if there are records for all keys, the entries are of one kind, and all of them are good; else None.
    So it is for nearly every page, and column by column that is seen in half of the time that it takes entry by entry.
    """
    if not entries:
        return None
    expiries, versions, streams, rollbacks, records = zip(*entries, strict=True)
    followed = streams.count(bounds.stream)
    known: int = max(min(versions), bounds.heard) if followed else min(versions)
    if (
        followed not in (0, len(entries))
        or min(expiries) <= (bounds.followed_since_ms if followed else bounds.since_ms)
        or known < bounds.oldest
        or (bounds.rollbacks_min and min(rollbacks) < bounds.rollbacks_min)
        or not all(records)
    ):
        return None
    return AllGood(records, known_ms_of(known))


def _one_by_one(keys: Sequence[bytes], entries: Sequence[_Held[T] | None], bounds: _Bounds) -> CacheAnswer[T]:
    since_ms, followed_since_ms, stream_now, heard, oldest, rollbacks_min = bounds
    records: dict[bytes, T] = {}
    absent: set[bytes] = set()
    missed: list[bytes] = []
    versions: list[int] = []
    for key, entry in zip(keys, entries, strict=True):
        if entry is None:
            missed.append(key)
            continue
        expires_ms, version, stream, rollbacks, record = entry
        expired_by_ms = since_ms
        if stream == stream_now:
            expired_by_ms, version = followed_since_ms, max(version, heard)
        if expires_ms <= expired_by_ms or version < oldest or rollbacks < rollbacks_min:
            missed.append(key)
            continue
        versions.append(version)
        if record is None:
            absent.add(key)
        else:
            records[key] = record
    return CacheAnswer(records, absent, missed, known_ms_of(min(versions)) if versions else None)
