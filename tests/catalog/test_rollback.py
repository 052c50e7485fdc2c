"""After a rollback from a batch that was wrong, no process answers from the records of that batch that it holds."""

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from feedstore.catalog import swaps
from feedstore.catalog.flights import Flights
from feedstore.catalog.port import CatalogReader, CatalogStore, CatalogUnavailableError, Update
from feedstore.catalog.reader import Catalog, Got
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.catalog.watch import CatalogWatch
from feedstore.replicas.attempts import InPlace
from tests.catalog import catalog_adapters
from tests.catalog.catalog_adapters import ADAPTERS, EMBEDDED
from tests.catalog.reader_fakes import LIFETIMES, LONG_S, START_MS, ByHand, Clock, FakeReader, catalog_of

KEY, OTHER = b"k", b"other"
GOOD, WRONG = b"good", b"wrong"


class Process:
    """A web process with one cluster. The store has a wrong batch in use, and the process holds records of it."""

    def __init__(self, reads: Any = None) -> None:
        self.clock = Clock()
        self.reader = FakeReader({KEY: WRONG, OTHER: WRONG}, known_ms=START_MS + 1_000)
        self.catalog = catalog_of(self.reader, self.clock, self.clock.now_ms, reads)
        self.watch = CatalogWatch(["a", "b"], self.catalog.rolled_back, self.clock.now_ms)
        self.look()

    def look(self) -> None:
        self.watch.look(CatalogSource("a", self.reader, InPlace()))

    def roll_back(self) -> None:
        """Rolls back to an older batch; the updates are not as far as the wrong one was."""
        self.reader.records = {KEY: GOOD, OTHER: GOOD}
        self.reader.known_ms = START_MS
        self.reader.rolled_back += 1

    def got(self, *keys: bytes) -> Got:
        return self.catalog.begin(keys or [KEY]).result()


def test_what_is_held_is_fetched_again_once_the_rollback_is_noticed():
    process = Process()
    assert process.got().records == {KEY: WRONG}
    process.roll_back()
    process.look()
    assert process.got().records == {KEY: GOOD}
    assert process.got().records == {KEY: GOOD}
    assert len(process.reader.calls) == 2, "and is held then"


def test_what_the_stream_follows_is_fetched_again_too():
    process = Process()
    process.catalog.heard_from(START_MS)
    process.got()
    process.catalog.note_known(START_MS + 2_000)
    process.roll_back()
    process.look()
    assert process.got().records == {KEY: GOOD}


def test_a_swap_to_a_later_generation_throws_nothing_away():
    process = Process()
    process.got()
    process.reader.generation = "2-b"
    process.look()
    process.got()
    assert len(process.reader.calls) == 1


def test_a_rollback_and_the_next_build_between_two_looks_are_noticed():
    process = Process()
    process.got()
    process.roll_back()
    process.reader.generation = "3-c"
    process.look()
    assert process.got().records == {KEY: GOOD}


def test_each_cluster_is_compared_with_itself():
    process, other = Process(), FakeReader()
    other.rolled_back = 7
    process.got()
    for _ in range(2):
        process.watch.look(CatalogSource("b", other, InPlace()))
        process.look()
    process.got()
    assert len(process.reader.calls) == 1


def rolled_back_after_a_second() -> Process:
    """It follows the stream of updates, holds a record of the wrong batch, and has noticed the rollback."""
    process = Process()
    process.catalog.heard_from(START_MS)
    process.got()
    process.clock.ms += 1_000
    process.roll_back()
    process.look()
    return process


def test_if_the_store_is_away_it_is_answered_as_stale_for_so_long_after_the_rollback():
    process = rolled_back_after_a_second()
    process.reader.fails = 2
    process.clock.ms += LIFETIMES.stale_max_ms - 1
    process.catalog.note_known(process.clock.ms)  # a record that it follows would live for an hour
    got = process.got()
    assert (got.records, got.stale) == ({KEY: WRONG}, {KEY})
    process.clock.ms += 1
    got = process.got()
    assert (got.records, got.unanswered) == ({}, {KEY})
    assert isinstance(got.failure, CatalogUnavailableError)


def test_a_second_rollback_does_not_bring_back_what_an_earlier_one_has_ended():
    process = rolled_back_after_a_second()
    process.reader.fails = 1
    process.clock.ms += LIFETIMES.stale_max_ms
    for _ in range(9):
        process.catalog.rolled_back()
    process.catalog.note_known(process.clock.ms)  # a record that it follows would live for an hour
    got = process.got()
    assert (got.records, got.unanswered) == ({}, {KEY})


@pytest.mark.parametrize("held", [True, False])
def test_updates_that_were_heard_stay_in_force(held: bool):
    process = Process()
    if held:
        process.got(KEY, OTHER)
    later_ms = START_MS + 5_000
    process.catalog.entered(Update(KEY, later_ms, b"update"))
    process.catalog.entered(Update(OTHER, later_ms, None))
    process.roll_back()
    process.look()
    calls = len(process.reader.calls)
    for _ in range(2):
        got = process.got(KEY, OTHER)
        assert (got.records, got.missing) == ({KEY: b"update"}, {OTHER})
    assert (len(process.reader.calls) == calls) is held, "what was heard has not expired"


def test_what_is_being_fetched_is_neither_held_nor_waited_for_by_others():
    reads = ByHand()
    process = Process(reads)
    before = process.catalog.begin([KEY])
    reads.read()
    process.roll_back()
    process.look()
    after = process.catalog.begin([KEY])
    assert len(reads.begun) == 2
    reads.land(0)
    assert before.result().records == {KEY: WRONG}, "it began before"
    assert process.catalog.cache_bytes() == 0
    reads.read(1)
    reads.land(1)
    assert after.result().records == {KEY: GOOD}
    assert process.got().records == {KEY: GOOD}
    assert len(reads.begun) == 2


def test_a_fetch_lands_after_the_one_that_began_after_the_rollback():
    reads = ByHand()
    process = Process(reads)
    process.catalog.begin([KEY])
    reads.read()
    process.roll_back()
    process.look()
    process.catalog.begin([KEY])
    reads.read(1)
    reads.land(1)
    reads.land(0)
    assert process.got().records == {KEY: GOOD}


def test_a_reader_that_was_asked_for_rollbacks_reads_nothing_older(
    store: CatalogStore, reader: CatalogReader, clock: catalog_adapters.Clock
):
    """Although it may read a generation for a second without looking which one is in use."""
    old, new = store.load(10, [(KEY, GOOD)]).id, store.load(20, [(KEY, WRONG)]).id
    store.use(new)
    assert reader.fetch([KEY]).records == {KEY: WRONG}
    store.use(old)
    for passed_s in (0.0, 1.0):
        clock.pass_s(passed_s)
        noticed = reader.rollbacks()
        assert reader.fetch([KEY]).records in ([{KEY: GOOD}] if noticed else [{KEY: GOOD}, {KEY: WRONG}])
    assert noticed


def test_a_rollback_is_noticed_although_what_is_in_use_now_cannot_be_opened(tmp_path: Path):
    """A process that holds records of the wrong batch would show them as fresh, for as long as it follows them."""
    clock = Clock()
    with closing(RocksCatalogStore(tmp_path, clock, clock.now_ms, lambda: "x")) as store:
        right, wrong = (store.load(time_ms, [(KEY, record)]).id for time_ms, record in ((1, GOOD), (2, WRONG)))
        store.use(right)
        store.use(wrong)
        with closing(RocksCatalogReader(tmp_path, clock)) as reader:
            assert reader.rollbacks() == 0
            swaps.roll_back(store, wrong)
            (tmp_path / f"gen-{right}" / "CURRENT").unlink()
            assert reader.rollbacks() == 1
            with pytest.raises(CatalogUnavailableError, match=right):
                reader.fetch([KEY])


def test_a_pointer_of_an_earlier_program_is_read_and_counted_on(tmp_path: Path):
    place = ADAPTERS["rocksdb"](tmp_path, catalog_adapters.Clock())
    with closing(place.store()) as store:
        old, new = store.load(10, [(KEY, GOOD)]).id, store.load(20, [(KEY, WRONG)]).id
        store.use(new)
        [pointer] = tmp_path.rglob("pins/CURRENT")
        pointer.write_text(f'{{"generation":"{new}"}}\n')
        assert store.trail() == [old, new], "it could not say which were in use"
        store.use(old)
        assert (store.rollbacks(), store.fetch([KEY]).records) == (1, {KEY: GOOD})
        assert store.trail() == [old]


def test_a_rollback_goes_to_nothing_that_was_rolled_back_or_never_in_use(store: CatalogStore):
    def loaded(as_of_ms: int) -> str:
        return store.load(as_of_ms, [(KEY, b"%d" % as_of_ms)]).id

    good, wrong = loaded(10), loaded(20)
    for name in (good, wrong):
        store.use(name)
    assert swaps.roll_back(store) == (good, wrong)
    loaded(30)
    worse = loaded(40)
    store.use(worse)
    assert swaps.roll_back(store, worse) == (good, worse)
    for again in (worse, wrong):
        assert swaps.roll_back(store, again) == (good, good), "that one is in use no more"
    with pytest.raises(swaps.SwapRefusedError) as caught:
        swaps.roll_back(store)
    assert caught.value.reason == "no_generation_before"


class Overtaken:
    """A store in which something else is decided after its trail was read."""

    def __init__(self, store: CatalogStore, meanwhile: Callable[[], object]) -> None:
        self._store = store
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def trail(self) -> list[str]:
        found = self._store.trail()
        while self._meanwhile:
            self._meanwhile.pop()()
        return found


@pytest.mark.parametrize("named", [True, False])
def test_a_rollback_does_not_undo_what_comes_into_use_at_the_same_moment(store: CatalogStore, named: bool):
    good, wrong, right = (store.load(as_of_ms, [(KEY, b"%d" % as_of_ms)]).id for as_of_ms in (10, 20, 30))
    for name in (good, wrong):
        store.use(name)
    overtaken: Any = Overtaken(store, lambda: store.use(right))
    with pytest.raises(swaps.SwapRefusedError, match=f"{wrong} is not in use: {right} is"):
        swaps.roll_back(overtaken, wrong if named else None)
    assert store.in_use().current == right


# Several processes on real stores
# ----------------------------------------------------------------------------------------------------------------------

KEYS = [b"a", b"b", b"c"]


class Simulation:
    """Two processes, two clusters, and batches, some of which are wrong and are rolled back at some time. Once a
    process has looked at a cluster after that, no batch that it begins says anything wrong.
    """

    def __init__(self, seed: int, adapter: str, scratch: Path, stack: ExitStack) -> None:
        self.rng = random.Random(seed)
        self.clock = catalog_adapters.Clock()
        self.stores, self.looks, self.catalogs = [], [], []
        self.reads: list[ByHand] = []
        self.begun: list[tuple[Any, bool]] = []
        self.waiting: list[Any] = []
        places = [ADAPTERS[adapter](scratch / name, self.clock) for name in "xy"]
        for place in places:
            self.stores.append(stack.enter_context(closing(place.store())))
        self.times = [10, 10]
        self.is_wrong = [False, False]
        for number, store in enumerate(self.stores):
            store.use(self._load(number, GOOD))
        self.noticed = [[True, True], [True, True]]
        """By process and cluster: whether it has looked since the last rollback there, or nothing wrong is in use."""
        for _ in range(2):
            sources = [
                CatalogSource(name, stack.enter_context(closing(place.reader())), InPlace())
                for name, place in zip("xy", places, strict=True)
            ]
            replicas = CatalogReplicas(sources, LONG_S, self.clock)
            reads = ByHand()
            catalog = catalog_of(replicas, self.clock, lambda: START_MS, reads)
            watch = CatalogWatch("xy", catalog.rolled_back, lambda: START_MS)
            self.reads.append(reads)
            self.catalogs.append(catalog)
            self.looks.append([lambda watch=watch, source=source: watch.look(source) for source in sources])
            for look in self.looks[-1]:
                look()
        self.answers = 0

    def run(self, steps: int) -> None:
        moves = [self.build, self.roll_back, self.look, self.look, self.begin, self.begin, self.read, self.land]
        for _ in range(steps):
            self.rng.choice([*moves, self.wait])()

    def _load(self, number: int, record: bytes) -> str:
        self.times[number] += self.rng.choice([0, 1])
        unique = b"%d" % self.rng.randrange(1 << 30)
        return self.stores[number].load(self.times[number], [(key, record + unique) for key in KEYS]).id

    def build(self) -> None:
        number = self.rng.randrange(2)
        if self.is_wrong[number] or self.rng.random() < 0.5:
            return
        if self.rng.random() < 0.5:
            self.stores[number].use(self._load(number, WRONG))
            self.is_wrong[number] = True
            for process in self.noticed:
                process[number] = False
            self.begun = [(fetch, False) for fetch, _ in self.begun]  # they may read it
        else:
            self.stores[number].use(self._load(number, GOOD))

    def roll_back(self) -> None:
        """Rolls back to any good batch that is no later, perhaps with a good build at once."""
        number = self.rng.randrange(2)
        if not self.is_wrong[number]:
            return
        store = self.stores[number]
        there = store.generations()
        [current] = [each for each in there if each.current]
        good = [
            each
            for each in there
            if store.look(each.id, [KEYS[0]])[KEYS[0]].startswith(GOOD) and each.as_of_ms <= current.as_of_ms
        ]
        store.use(self.rng.choice(good[-3:]).id)
        if self.rng.random() < 0.3:
            store.use(self._load(number, GOOD))
        self.is_wrong[number] = False

    def look(self) -> None:
        process, number = self.rng.randrange(2), self.rng.randrange(2)
        self.looks[process][number]()
        if not self.is_wrong[number]:
            self.noticed[process][number] = True

    def begin(self) -> None:
        process = self.rng.randrange(2)
        reads = self.reads[process]
        already = len(reads.begun)
        fetch = self.catalogs[process].begin(self.rng.sample(KEYS, self.rng.randint(1, 3)))
        self.begun.append((fetch, all(self.noticed[process])))
        self.waiting += reads.begun[already:]
        self.check()

    def read(self) -> None:
        """Whichever of the clusters answers: the first one may be slow."""
        unread = [each for each in self.waiting if not hasattr(each, "answer")]
        if unread:
            self.rng.choice(unread).run()

    def land(self) -> None:
        read = [each for each in self.waiting if hasattr(each, "answer")]
        if read:
            attempt = self.rng.choice(read)
            self.waiting.remove(attempt)
            attempt.tell()
            self.check()

    def wait(self) -> None:
        self.clock.pass_s(self.rng.choice([0.1, 0.5, 1.5]))

    def check(self) -> None:
        for fetch, is_good in list(self.begun):
            if all(flight.wait(0) for flight, _, _ in fetch._waits):
                self.begun.remove((fetch, is_good))
                got = fetch.result()
                assert not got.unanswered
                self.answers += is_good
                if is_good:
                    assert all(record.startswith(GOOD) for record in got.records.values()), got


def simulate(seeds: range, adapter: str, scratch: Path, steps: int = 120) -> None:
    answers = 0
    for seed in seeds:
        with ExitStack() as stack:
            simulation = Simulation(seed, adapter, scratch / f"{adapter}-{seed}", stack)
            simulation.run(steps)
            answers += simulation.answers
    assert answers > 4 * len(seeds)


SEEDS = {"memory": range(60), "rocksdb": range(2), "hbase-model": range(10)}


@pytest.mark.parametrize("adapter", EMBEDDED)
def test_once_a_process_has_looked_it_answers_nothing_of_a_batch_that_was_rolled_back(tmp_path: Path, adapter: str):
    simulate(SEEDS[adapter], adapter, tmp_path)


def _looks_at_what_is_in_use(watch: CatalogWatch, source: CatalogSource) -> None:
    """It compares the generations of two looks."""
    before = watch.facts()[source.name]
    _count(watch, source)
    after = watch.facts()[source.name]
    if before and after and before.current and after.current and after.current.as_of_ms < before.current.as_of_ms:
        watch._rolled_back()


def _count(watch: CatalogWatch, source: CatalogSource) -> None:
    watch._rollbacks.clear()
    REAL_LOOK(watch, source)


REAL_LOOK = CatalogWatch.look


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [
        (CatalogWatch, "look", _count),
        (CatalogWatch, "look", _looks_at_what_is_in_use),
        (Flights, "forget", lambda _: None),
        (Catalog, "rolled_back", lambda found: found._flights.forget()),
    ],
    ids=["not noticed", "two looks compared", "fetches under way are held", "what is held stays"],
)
def test_the_simulation_finds_a_guard_that_is_removed(
    tmp_path: Path, of: type, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(of, name, mutant)
    with pytest.raises(AssertionError, match="wrong"):
        simulate(range(300), "memory", tmp_path)
