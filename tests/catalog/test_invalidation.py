"""Updates that arrive while records are fetched and held: whatever the order, no answer says that it is newer than it
is, and no old record takes the place of an update.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import permutations, product

import pytest

from feedstore.catalog import reader
from feedstore.catalog.cache import StreamState, known_ms_of
from feedstore.catalog.flights import Flights
from feedstore.catalog.heard import Heard
from feedstore.catalog.port import Update
from feedstore.catalog.reader import Catalog, Got
from tests.catalog.reader_fakes import LIFETIMES, START_MS, Batches, ByHand, Clock, FakeReader, catalog_of

KEY = b"k"
OLD = b"old"
AT_MS = START_MS + 50

# Every interleaving of a fetch and an update
# ----------------------------------------------------------------------------------------------------------------------

FETCH = ("begin", "read known", "read record", "land")
UPDATE = ("reaches the store", "the store says so")
HEARD = "heard"
SCHEDULES = sorted(
    {
        tuple(
            FETCH[order[:place].count("fetch")]
            if step == "fetch"
            else UPDATE[order[:place].count("update")]
            if step == "update"
            else HEARD
            for place, step in enumerate(order)
        )
        for order in permutations(["fetch"] * 4 + ["update"] * 2 + [HEARD])
    }
)


class Race:
    """One fetch of one key, and one update of it. before: the entry that is held when it begins. remembers: whether
    updates are remembered at all; if not, there were too many others.
    """

    def __init__(self, update: Update, before: str, *, connected: bool, remembers: bool) -> None:
        self.update = update
        self.clock = Clock()
        self.reads = ByHand()
        self.reader = FakeReader({KEY: OLD}, known_ms=START_MS)
        self.catalog = catalog_of(self.reader, self.clock, self.clock.now_ms, self.reads)
        if not remembers:
            self.catalog._heard = Heard(updates_max=0)
        if connected:
            self.catalog.heard_from(START_MS)
        if before == "expired":
            self.catalog.begin([KEY])
            self.reads.read()
            self.reads.land()
            # The stream has said nothing yet, so that the entries that it follows have expired as well.
            self.clock.ms += LIFETIMES.ttl_ms
        self.fetch = None
        self.got: Got | None = None

    def run(self, schedule: Sequence[str]) -> Got:
        steps = iter(schedule)
        for step in steps:
            self._step(step, steps)
        assert self.got is not None
        return self.got

    def _step(self, step: str, steps: Iterator[str]) -> None:
        if step == "begin":
            self.fetch = self.catalog.begin([KEY], self.clock() + 1)
        elif step == "read known":
            self.reader.on_read = lambda: self._until_the_record_is_read(steps)
            self.reads.read()
        elif step == "land":
            self.reads.land()
            self.got = self.fetch.result()
        elif step == "reaches the store":
            self.reader.update(self.update)
        elif step == "the store says so":
            self.reader.known_ms = self.update.time_ms
        else:
            self.catalog.entered(self.update)

    def _until_the_record_is_read(self, steps: Iterator[str]) -> None:
        for step in steps:
            if step == "read record":
                return
            self._step(step, steps)


def check(schedule: Sequence[str], update: Update, before: str, *, connected: bool, remembers: bool) -> None:
    race = Race(update, before, connected=connected, remembers=remembers)
    got = race.run(schedule)
    told = f"{schedule}, {update.record!r}, {before}, {connected}, {remembers}"
    # The answer
    is_old = got.records.get(KEY) == OLD
    assert got.behind_ms is not None
    assert not (is_old and race.clock.ms - got.behind_ms >= update.time_ms), f"says that it is newer than it is: {told}"
    heard, begun, landed = (schedule.index(step) for step in (HEARD, "begin", "land"))
    was_noted = remembers or before == "expired" or heard > begun
    assert not (is_old and heard < landed and was_noted), f"an update was heard, and the answer is older: {told}"
    # The entry that is held then
    held = race.catalog._cache.entry(KEY)
    assert held is not None
    assert held.record == update.record or not was_noted, f"an old record took the place of an update: {told}"
    assert held.record == update.record or known_ms_of(held.version) < update.time_ms, told
    # And once the stream says that it knows of the update's time
    if connected:
        race.catalog.note_known(update.time_ms)
        held_got = race.catalog.take([KEY], 0, expired=True)
        assert held_got.records.get(KEY) == update.record or held_got.known_ms < update.time_ms, told


def every_interleaving() -> None:
    assert len(SCHEDULES) == 105
    for schedule in SCHEDULES:
        for update in (Update(KEY, AT_MS, b"new"), Update(KEY, AT_MS, None)):
            for before in ("nothing", "expired"):
                for connected, remembers in product((False, True), repeat=2):
                    check(schedule, update, before, connected=connected, remembers=remembers)


def test_no_interleaving_of_a_fetch_and_an_update_lets_the_old_record_win():
    every_interleaving()


# Single cases
# ----------------------------------------------------------------------------------------------------------------------


class Kept:
    """A catalog that hears of updates, with a store in place."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.reader = FakeReader({KEY: OLD}, known_ms=START_MS)
        self.catalog = catalog_of(self.reader, self.clock, self.clock.now_ms)

    def got(self) -> Got:
        return self.catalog.begin([KEY]).result()


def test_an_update_replaces_what_is_held():
    kept = Kept()
    assert kept.got().records == {KEY: OLD}
    kept.catalog.entered(Update(KEY, AT_MS, b"new"))
    assert kept.got().records == {KEY: b"new"}
    kept.catalog.entered(Update(KEY, AT_MS + 1, None))
    assert kept.got().missing == {KEY}
    assert kept.catalog.counts().updates == 2
    assert len(kept.reader.calls) == 1


def test_an_update_that_was_heard_wins_over_a_store_that_lags_though_the_key_was_not_held():
    kept = Kept()
    kept.catalog.entered(Update(KEY, AT_MS, b"new"))
    assert kept.catalog.cache_bytes() == 0
    assert kept.got().records == {KEY: b"new"}


def test_updates_in_any_order_and_again_leave_the_newest_and_at_equal_times_the_deletion():
    updates = [Update(KEY, AT_MS, b"1"), Update(KEY, AT_MS + 1, b"2"), Update(KEY, AT_MS + 1, None)]
    for order in permutations([*updates, updates[1]]):
        kept = Kept()
        kept.got()
        for update in order:
            kept.catalog.entered(update)
        assert kept.got().missing == {KEY}


def test_an_update_that_the_answer_already_had_changes_nothing():
    kept = Kept()
    kept.got()
    kept.catalog.entered(Update(KEY, START_MS, b"older"))
    assert kept.got().records == {KEY: OLD}


def test_a_deletion_that_was_heard_wins_over_a_store_that_lags_until_the_store_has_it():
    kept = Kept()
    kept.got()
    kept.catalog.entered(Update(KEY, AT_MS, None))
    for _ in range(5):
        kept.clock.ms += LIFETIMES.negative_ttl_ms
        assert kept.got().missing == {KEY}
    assert len(kept.reader.calls) == 6, "it asks again soon"
    kept.reader.known_ms, kept.reader.records = AT_MS + 10, {KEY: b"again"}
    kept.clock.ms += LIFETIMES.negative_ttl_ms
    assert kept.got().records == {KEY: b"again"}


def test_what_the_stream_follows_is_as_new_as_the_stream_and_lives_on_while_it_speaks():
    kept = Kept()
    kept.catalog.heard_from(START_MS)
    kept.got()
    while kept.clock.ms < START_MS + LIFETIMES.followed_ttl_ms - 60_000:
        kept.clock.ms += 60_000
        kept.catalog.note_known(kept.clock.ms - 400)
        assert kept.got().behind_ms == 400
    assert len(kept.reader.calls) == 1
    kept.clock.ms += 60_000
    kept.catalog.note_known(kept.clock.ms)
    kept.got()
    assert len(kept.reader.calls) == 2, "the safety net"


def test_once_the_stream_is_silent_what_it_followed_lives_for_the_ttl():
    kept = Kept()
    kept.catalog.heard_from(START_MS)
    kept.got()
    kept.clock.ms += 2 * LIFETIMES.ttl_ms
    kept.catalog.note_known(kept.clock.ms)
    kept.clock.ms += LIFETIMES.ttl_ms - 1
    assert kept.got().behind_ms == LIFETIMES.ttl_ms - 1
    assert len(kept.reader.calls) == 1
    kept.clock.ms += 1
    kept.got()
    assert len(kept.reader.calls) == 2


def test_after_a_gap_what_was_held_is_followed_no_longer():
    kept = Kept()
    kept.catalog.heard_from(START_MS)
    kept.got()
    kept.clock.ms += 1_000
    kept.catalog.heard_from(kept.clock.ms)
    kept.clock.ms += 1_000
    kept.catalog.note_known(kept.clock.ms)
    assert kept.got().behind_ms == 2_000


def test_what_was_fetched_from_a_store_that_knows_less_than_may_have_been_missed_is_not_followed():
    kept = Kept()
    kept.catalog.heard_from(START_MS + 10)
    kept.got()
    kept.clock.ms += 1_000
    kept.catalog.note_known(kept.clock.ms)
    assert kept.got().behind_ms == 1_000


def test_a_stream_that_was_never_connected_cannot_say_what_it_knows():
    with pytest.raises(ValueError, match="heard_from"):
        Kept().catalog.note_known(1)


def test_an_update_that_comes_late_is_that_much_older_already():
    kept = Kept()
    kept.reader.records = {}
    kept.got()
    kept.clock.ms += 200_000
    kept.catalog.entered(Update(KEY, START_MS + 1, b"new"))
    kept.clock.ms += LIFETIMES.ttl_ms - 200_000
    kept.reader.records = {KEY: b"newer"}
    kept.reader.known_ms = kept.clock.ms
    assert kept.got().records == {KEY: b"new"}
    kept.clock.ms += 1
    assert kept.got().records == {KEY: b"newer"}


def test_only_so_many_updates_are_remembered_by_number_and_by_bytes():
    for heard in (Heard(updates_max=10), Heard(bytes_max=10 * 101)):
        heard.begin(0)
        for number in range(1, 30):
            heard.add(Update(b"%3d" % number, number, bytes(98)))
        assert [number for number in range(1, 30) if heard.newest(b"%3d" % number)] == list(range(20, 30))
        assert (heard.follows(2 * 18 + 1), heard.follows(2 * 19 + 1)) == (0, 1)
        for _ in range(30):
            heard.add(Update(b" 29", 29, bytes(98)))
        assert heard.newest(b" 20"), "one that comes again takes no room"
        heard.begin(30)
        for number in range(30, 40):
            heard.add(Update(b"%3d" % number, number, bytes(98)))
        assert heard.newest(b" 30"), "what was heard on the earlier stream takes no room"


# A simulation
# ----------------------------------------------------------------------------------------------------------------------

KEYS = [b"a", b"b", b"c"]


class Simulation:
    """A source, a store and a stream that lag behind it, each by itself, and batches at any moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = Clock()
        reads = ByHand()
        self.reader = FakeReader()
        self.catalog: Catalog[bytes] = catalog_of(self.reader, self.clock, self.clock.now_ms, reads, room=450)
        self.catalog._heard = Heard(updates_max=3)
        self.history: dict[bytes, list[tuple[int, bytes | None]]] = {key: [(0, None)] for key in KEYS}
        self.log: list[Update] = []
        self.stored = self.streamed = 0
        self.batches = Batches(self.rng, self.catalog, reads, self.reader, self.history, self.store)

    def run(self, steps: int) -> None:
        moves = [self.commit, self.store, self.hear, self.wait]
        moves += [self.batches.begin, self.batches.read_or_land, self.batches.read_or_land]
        for _ in range(steps):
            self.rng.choice(moves)()
            if self.rng.random() < 0.01:
                self.gap()

    def commit(self) -> None:
        self.clock.ms += 1
        key = self.rng.choice(KEYS)
        record = None if self.rng.random() < 0.3 else b"%d" % self.clock.ms
        self.history[key].append((self.clock.ms, record))
        self.log.append(Update(key, self.clock.ms, record))

    def store(self) -> None:
        """The store takes some updates, perhaps out of order, and says later how far it is."""
        if self.rng.random() < 0.5:
            self.reader.known_ms = self.known_ms(self.stored)
            return
        for update in self.log[self.stored : self.stored + self.rng.randrange(4)]:
            self.reader.update(update)
            self.stored += 1

    def hear(self) -> None:
        for update in self.log[self.streamed : self.streamed + self.rng.randrange(4)]:
            self.catalog.entered(update)
            self.streamed += 1
        if self.log and self.rng.random() < 0.2:
            self.catalog.entered(self.rng.choice(self.log[: self.streamed] or self.log[:1]))
        if self.rng.random() < 0.5 and self.catalog._heard.following.stream:
            self.catalog.note_known(self.known_ms(self.streamed))

    def gap(self) -> None:
        self.streamed = len(self.log)
        self.catalog.heard_from(self.clock.ms)

    def known_ms(self, taken: int) -> int:
        return self.log[taken].time_ms - 1 if taken < len(self.log) else self.clock.ms

    def wait(self) -> None:
        self.clock.ms += self.rng.choice([1, 10, 1_000, LIFETIMES.ttl_ms // 2])


def simulate(seeds: range) -> None:
    for seed in seeds:
        simulation = Simulation(seed)
        simulation.run(300)
        assert simulation.batches.answers > 20


def test_whatever_the_order_no_answer_says_that_it_is_newer_than_it_is():
    simulate(range(60))


# Without a guard
# ----------------------------------------------------------------------------------------------------------------------


def _never(*_: object) -> None:
    return None


def test_a_lease_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Flights, "hear", _never)
    with pytest.raises(AssertionError):
        every_interleaving()


def test_updates_that_are_forgotten_at_once_are_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Heard, "newest", _never)
    with pytest.raises(AssertionError):
        every_interleaving()


def test_updates_that_only_delete_what_is_held_are_found(monkeypatch: pytest.MonkeyPatch):
    """Invalidation by deletion lets the old record in again."""

    def drop(self: Catalog, update: Update) -> None:
        with self._lock:
            self._cache._entries.pop(update.key, None)

    monkeypatch.setattr(Catalog, "entered", drop)
    with pytest.raises(AssertionError):
        every_interleaving()


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [
        (Heard, "follows", lambda self, version: self.following.stream),
        (Heard, "newest", _never),
        (Heard, "begin", lambda self, after_ms: setattr(self, "following", StreamState(max(1, self.following.stream)))),
        (reader, "version_at", lambda known_ms: 2 * known_ms + 2_001),
    ],
    ids=["followed whatever was missed", "forgotten at once", "a gap that no fetch minds", "known a second later"],
)
def test_the_simulation_finds_a_guard_that_is_removed(
    of: object, name: str, mutant: object, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(of, name, mutant)
    with pytest.raises(AssertionError):
        simulate(range(300))
