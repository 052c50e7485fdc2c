"""The cache of a catalog in a process: the latest answers, in the catalog's *form*, within a bound in bytes.

An entry is a plain tuple of numbers and of the object that the form makes of a record, which the garbage collector does
not walk. The collector untracks such a tuple the first time that it sees it, so its work does not grow with the cache.
It does not walk the lru-dict that keeps the entries either (decision 0040). The *version* of an answer says how new it
is: twice a time of the source's clock, plus one for what comes last at that time, as `rule.stamp` orders updates:

    an update at T: 2T            a deletion at T: 2T + 1            what a store knew up to K: 2K + 1

So one comparison shows if an answer may lack a change that another one has.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from lru import LRU

from feedstore.catalog.forms import Form

JITTER: Final = 0.10
"""A random share of `ttl` up to this is taken off, so that records that were loaded together do not expire together."""

ENTRY_BYTES: Final = 330
"""About how many bytes an entry takes in addition to its key and its record."""

HEARD: Final = 2**32 - 1
"""The `rollbacks` of an entry from the stream: no rollback ends it, as every generation agrees with the stream."""

T = TypeVar("T")

_Held = tuple[int, int, int, int, T | None]
"""The fields of a CacheEntry as a plain tuple: the garbage collector never untracks a named tuple."""


def version_at(known_ms: int) -> int:
    """The version of an answer that has every change up to a time."""
    return 2 * known_ms + 1


def known_ms_of(version: int) -> int:
    """The time up to which an answer of this version has every change of its key. For an update at T that is T - 1: a
    deletion at T may still come.
    """
    return (version - 1) // 2


_NO_STREAM: Final = -1
_ROLLBACKS: Final = 8


class Lifetimes(NamedTuple):
    """How long answers are held, in ms of a monotonic clock.

    ttl_ms: for a record, since it was loaded or since the stream of updates last confirmed that it has not changed.
    negative_ttl_ms: for the answer that there is no record. followed_ttl_ms: for a record that the stream follows,
    since it was loaded, even if confirmed; at least ttl_ms. stale_max_ms: how much longer if the store is away.
    """

    ttl_ms: int = 300_000
    negative_ttl_ms: int = 2_000
    followed_ttl_ms: int = 3_600_000
    stale_max_ms: int = 600_000


class StreamState(NamedTuple):
    """The state of the stream of updates, which says how fresh the entries are that it follows.

    stream: the number of the connection, from 1, where each gap begins a new one; 0 if there is none. known_ms:
    everything up to this time has been heard. heard_at_ms: when `known_ms` was noted, by the monotonic clock.
    """

    stream: int = 0
    known_ms: int = 0
    heard_at_ms: int = 0


class RolledBack(NamedTuple):
    """The rollbacks that this process has noticed.

    number: how many. at_ms: when it noticed the last ones, up to `_ROLLBACKS`, by the monotonic clock.
    """

    number: int = 0
    at_ms: tuple[int, ...] = ()

    def again(self, now_ms: int) -> "RolledBack":
        """These, and one more that is noticed now."""
        return RolledBack(self.number + 1, (*self.at_ms[1 - _ROLLBACKS :], now_ms))

    def until(self, time_ms: int) -> int:
        """How many were noticed up to a time. Those before `at_ms` all count."""
        return self.number - sum(each_ms > time_ms for each_ms in self.at_ms)


class CacheEntry(NamedTuple, Generic[T]):
    """The answer of a key. expires_ms: by the monotonic clock. stream: the connection that follows it, or 0. rollbacks:
    how many had been noticed when it was fetched; HEARD if it is from the stream. record: in its form, or None.
    """

    expires_ms: int
    version: int
    stream: int
    rollbacks: int
    record: T | None


class CacheAnswer(NamedTuple, Generic[T]):
    """The answers of the cache for some keys. missed: keys without a good entry, in the order asked. known_ms: all
    answers have every change up to this time; None if there are no answers.
    """

    records: dict[bytes, T]
    absent: set[bytes]
    missed: list[bytes]
    known_ms: int | None


class AllGood(NamedTuple, Generic[T]):
    """records: of all keys, in the order asked. known_ms: they have every change up to this time."""

    records: Sequence[T]
    known_ms: int


class Cache(Generic[T]):
    """The cached answers. `put` and `entry` may be called by one thread at a time; `take` and `all_held` by any thread
    at any time. Time is an argument.

    bound_bytes: of all entries; beyond it, the least recently used ones go. random: returns a number from 0 to 1.
    """

    def __init__(self, bound_bytes: int, lifetimes: Lifetimes, random: Callable[[], float], form: Form[T]) -> None:
        # The bound in entries is never reached before the one in bytes: every entry takes more than ENTRY_BYTES. One
        # more is allowed because `put` adds an entry before it removes any.
        self._entries: LRU[bytes, _Held[T]] = LRU(bound_bytes // ENTRY_BYTES + 1)
        self._bound_bytes = bound_bytes
        self._random = random
        self.form = form
        self.lifetimes = lifetimes
        self.bytes = 0

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
        """The entries that have not expired and have every change up to `oldest_ms` (0: of any age). Records that were
        fetched before a rollback was noticed count as expired at that moment, if not earlier.

        following, rolled_back: read before this call. expired: include those that expired up to `stale_max_ms` ago.
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
        """The records of all keys, if all are held and none has expired, as on nearly every page; else None."""
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
        rollbacks_min = rolled_back.until(since_ms) if rolled_back.number else 0
        stream = following.stream or _NO_STREAM
        heard, oldest = version_at(following.known_ms), version_at(oldest_ms)
        return _Bounds(since_ms, followed_since_ms, stream, heard, oldest, rollbacks_min)

    def entry(self, key: bytes) -> CacheEntry[T] | None:
        """The entry of a key, expired or not."""
        held = self._entries.get(key)
        return None if held is None else CacheEntry._make(held)

    def expiry_ms(self, record: T | None, now_ms: int) -> int:
        """When an answer that is loaded now expires."""
        if record is None:
            return now_ms + self.lifetimes.negative_ttl_ms
        return now_ms + int(self.lifetimes.ttl_ms * (1 - JITTER * self._random()))

    def put(self, key: bytes, entry: CacheEntry[T]) -> None:
        before = self._entries.get(key)
        self._entries[key] = entry[:]  # a slice of a named tuple is a plain one
        self.bytes += self._size(key, entry.record) - (0 if before is None else self._size(key, before[-1]))
        while self.bytes > self._bound_bytes:
            oldest, held = self._entries.popitem(least_recent=True)
            self.bytes -= self._size(oldest, held[-1])

    def _size(self, key: bytes, record: T | None) -> int:
        return ENTRY_BYTES + len(key) + (0 if record is None else self.form.size(record))


class _Bounds(NamedTuple):
    """Which entries are good. An entry must expire after `since_ms`. An entry that the stream follows lives longer
    while the stream is alive: it must expire after `followed_since_ms`, and its version counts as at least `heard`.
    Every entry must have at least the version `oldest`, and at least `rollbacks_min` rollbacks: a rollback ends the
    entries from before it.
    """

    since_ms: int
    followed_since_ms: int
    stream: int
    heard: int
    oldest: int
    rollbacks_min: int


def _all_good(entries: Sequence[Any], bounds: _Bounds) -> AllGood[Any] | None:
    """The records, if all entries have one, all are good, and either all or none are followed; else None. That is so
    for nearly every page, and this check by columns takes half the time of one entry by entry.
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
