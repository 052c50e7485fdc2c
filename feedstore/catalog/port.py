"""The catalog's port: one catalog of one cluster.

A catalog maps keys to records, which are bytes. It has *generations*, each complete and immutable, one of which is
*current*; and one *delta*, which holds the newest update of each key since. The rule (docs/catalog.md says why):

    visible(key) = the delta's update, if its time is later than the generation's as_of; else the generation's record

So the order in which generations and updates arrive, repeat or are late does not matter, and every generation that is
kept gives the same answers once the updates are complete. `tests/catalog` runs this contract against every adapter.

Every "up to" a time includes that time. The follow store's settled times, and the ticks that carry them, do not: they
promise what was committed *before* them. One millisecond less is an `as_of_ms` or a `known_ms`.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from feedstore.errors import NeverError, NotNowError, PortError

MAX_KEYS: Final = 1_000
"""The most keys of one fetch, and the most updates of one call."""

MAX_KEY_BYTES: Final = 256
MAX_RECORD_BYTES: Final = 65_536
MAX_SOURCES: Final = 10_000
"""The most sources of one delta."""

MAX_TIME_MS: Final = 2**61
"""Twice a time, and one more, is a timestamp in HBase: 63 bits."""


class CatalogError(PortError):
    """A catalog failed. Subclasses say what the caller should do."""


class CatalogUnavailableError(CatalogError, NotNowError):
    """Not now. A reader asks another cluster; an updater repeats the whole call later."""


class NoGenerationError(CatalogUnavailableError):
    """Nothing has been loaded, or no generation is in use: build one."""


class TooFarBehindError(CatalogUnavailableError):
    """The store has answered, but not as new as was demanded."""


class BuiltBy(NamedTuple):
    """who: for people. since_ms: by the clock of that process."""

    who: str
    since_ms: int


class BeingBuiltError(CatalogUnavailableError):
    """Another process builds it now."""

    def __init__(self, builder: BuiltBy) -> None:
        since = datetime.fromtimestamp(builder.since_ms / 1_000, UTC)
        super().__init__(
            f"{builder.who} is building it, since {since:%Y-%m-%d %H:%M:%S} UTC: wait until that has ended"
        )
        self.builder = builder


class CatalogRefusedError(CatalogError, NeverError):
    """Never: the message says what is wrong with the call."""


class Update(NamedTuple):
    """What a source says of a key since a time. time_ms: that time, by the source's clock, 1..MAX_TIME_MS. record: None
    if the key was deleted. A source has one record of a key at one time; if it sends two, either may stay.
    """

    key: bytes
    time_ms: int
    record: bytes | None


class Fetched(NamedTuple):
    """The answer of one generation and the delta about some keys.

    records: by key; absent: the keys without a record. generation: its id. known_ms: by the source's clock; every
    change up to this time is in. It may be too early, never too late. cluster: which one says so; empty if it is the
    only one.
    """

    records: dict[bytes, bytes]
    absent: set[bytes]
    generation: str
    known_ms: int
    cluster: str = ""


class Generation(NamedTuple):
    """id: `<as_of_ms>-<hash of its contents>`. as_of_ms: everything that committed up to then is in it. records: how
    many. bytes: on the disk, or 0 if the adapter does not know. sha256: over the records as they were loaded. current:
    whether fetches read it. took_ms: how long it took to load; 0 if that is not known. used: whether it is in the
    trail, as `trail` says.
    """

    id: str
    as_of_ms: int
    records: int
    bytes: int
    sha256: str
    current: bool
    took_ms: int = 0
    used: bool = False


class Delta(NamedTuple):
    """floor_ms: updates up to this time may be missing. known_ms: every update up to this time is in, unless it is
    missing by `floor_ms`; 0 if nothing is known. entries: about how many keys have an update.
    """

    floor_ms: int
    known_ms: int
    entries: int


class Collected(NamedTuple):
    """The result of a collection: the generations removed, by id, and how many entries of the delta."""

    generations: list[str]
    entries: int


class CatalogReader(Protocol):
    """The reads of a web process. Thread-safe."""

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:
        """The records of up to MAX_KEYS keys, all by one generation, whichever is current when the call begins.

        deadline_s: a time of the adapter's monotonic clock; adapters in files ignore it. `known_ms` is the delta's, as
        it was before any record was read, or the generation's as_of, if that is later or if the delta is not complete
        since then.

        Raises:
            NoGenerationError, CatalogUnavailableError.
            CatalogRefusedError: too many keys, or a key is empty or longer than MAX_KEY_BYTES.
        """
        ...

    def generations(self) -> list[Generation]:
        """Those that are kept, oldest first, without any that is damaged and not in use. Raises
        CatalogUnavailableError: among others, the current one is damaged.
        """
        ...

    def delta(self) -> Delta:
        """How far the updates are. Raises CatalogUnavailableError."""
        ...

    def rollbacks(self) -> int:
        """How many times a generation came into use that is not later than the one before it. The number may be a
        second old. A fetch of this reader that begins after this call reads by what was current then, or by what came
        after. If this is another number than before, what was fetched before may have come from a batch that was wrong.

        Raises CatalogUnavailableError.
        """
        ...

    def close(self) -> None: ...


class CatalogStore(CatalogReader, Protocol):
    """The writes of one catalog in one cluster. Any process may load and use. In files, one at a time updates
    and collects: the one that owns the delta. On servers, any may.
    """

    def update(self, updates: Sequence[Update]) -> None:
        """Enters up to MAX_KEYS updates. Durable when it returns, idempotent, and in any order: for each key the latest
        time stays, and at equal times the deletion.

        Raises CatalogUnavailableError: some may have been entered. CatalogRefusedError: none was.
        """
        ...

    def note_known(self, known_ms: int, source: int = 0, sources: int = 1) -> None:
        """Every update of a source up to this time has been entered. A source is one of `sources` parts of all recorded
        changes, and several processes may enter the updates of one. The delta is known up to the time that all sources
        have noted. That time never goes back, even if there are more sources than before. Until all have noted one,
        the delta is new, and each call also raises its floor: updates that were committed before are not in it. Any
        process may call this, with the updates or without.

        source: from 0. sources: at most MAX_SOURCES. Raises CatalogUnavailableError.
        """
        ...

    def note_gap(self, until_ms: int) -> None:
        """Updates up to this time may have been lost: the floor rises to it. Raises CatalogUnavailableError."""
        ...

    def building(self, who: str) -> AbstractContextManager[None]:
        """One process at a time may be in this block, so that two do not do the same work. Nothing depends on it:
        others may load and use meanwhile. A process that has died is in it no longer: in files at once, on servers
        once another one has waited for 30 s and heard nothing of it.

        who: for people. Raises BeingBuiltError: another process is. CatalogUnavailableError.
        """
        ...

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        """Makes a generation; it is there whole or not at all, and not in use yet.

        as_of_ms: a time of the source's clock from before its first record was read, 1..MAX_TIME_MS. records: (key,
        record), keys strictly ascending. Loading what is there already returns it. What `records` raises is passed on.

        Raises:
            CatalogRefusedError: keys do not ascend, a key or record is too large, or the delta lacks updates since
                `as_of_ms` (it is below the floor).
            CatalogUnavailableError: among others, the disk is full.
        """
        ...

    def look(self, generation: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The records that a generation itself has of up to MAX_KEYS keys, whether it is current or not, and whatever
        the delta says: for checks before it is used. Raises CatalogRefusedError if there is no such generation,
        CatalogUnavailableError.
        """
        ...

    def use(self, generation: str) -> None:
        """Makes a generation current, for the next fetch of every process (in 2 s at most). It may be newer or older
        than the one before: a rollback is the same call. Raises CatalogRefusedError if there is no such generation,
        CatalogUnavailableError.
        """
        ...

    def trail(self) -> list[str]:
        """The generations that came into use and were not rolled back since, by id, oldest first. The last one is the
        current one, and a rollback goes to the one before it. Damaged ones are left out, but the current one is not.
        Raises CatalogUnavailableError.
        """
        ...

    def collect(self, keep: int) -> Collected:
        """Removes generations but the `keep` latest and the `keep` latest of the trail, the remains of loads that died
        more than a day ago, and updates at or below the floor: the smallest as_of of the generations that are kept or
        being loaded. Fetches under way end as they began.

        keep: at least 1. Raises CatalogUnavailableError: done in part; repeat it.
        """
        ...
