"""A builder in HBase that has died, and a table that is being made: in the tables of a model."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self
from unittest import mock

import pytest

from feedstore.catalog.hbase import state as states
from feedstore.catalog.hbase import tables
from feedstore.catalog.hbase.state import GONE_MS, Building
from feedstore.catalog.hbase.store import COUNT_EVERY_S, DEAD_AFTER_S, HBaseCatalogStore
from feedstore.catalog.hbase.tables import CATALOGS
from feedstore.catalog.port import CatalogUnavailableError, Delta, Update
from feedstore.catalog.rule import DEAD_LOAD_MS
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase import TableDefinition
from tests.catalog.catalog_adapters import Clock, as_cluster, reader_in, storage_in, store_in
from tests.catalog.hbase_model import ModelCluster, ModelRecords


def test_a_builder_that_died_is_found_out_by_the_next_one():
    model, clock = ModelCluster(), Clock()
    store = store_in(model, clock)
    store.use(store.load(10, []).id)
    storage_in(model, clock).row.change(
        lambda state: states.begun(state, Building("dead", "a process that died", 1), None)
    )
    before_s = clock.now_s
    with store.building("the next"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S)
    with store.building("the last"):
        assert clock.now_s - before_s == pytest.approx(DEAD_AFTER_S), "nothing to wait for"


def test_a_build_that_died_leaves_its_table_to_the_next_collection():
    model, clock = ModelCluster(), Clock()
    dead, store = (store_in(model, clock) for _ in range(2))

    def records() -> Iterator[tuple[bytes, bytes]]:
        clock.pass_s(DEAD_AFTER_S)
        with store.building("the next"):
            yield b"a", b"1"

    with pytest.raises(CatalogUnavailableError, match="it was removed"), dead.building("one that hangs"):
        dead.load(10, records())
    clock.pass_s(GONE_MS / 1_000)
    store.collect(1)
    assert [name for name in model.administration.cells if name != CATALOGS] == []


def test_one_of_several_workers_counts_the_updates():
    """That is a walk over all of them. It is repeated without anything to remove, so that a delta that grows shows."""
    cluster, clock = as_cluster(ModelCluster()), Clock()

    def worker(ahead_ms: int) -> HBaseCatalogStore:
        return HBaseCatalogStore(cluster, "pins", clock, lambda: clock.wall_ms + ahead_ms, clock.unique, clock.pass_s)

    stores = [worker(ahead_ms) for ahead_ms in (0, 900_000, -900_000)]
    meanwhile: list[HBaseCatalogStore] = []
    timestamps = ModelRecords.timestamps

    def slow(*arguments: Any) -> Any:
        clock.pass_s(20)
        while meanwhile:
            meanwhile.pop().collect(1)
        return timestamps(*arguments)

    with mock.patch.object(ModelRecords, "timestamps", autospec=True, side_effect=slow) as walked:
        for walks in (1, 2, 3):
            stores[0].update([Update(b"%d" % walks, 10, b"1")])
            meanwhile += stores[1:]
            for store in stores:
                store.collect(1)
            assert (walked.call_count, stores[0].delta().entries) == (walks, walks)
            clock.pass_s(COUNT_EVERY_S)


def test_a_walk_that_failed_is_made_by_the_next_collection():
    clock = Clock()
    store = store_in(ModelCluster(), clock)
    store.update([Update(b"a", 10, b"1")])
    store.use(store.load(20, []).id)
    with (
        mock.patch.object(ModelRecords, "timestamps", side_effect=UnavailableError("away")),
        pytest.raises(CatalogUnavailableError, match="away"),
    ):
        store.collect(1)
    assert store.collect(1).entries == 1


def test_a_walk_whose_worker_died_is_made_by_another_one():
    model, clock = ModelCluster(), Clock()
    dying, other = (store_in(model, clock) for _ in range(2))
    dying.update([Update(b"a", 10, b"1")])
    dying.use(dying.load(20, []).id)
    with mock.patch.object(ModelRecords, "timestamps", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        dying.collect(1)
    assert other.collect(1).entries == 0, "it may be under way"
    clock.pass_s(COUNT_EVERY_S)
    assert other.collect(1).entries == 1


def test_a_load_that_a_collection_has_removed_is_an_error_of_the_port():
    """The table of a load that counts as dead is still noted for a while."""
    clock = Clock()
    store = store_in(ModelCluster(), clock)

    def slow() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"1"
        clock.pass_s(DEAD_LOAD_MS / 1_000 + 1)
        store.collect(1)

    with pytest.raises(CatalogUnavailableError, match="it was removed: load it again"):
        store.load(10, slow())
    assert store.generations() == []


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.update([Update(b"a", 40, b"2")]),
        lambda store: store.note_gap(40),
        lambda store: store.note_known(40),
        lambda store: store.load(40, []),
    ],
    ids=["update", "note_gap", "note_known", "load"],
)
def test_a_table_that_was_removed_under_a_store_is_made_again(write: Callable[[HBaseCatalogStore], object]):
    """As a worker's: otherwise it would have to be restarted."""
    model, clock = ModelCluster(), Clock()
    store = store_in(model, clock)
    store.use(store.load(10, []).id)
    store.update([Update(b"a", 20, b"1")])
    model.administration.drop(CATALOGS)
    clock.pass_s(2)
    with pytest.raises(CatalogUnavailableError):
        write(store)
    write(store)
    assert model.administration.exists(CATALOGS)


def test_a_table_that_cannot_be_removed_holds_up_no_other_and_no_update():
    model, clock = ModelCluster(), Clock()
    store = store_in(model, clock)
    stuck, other, _ = (store.load(as_of_ms, []) for as_of_ms in (10, 20, 30))
    tables_of = {each.id: each.table for each in storage_in(model, clock).row.look().state.generations}
    store.collect(1)
    clock.pass_s(GONE_MS / 1_000)
    store.load(40, [])
    store.update([Update(b"a", 35, b"x")])
    drop = model.administration.drop

    def drops(table: str) -> None:
        if table == tables_of[stuck.id]:
            raise UnavailableError("its region is in transition")
        drop(table)

    with mock.patch.object(model.administration, "drop", drops), pytest.raises(CatalogUnavailableError, match="region"):
        store.collect(1)
    assert model.administration.exists(tables_of[stuck.id])
    assert not model.administration.exists(tables_of[other.id])
    assert model.records(CATALOGS).timestamps(b"", b"\xff", 10) == [], "the update is in the generation that is kept"
    store.collect(1)
    assert not model.administration.exists(tables_of[stuck.id])


def test_a_table_that_is_not_enabled_yet_is_not_an_empty_one():
    model, clock = ModelCluster(), Clock()
    reader = reader_in(model, clock)
    assert reader.delta() == Delta(0, 0, 0), "nothing was ever loaded or noted"
    store_in(model, clock).note_known(7)
    model.administration.not_enabled.add(CATALOGS)
    clock.pass_s(2)
    for call in (reader.generations, reader.delta, lambda: reader.fetch([b"a"])):
        with pytest.raises(CatalogUnavailableError, match="'catalogs' is not enabled: if a worker is making it"):
            call()
    model.administration.not_enabled.clear()
    assert reader.delta().known_ms == 7


def test_a_table_that_was_made_between_two_looks_is_read():
    model, clock = ModelCluster(), Clock()
    store_in(model, clock).note_known(7)
    model.administration.not_enabled.add(CATALOGS)

    def enabled(name: str, deadline_s: float | None = None) -> bool:
        model.administration.not_enabled.clear()
        return True

    with mock.patch.object(model.administration, "exists", enabled):
        assert reader_in(model, clock).delta().known_ms == 7


# Records that are read while their table is made
# --------------------------------------------------------------------------------------------------------------------


class Later:
    """An executor that does its work when the result is wanted: until then the table is being made."""

    def __init__(self, *_args: object, **_named: object) -> None:
        self._work: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[..., object], *args: object) -> Self:
        self._work = partial(work, *args)
        return self

    def done(self) -> bool:
        return False

    def result(self) -> object:
        return self._work()


RECORDS = [(b"%03d" % number, b"%03d" % number * 1_000) for number in range(40)]


def test_records_are_read_up_to_a_bound_while_their_table_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model, taken, at_the_making = ModelCluster(), [], []
    storage = storage_in(model, Clock())
    storage.load("at-once", RECORDS)
    create = model.administration.create

    def making(wanted: TableDefinition) -> None:
        at_the_making.append(len(taken))
        create(wanted)

    def records() -> Iterator[tuple[bytes, bytes]]:
        for each in RECORDS:
            taken.append(each)
            yield each

    monkeypatch.setattr(tables, "ThreadPoolExecutor", Later)
    monkeypatch.setattr(tables, "_AHEAD_BYTES", 10_000)
    monkeypatch.setattr(model.administration, "create", making)
    storage.load("ahead", records())
    assert model.administration.cells["ahead"] == model.administration.cells["at-once"]
    assert len(taken) == len(RECORDS)
    [ahead] = at_the_making
    assert 4 <= ahead <= 6, "10,000 bytes in records of 3,000, and the beginning of the next block"


def test_few_records_are_all_read_before_their_table_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelCluster()
    monkeypatch.setattr(tables, "ThreadPoolExecutor", Later)
    storage_in(model, Clock()).load("few", RECORDS[:2])
    assert len(model.administration.cells["few"]) > 0


def test_a_table_that_cannot_be_made_fails_the_load_of_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelCluster()
    monkeypatch.setattr(tables, "ThreadPoolExecutor", Later)
    monkeypatch.setattr(model.administration, "create", mock.Mock(side_effect=UnavailableError("no master")))
    with pytest.raises(CatalogUnavailableError, match="no master"):
        storage_in(model, Clock()).load("none", RECORDS)


def test_records_that_fail_while_their_table_is_made_fail_when_it_is_made() -> None:
    """Else it would be made after the load was given up, and removed by nothing."""
    model, read, made = ModelCluster(), threading.Event(), threading.Event()
    create = model.administration.create

    def making(wanted: TableDefinition) -> None:
        assert read.wait(60)
        create(wanted)
        made.set()

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield from RECORDS[:5]
        read.set()
        raise ValueError("line 6 is no record")

    with (
        mock.patch.object(model.administration, "create", making),
        pytest.raises(ValueError, match="line 6"),
    ):
        storage_in(model, Clock()).load("broken", records())
    assert made.is_set()
