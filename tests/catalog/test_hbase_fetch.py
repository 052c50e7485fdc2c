"""The reads of a fetch from HBase, their order, and events between them: without a server."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from feedstore.catalog.hbase.reader import _FETCHES, HBaseCatalogReader
from feedstore.catalog.hbase.state import Made, StoredState
from feedstore.catalog.hbase.tables import About, CatalogStorage
from feedstore.catalog.port import CatalogUnavailableError, Fetched
from feedstore.catalog.rule import Held
from tests.catalog.catalog_adapters import as_cluster
from tests.catalog.hbase_model import ModelCluster

A = b"a"
OLD, NEW = Made("10-" + "0" * 16, "old", 1, ""), Made("20-" + "0" * 16, "new", 1, "")


@dataclass
class Scripted:
    """Tables of one key that answer with their contents at the moment, and run a step before each answer."""

    about: About
    update: Held | None = None
    records_of: dict[str, bytes] = field(default_factory=lambda: {"old": b"old", "new": b"new"})
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def row(self) -> "Scripted":
        return self

    @property
    def delta(self) -> "Scripted":
        return self

    def look(self, deadline_s: float | None) -> About:
        self._happen("row")
        return self.about

    def get(self, keys: Sequence[bytes], deadline_s: float | None) -> list[Held | None]:
        self._happen("delta")
        return [self.update for _ in keys]

    def records(self, made: Made, keys: Sequence[bytes], deadline_s: float | None) -> list[bytes | None]:
        if made.table not in self.records_of:
            raise CatalogUnavailableError(f"TableNotFoundException: {made.table}")
        return [self.records_of[made.table] for _ in keys]

    def close(self) -> None: ...

    def change(self, **changes: object) -> None:
        self.about = self.about._replace(state=msgspec.structs.replace(self.about.state, **changes))

    def _happen(self, what: str) -> None:
        self.asked.append(what)
        self.before.pop(f"{what} {self.asked.count(what)}", lambda: None)()


@pytest.fixture
def tables() -> Scripted:
    return Scripted(About(StoredState(current=OLD.id, generations=(OLD, NEW), floor_ms=5), 30), Held(15, b"update"))


def reader_of(
    tables: Scripted, clock: Callable[[], float] = lambda: 100.0, at_once: int = _FETCHES
) -> HBaseCatalogReader:
    reader = HBaseCatalogReader(as_cluster(ModelCluster()), "pins", clock, at_once)
    reader._tables = cast("CatalogStorage", tables)
    return reader


@pytest.fixture
def reading(tables: Scripted) -> Iterator[HBaseCatalogReader]:
    reading = reader_of(tables)
    yield reading
    reading.close()


def test_the_row_is_read_again_after_the_updates(reading: HBaseCatalogReader, tables: Scripted):
    assert reading.fetch([A], None) == Fetched({A: b"update"}, OLD.id, 30)
    assert tables.asked == ["row", "delta", "row"]
    reading.fetch([A], None)
    assert tables.asked == ["row", "delta", "row", "delta", "row"]


def test_what_becomes_known_meanwhile_is_not_promised(reading: HBaseCatalogReader, tables: Scripted):
    def known() -> None:
        tables.about = tables.about._replace(known_ms=40)

    tables.before["row 2"] = known
    assert reading.fetch([A], None).known_ms == 30
    assert reading.fetch([A], None).known_ms == 40


def test_if_the_delta_is_lost_meanwhile_no_more_is_promised_than_what_is_left(
    reading: HBaseCatalogReader, tables: Scripted
):
    def lose() -> None:
        tables.update = None
        tables.about = tables.about._replace(known_ms=0)

    tables.before["delta 1"] = lose
    assert reading.fetch([A], None) == Fetched({A: b"old"}, OLD.id, OLD.as_of_ms)


def test_a_collection_of_what_the_generation_needs_is_noticed(reading: HBaseCatalogReader, tables: Scripted):
    """A swap and a collection come between the look at the row and the read of the updates."""

    def collect() -> None:
        tables.change(current=NEW.id, generations=(NEW,), floor_ms=20)
        tables.update = None

    tables.before["delta 1"] = collect
    assert reading.fetch([A], None) == Fetched({A: b"new"}, NEW.id, 30)


def test_a_gap_is_no_reason_to_read_again(reading: HBaseCatalogReader, tables: Scripted):
    tables.before["delta 1"] = lambda: tables.change(floor_ms=25)
    assert reading.fetch([A], None).known_ms == OLD.as_of_ms
    assert tables.asked.count("delta") == 1


def test_a_fetch_ends_as_it_began_after_a_swap(reading: HBaseCatalogReader, tables: Scripted):
    tables.before["delta 1"] = lambda: tables.change(current=NEW.id)
    assert reading.fetch([A], None).generation == OLD.id
    assert reading.fetch([A], None).generation == NEW.id


def test_once_a_rollback_was_counted_no_fetch_reads_what_was_current_before(tables: Scripted):
    now_s = 100.0
    reading = reader_of(tables, lambda: now_s)
    tables.change(current=NEW.id)
    assert (reading.rollbacks(), reading.fetch([A], None).generation) == (0, NEW.id)
    tables.change(current=OLD.id, rollbacks=1)
    now_s += 1
    assert reading.rollbacks() == 1
    asked = len(tables.asked)
    assert reading.fetch([A], None).generation == OLD.id
    assert tables.asked[asked:] == ["delta", "row"]
    reading.close()


def test_a_look_that_began_last_and_was_served_first_brings_back_nothing_that_was_rolled_back(tables: Scripted):
    now_s = 100.0
    reading = reader_of(tables, lambda: now_s)
    tables.change(current=NEW.id)

    def another_look() -> None:
        nonlocal now_s
        now_s += 0.1
        assert reading.trail() == [OLD.id, NEW.id]
        tables.change(current=OLD.id, rollbacks=1)

    tables.before["row 1"] = another_look
    assert reading.rollbacks() == 1
    assert reading.fetch([A], None).generation == OLD.id
    reading.close()


def test_a_table_that_was_removed_is_one_that_is_current_no_more(reading: HBaseCatalogReader, tables: Scripted):
    reading.fetch([A], None)
    tables.change(current=NEW.id, generations=(NEW,), floor_ms=20)
    del tables.records_of["old"]
    assert reading.fetch([A], None).generation == NEW.id
    del tables.records_of["new"]
    with pytest.raises(CatalogUnavailableError, match="new"):
        reading.fetch([A], None)


def test_what_fails_is_not_tried_again_here(reading: HBaseCatalogReader, tables: Scripted):
    def away() -> None:
        raise CatalogUnavailableError("away")

    tables.before["delta 1"] = away
    with pytest.raises(CatalogUnavailableError, match="away"):
        reading.fetch([A], None)
    assert tables.asked == ["row", "delta"]


@dataclass
class Waiting(Scripted):
    """Answers what is asked of a generation once it is told to."""

    begun: list[bytes] = field(default_factory=list)
    ready: Callable[[], object] = lambda: None

    def records(self, made: Made, keys: Sequence[bytes], deadline_s: float | None) -> list[bytes | None]:
        self.begun += keys
        self.ready()
        return [b"" for _ in keys]


def test_as_many_fetches_as_are_made_at_once_do_not_wait_for_one_another(tables: Scripted):
    at_once = 40
    all_are_here = threading.Barrier(at_once)
    waiting = Waiting(tables.about, ready=lambda: all_are_here.wait(60))
    reading = reader_of(waiting, at_once=at_once)
    with ThreadPoolExecutor(at_once) as callers:
        found = list(callers.map(lambda number: reading.fetch([bytes([number])], None), range(at_once)))
    assert [list(each.records) for each in found] == [[bytes([number])] for number in range(at_once)]
    reading.close()


def test_what_is_not_begun_by_the_deadline_is_not_asked(tables: Scripted):
    begun, answer = threading.Event(), threading.Event()
    waiting = Waiting(tables.about, ready=lambda: (begun.set(), answer.wait(60)))
    waiting.before["delta 1"] = lambda: None if begun.wait(60) else pytest.fail("it was never begun")
    reading = reader_of(waiting, at_once=1)
    for key in (b"first", b"second"):
        with pytest.raises(CatalogUnavailableError, match="by the deadline"):
            reading.fetch([key], 100.0)
    answer.set()
    reading.fetch([b"third"], None)
    assert waiting.begun == [b"first", b"third"]
    reading.close()


def test_a_fetch_that_waits_while_the_catalog_is_closed_is_told_so(reading: HBaseCatalogReader, tables: Scripted):
    answer = threading.Event()
    for _ in range(_FETCHES):
        reading._threads.submit(answer.wait, 60)

    def close() -> None:
        reading.close()
        answer.set()

    tables.before["row 2"] = close
    with pytest.raises(CatalogUnavailableError, match="closed"):
        reading.fetch([A], None)
