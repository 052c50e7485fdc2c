"""The rule under random schedules: always what the source says. Each guard that is taken out is found.

`python -m tests.catalog --seed N` replays a seed with its history.
"""

from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from feedstore.catalog.port import CatalogRefusedError, CatalogStore, Update
from tests.catalog.catalog_adapters import ADAPTERS, EMBEDDED, Clock
from tests.catalog.catalog_mutants import FOUND_BY, MUTANTS, NO_FLOOR
from tests.catalog.schedules import Mutant, World, patched, simulate
from tests.effort import FULL

_RUNS = {"memory": 20_000 if FULL else 300, "rocksdb": 60 if FULL else 3}
_RUNS_ON_SERVERS = 10 if FULL else 2
_A_FEW = 20_000 if FULL else 30

A = b"a"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("adapter", _RUNS)
def test_under_any_schedule_each_answer_is_what_the_source_says(adapter: str):
    for seed in range(_RUNS[adapter]):
        outcome = simulate(seed, adapter)
        assert outcome.failure is None, f"python -m tests.catalog --adapter {adapter} --seed {seed}: {outcome.failure}"


@pytest.mark.stack
@pytest.mark.xdist_group("catalog")
@pytest.mark.usefixtures("hbase")
def test_under_any_schedule_each_answer_on_servers_is_what_the_source_says():
    for seed in range(_RUNS_ON_SERVERS):
        outcome = simulate(seed, "hbase")
        assert outcome.failure is None, "\n".join([*outcome.history, f"seed {seed}: {outcome.failure}"])


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda each: each.name)
def test_a_guard_that_was_removed_is_found(mutant: Mutant):
    seeds = range(_A_FEW) if FULL else chain([FOUND_BY[mutant.name]], range(_A_FEW))
    found = next((seed for seed in seeds if simulate(seed, mutant=mutant).failure is not None), None)
    if found is None and not FULL:
        pytest.skip("the known seed finds it no more: python -m tests.catalog --all --runs 20000")
    assert found is not None, mutant.what
    assert simulate(found).failure is None


# Schedules that hardly any seed takes. Each returns whether the key has its last record
# --------------------------------------------------------------------------------------------------------------------


def a_late_repeat_after_a_collection(store: CatalogStore) -> bool:
    store.update([Update(A, 10, b"1"), Update(A, 20, b"2")])
    store.use(store.load(25, [(A, b"2")]).id)
    assert store.collect(1).entries == 1
    store.update([Update(A, 10, b"1")])
    return store.fetch([A]).records == {A: b"2"}


def a_collection_while_an_older_generation_is_kept(store: CatalogStore) -> bool:
    old = store.load(10, [(A, b"1")]).id
    store.update([Update(A, 20, b"2")])
    store.use(store.load(25, [(A, b"2")]).id)
    store.collect(2)
    store.use(old)
    return store.fetch([A]).records == {A: b"2"}


def a_batch_that_began_before_a_collection(store: CatalogStore) -> bool:
    store.update([Update(A, 20, b"2")])
    store.use(store.load(25, [(A, b"2")]).id)
    store.collect(1)
    try:
        store.use(store.load(15, [(A, b"1")]).id)
    except CatalogRefusedError:
        return True
    return store.fetch([A]).records == {A: b"2"}


DIRECTED = [
    ("delta_wins_always", a_late_repeat_after_a_collection),
    ("floor_of_current", a_collection_while_an_older_generation_is_kept),
    ("collects_too_young", a_collection_while_an_older_generation_is_kept),
    ("floor_not_checked", a_batch_that_began_before_a_collection),
    ("no_floor", a_batch_that_began_before_a_collection),
]


@pytest.mark.parametrize("adapter", EMBEDDED)
@pytest.mark.parametrize(
    "schedule", dict.fromkeys(schedule for _, schedule in DIRECTED), ids=lambda each: each.__name__
)
def test_schedules_that_hardly_any_seed_takes(tmp_path: Path, adapter: str, schedule: Callable[[CatalogStore], bool]):
    with closing(ADAPTERS[adapter](tmp_path, Clock()).store()) as store:
        store.note_known(5)
        assert schedule(store)


@pytest.mark.parametrize(("name", "schedule"), DIRECTED)
def test_they_find_the_guards_that_were_removed(tmp_path: Path, name: str, schedule: Callable[[CatalogStore], bool]):
    world = _Watched(tmp_path)
    with patched((MUTANTS | {NO_FLOOR.name: NO_FLOOR})[name].patches(world)):
        world.owner.note_known(5)
        assert not schedule(world.owner)


class _Watched(World):
    """A world of which only the store is used. current: of the store."""

    def __init__(self, scratch: Path) -> None:
        self.owner = ADAPTERS["memory"](scratch, Clock()).store()

    @property
    def current(self) -> str | None:
        return self.owner._current
