"""A generation from the follow store, and what keeps a bad one from being used."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, cast

import pytest

from feedstore.catalog.pins import key_of, live_pin, record_of
from feedstore.catalog.port import CatalogUnavailableError, Fetched, Generation, InUse, Update
from feedstore.domain import DeletePin, Pin, SavePin
from feedstore.follows.port import FollowStoreUnavailableError, PinState, Request
from feedstore.follows.store import FollowStore
from tests.catalog.memory_catalog import MemoryCatalog
from tests.follows.memory_follows import open_in_memory
from workers.catalog import build as building
from workers.catalog import side_by_side
from workers.catalog.build import PinSample, build
from workers.catalog.check import PinComparison, PinDifference
from workers.catalog.load import SuspiciousGenerationError

START = 1_700_000_000_000
DAY = 86_400_000


class Clock:
    now_ms = START

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[1, 3], ids=["1-shard", "3-shards"])
def follows(request: pytest.FixtureRequest, clock: Clock) -> Iterator[FollowStore]:
    with closing(open_in_memory(clock, request.param)) as store:
        yield store


def save(follows: FollowStore, *pins: int) -> None:
    follows.record([Request(SavePin(Pin(pin, 7, 70, 1_000 + pin))) for pin in pins])


def delete(follows: FollowStore, *pins: int) -> None:
    follows.record([Request(DeletePin(pin)) for pin in pins])


def settle(follows: FollowStore, clock: Clock) -> None:
    """Everything is relayed, and time passes."""
    follows.mark_relayed(follows.unrelayed(10_000))
    clock.now_ms += 1_000


def built(store: MemoryCatalog, follows: FollowStore, clock: Clock, *, force: bool = False) -> Generation:
    settle(follows, clock)
    return build_now(store, follows, force=force)


def build_now(store: MemoryCatalog, follows: FollowStore, *, force: bool = False) -> Generation:
    """Builds in one cluster. Raises the error of the build, if there is one."""
    done, failed = build({"a": store}, follows, DAY, random.Random(1), lambda records: None, force=force)
    for error in failed.values():
        raise error
    return done["a"]


def live(store: MemoryCatalog, *pins: int) -> dict[int, Pin | None]:
    found = store.fetch([key_of(pin) for pin in pins])
    return {pin: live_pin(key_of(pin), found.records[key_of(pin)]) for pin in pins if key_of(pin) in found.records}


def test_a_build_has_every_pin_and_who_was_deleted_lately(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 2_500))
    delete(follows, 3)
    settle(follows, clock)
    clock.now_ms += 2 * DAY
    delete(follows, 2_400)
    store = MemoryCatalog()
    made = built(store, follows, clock)
    assert made.records == 2_498
    assert live(store, 1, 2, 3, 2_400, 2_499, 2_500) == {
        1: Pin(1, 7, 70, 1_001),
        2: Pin(2, 7, 70, 1_002),
        2_400: None,
        2_499: Pin(2_499, 7, 70, 3_499),
    }
    comparison = PinComparison(store, follows, lambda done: None)
    assert list(comparison) == []
    assert (comparison.compared, comparison.later) == (2_499, 0)


def test_a_build_is_as_of_before_its_first_read(follows: FollowStore, clock: Clock):
    save(follows, 1)
    settle(follows, clock)
    before_ms = follows.settled_ms()
    made = built(MemoryCatalog(), follows, clock)
    assert made.as_of_ms < clock.now_ms
    save(follows, 2)  # not relayed: what commits from now on need not be in a build
    assert build_now(MemoryCatalog(), follows).as_of_ms < clock.now_ms
    assert made.as_of_ms >= before_ms - 1


def test_a_much_smaller_generation_is_not_used_unless_it_is_forced(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 101))
    store = MemoryCatalog()
    first = built(store, follows, clock)
    delete(follows, *range(1, 13))
    settle(follows, clock)
    clock.now_ms += 2 * DAY
    with pytest.raises(SuspiciousGenerationError, match="88 records, the current one has 100"):
        built(store, follows, clock)
    assert [each.id for each in store.generations() if each.current] == [first.id]
    assert built(store, follows, clock, force=True).records == 88


class Wrong(MemoryCatalog):
    """Loses every hundredth record, or gives the record of another pin."""

    def __init__(self, *, loses: bool) -> None:
        super().__init__()
        self._loses = loses

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        def wrong() -> Iterator[tuple[bytes, bytes]]:
            before = b""
            for number, (key, record) in enumerate(records):
                if number % 100 or not self._loses:
                    yield key, record if self._loses or number % 100 else before
                before = record

        return super().load(as_of_ms, wrong())


@pytest.mark.parametrize("loses", [True, False])
def test_a_generation_that_is_not_the_follow_stores_is_not_used(follows: FollowStore, clock: Clock, *, loses: bool):
    save(follows, *range(1, 1_001))
    store = Wrong(loses=loses)
    with pytest.raises(CatalogUnavailableError, match="10 of 1000"):
        built(store, follows, clock)
    assert not any(each.current for each in store.generations())


def test_what_changes_during_the_checks_is_no_difference(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 51))

    class Deleting(MemoryCatalog):
        def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
            made = super().load(as_of_ms, records)
            delete(follows, *range(1, 11))
            return made

    assert built(Deleting(), follows, clock).records == 50


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_build_that_another_one_has_overtaken_is_not_used(follows: FollowStore, clock: Clock, *, rolled_back: bool):
    """It would undo a rollback from the other build's generation, or bring back an older generation."""
    save(follows, *range(1, 51))

    class Overtaken(MemoryCatalog):
        def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
            others = super().load(as_of_ms + 1, [])
            [current] = [each.id for each in self.generations() if each.current]
            self.use(others.id)
            if rolled_back:
                self.use(current)
            return super().load(as_of_ms, records)

    store = Overtaken()
    store.use(MemoryCatalog.load(store, 1, []).id)
    made = built(store, follows, clock)
    [current] = [each for each in store.generations() if each.current]
    assert current.as_of_ms == (1 if rolled_back else made.as_of_ms + 1)
    assert not made.current
    made = built(store, follows, clock, force=True)
    assert made in store.generations()
    assert made.current


def test_a_rollback_at_the_last_moment_is_not_undone(follows: FollowStore, clock: Clock):
    """When the build has looked for the last time whether there was one."""
    save(follows, *range(1, 51))

    class RolledBack(MemoryCatalog):
        def use(self, generation: str, before: InUse | None = None) -> bool:
            if len(self.generations()) == 3:
                super().use(first)
            return super().use(generation, before)

    store = RolledBack()
    first, second = (store.load(as_of_ms, []).id for as_of_ms in (1, 2))
    for each in (first, second):
        store.use(each)
    assert not built(store, follows, clock).current
    assert store.trail() == [first]


class Counting:
    """A follow store that says how often its pins are read, and may fail at a page."""

    def __init__(self, follows: FollowStore, fails_at: int | None = None) -> None:
        self.pages = 0
        self._follows = follows
        self._fails_at = fails_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._follows, name)

    def pins_after(self, shard: int, pin: int, limit: int) -> list[PinState]:
        self.pages += 1
        if self.pages == self._fails_at:
            raise FollowStoreUnavailableError("away")
        return self._follows.pins_after(shard, pin, limit)


class Away(MemoryCatalog):
    """Its load fails after so many records."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        def failing() -> Iterator[tuple[bytes, bytes]]:
            for number, entry in enumerate(records):
                if number == self._after:
                    raise CatalogUnavailableError("away")
                yield entry

        return super().load(as_of_ms, failing())


def test_several_clusters_are_built_by_one_walk(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 3_001))
    settle(follows, clock)
    walks = [Counting(follows) for _ in range(2)]
    alone, *both = [MemoryCatalog() for _ in range(3)]
    for walk, stores in zip(walks, ({"a": alone}, dict(zip("ab", both, strict=True))), strict=True):
        made = build(stores, cast("FollowStore", walk), DAY, random.Random(1), lambda records: None).done
        assert [each.current for each in made.values()] == [True] * len(stores)
    assert walks[0].pages == walks[1].pages
    assert len({store.generations()[0].id for store in (alone, *both)}) == 1


@pytest.mark.parametrize("after", [0, 1, 2_999])
def test_a_cluster_that_fails_keeps_no_other_from_its_build(follows: FollowStore, clock: Clock, after: int):
    save(follows, *range(1, 3_001))
    settle(follows, clock)
    away, well = Away(after), MemoryCatalog()
    failed = build({"a": away, "b": well}, follows, DAY, random.Random(1), lambda records: None).failed
    assert [*failed] == ["a"]
    assert isinstance(failed["a"], CatalogUnavailableError)
    assert not away.generations()
    assert [each.records for each in well.generations() if each.current] == [3_000]


def test_if_all_fail_the_walk_ends(follows: FollowStore, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(side_by_side, "AT_ONCE", 10)
    save(follows, *range(1, 10_001))
    settle(follows, clock)
    walk = Counting(follows)
    failed = build({"a": Away(0)}, cast("FollowStore", walk), DAY, random.Random(1), lambda records: None).failed
    assert isinstance(failed["a"], CatalogUnavailableError)
    assert walk.pages <= 2 * follows.shards(), "of each shard, one page and the next"


class NotAtChecks(Counting):
    """Its pins can be walked, and are looked up only once."""

    def __init__(self, follows: FollowStore) -> None:
        super().__init__(follows)
        self.looks = 0

    def pins(self, pins: Sequence[int]) -> dict[int, PinState]:
        self.looks += 1
        if self.looks > 1:
            raise FollowStoreUnavailableError("the database is away")
        return self._follows.pins(pins)


def test_a_follow_store_that_fails_at_a_check_keeps_no_other_cluster_from_its_build(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 11))
    settle(follows, clock)
    stores = {name: MemoryCatalog() for name in "ab"}
    walk = cast("FollowStore", NotAtChecks(follows))
    done, failed = build(stores, walk, DAY, random.Random(1), lambda records: None)
    assert ([*done], [*failed]) == (["a"], ["b"])
    assert isinstance(failed["b"], CatalogUnavailableError)
    assert "cannot be compared with the follow store: the database is away" in str(failed["b"])
    assert [[each.current for each in store.generations()] for store in stores.values()] == [[True], [False]]


def test_if_the_follow_store_fails_nothing_is_loaded(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 3_001))
    settle(follows, clock)
    stores = {"a": MemoryCatalog(), "b": MemoryCatalog()}
    with pytest.raises(FollowStoreUnavailableError):
        build(stores, cast("FollowStore", Counting(follows, 3)), DAY, random.Random(1), lambda records: None)
    assert not any(store.generations() for store in stores.values())


def test_a_build_that_the_delta_lacks_updates_for_is_to_be_built_again(follows: FollowStore, clock: Clock):
    store = MemoryCatalog()
    store.note_gap(clock.now_ms + DAY)
    with pytest.raises(CatalogUnavailableError, match="may be missing"):
        built(store, follows, clock)


def test_verify_names_each_difference(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 8))
    store = MemoryCatalog()
    made = built(store, follows, clock)
    records = store._records[made.id]
    del records[key_of(1)]
    records[key_of(2)] = records[key_of(3)]
    records[key_of(4)] = records[key_of(4)][:1] + b"\1" + records[key_of(4)][2:]
    delete(follows, 5)
    settle(follows, clock)
    comparison = PinComparison(store, follows, lambda done: None)
    assert [*comparison] == [
        PinDifference(1, "missing"),
        PinDifference(2, "differs"),
        PinDifference(4, "deleted"),
    ], "what was deleted later than the catalog knows is not compared"
    assert (comparison.compared, comparison.later, comparison.known_ms) == (6, 1, made.as_of_ms)
    store.note_known(made.as_of_ms)
    store.note_known(clock.now_ms)
    comparison = PinComparison(store, follows, lambda done: None)
    assert PinDifference(5, "alive") in [*comparison]
    assert (comparison.compared, comparison.later) == (7, 0)


def test_a_pin_that_is_deleted_while_it_is_compared_is_no_difference(follows: FollowStore, clock: Clock):
    save(follows, *range(1, 4))
    store = MemoryCatalog()
    built(store, follows, clock)

    class Deletes(MemoryCatalog):
        """The pin is deleted after its page was read, and the catalog hears of it at once."""

        def fetch(self, keys: Sequence[bytes], deadline_s: float | None = None) -> Fetched:
            settle(follows, clock)
            delete(follows, 2)
            settle(follows, clock)
            store.update([Update(key_of(2), clock.now_ms - 1, record_of(Pin(2, 7, 70, 1_002), deleted=True))])
            store.note_known(clock.now_ms)
            return store.fetch(keys, deadline_s)

    comparison = PinComparison(Deletes(), follows, lambda done: None)
    assert list(comparison) == []
    assert (comparison.compared, comparison.later) == (2, 1)


def test_a_sample_is_as_large_as_it_was_asked_for():
    sample = PinSample(random.Random(1), 10)
    sample.add(range(5))
    assert sorted(sample.pins) == [*range(5)]
    for start in range(5, 1_000, 7):
        sample.add(range(start, min(start + 7, 1_000)))
    assert len({*sample.pins}) == 10
    assert max(sample.pins) > 500


def test_each_pin_has_the_same_chance_to_be_in_a_sample():
    rng = random.Random(1)
    often: Counter[int] = Counter()
    for _ in range(2_000):
        sample = PinSample(rng, 5)
        for start in range(0, 20, 4):
            sample.add(range(start, start + 4))
        often.update(sample.pins)
    # 2,000 x 5 / 20 = 500 each; five standard deviations are 97.
    assert all(abs(often[pin] - 500) < 97 for pin in range(20))


def test_pages_of_shards_are_merged():
    def states(*pins: int) -> list[PinState]:
        return [PinState(Pin(each, 1, 1, 1), 1, None) for each in pins]

    shards = [iter([states(1, 4, 5), states(6, 30)]), iter([states(2), states(9)]), iter([]), iter([states(3, 7, 8)])]
    merged = [state.pin.pin for some in building._merged(shards) for state in some]
    assert merged == [1, 2, 3, 4, 5, 6, 7, 8, 9, 30]
