"""A batch from files, in one cluster or several, and what keeps a suspicious one from being used."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from feedstore.catalog.port import CatalogRefusedError, CatalogStore, CatalogUnavailableError, Generation
from tests.catalog.catalog_adapters import Clock, in_files
from tests.catalog.memory_catalog import MemoryCatalog
from workers.catalog.load import SuspiciousGenerationError, load
from workers.catalog.side_by_side import Entry

A, B = b"a", b"b"


class Away(MemoryCatalog):
    def trail(self) -> list[str]:
        raise CatalogUnavailableError("away")


def loaded(store: CatalogStore, as_of_ms: int, *entries: Entry, force: bool = False) -> str:
    """Loads in one cluster. Raises the error of the load, if there is one."""
    done, failed = load({"a": store}, as_of_ms, entries, force=force)
    for error in failed.values():
        raise error
    return done["a"].id


def current(store: CatalogStore) -> list[str]:
    return [each.id for each in store.generations() if each.current]


def test_one_batch_is_read_once_and_in_use_in_every_cluster():
    stores = {name: MemoryCatalog() for name in "abc"}
    done, failed = load(stores, 10, iter([(A, b"1"), (B, b"2")]))
    assert not failed
    assert {name: current(store) for name, store in stores.items()} == {name: [each.id] for name, each in done.items()}
    assert [(each.current, each.used, each.records) for each in done.values()] == [(True, True, 2)] * 3


def test_a_cluster_that_is_away_keeps_no_other_from_its_load():
    well = MemoryCatalog()
    done, failed = load({"a": Away(), "b": well}, 10, [(A, b"1")])
    assert current(well) == [done["b"].id]
    assert [*failed] == ["a"]
    assert isinstance(failed["a"], CatalogUnavailableError)


def test_a_batch_is_not_read_if_no_cluster_takes_it():
    store = MemoryCatalog()
    later = loaded(store, 11)
    _, failed = load({"a": store}, 10, unread())
    assert isinstance(failed["a"], SuspiciousGenerationError)
    assert "is as of 11, which is later" in str(failed["a"])
    assert current(store) == [later]


def unread() -> Iterator[Entry]:
    pytest.fail("it was read")
    yield A, b""


def test_if_a_batch_cannot_be_read_nothing_is_in_use():
    def damaged() -> Iterator[Entry]:
        yield A, b"1"
        raise CatalogRefusedError("line 2")

    stores = {name: MemoryCatalog() for name in "ab"}
    with pytest.raises(CatalogRefusedError, match="line 2"):
        load(stores, 10, damaged())
    assert not any(store.generations() for store in stores.values())


@pytest.mark.parametrize("force", [False, True])
def test_a_slow_load_does_not_replace_a_later_batch_that_came_into_use_meanwhile(force: bool):
    """Two batch jobs at once: the earlier batch takes longer."""
    store = MemoryCatalog()
    later: list[str] = []

    def slow() -> Iterator[Entry]:
        later.append(loaded(store, 20, (A, b"later")))
        yield A, b"earlier"

    done, failed = load({"a": store}, 10, slow(), force=force)
    assert [*failed] == ([] if force else ["a"])
    assert current(store) == ([done["a"].id] if force else later)
    assert store.rollbacks() == force


class Racing:
    """A store in which another load ends while its generations are looked at for the first time."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self.later: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def generations(self) -> list[Generation]:
        if not self.later:
            self.later.append(loaded(self._store, 30, (A, b"later")))
        return self._store.generations()


@pytest.mark.parametrize("is_in_files", [False, True])
def test_of_two_loads_that_end_at_once_the_later_batch_stays_in_use(tmp_path: Path, is_in_files: bool):
    with closing(in_files(tmp_path, Clock()).store() if is_in_files else MemoryCatalog()) as store:
        loaded(store, 10, (A, b"first"))
        racing = Racing(store)
        _, failed = load({"a": cast("CatalogStore", racing)}, 20, [(A, b"earlier")])
        assert "is as of 30, which is later" in str(failed["a"])
        assert current(store) == racing.later
        assert store.rollbacks() == 0


def test_a_batch_of_the_same_time_replaces_the_other():
    store = MemoryCatalog()
    loaded(store, 10, (A, b"1"))
    assert [loaded(store, 10, (A, b"2"))] == current(store)


def test_a_much_smaller_batch_is_not_used_unless_it_is_forced():
    store = MemoryCatalog()
    first = loaded(store, 10, (A, b"1"), (B, b"1"))
    with pytest.raises(SuspiciousGenerationError, match="has 1 records, the current one has 2"):
        loaded(store, 11, (A, b"1"))
    assert current(store) == [first]
    assert [loaded(store, 11, (A, b"1"), force=True)] == current(store)


def test_a_batch_that_the_delta_lacks_updates_for_is_refused():
    store = MemoryCatalog()
    store.note_gap(20)
    with pytest.raises(CatalogRefusedError, match="updates up to 20 may be missing"):
        loaded(store, 19)


def test_a_forced_batch_mends_a_catalog_of_which_it_is_not_known_what_is_in_use(tmp_path: Path):
    place = in_files(tmp_path, Clock())
    with closing(place.store()) as store:
        loaded(store, 10, (A, b"1"))
        [pointer] = tmp_path.glob("*/*/CURRENT")
        pointer.write_text("{")
        with pytest.raises(CatalogUnavailableError, match="CURRENT is damaged"):
            loaded(store, 11, (A, b"2"))
        assert [loaded(store, 11, (A, b"2"), force=True)] == current(store)
        assert store.fetch([A]).records == {A: b"2"}


def description_is_cut(generation: Path) -> None:
    (generation / "generation.json").write_text("{")


def records_are_gone(generation: Path) -> None:
    next(generation.glob("*.sst")).unlink()


@pytest.mark.parametrize("damage", [description_is_cut, records_are_gone])
def test_the_same_batch_again_mends_the_generation_in_use(tmp_path: Path, damage: Callable[[Path], None]):
    place = in_files(tmp_path, Clock())
    with closing(place.store()) as store:
        name = loaded(store, 10, (A, b"1"))
    [generation] = tmp_path.glob(f"*/*/gen-{name}")
    damage(generation)
    with closing(place.store()) as store:
        assert loaded(store, 10, (A, b"1")) == name
        assert store.fetch([A]).records == {A: b"1"}
