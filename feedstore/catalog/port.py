"""The catalog's port: one catalog of one cluster.

A catalog maps keys to records, which are bytes. It has *generations*, each complete and immutable, of which one is
*current*. It also has one *delta*, which has the newest update of each key since then. The rule (docs/catalog.md says
why):

    visible(key) = the delta's update, if its time is later than the generation's as_of; else the generation's record

So generations and updates may arrive in any order, repeatedly or late, and every generation that is kept gives the same
answers once the updates are complete. `tests/catalog` runs this contract against every adapter.

Every "up to" a time includes that time. The follow store's settled times, and the ticks that carry them, do not include
it: they promise what was committed *before* them. So an `as_of_ms` or a `known_ms` made of one is a ms less.
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
"""The largest time: twice a time, plus one, must fit a timestamp in HBase, which has 63 bits."""


class CatalogError(PortError):
    """A catalog failed. The subclass says what the caller should do."""


class CatalogUnavailableError(CatalogError, NotNowError):
    """Not now. A reader asks another cluster; an updater repeats the whole call later."""


class NoGenerationError(CatalogUnavailableError):
    """Nothing has been loaded, or no generation is in use: build one."""


class TooFarBehindError(CatalogUnavailableError):
    """The store has answered, but its answer is older than was demanded."""


class BuiltBy(NamedTuple):
    """The process that builds. who: its name for people. since_ms: by the clock of that process."""

    who: str
    since_ms: int


class BeingBuiltError(CatalogUnavailableError):
    """Another process builds this catalog now."""

    def __init__(self, builder: BuiltBy) -> None:
        since = datetime.fromtimestamp(builder.since_ms / 1_000, UTC)
        super().__init__(
            f"{builder.who} is building it, since {since:%Y-%m-%d %H:%M:%S} UTC: wait until that has ended"
        )
        self.builder = builder


class CatalogRefusedError(CatalogError, NeverError):
    """Never: the message says what is wrong with the call."""


class LacksUpdatesError(CatalogRefusedError):
    """Never: the delta lacks updates since the time of this batch. A batch read from now on may be loaded."""


class Update(NamedTuple):
    """The record of a key from a time on, as its source says. time_ms: that time, by the source's clock,
    1..MAX_TIME_MS. record: None if the key was deleted. A source has one record of a key at a time; if it sends two for
    the same time, either may stay.
    """

    key: bytes
    time_ms: int
    record: bytes | None


class Fetched(NamedTuple):
    """The answer of one generation and the delta about some keys.

    records: by key, of those keys that have one. generation: its id. known_ms: by the source's clock; the answer has
    every change up to this time, and perhaps later ones. cluster: the one that answered; empty if it is the only one.
    """

    records: dict[bytes, bytes]
    generation: str
    known_ms: int
    cluster: str = ""


class Generation(NamedTuple):
    """id: `<as_of_ms>-<hash of its contents>`. as_of_ms: it has everything that was committed up to then. records: how
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
    """floor_ms: updates up to this time may be missing. known_ms: the delta has every update after `floor_ms` up to
    this time; 0 if nothing is known. entries: about how many keys have an update.
    """

    floor_ms: int
    known_ms: int
    entries: int


class InUse(NamedTuple):
    """What was decided about generations so far. current: the id of the one in use, None if there is none. rollbacks:
    how many there were; one may have brought back the same generation.
    """

    current: str | None
    rollbacks: int


class Collected(NamedTuple):
    """The result of a collection: the ids of the removed generations, and how many entries of the delta went."""

    generations: list[str]
    entries: int


class CatalogFetcher(Protocol):
    """Fetches records from the cluster that answers. Thread-safe."""

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None, oldest_ms: int = 0) -> Fetched:
        """As `CatalogReader.fetch`. oldest_ms: if the answer may lack changes up to this time, another cluster that is
        well is asked too; the newest answer is given.
        """


class CatalogReader(Protocol):
    """The reads of one cluster. Thread-safe. Like all methods of a reader and of a store, `fetch` may raise
    CatalogUnavailableError.
    """

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:
        """The records of up to MAX_KEYS keys, all from one generation: the one that is current when the call begins.

        deadline_s: a time of the adapter's monotonic clock; adapters in files ignore it.

        The answer's `known_ms` is the delta's, from before any record was read. It is the generation's as_of instead if
        that is later, or if the delta is not complete since then.

        Raises NoGenerationError; CatalogRefusedError: too many keys, or a key is empty or longer than MAX_KEY_BYTES.
        """

    def generations(self) -> list[Generation]:
        """The generations that are kept, oldest first, without those that are damaged and not in use."""

    def delta(self) -> Delta:
        """How complete the updates are."""

    def check(self) -> None:
        """Opens what is in use, however long that takes, so that fetches find it open. Raises CatalogUnavailableError
        if it cannot be read now (only a fetch shows whether its records can), NoGenerationError if nothing is in use.
        """

    def rollbacks(self) -> int:
        """How many rollbacks there were: how often a generation came into use that is not later than the one before it.
        It is known even if what is in use cannot be read. The number may be a second old. A fetch of this reader that
        begins after this call reads the generation that was current when the number was taken, or one that came into
        use later. If the number has changed, what was fetched before may be from a wrong batch.
        """

    def close(self) -> None: ...


class CatalogStore(CatalogReader, Protocol):
    """The writes of one catalog in one cluster. Any process may load and use. On servers, any process may also update
    and collect; in files, only one at a time may: the one that owns the delta.
    """

    def update(self, updates: Sequence[Update]) -> None:
        """Enters up to MAX_KEYS updates. Durable when it returns. Updates may repeat and come in any order: for each
        key the one with the latest time stays, and at equal times the deletion.

        Raises CatalogUnavailableError: some may have been entered. CatalogRefusedError: none was.
        """

    def note_known(self, known_ms: int, source: int = 0, sources: int = 1) -> None:
        """Notes that every update of a source up to a time has been entered. A source is one of `sources` parts of all
        recorded changes; several processes may enter the updates of one. The delta is known up to the time that all
        sources have noted, which never goes back, even if the number of sources grows. Until each source has noted a
        time, the delta is new, and each call also raises its floor: it lacks updates that were committed before. Any
        process may call this, whether it enters updates or not.

        source: from 0. sources: at most MAX_SOURCES.
        """

    def note_gap(self, until_ms: int) -> None:
        """Notes that updates up to a time may be lost: raises the floor to it."""

    def building(self, who: str) -> AbstractContextManager[None]:
        """A block that one process at a time may be in, so that two do not do the same work. Correctness does not
        depend on it: others may load and use meanwhile. A process that dies leaves the block: in files at once; on
        servers, when another process has waited for 30 s and seen no sign of life.

        who: names this process for people. Raises BeingBuiltError if another process is in the block.
        """

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        """Makes a generation, completely or not at all. It is not in use yet.

        as_of_ms: a time of the source's clock, taken before its first record was read, 1..MAX_TIME_MS. records: (key,
        record), keys strictly ascending. If the same generation is there already, it is returned, and mended if it is
        damaged. Errors that `records` raises are passed on.

        Raises:
            LacksUpdatesError: the delta lacks updates since `as_of_ms` (it is below the floor).
            CatalogRefusedError: keys do not ascend, or a key or record is too large.
            CatalogUnavailableError: for example, the disk is full.
        """

    def look(self, generation: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The records of up to MAX_KEYS keys in a generation, current or not, without the delta: for checks before it
        is used. Raises CatalogRefusedError if there is no such generation.
        """

    def in_use(self) -> InUse:
        """What is in use now, even if that generation is damaged or gone."""

    def use(self, generation: str, before: InUse | None = None) -> bool:
        """Makes a generation current; within 2 s, every process reads it. It may be newer or older: a rollback is the
        same call. Returns whether it is current.

        before: if something else was decided since, nothing changes. Raises CatalogRefusedError if there is no such
        generation.
        """

    def trail(self) -> list[str]:
        """The ids of the generations that came into use and were not rolled back since, oldest first. The last one is
        the current one, and a rollback goes to the one before it. Damaged ones are left out, except the current one.
        """

    def collect(self, keep: int) -> Collected:
        """Removes what is not needed any more: all generations except the `keep` latest and the `keep` latest of the
        trail; the remains of loads that died more than a day ago; and updates at or below the floor, which rises to the
        smallest as_of of the generations that are kept or being loaded. Fetches under way are not disturbed.

        keep: at least 1. Raises CatalogUnavailableError: part of the work may be done; repeat the call.
        """
