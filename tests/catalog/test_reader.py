"""`Catalog.begin` and `Fetch.result`: which records are held, for how long and how old; and a store that is away."""

from collections.abc import Iterator

import pytest

from feedstore.catalog import cache
from feedstore.catalog.cache import Cache
from feedstore.catalog.port import MAX_KEY_BYTES, MAX_KEYS, CatalogRefusedError
from feedstore.catalog.reader import AllHeld, Got
from tests.catalog.reader_fakes import LIFETIMES, START_MS, Clock, FakeReader, catalog_of

A, B, C, NONE = b"a", b"b", b"c", b"none"
RECORDS = {A: b"1", B: b"2", C: b"3"}


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.reader = FakeReader(RECORDS, known_ms=START_MS - 700)
        self.catalog = catalog_of(self.reader, self.clock, self.clock.now_ms)

    def got(self, *keys: bytes, max_behind_ms: int | None = None) -> Got:
        return self.catalog.begin(keys, None, max_behind_ms).result()


@pytest.fixture
def world() -> Iterator[World]:
    return World()


# Records that are held
# ----------------------------------------------------------------------------------------------------------------------


def test_a_batch_is_fetched_in_one_call_and_then_held(world: World):
    first = world.got(A, NONE, B)
    assert first == Got({A: b"1", B: b"2"}, {NONE}, set(), 700, set(), None, "1-a")
    assert world.got(B, A, NONE) == first._replace(generation=None)
    assert world.got(B, C).records == {B: b"2", C: b"3"}
    assert world.reader.calls == [[A, NONE, B], [C]]


def test_what_is_all_held_is_given_at_once_in_the_order_asked(world: World):
    assert world.catalog.all_held([A, B]) is None
    world.got(A, B)
    world.clock.ms += 300
    assert world.catalog.all_held([B, A]) == AllHeld((b"2", b"1"), 1_000)
    assert world.catalog.counts().hit == 2
    world.got(A, NONE)
    assert world.catalog.all_held([A, C]) is None, "one is not held"
    assert world.catalog.all_held([A, NONE]) is None, "one has no record"
    assert world.catalog.all_held([]) is None
    world.clock.ms += LIFETIMES.ttl_ms
    assert world.catalog.all_held([A, B]) is None, "they have expired"
    assert world.reader.calls == [[A, B], [NONE]]


def test_what_a_rollback_has_ended_is_not_given_at_once(world: World):
    world.got(A)
    world.catalog.rolled_back()
    assert world.catalog.all_held([A]) is None


def test_an_answer_says_by_which_generation_it_was_fetched(world: World):
    assert world.got(A).generation == "1-a"
    world.reader.generation = "2-b"
    assert world.got(A, B).generation == "2-b", "of what is fetched"
    assert world.got(A, B).generation is None


def test_a_record_lives_for_its_ttl(world: World):
    world.got(A)
    world.clock.ms += LIFETIMES.ttl_ms - 1
    world.got(A)
    assert len(world.reader.calls) == 1
    world.clock.ms += 1
    world.reader.records[A] = b"new"
    assert world.got(A).records == {A: b"new"}


def test_absence_is_held_briefly(world: World):
    world.got(NONE)
    world.reader.records[NONE] = b"now there"
    world.clock.ms += LIFETIMES.negative_ttl_ms - 1
    assert world.got(NONE).missing == {NONE}
    world.clock.ms += 1
    assert world.got(NONE).records == {NONE: b"now there"}


def test_absence_that_is_held_as_long_as_presence_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Cache, "expiry_ms", lambda self, record, now_ms: now_ms + self.lifetimes.ttl_ms)
    with pytest.raises(AssertionError):
        test_absence_is_held_briefly(World())


def test_a_key_twice_is_asked_once(world: World):
    assert world.got(A, A).records == {A: b"1"}
    assert world.got(A, A).records == {A: b"1"}
    assert world.reader.calls == [[A]]
    assert world.catalog.counts().hit == 1


def test_a_batch_of_nothing_asks_nobody(world: World):
    assert world.got() == Got({}, set(), set(), None, set(), None, None)
    assert world.reader.calls == []


def test_a_batch_that_nobody_waits_for_is_held(world: World):
    world.catalog.begin([A, B])
    world.reader.fails = 1
    assert world.got(A, B).records == {A: b"1", B: b"2"}


def test_the_result_is_the_same_however_often_it_is_asked_for(world: World):
    fetch = world.catalog.begin([A, NONE])
    assert fetch.result() is fetch.result()
    assert world.catalog.counts().fetched == 1


@pytest.mark.parametrize("key", [b"", bytes(MAX_KEY_BYTES + 1)])
def test_a_key_that_no_catalog_takes_is_refused_at_the_door(world: World, key: bytes):
    with pytest.raises(CatalogRefusedError, match=f"expected 1 to {MAX_KEY_BYTES}"):
        world.catalog.begin([A, key])
    assert world.reader.calls == []


def test_more_keys_than_one_generation_answers_at_once_are_refused_at_the_door(world: World):
    keys = [number.to_bytes(4, "big") for number in range(MAX_KEYS + 1)]
    assert world.got(*keys[:-1]).missing == set(keys[:-1])
    with pytest.raises(CatalogRefusedError, match="in several batches"):
        world.catalog.begin(keys)


# How old it may be
# ----------------------------------------------------------------------------------------------------------------------


def test_a_batch_is_as_far_behind_as_the_oldest_of_its_answers(world: World):
    world.got(A)
    world.clock.ms += 5_000
    world.reader.known_ms = world.clock.ms - 300
    assert world.got(B).behind_ms == 300
    assert world.got(A, B).behind_ms == 5_700
    world.clock.ms += 1_000
    assert world.got(B).behind_ms == 1_300


def test_that_a_key_is_missing_is_an_answer_too_and_as_old(world: World):
    world.got(NONE)
    world.clock.ms += 1_000
    assert world.got(NONE).behind_ms == 1_700


def test_what_is_known_only_after_the_clocks_stepped_says_nothing_of_now(world: World):
    world.reader.known_ms = world.clock.ms + 10_000_000
    assert world.got(A).behind_ms is None


def test_a_bound_can_be_demanded_and_what_is_held_longer_is_fetched(world: World):
    world.got(A, B)
    world.clock.ms += 5_000
    world.reader.known_ms = world.clock.ms - 100
    assert world.got(A, max_behind_ms=6_000).behind_ms == 5_700
    assert world.got(A, max_behind_ms=1_000).behind_ms == 100
    assert world.reader.calls == [[A, B], [A]]
    assert world.got(A, B).behind_ms == 5_700


def test_what_the_store_cannot_give_within_the_bound_is_not_given(world: World):
    world.got(A)
    world.clock.ms += 5_000
    got = world.got(A, B, max_behind_ms=1_000)
    assert (got.records, got.unanswered, got.behind_ms) == ({}, {A, B}, None)
    assert "further behind" in str(got.failure)
    assert world.got(A, B).records == {A: b"1", B: b"2"}, "it is held for those who ask for less"


def test_a_known_time_that_is_too_late_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache, "min", max, raising=False)
    with pytest.raises(AssertionError):
        test_a_batch_is_as_far_behind_as_the_oldest_of_its_answers(World())


# A store that is away
# ----------------------------------------------------------------------------------------------------------------------


def test_what_has_expired_is_served_for_a_while_if_the_store_is_away_and_marked(world: World):
    world.got(A, NONE)
    world.reader.fails = 100
    world.clock.ms += LIFETIMES.ttl_ms
    got = world.got(A, B)
    assert (got.records, got.stale, got.unanswered, got.missing) == ({A: b"1"}, {A}, {B}, {B})
    assert (got.behind_ms, str(got.failure)) == (LIFETIMES.ttl_ms + 700, "out of order")
    assert (world.catalog.counts().stale, world.catalog.counts().missing) == (1, 2)
    world.clock.ms += LIFETIMES.stale_max_ms - 1
    assert world.got(A).stale == {A}
    world.clock.ms += 1
    assert world.got(A).unanswered == {A}


def test_absence_is_served_late_too(world: World):
    world.got(NONE)
    world.reader.fails = 100
    world.clock.ms += LIFETIMES.negative_ttl_ms + LIFETIMES.stale_max_ms - 1
    got = world.got(NONE)
    assert (got.missing, got.unanswered, got.stale) == ({NONE}, set(), {NONE})


def test_what_has_expired_is_not_served_beyond_a_bound(world: World):
    world.got(A)
    world.reader.fails = 100
    world.clock.ms += LIFETIMES.ttl_ms
    assert world.got(A, max_behind_ms=LIFETIMES.ttl_ms).unanswered == {A}
    assert world.got(A, max_behind_ms=LIFETIMES.ttl_ms + 700).stale == {A}


def test_what_has_not_expired_needs_no_store(world: World):
    world.got(A)
    world.reader.fails = 100
    assert world.got(A) == Got({A: b"1"}, set(), set(), 700, set(), None, None)


# Counts
# ----------------------------------------------------------------------------------------------------------------------


def test_each_key_counts_once(world: World):
    world.got(A, B, NONE)
    world.got(A, C, NONE)
    world.reader.fails = 1
    world.clock.ms += LIFETIMES.ttl_ms
    world.got(A, b"other")
    counts = world.catalog.counts()
    assert (counts.fetched, counts.hit, counts.joined, counts.stale, counts.missing) == (3, 1, 0, 1, 3)
    assert (counts.fetches, counts.failed_fetches) == (3, 1)
    assert sum(map(len, world.reader.calls)) == 6
    world.catalog.counting.source(2)
    assert world.catalog.counts().source == 2
    assert world.catalog.cache_bytes() > 0
