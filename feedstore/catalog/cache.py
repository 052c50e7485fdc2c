"""What a process holds of a catalog: its latest answers, as bytes, within a bound in bytes.

An entry is a plain tuple of numbers and bytes: the garbage collector lets go of such a one the first time that it sees
it, so that it has nothing to walk however much is held. Lru-dict, which keeps them, is not walked either (decision
0040). How new an answer is, is its *version*, twice a time of the source's
clock and one more for what came last at that time, as the delta orders its updates:

    an update at T: 2T            a deletion at T: 2T + 1            what a store knew up to K: 2K + 1

So one comparison tells whether an answer may lack what another one has.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lru import LRU

from feedstore.catalog.port import Update

JITTER: Final = 0.10
"""Up to this share of `ttl` is taken off, at random: what was loaded together does not expire together."""

ENTRY_BYTES: Final = 330
"""What an entry takes besides the bytes of its key and its record, about."""

HEARD: Final = 2**32 - 1
"""In place of a number of rollbacks: every generation agrees with what the stream of updates says."""

_Held = tuple[int, int, int, int, bytes | None]
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


class Following(NamedTuple):
    """What the stream of updates says of the entries that it follows.

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


class Entry(NamedTuple):
    """expires_ms: by the monotonic clock. stream: the connection that follows it, or 0. rollbacks: how many had been
    noticed when it was fetched; HEARD: it was not fetched. record: None if it has none.
    """

    expires_ms: int
    version: int
    stream: int
    rollbacks: int
    record: bytes | None


class Taken(NamedTuple):
    """What the cache has of some keys. missed: in the order asked. known_ms: the least of `records` and `absent`; None
    if there are none.
    """

    records: dict[bytes, bytes]
    absent: set[bytes]
    missed: list[bytes]
    known_ms: int | None


class Cache:
    """One thread at a time may call `put` and `entry`; any thread `take` at any time. Time is an argument.

    bound_bytes: of all entries; the least recently used ones go. random: from 0 to 1.
    """

    def __init__(self, bound_bytes: int, lifetimes: Lifetimes, random: Callable[[], float]) -> None:
        # The count never binds: every entry takes more than ENTRY_BYTES, and `put` adds one before it removes any.
        self._entries: LRU[bytes, _Held] = LRU(bound_bytes // ENTRY_BYTES + 1)
        self._bound_bytes = bound_bytes
        self._random = random
        self.lifetimes = lifetimes
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def take(
        self,
        keys: Sequence[bytes],
        now_ms: int,
        following: Following,
        rolled_back: RolledBack,
        oldest_ms: int,
        *,
        expired: bool = False,
    ) -> Taken:
        """What it has that has not expired, and knows of everything up to `oldest_ms` (0: however old). What was
        fetched before a rollback was noticed expired at that moment at the latest.

        following, rolled_back: as they were before this call. expired: what expired up to `stale_max_ms` ago, too.
        """
        ttl_ms, _, followed_ttl_ms, stale_max_ms = self.lifetimes
        since_ms = now_ms - stale_max_ms if expired else now_ms
        # A followed entry lives longer, while the stream speaks.
        followed_since_ms = since_ms
        if since_ms < following.heard_at_ms + ttl_ms:
            followed_since_ms -= followed_ttl_ms - ttl_ms
        # The entries of so many rollbacks or more are taken: all but those that a rollback has ended.
        rollbacks_min = rolled_back.number if rolled_back.at_ms <= since_ms else 0
        heard, oldest = version_at(following.known_ms), version_at(oldest_ms)
        records: dict[bytes, bytes] = {}
        absent: set[bytes] = set()
        missed: list[bytes] = []
        versions: list[int] = []
        stream_now = following.stream or _NO_STREAM
        for key, held in zip(keys, map(self._entries.get, keys), strict=True):
            if held is None:
                missed.append(key)
                continue
            expires_ms, version, stream, rollbacks, record = held
            if stream == stream_now:
                expired_by_ms = followed_since_ms
                if version < heard:  # noqa: PLR1730  # max takes three times as long, for each key of each page
                    version = heard
            else:
                expired_by_ms = since_ms
            if expires_ms <= expired_by_ms or version < oldest or rollbacks < rollbacks_min:
                missed.append(key)
                continue
            versions.append(version)
            if record is None:
                absent.add(key)
            else:
                records[key] = record
        return Taken(records, absent, missed, known_ms_of(min(versions)) if versions else None)

    def entry(self, key: bytes) -> Entry | None:
        """What is held of a key, expired or not."""
        held = self._entries.get(key)
        return None if held is None else Entry._make(held)

    def expiry_ms(self, record: bytes | None, now_ms: int) -> int:
        """When an answer expires that is loaded now."""
        if record is None:
            return now_ms + self.lifetimes.negative_ttl_ms
        return now_ms + int(self.lifetimes.ttl_ms * (1 - JITTER * self._random()))

    def put(self, key: bytes, entry: Entry) -> None:
        """Replaces what is held of the key."""
        before = self._entries.get(key)
        self._entries[key] = entry[:]  # a slice of a named tuple is a plain one
        self.bytes += _size(key, entry.record) - (0 if before is None else _size(key, before[-1]))
        while self.bytes > self._bound_bytes:
            oldest, held = self._entries.popitem(least_recent=True)
            self.bytes -= _size(oldest, held[-1])


def _size(key: bytes, record: bytes | None) -> int:
    return ENTRY_BYTES + len(key) + len(record or b"")
