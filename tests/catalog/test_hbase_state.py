"""The state of a catalog in HBase, step by step, without a server."""

from collections.abc import Callable
from itertools import permutations

import msgspec
import pytest

from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase.state import GONE_MS, Building, Loading, Made, StoredState
from feedstore.catalog.port import BeingBuiltError, CatalogRefusedError, CatalogUnavailableError
from feedstore.catalog.rule import DEAD_LOAD_MS

NOW = 1_700_000_000_000


def loading(as_of_ms: int, began_ms: int = NOW) -> Loading:
    return Loading(f"cat.pins.{as_of_ms}-x", as_of_ms, began_ms)


def made(as_of_ms: int, content: str = "0" * 16, unique: str = "x") -> Made:
    return Made(f"{as_of_ms}-{content}", f"cat.pins.{as_of_ms}-{unique}", 1, content * 4)


def after(state: StoredState, *steps: Callable[[StoredState], StoredState]) -> StoredState:
    """Each step may be taken twice, because a process may not hear that its step was taken."""
    for step in steps:
        state = step(state)
        assert step(state) == state
    return state


def loaded(state: StoredState, *as_ofs_ms: int) -> StoredState:
    for each in as_ofs_ms:
        state = after(
            state,
            lambda state, each=each: states.announced(state, loading(each)),
            lambda state, each=each: states.finished(state, made(each), NOW),
        )
    return state


def test_generations_are_in_order_whichever_ends_first():
    for order in permutations((9, 10, 100)):
        assert [each.as_of_ms for each in loaded(StoredState(), *order).generations] == [9, 10, 100]


def building(build: str, beat: int = 0) -> Building:
    return Building(build, f"process {build}", NOW, beat)


def test_what_a_build_that_died_has_begun_to_load_goes_with_it():
    """Builds that die every ten minutes must not leave a hundred tables until they are a day old."""
    of_dead, other = Loading("cat.pins.20-x", 20, NOW, "1"), loading(30)
    state = after(
        StoredState(),
        lambda state: states.begun(state, building("1"), None),
        lambda state: states.announced(state, of_dead),
        lambda state: states.announced(state, other),
        lambda state: states.begun(state, building("2"), building("1")),
    )
    assert state.loading == (other,)
    assert states.removable(state, NOW + GONE_MS) == [of_dead.table]
    with pytest.raises(CatalogUnavailableError, match="it was removed"):
        states.finished(state, made(20), NOW)  # it was only slow
    failed = after(
        StoredState(),
        lambda state: states.begun(state, building("1"), None),
        lambda state: states.announced(state, of_dead),
        lambda state: states.ended(state, "1"),  # it could not say that its load had failed
    )
    assert states.begun(failed, building("2"), None).loading == ()


def test_one_builds_and_others_are_told_so():
    begun = after(StoredState(), lambda state: states.begun(state, building("1"), None))
    with pytest.raises(BeingBuiltError, match="process 1 is building it, since 2023-11-14 22:13:20 UTC"):
        states.begun(begun, building("2"), None)
    assert states.beaten(begun, "2") == begun
    assert states.beaten(begun, "1").building == building("1", beat=1)
    assert after(begun, lambda state: states.ended(state, "2")) == begun
    assert after(begun, lambda state: states.ended(state, "1")) == StoredState()


def test_only_who_said_nothing_since_is_taken_for_dead():
    begun = states.begun(StoredState(), building("1"), None)
    seen = begun.building
    taken = after(begun, lambda state: states.begun(state, building("2"), seen))
    assert taken.building == building("2")
    assert states.beaten(taken, "1") == states.ended(taken, "1") == taken, "it was not dead: it takes nothing back"
    with pytest.raises(BeingBuiltError, match="process 1"):
        states.begun(states.beaten(begun, "1"), building("2"), seen)
    with pytest.raises(BeingBuiltError, match="process 2"):
        states.begun(taken, building("3"), seen)


def test_a_load_and_a_collection_see_each_other():
    begun = states.used(loaded(StoredState(), 20), made(20).id)

    def announce(state: StoredState) -> StoredState:
        return states.announced(state, loading(15))

    first = after(begun, announce, lambda state: states.collected(state, 1, NOW))
    assert (first.floor_ms, states.limit_ms(first)) == (15, 15)
    last = states.collected(begun, 1, NOW)
    assert last.floor_ms == 20
    with pytest.raises(CatalogRefusedError, match="20"):
        announce(last)


def test_a_load_that_died_holds_down_the_floor_for_a_day():
    begun = states.announced(states.used(loaded(StoredState(), 20), made(20).id), loading(15))
    kept = states.collected(begun, 1, NOW + DEAD_LOAD_MS)
    assert (kept.floor_ms, kept.loading) == (15, (loading(15),))
    collected = after(kept, lambda state: states.collected(state, 1, NOW + DEAD_LOAD_MS + 1))
    assert (collected.floor_ms, collected.loading) == (20, ())
    assert [each.table for each in collected.gone] == [loading(15).table]
    for unique in "xy":
        with pytest.raises(CatalogUnavailableError, match="a day"):
            states.finished(collected, made(15, unique=unique), NOW)


def test_the_same_generation_again_takes_the_place_of_what_may_be_damaged():
    begun = states.used(loaded(StoredState(), 10, 20), made(20).id)
    again = Loading("cat.pins.20-y", 20, NOW)
    ended = after(
        begun,
        lambda state: states.announced(state, again),
        lambda state: states.finished(state, made(20, unique="y"), NOW),
    )
    assert ended.in_use() == made(20, unique="y")
    assert (ended.generations, ended.trail) == ((made(10), made(20, unique="y")), begun.trail)
    assert ([each.table for each in ended.gone], ended.loading) == (["cat.pins.20-x"], ())
    assert after(ended, lambda state: states.finished(state, made(20), NOW)) == ended, "the first did not hear it ended"


def test_the_same_generation_from_a_load_that_seemed_dead_takes_no_place():
    there = loaded(StoredState(), 20)
    ended = after(there, lambda state: states.finished(state, made(20, unique="y"), NOW))
    assert ended.generations == there.generations
    assert [each.table for each in ended.gone] == ["cat.pins.20-y"], "it may have made it since it was removed"


def test_the_table_of_a_load_that_seemed_dead_is_removed_though_it_is_made_late():
    """Its process hung before it made the table. Meanwhile another one has removed the load, and found no table."""
    late = Loading("cat.pins.20-x", 20, NOW, "1")
    removed = after(
        StoredState(),
        lambda state: states.begun(state, building("1"), None),
        lambda state: states.announced(state, late),
        lambda state: states.begun(state, building("2"), building("1")),
        lambda state: states.forgotten(state, states.removable(state, NOW + GONE_MS)),
    )
    assert (removed.loading, removed.gone) == ((), ())
    with pytest.raises(CatalogUnavailableError, match="it was removed"):
        states.finished(removed, made(20), NOW)
    failed = after(removed, lambda state: states.abandoned(state, late.table, NOW))
    assert states.removable(failed, NOW + GONE_MS) == [late.table]


def test_the_table_of_a_generation_is_not_given_up_with_its_load():
    """The process did not hear that its load was noted as finished."""
    there = loaded(StoredState(), 20)
    assert states.abandoned(there, made(20).table, NOW) == there


def test_a_table_is_removed_once_no_fetch_that_began_before_can_read_it():
    begun = states.used(loaded(StoredState(), 10, 20), made(20).id)
    collected = after(begun, lambda state: states.collected(state, 1, NOW))
    assert collected.ids == [made(20).id]
    assert states.removable(collected, NOW + GONE_MS - 1) == []
    removable = states.removable(collected, NOW + GONE_MS)
    assert removable == [made(10).table]
    assert after(collected, lambda state: states.forgotten(state, removable)).gone == ()


def test_what_an_earlier_program_wrote_is_read():
    state = states.used(states.used(loaded(StoredState(), 10, 20), made(20).id), made(10).id)
    document = msgspec.json.decode(states.encoded(state))
    assert document.pop("rollbacks") == 1
    assert document.pop("noted") == [made(10).id]
    assert [each.pop("took_ms") for each in document["generations"]] == [0, 0]
    assert states.decoded(msgspec.json.encode(document)) == msgspec.structs.replace(state, rollbacks=0, noted=())


def test_before_uses_were_noted_all_generations_up_to_the_current_one_are_the_trail():
    state = loaded(StoredState(), 10, 20, 30)
    old = msgspec.structs.replace(states.used(state, made(20).id), noted=())
    assert old.trail == [made(10).id, made(20).id]
    assert states.used(old, made(30).id).trail == [made(10).id, made(20).id, made(30).id]


def test_what_a_later_program_adds_is_read():
    state = loaded(StoredState(floor_ms=5), 10)
    document = msgspec.json.decode(states.encoded(state))
    assert states.decoded(msgspec.json.encode({**document, "more": [1]})) == state
    for damaged in (b"", b"{", b'{"version":"x"}', b"\xff"):
        with pytest.raises(CatalogUnavailableError, match="cannot be read"):
            states.decoded(damaged)
