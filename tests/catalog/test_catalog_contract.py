"""Every promise of the port, asked of every adapter."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import permutations, product

import pytest

from feedstore.catalog.port import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_RECORD_BYTES,
    MAX_SOURCES,
    MAX_TIME_MS,
    BeingBuiltError,
    CatalogReader,
    CatalogRefusedError,
    CatalogStore,
    CatalogUnavailableError,
    Fetched,
    InUse,
    NoGenerationError,
    Update,
)
from tests.catalog.catalog_adapters import Clock, Place
from tests.effort import part
from tests.threads import running

Fetch = Callable[..., Fetched]

A, B, C, D = b"a", b"b", b"c", b"d"


def loaded(store: CatalogStore, as_of_ms: int, **records: bytes) -> str:
    return store.load(as_of_ms, [(key.encode(), record) for key, record in sorted(records.items())]).id


def used(store: CatalogStore, as_of_ms: int, **records: bytes) -> str:
    name = loaded(store, as_of_ms, **records)
    store.use(name)
    return name


# ---- generations


def test_nothing_is_in_use_before_the_first_use(store: CatalogStore, reader: CatalogReader):
    for catalog in (store, reader):
        with pytest.raises(NoGenerationError):
            catalog.fetch([A])
        assert catalog.generations() == []
    loaded(store, 10, a=b"1")
    for catalog in (store, reader):
        with pytest.raises(NoGenerationError):
            catalog.fetch([A])
        assert [each.current for each in catalog.generations()] == [False]


def test_a_generation_in_use_is_what_fetches_read(store: CatalogStore, fetch: Fetch):
    name = used(store, 10, a=b"1", b=b"")
    assert fetch(A, B, C) == Fetched({A: b"1", B: b""}, name, 10)
    assert fetch() == Fetched({}, name, 10)


def test_a_check_opens_what_is_in_use(place: Place, store: CatalogStore):
    with pytest.raises(NoGenerationError):
        store.check()
    used(store, 10, a=b"1")
    with closing(place.reader()) as reader:
        reader.check()
    if not place.is_durable:
        return
    place.lose()
    with closing(place.reader()) as reader, pytest.raises(CatalogUnavailableError) as raised:
        reader.check()
    assert not isinstance(raised.value, NoGenerationError), "that would be no fault"


def test_the_same_batch_again_mends_what_was_lost(place: Place, store: CatalogStore, reader: CatalogReader):
    name = used(store, 10, a=b"1")
    assert reader.fetch([A]).records == {A: b"1"}
    place.lose()
    used(store, 10, a=b"1")
    for catalog in (store, reader):
        assert catalog.fetch([A]) == Fetched({A: b"1"}, name, 10), "at once, also where it was open"
    assert [each.id for each in store.generations()] == [name]


def test_the_same_key_may_be_asked_for_twice(store: CatalogStore, fetch: Fetch):
    used(store, 10, a=b"1")
    assert fetch(A, A, B, B).records == {A: b"1"}


def test_generations_are_listed_oldest_first(store: CatalogStore, reader: CatalogReader):
    names = [loaded(store, as_of, a=b"1", b=b"2") for as_of in (30, 10, 20)]
    store.use(names[0])
    for catalog in (store, reader):
        listed = catalog.generations()
        assert [each.id for each in listed] == [names[1], names[2], names[0]]
        assert [(each.as_of_ms, each.records, each.current) for each in listed] == [
            (10, 2, False),
            (20, 2, False),
            (30, 2, True),
        ]
        assert {each.id.partition("-")[2] for each in listed} == {listed[0].sha256[:16]}


def test_loading_the_same_again_is_the_same_generation(store: CatalogStore):
    first = store.load(10, [(A, b"1")])
    store.use(first.id)
    assert store.load(10, [(A, b"1")]) == first._replace(current=True, used=True)
    assert store.load(10, [(A, b"2")]).id != first.id
    assert len(store.generations()) == 2


def test_a_generation_says_how_long_it_took_to_load(place: Place, store: CatalogStore, clock: Clock):
    def slow() -> Iterator[tuple[bytes, bytes]]:
        clock.pass_s(3)
        yield A, b"1"

    loaded_now = store.load(10, slow())
    assert loaded_now.took_ms == (3_000 if place.is_durable else 0)
    assert store.generations() == [loaded_now]


def test_an_empty_generation_is_one(store: CatalogStore, fetch: Fetch):
    name = used(store, 10)
    assert fetch(A) == Fetched({}, name, 10)
    assert store.generations()[0].records == 0


def test_a_swap_and_a_rollback_are_one_call(store: CatalogStore, fetch: Fetch):
    old, new = loaded(store, 10, a=b"old"), loaded(store, 20, a=b"new")
    for name, record in [(old, b"old"), (new, b"new"), (old, b"old"), (new, b"new")]:
        store.use(name)
        assert fetch(A).records == {A: record}
        assert fetch(A).generation == name


def test_a_use_may_depend_on_what_is_in_use(store: CatalogStore, fetch: Fetch):
    first, second = loaded(store, 10, a=b"1"), loaded(store, 20, a=b"2")
    assert store.in_use() == InUse(None, 0)
    assert store.use(first, InUse(None, 0))
    assert not store.use(second, InUse(None, 0))
    assert fetch(A).generation == first
    assert store.use(second, store.in_use())
    before = store.in_use()
    store.use(first)
    store.use(second)
    third = loaded(store, 30, a=b"3")
    assert not store.use(third, before), "it was rolled back meanwhile, and came into use again"
    assert fetch(A).generation == second
    assert store.use(third)


def test_it_is_counted_whenever_a_generation_comes_into_use_that_is_not_later(
    store: CatalogStore, reader: CatalogReader, fetch: Fetch
):
    assert (store.rollbacks(), reader.rollbacks()) == (0, 0)
    old, new, other = loaded(store, 10, a=b"old"), loaded(store, 20, a=b"new"), loaded(store, 20, a=b"other")
    steps = [(old, 0), (old, 0), (new, 0), (new, 0), (old, 1), (new, 1), (other, 2), (new, 3), (old, 4)]
    for name, expected in steps:
        store.use(name)
        assert fetch(A).generation == name
        assert (store.rollbacks(), reader.rollbacks()) == (expected, expected), name


def test_the_trail_is_what_came_into_use_and_was_not_rolled_back(store: CatalogStore):
    assert store.trail() == []
    first, second, third, other = (loaded(store, as_of, a=b"%d" % as_of) for as_of in (10, 20, 30, 40))
    assert store.trail() == []
    steps = [
        (second, [second]),
        (third, [second, third]),
        (third, [second, third]),
        (second, [second]),
        (other, [second, other]),
        (third, [second, third]),
        (first, [first]),
    ]
    for name, expected in steps:
        store.use(name)
        assert store.trail() == expected


@pytest.mark.parametrize(
    "name", ["", "10", "10-0000000000000000", "../gen-10-0000000000000000", "10-0000000000000000/..", "delta"]
)
def test_a_generation_that_is_not_there_is_refused(store: CatalogStore, fetch: Fetch, name: str):
    current = used(store, 10, a=b"1")
    with pytest.raises(CatalogRefusedError):
        store.use(name)
    assert fetch(A).generation == current


@pytest.mark.parametrize(
    "records",
    [
        [(B, b""), (A, b"")],
        [(A, b""), (A, b"")],
        [(b"", b"")],
        [(A, b""), (b"b" * (MAX_KEY_BYTES + 1), b"")],
        [(A, bytes(MAX_RECORD_BYTES + 1))],
        [(A, bytes(MAX_RECORD_BYTES + 1)), (B, b"")],
    ],
)
def test_a_load_of_other_records_is_refused_and_leaves_nothing(store: CatalogStore, records: list[tuple[bytes, bytes]]):
    with pytest.raises(CatalogRefusedError):
        store.load(10, records)
    assert store.generations() == []


@pytest.mark.parametrize("as_of_ms", [-1, 0, MAX_TIME_MS + 1])
def test_a_load_with_another_time_is_refused(store: CatalogStore, as_of_ms: int):
    with pytest.raises(CatalogRefusedError):
        store.load(as_of_ms, [])


def test_a_load_whose_source_fails_leaves_nothing(store: CatalogStore):
    def failing() -> Iterator[tuple[bytes, bytes]]:
        yield A, b"1"
        raise LookupError("the source")

    with pytest.raises(LookupError, match="the source"):
        store.load(10, failing())
    assert store.generations() == []


def test_the_largest_keys_and_records_are_kept(store: CatalogStore, fetch: Fetch):
    key, record = b"\xff" * MAX_KEY_BYTES, bytes(range(256)) * (MAX_RECORD_BYTES // 256)
    store.use(store.load(MAX_TIME_MS - 1, [(b"\0", b"\0"), (key, record)]).id)
    store.update([Update(b"\0" * MAX_KEY_BYTES, MAX_TIME_MS, record)])
    assert fetch(key, b"\0", b"\0" * MAX_KEY_BYTES).records == {
        key: record,
        b"\0": b"\0",
        b"\0" * MAX_KEY_BYTES: record,
    }


def test_many_records_come_back(store: CatalogStore, fetch: Fetch):
    records = [(number.to_bytes(4, "big"), str(number).encode() * 7) for number in range(30_000)]
    store.use(store.load(10, iter(records)).id)
    chosen = dict(records[::37])
    assert fetch(*chosen).records == chosen


# ---- updates


def test_an_update_wins_if_it_is_later_than_the_generation(store: CatalogStore, fetch: Fetch):
    used(store, 10, a=b"1", b=b"1", c=b"1")
    store.update([Update(A, 11, b"2"), Update(B, 10, b"2"), Update(C, 9, b"2"), Update(D, 11, b"2")])
    assert fetch(A, B, C, D).records == {A: b"2", B: b"1", C: b"1", D: b"2"}


def test_a_deletion_is_an_update(store: CatalogStore, fetch: Fetch):
    used(store, 10, a=b"1", b=b"1")
    store.update([Update(A, 11, None), Update(B, 10, None)])
    assert fetch(A, B, C) == Fetched({B: b"1"}, fetch().generation, 10)


def test_updates_in_any_order_and_again_say_the_same(store: CatalogStore, fetch: Fetch):
    used(store, 5, a=b"1")
    updates = [(10, b"x"), (11, None), (12, b"z")]
    for number, order in enumerate(permutations(updates)):
        key = bytes([number])
        for time_ms, record in (*order, *order):
            store.update([Update(key, time_ms, record)])
        store.update([Update(b"in one" + key, *each) for each in (*order, *order)])
    keys = [prefix + bytes([number]) for number, prefix in product(range(6), (b"", b"in one"))]
    assert fetch(*keys).records == dict.fromkeys(keys, b"z")


@pytest.mark.parametrize("deleted_first", [True, False])
def test_at_equal_times_the_deletion_wins(store: CatalogStore, fetch: Fetch, deleted_first: bool):
    used(store, 5)
    updates = [Update(A, 10, None), Update(A, 10, b"x")]
    for update in updates if deleted_first else reversed(updates):
        store.update([update])
    assert fetch(A).records == {}


def test_an_update_holds_for_every_generation(store: CatalogStore, fetch: Fetch):
    names = [loaded(store, as_of, a=str(as_of).encode()) for as_of in (10, 20, 30)]
    store.update([Update(A, 25, b"new")])
    for name, record in zip(names, (b"new", b"new", b"30"), strict=True):
        store.use(name)
        assert fetch(A).records == {A: record}


@pytest.mark.parametrize(
    "update",
    [
        Update(b"", 1, b""),
        Update(b"x" * (MAX_KEY_BYTES + 1), 1, b""),
        Update(A, 0, b""),
        Update(A, MAX_TIME_MS + 1, b""),
        Update(A, 1, bytes(MAX_RECORD_BYTES + 1)),
    ],
)
def test_an_update_that_is_refused_takes_the_others_with_it(store: CatalogStore, fetch: Fetch, update: Update):
    used(store, 5)
    with pytest.raises(CatalogRefusedError):
        store.update([Update(B, 10, b"x"), update])
    assert fetch(B).records == {}


def test_calls_have_bounds(store: CatalogStore, fetch: Fetch):
    used(store, 5)
    keys = [number.to_bytes(2, "big") for number in range(MAX_KEYS)]
    store.update([Update(key, 10, key) for key in keys])
    assert fetch(*keys).records == {key: key for key in keys}
    with pytest.raises(CatalogRefusedError):
        store.fetch([*keys, A])
    with pytest.raises(CatalogRefusedError):
        store.update([Update(key, 10, key) for key in [*keys, A]])
    for key in (b"", b"x" * (MAX_KEY_BYTES + 1)):
        for asked in ([key], [A, key]):
            with pytest.raises(CatalogRefusedError):
                store.fetch(asked)
    store.update([])


# ---- known times


def test_known_is_the_later_of_delta_and_generation(store: CatalogStore, fetch: Fetch):
    store.note_known(10)
    used(store, 20)
    assert fetch().known_ms == 20
    store.note_known(30)
    assert fetch().known_ms == 30
    store.note_known(25)
    assert fetch().known_ms == 30
    used(store, 40)
    assert fetch().known_ms == 40


def test_a_new_delta_knows_nothing_from_before_it_began(store: CatalogStore, fetch: Fetch, reader: CatalogReader):
    assert store.delta() == reader.delta() == (0, 0, 0)
    old = used(store, 10, a=b"1")
    store.note_known(20)
    store.note_known(30)
    assert store.delta()[:2] == (20, 30)
    assert fetch().known_ms == 10
    with pytest.raises(CatalogRefusedError, match="20"):
        store.load(19, [])
    store.use(loaded(store, 20))
    assert fetch().known_ms == 30
    store.use(old)
    assert fetch(A) == Fetched({A: b"1"}, old, 10)
    assert reader.delta()[:2] == (20, 30)


def test_a_gap_is_a_floor(store: CatalogStore, fetch: Fetch):
    store.note_known(5)
    used(store, 10, a=b"1")
    store.note_known(30)
    store.note_gap(25)
    store.note_gap(15)
    assert store.delta()[:2] == (25, 30)
    assert fetch().known_ms == 10
    store.note_known(40)
    assert fetch().known_ms == 10
    with pytest.raises(CatalogRefusedError):
        store.load(24, [])
    store.use(loaded(store, 25))
    assert fetch().known_ms == 40


def test_a_gap_before_anything_is_known_stays(store: CatalogStore):
    store.note_gap(25)
    store.note_known(20)
    assert store.delta()[:2] == (25, 20)


def test_known_is_what_every_source_has_noted(store: CatalogStore, reader: CatalogReader):
    """Several processes may note times, each of them those that it hears."""
    store.note_known(10, 0, 2)
    assert store.delta().known_ms == 0
    store.note_known(12, 1, 2)
    assert store.delta().known_ms == reader.delta().known_ms == 10
    store.note_known(20, 0, 2)
    assert store.delta().known_ms == 12
    store.note_known(11, 1, 2)
    assert store.delta().known_ms == 12
    store.note_known(19, 1, 2)
    assert store.delta().known_ms == 19


def test_a_delta_whose_sources_note_the_first_moment_lacks_nothing(store: CatalogStore, reader: CatalogReader):
    for source in range(2):
        store.note_known(1, source, 2)
    assert store.delta()[:2] == reader.delta()[:2] == (1, 1)
    store.note_known(30, 0, 2)
    store.note_known(20, 1, 2)
    assert store.delta()[:2] == (1, 20)
    used(store, 2)


def test_known_does_not_go_back_if_there_are_more_sources(store: CatalogStore):
    store.note_known(10)
    store.note_known(12, 0, 2)
    assert store.delta().known_ms == 10
    store.note_known(13, 1, 2)
    assert store.delta().known_ms == 12
    for source in range(3):
        store.note_known(20 + source, source, 4)
        assert store.delta().known_ms == 12
    store.note_known(11, 3, 4)
    assert store.delta().known_ms == 12
    store.note_known(30, 3, 4)
    assert store.delta().known_ms == 20


def test_a_new_delta_knows_nothing_from_before_its_last_source_began(store: CatalogStore, fetch: Fetch):
    used(store, 29)
    store.note_known(20, 0, 2)
    store.note_known(30, 1, 2)
    assert store.delta()[:2] == (30, 20)
    store.note_known(40, 0, 2)
    store.note_known(50, 1, 2)
    assert store.delta()[:2] == (30, 40)
    assert fetch().known_ms == 29
    used(store, 30)
    assert fetch().known_ms == 40


@pytest.mark.parametrize(("source", "sources"), [(-1, 1), (1, 1), (0, 0), (0, MAX_SOURCES + 1)])
def test_a_source_that_cannot_be_is_refused(store: CatalogStore, source: int, sources: int):
    with pytest.raises(CatalogRefusedError):
        store.note_known(10, source, sources)


@pytest.mark.parametrize("time_ms", [0, MAX_TIME_MS + 1])
def test_times_have_bounds(store: CatalogStore, time_ms: int):
    for note in (store.note_known, store.note_gap):
        with pytest.raises(CatalogRefusedError):
            note(time_ms)


# ---- collections


def test_the_latest_generations_and_the_current_one_are_kept(store: CatalogStore, reader: CatalogReader, fetch: Fetch):
    names = [loaded(store, as_of, a=str(as_of).encode()) for as_of in (10, 20, 30, 40)]
    store.use(names[0])
    assert store.collect(2).generations == [names[1]]
    for catalog in (store, reader):
        assert [each.id for each in catalog.generations()] == [names[0], *names[2:]]
    with pytest.raises(CatalogRefusedError):
        store.use(names[1])
    assert fetch(A).records == {A: b"10"}
    store.use(names[3])
    assert store.collect(1).generations == [names[0], names[2]]
    assert store.collect(1) == ([], 0)
    assert fetch(A).records == {A: b"40"}


def test_generations_that_were_never_in_use_take_no_place_from_those_that_were(store: CatalogStore):
    oldest, old, new = (used(store, as_of, a=b"%d" % as_of) for as_of in (10, 20, 30))
    refused = [loaded(store, as_of, a=b"") for as_of in (40, 50, 60)]
    assert store.collect(2).generations == [oldest, refused[0]]
    assert store.trail() == [old, new]
    store.use(old)
    assert store.collect(1).generations == [new, refused[1]]
    assert store.trail() == [old]


def test_a_collection_takes_what_every_kept_generation_has(store: CatalogStore, fetch: Fetch):
    store.note_known(5)
    for as_of in (10, 20, 30):
        loaded(store, as_of, a=str(as_of).encode())
    store.use(store.generations()[-1].id)
    store.update([Update(bytes([time_ms]), time_ms, b"x") for time_ms in (9, 10, 19, 20, 21, 30, 31)])
    assert store.collect(3) == ([], 2)
    assert store.delta()[0] == 10
    assert store.collect(2).entries == 2
    assert store.delta()[0] == 20
    middle = store.generations()[0]
    store.use(middle.id)
    assert {*fetch(*(bytes([time_ms]) for time_ms in (9, 20, 21, 30, 31))).records} == {b"\x15", b"\x1e", b"\x1f"}
    with pytest.raises(CatalogRefusedError, match="20"):
        store.load(19, [])


def test_a_collection_without_generations_takes_no_update(store: CatalogStore, fetch: Fetch):
    store.update([Update(A, 10, b"x")])
    assert store.collect(1) == ([], 0)
    used(store, 5)
    assert fetch(A).records == {A: b"x"}


def test_a_collection_removes_all_old_updates_however_many_there_are(store: CatalogStore, fetch: Fetch):
    keys = [number.to_bytes(2, "big") for number in range(2_600)]
    for start in range(0, len(keys), MAX_KEYS):
        store.update([Update(key, 10 + index % 2, b"") for index, key in enumerate(keys[start : start + MAX_KEYS])])
    store.use(store.load(10, [(A, b"")]).id)
    assert store.collect(1).entries == 1_300
    assert store.collect(1).entries == 0
    assert {*fetch(*keys[:MAX_KEYS]).records} == {*keys[1:MAX_KEYS:2]}


def test_a_collection_leaves_what_a_load_needs(store: CatalogStore, fetch: Fetch):
    used(store, 30, a=b"1")
    store.update([Update(A, 20, b"x"), Update(B, 20, b"x"), Update(C, 10, b"x")])

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield A, b"0"
        assert store.collect(1) == ([], 1)
        assert store.delta()[0] == 15

    old = store.load(15, records())
    store.use(old.id)
    assert fetch(A, B, C).records == {A: b"x", B: b"x"}


def test_a_late_repeat_after_a_collection_is_not_shown(store: CatalogStore, fetch: Fetch):
    store.update([Update(A, 10, b"1")])
    store.update([Update(A, 20, b"2")])
    used(store, 25, a=b"2")
    assert store.collect(1).entries == 1
    store.update([Update(A, 10, b"1")])
    assert fetch(A).records == {A: b"2"}


@pytest.mark.parametrize("keep", [-1, 0])
def test_a_collection_keeps_one_at_least(store: CatalogStore, keep: int):
    with pytest.raises(CatalogRefusedError):
        store.collect(keep)


def test_a_fetch_is_by_one_generation(store: CatalogStore, reader: CatalogReader, clock: Clock):
    """Two keys are alike in every generation, and become other ones together."""
    keys = [A, B]
    names = [loaded(store, as_of, a=bytes([as_of]), b=bytes([as_of])) for as_of in (10, 20)]
    store.use(names[0])
    stop, begun, mixed, done = threading.Event(), threading.Semaphore(0), [], []

    def fetching(catalog: CatalogReader) -> None:
        count = 0
        while not stop.is_set():
            found = catalog.fetch(keys)
            if found.records != dict.fromkeys(keys, bytes([int(found.generation.partition("-")[0])])):
                mixed.append(found)
            count += 1
            if count == 1:
                begun.release()
        done.append(count)

    threads = [threading.Thread(target=fetching, args=[catalog]) for catalog in (store, reader) * part(10)]
    with running(threads, stop):
        for _ in threads:
            assert begun.acquire(timeout=60)
        for number in range(part(200)):
            store.use(names[number % 2])
            clock.pass_s(0.6)
            reader.fetch(keys)
    assert mixed == []
    assert len(done) == len(threads)
    assert all(done)


def test_a_look_at_a_generation_sees_no_updates(store: CatalogStore):
    current = used(store, 10, a=b"1")
    other = loaded(store, 20, a=b"2", b=b"2")
    store.update([Update(A, 30, b"3"), Update(C, 30, b"3")])
    assert store.look(current, [A, B, C]) == {A: b"1"}
    assert store.look(other, [A, B, C]) == {A: b"2", B: b"2"}
    with pytest.raises(CatalogRefusedError):
        store.look(other.replace("20-", "30-"), [A])
    with pytest.raises(CatalogRefusedError):
        store.look(other, [b""])


# ---- restarts


def test_what_was_done_is_there_after_a_restart(place: Place):
    if not place.is_durable:
        pytest.skip("ends with its process")
    first = place.store()
    name = used(first, 10, a=b"1", b=b"1")
    first.update([Update(A, 20, b"2"), Update(B, 20, None)])
    first.note_known(5)
    first.note_known(30)
    first.note_known(40, 0, 2)
    first.use(loaded(first, 5))
    first.use(name)
    before = first.fetch([A, B, C]), first.generations(), first.delta()
    first.close()
    again = place.store()
    assert (again.fetch([A, B, C]), again.generations(), again.delta()) == before
    assert before[0] == Fetched({A: b"2"}, name, 30)
    again.note_known(35, 1, 2)
    assert again.delta().known_ms == 35
    assert again.rollbacks() == 1
    again.close()


# ---- one builder at a time


def test_of_two_that_build_the_second_is_told_who_builds_and_since_when(place: Place, store: CatalogStore):
    other = place.store()
    try:
        with store.building("the first"):
            with (
                pytest.raises(BeingBuiltError, match="the first is building it, since ") as caught,
                other.building("x"),
            ):
                pytest.fail("both build")
            assert caught.value.builder.who == "the first"
            name = other.load(10, [(A, b"1")]).id
            other.use(name)
        with other.building("the second"), pytest.raises(BeingBuiltError, match="the second"), store.building("x"):
            pytest.fail("both build")
    finally:
        if other is not store:
            other.close()
    assert store.fetch([A]).records == {A: b"1"}, "loads and swaps do not ask who builds"


def test_a_build_that_fails_is_over(store: CatalogStore):
    for _ in range(2):
        with pytest.raises(LookupError), store.building("it"):
            raise LookupError
