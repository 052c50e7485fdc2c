"""A source, a store that lags behind it, and reads of it that are made when a test says so."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from feedstore.catalog.cache import Cache, Lifetimes
from feedstore.catalog.forms import AS_BYTES, Form
from feedstore.catalog.port import CatalogUnavailableError, Delta, Fetched, Generation, Update
from feedstore.catalog.reader import Catalog, Fetch
from feedstore.replicas.attempts import Attempt, InPlace, Reads

LONG_S = 60.0
START_MS = 1_000_000
LIFETIMES = Lifetimes(ttl_ms=300_000, negative_ttl_ms=2_000, followed_ttl_ms=3_600_000, stale_max_ms=600_000)
ROOM = 1 << 20


class Clock:
    """Both clocks: they move together, and only if a test says so."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> float:
        return self.ms / 1_000

    def now_ms(self) -> int:
        return self.ms


class FakeReader:
    """A store that knows of everything up to `known_ms`, and perhaps more.

    gate: each call waits for it. fails: the next calls raise. on_read: called between the reading of `known_ms` and the
    reading of the records.
    """

    def __init__(self, records: dict[bytes, bytes] | None = None, known_ms: int = START_MS) -> None:
        self.records = dict(records or {})
        self.known_ms = known_ms
        self.floor_ms = 1
        self.generation = "1-a"
        self.rolled_back = 0
        self.unreadable = False
        self.calls: list[list[bytes]] = []
        self.deadlines: list[float | None] = []
        self.fails = 0
        self.error: Exception = CatalogUnavailableError("out of order")
        self.gate = threading.Event()
        self.gate.set()
        self.on_read: Callable[[], None] = lambda: None
        self.closed = False

    def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None, oldest_ms: int = 0) -> Fetched:
        self.calls.append(list(keys))
        self.deadlines.append(deadline_s)
        assert self.gate.wait(LONG_S)
        if self.fails:
            self.fails -= 1
            raise self.error
        known_ms = self.known_ms
        self.on_read()
        found = {key: self.records[key] for key in keys if key in self.records}
        return Fetched(found, self.generation, known_ms)

    def update(self, update: Update) -> None:
        if update.record is None:
            self.records.pop(update.key, None)
        else:
            self.records[update.key] = update.record

    def generations(self) -> list[Generation]:
        return [Generation(self.generation, 1, len(self.records), 0, "", current=True)]

    def delta(self) -> Delta:
        if self.fails:
            self.fails -= 1
            raise self.error
        return Delta(self.floor_ms, self.known_ms, 0)

    def check(self) -> None:
        if self.unreadable:
            raise CatalogUnavailableError("damaged")

    def rollbacks(self) -> int:
        return self.rolled_back

    def close(self) -> None:
        self.closed = True


class ByHand:
    """Reads that a test makes: `read` asks the store, and `land` tells the waiting callers."""

    def __init__(self) -> None:
        self.begun: list[Attempt[Any]] = []

    def start(self, attempt: Attempt[Any]) -> bool:
        self.begun.append(attempt)
        return True

    def read(self, number: int = -1) -> None:
        self.begun[number].run()

    def land(self, number: int = -1) -> None:
        self.begun[number].tell()

    def close(self) -> None: ...


class Batches:
    """Batches of a simulation: begun at any moment, read and landed in any order. Each answer must be a record of the
    source at, or after, the time up to which it claims to be complete.

    history: by key, each record and since when the key has it. meanwhile: called at times while the store is read.
    """

    def __init__(
        self,
        rng: Random,
        catalog: Catalog[bytes],
        reads: ByHand,
        reader: FakeReader,
        history: Mapping[bytes, Sequence[tuple[int, bytes | None]]],
        meanwhile: Callable[[], None],
    ) -> None:
        self._rng = rng
        self._catalog = catalog
        self._reads = reads
        self._reader = reader
        self._history = history
        self._meanwhile = meanwhile
        self._begun: list[tuple[Fetch[bytes], list[bytes]]] = []
        self._waiting: list[Attempt[Any]] = []
        self.answers = 0

    def begin(self) -> None:
        keys = self._rng.sample([*self._history], self._rng.randint(1, 3))
        already = len(self._reads.begun)
        self._begun.append((self._catalog.begin(keys), keys))
        self._waiting += self._reads.begun[already:]
        self._check()

    def read_or_land(self) -> None:
        if not self._waiting:
            return
        attempt = self._rng.choice(self._waiting)
        if not hasattr(attempt, "answer"):
            if self._rng.random() < 0.3:
                self._reader.on_read = self._meanwhile
            attempt.run()
            self._reader.on_read = lambda: None
            return
        self._waiting.remove(attempt)
        attempt.tell()
        self._check()

    def _check(self) -> None:
        """Checks the results of the batches whose flights have all landed."""
        for fetch, keys in list(self._begun):
            if not all(flight.wait(0) for flight, _, _ in fetch._waits):
                continue
            self._begun.remove((fetch, keys))
            got = fetch.result()
            assert not got.unanswered
            known_ms = fetch._known_ms  # not from `behind_ms`, which goes by the clock of the process
            assert known_ms is not None
            for key in keys:
                self.answers += 1
                before = [record for time_ms, record in self._history[key] if time_ms <= known_ms][-1:]
                after = [record for time_ms, record in self._history[key] if time_ms > known_ms]
                assert got.records.get(key) in before + after, (key, known_ms, got, self._history[key][-5:])


def catalog_of(
    reader: Any,
    clock: Callable[[], float],
    clock_ms: Callable[[], int],
    reads: Reads | None = None,
    lifetimes: Lifetimes = LIFETIMES,
    random: Callable[[], float] = lambda: 0.0,
    room: int = ROOM,
    form: Form[Any] = AS_BYTES,
) -> Catalog[Any]:
    return Catalog(reader, reads or InPlace(), Cache(room, lifetimes, random, form), LONG_S, clock, clock_ms)


@contextmanager
def threads(target: Callable[[int], None], count: int) -> Iterator[None]:
    """Runs the target in so many threads during the block; an error of one is raised at its end."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            target(number)
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            errors.append(error)

    made = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for each in made:
        each.start()
    yield
    for each in made:
        each.join(LONG_S)
        assert not each.is_alive()
    if errors:
        raise errors[0]
