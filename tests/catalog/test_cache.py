"""The cache of a process: by a model over keys, clock, lifetimes and the bound in bytes; and its cost."""

import gc
import random
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from feedstore.catalog import cache as module
from feedstore.catalog.cache import (
    ENTRY_BYTES,
    HEARD,
    JITTER,
    Cache,
    CacheAnswer,
    CacheEntry,
    Lifetimes,
    RolledBack,
    StreamState,
    known_ms_of,
    version_at,
)
from feedstore.catalog.forms import AS_BYTES, Form
from feedstore.catalog.pins import AS_PINS
from feedstore.catalog.port import Update
from feedstore.catalog.rule import stamp
from feedstore.domain import Pin

KEYS = [bytes([number]) * 4 for number in range(8)]
LIFETIMES = Lifetimes(ttl_ms=100, negative_ttl_ms=10, followed_ttl_ms=400, stale_max_ms=50)


class Model(RuleBasedStateMachine):
    """The bound takes a few entries, so that they push each other out."""

    @initialize(seed=st.integers(0, 1 << 30))
    def begin(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.drawn: list[float] = []
        self.now_ms = 1_000
        self.following = StreamState(1, 0, 1_000)
        self.rolled_back = RolledBack()
        self.rollbacks_ms: list[int] = []
        self.room = 5 * (ENTRY_BYTES + 40)
        self.cache = Cache(self.room, LIFETIMES, self.draw, AS_BYTES)
        self.held: OrderedDict[bytes, CacheEntry[bytes]] = OrderedDict()

    def draw(self) -> float:
        self.drawn.append(self.rng.random())
        return self.drawn[-1]

    @rule(
        key=st.sampled_from(KEYS),
        size=st.sampled_from([0, 1, 20, 60]),
        known_ms=st.integers(0, 900),
        followed=st.booleans(),
        heard=st.booleans(),
    )
    def load(self, key: bytes, size: int, known_ms: int, followed: bool, heard: bool) -> None:
        record = bytes(size) if size else None
        expires_ms = self.cache.expiry_ms(record, self.now_ms)
        if record is None:
            assert expires_ms == self.now_ms + LIFETIMES.negative_ttl_ms
        else:
            assert expires_ms == self.now_ms + int(LIFETIMES.ttl_ms * (1 - JITTER * self.drawn[-1]))
        rollbacks = HEARD if heard else self.rolled_back.number
        entry = CacheEntry(
            expires_ms, version_at(known_ms), self.following.stream if followed else 0, rollbacks, record
        )
        self.cache.put(key, entry)
        self.held[key] = entry
        self.held.move_to_end(key)
        while self.bytes() > self.room:
            self.held.popitem(last=False)

    @rule(ms=st.integers(1, 9) | st.integers(1, 120))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(known_ms=st.integers(0, 1_000))
    def the_stream_speaks(self, known_ms: int) -> None:
        if self.following.stream:
            known_ms = max(known_ms, self.following.known_ms)
            self.following = StreamState(self.following.stream, known_ms, self.now_ms)

    @rule()
    def the_stream_begins(self) -> None:
        self.following = StreamState(self.following.stream + 1)

    @rule()
    def an_older_generation_comes_into_use(self) -> None:
        self.rolled_back = self.rolled_back.again(self.now_ms)
        self.rollbacks_ms.append(self.now_ms)

    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True), oldest_ms=st.integers(-5, 1_000), expired=st.booleans())
    def take(self, keys: list[bytes], oldest_ms: int, expired: bool) -> None:
        self.taken(keys, oldest_ms, expired=expired)

    @rule(latest=st.integers(1, 3), expired=st.booleans())
    def take_what_was_loaded_last(self, latest: int, expired: bool) -> None:
        """As nearly every page does: all of its keys are held."""
        self.taken([*self.held][-latest:], 0, expired=expired)

    def taken(self, keys: list[bytes], oldest_ms: int, *, expired: bool) -> None:
        taken = self.cache.take(keys, self.now_ms, self.following, self.rolled_back, oldest_ms, expired=expired)
        found = [key for key in keys if self.is_good(key, oldest_ms, expired)]
        assert taken.records.keys() | taken.absent == set(found)
        assert taken.missed == [key for key in keys if key not in found]
        for key in found:
            assert taken.records.get(key) == self.held[key].record
            assert (key in taken.absent) == (self.held[key].record is None)
        assert taken.known_ms == min((self.known_ms(key) for key in found), default=None)
        if not expired and not oldest_ms:
            at_once = self.cache.all_held(keys, self.now_ms, self.following, self.rolled_back)
            assert at_once is None or taken == (
                dict(zip(keys, at_once.records, strict=True)),
                set(),
                [],
                at_once.known_ms,
            )
        for key in keys:
            if key in self.held:
                self.held.move_to_end(key)

    def is_followed(self, entry: CacheEntry[bytes]) -> bool:
        return entry.stream == self.following.stream > 0

    def known_ms(self, key: bytes) -> int:
        entry = self.held[key]
        heard_ms = self.following.known_ms if self.is_followed(entry) else 0
        return max(known_ms_of(entry.version), heard_ms)

    def is_good(self, key: bytes, oldest_ms: int, expired: bool) -> bool:
        if key not in self.held:
            return False
        entry = self.held[key]
        until_ms = entry.expires_ms
        if self.is_followed(entry):
            last_ms = entry.expires_ms + LIFETIMES.followed_ttl_ms - LIFETIMES.ttl_ms
            until_ms = max(until_ms, min(last_ms, self.following.heard_at_ms + LIFETIMES.ttl_ms))
        if entry.rollbacks < len(self.rollbacks_ms):
            kept_ms = self.rollbacks_ms[entry.rollbacks] if entry.rollbacks >= len(self.rollbacks_ms) - 8 else 0
            until_ms = min(until_ms, kept_ms)
        if expired:
            until_ms += LIFETIMES.stale_max_ms
        return self.now_ms < until_ms and self.known_ms(key) >= oldest_ms

    def bytes(self) -> int:
        return sum(ENTRY_BYTES + len(key) + len(each.record or b"") for key, each in self.held.items())

    @invariant()
    def is_within_its_bound(self) -> None:
        assert self.cache.bytes == self.bytes() <= self.room
        assert len(self.cache) == len(self.held)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def is_found() -> None:
    """Enough examples: the search ends with the first that fails. Which ones are tried depends on the modules that are
    loaded, because Hypothesis draws constants that it finds in them.
    """
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(
            Model,
            settings=settings(
                TestModel.settings, max_examples=5_000, derandomize=True, database=None, phases=[Phase.generate]
            ),
        )


@pytest.mark.parametrize(
    "mutant",
    [
        {"JITTER": 0.0},
        {"version_at": lambda known_ms: 2 * known_ms + 3},
        {"known_ms_of": lambda version: (version + 1) // 2},
        {"ENTRY_BYTES": 100},
        {"min": lambda values: max(values) if isinstance(values, tuple) else min(values)},
    ],
    ids=[
        "no jitter",
        "what was heard later than it is",
        "known later than it is",
        "entries that count for too little",
        "one entry that is good makes all of them good",
    ],
)
def test_the_model_finds_a_cache_without_a_guard(mutant: dict, monkeypatch: pytest.MonkeyPatch):
    for name, value in mutant.items():
        monkeypatch.setattr(module, name, value, raising=False)
    is_found()


def test_the_model_finds_absence_that_is_held_as_long_as_presence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Cache, "expiry_ms", lambda self, record, now_ms: now_ms + int(100 * (1 - 0.1 * self._random())))
    is_found()


@pytest.mark.parametrize(
    "mistaken",
    [
        lambda noticed: RolledBack(),
        lambda noticed: noticed._replace(number=HEARD),
        lambda noticed: noticed._replace(at_ms=noticed.at_ms[-1:] * len(noticed.at_ms)),
    ],
    ids=["not noticed", "what was heard ends, too", "a later one brings back what an earlier one has ended"],
)
def test_the_model_finds_a_rollback_that_is_taken_wrong(
    mistaken: Callable[[RolledBack], RolledBack], monkeypatch: pytest.MonkeyPatch
):
    take = Cache.take

    def taken(cache: Cache[Any], *arguments: Any, expired: bool) -> CacheAnswer[Any]:
        keys, now_ms, following, rolled_back, oldest_ms = arguments
        wrong = mistaken(rolled_back) if rolled_back.number else rolled_back
        return take(cache, keys, now_ms, following, wrong, oldest_ms, expired=expired)

    monkeypatch.setattr(Cache, "take", taken)
    is_found()


def test_versions_order_updates_as_the_rule_does():
    put, gone, later = Update(b"k", 7, b"r"), Update(b"k", 7, None), Update(b"k", 8, b"r")
    assert stamp(put) < stamp(gone) == version_at(7) < stamp(later)
    assert [known_ms_of(stamp(each)) for each in (put, gone, later)] == [6, 7, 7]
    assert known_ms_of(version_at(2**62)) == 2**62


def test_what_is_loaded_together_does_not_expire_together():
    cache = Cache(1 << 20, Lifetimes(ttl_ms=300_000), random.Random(1).random, AS_BYTES)
    expire = [cache.expiry_ms(b"r", 0) for _ in range(1_000)]
    assert 270_000 <= min(expire) < 275_000
    assert 295_000 < max(expire) <= 300_000
    assert len(set(expire)) > 900


def test_an_entry_larger_than_the_bound_is_not_held():
    cache = Cache(1_000, LIFETIMES, random.random, AS_BYTES)
    cache.put(b"k", CacheEntry(9, 9, 0, 0, bytes(2_000)))
    assert (len(cache), cache.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("form", "made"),
    [
        (AS_BYTES, lambda number: bytes(40)),
        (AS_PINS, lambda number: Pin(10**10 + number, 10**10 + number, 10**10 + number, 10**12 + number)),
    ],
    ids=["bytes", "pins"],
)
def test_what_is_held_gives_the_collector_nothing_to_walk_and_takes_what_it_says(
    form: Form[Any], made: Callable[[int], Any]
):
    cache: Cache[Any] = Cache(64 << 20, LIFETIMES, lambda: 0.5, form)
    cache.put(b"first", CacheEntry(9, 9, 0, 0, made(0)))
    gc.collect()
    walked = len(gc.get_objects())
    tracemalloc.start()
    for number in range(20_000):
        cache.put(number.to_bytes(8, "big"), CacheEntry(10**9 + number, 10**12 + number, 1, 0, made(number)))
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not gc.is_tracked(cache._entries)
    gc.collect(0)  # as happens every few hundred objects
    assert len(gc.get_objects()) < walked + 100
    assert 0.7 * taken_bytes < cache.bytes < 1.5 * taken_bytes, (taken_bytes, cache.bytes)
