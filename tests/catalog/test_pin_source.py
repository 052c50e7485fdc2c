"""Pins of a page: the catalog first, and the follow store for pins that it cannot answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from feedstore.catalog.pin_source import SOURCE_MAX, BoundedSource, CatalogPins
from feedstore.catalog.pins import AS_PINS, key_of, pin_of, record_of, update_of
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.domain import Pin, PinDeleted
from feedstore.follows.pin_source import Hydrated
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.replicas.attempts import Attempt, InPlace, OnThreads, Reads
from feedstore.replicas.breaker import FAILURES, OPEN_S
from tests.catalog.reader_fakes import ByHand, Clock, FakeReader, catalog_of


def pin(number: int) -> Pin:
    return Pin(number, 7, 70, 1_000)


class FakeSource:
    """A follow store that has these pins."""

    def __init__(self, *pins: int) -> None:
        self.pins = {*pins}
        self.asked: list[list[int]] = []
        self.error: Exception | None = None

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Hydrated:
        ids = [pin_of(each) for each in pins]
        self.asked.append(ids)
        if self.error is not None:
            raise self.error
        return Hydrated([pin(each) if each in self.pins else None for each in ids], 0)


class Bench:
    def __init__(self, reads: Reads | None = None, *, skip: bool = False) -> None:
        self.clock = Clock()
        self.reader = FakeReader({key_of(each): record_of(pin(each), deleted=each == 3) for each in (1, 2, 3)})
        self.source = FakeSource(1, 2, 4)
        self.catalog = catalog_of(self.reader, self.clock, self.clock.now_ms, form=AS_PINS)
        bounded = BoundedSource(self.source, reads or InPlace(), self.clock)
        self.pins = CatalogPins(self.catalog, None if skip else bounded, self.clock)

    def look_up(self, *pins: int) -> Hydrated:
        return self.pins.look_up([key_of(each) for each in pins], self.clock() + 10)

    def fail_catalog(self) -> None:
        self.reader.fails = 1_000_000


def test_what_the_catalog_knows_asks_nothing_else():
    bench = Bench()
    bench.clock.ms += 500
    assert bench.look_up(2, 3, 1) == Hydrated([pin(2), None, pin(1)], 500)
    assert bench.source.asked == []


def test_what_is_all_held_asks_nothing():
    bench = Bench()
    bench.look_up(1, 2)
    bench.clock.ms += 500
    found = bench.look_up(2, 1)
    assert (list(found.pins), found.behind_ms) == ([pin(2), pin(1)], 500)
    assert len(bench.reader.calls) == 1


def test_a_pin_without_a_record_is_asked_for_at_the_source():
    bench = Bench()
    assert bench.look_up(5, 1, 4).pins == [None, pin(1), pin(4)]
    assert bench.source.asked == [[5, 4]]
    assert bench.catalog.counts().source == 2


def test_or_left_out_if_the_configuration_says_so():
    bench = Bench(skip=True)
    assert bench.look_up(4, 1).pins == [None, pin(1)]
    bench.fail_catalog()
    with pytest.raises(CatalogUnavailableError):
        bench.look_up(6)


def test_without_the_follow_store_pages_go_on():
    bench = Bench()
    bench.source.error = FollowStoreUnavailableError("away")
    bench.clock.ms += 500
    assert bench.look_up(5, 1, 4) == Hydrated([None, pin(1), None], 500)


def test_without_the_catalog_the_follow_store_answers_for_a_page():
    bench = Bench()
    bench.fail_catalog()
    assert bench.look_up(4, 1, 3) == Hydrated([pin(4), pin(1), None], 0)


def test_the_follow_store_is_asked_for_so_many_pins_of_a_page_and_the_rest_is_unknown():
    bench = Bench()
    bench.fail_catalog()
    found = bench.look_up(*range(1, SOURCE_MAX + 11))
    assert found.pins == [pin(each) if each in {1, 2, 4} else None for each in range(1, SOURCE_MAX + 1)]


def test_without_both_the_first_pin_cannot_be_looked_up():
    bench = Bench()
    bench.look_up(1)
    bench.fail_catalog()
    bench.source.error = FollowStoreUnavailableError("away")
    assert bench.look_up(1, 2).pins == [pin(1)], "what is held goes as far as it goes"
    with pytest.raises(CatalogUnavailableError, match="out of order"):
        bench.look_up(2, 1)


def test_what_is_held_though_its_time_is_up_is_shown_and_said():
    bench = Bench()
    bench.look_up(1)
    bench.fail_catalog()
    bench.source.error = FollowStoreUnavailableError("away")
    bench.clock.ms += 400_000
    assert bench.look_up(1) == Hydrated([pin(1)], 400_000)


def test_a_source_that_fails_is_left_alone_for_a_while():
    bench = Bench()
    bench.source.error = FollowStoreUnavailableError("away")
    for _ in range(FAILURES + 3):
        bench.look_up(9)
        bench.clock.ms += 1
    assert len(bench.source.asked) == FAILURES
    bench.clock.ms += int(1_000 * OPEN_S)
    bench.source.error = None
    bench.look_up(9)
    bench.clock.ms += 10_000  # its absence is held no longer
    bench.look_up(9)
    assert len(bench.source.asked) == FAILURES + 2


class Crowded(InPlace):
    """Reads that have no room while `full`."""

    full = False

    def start(self, attempt: Attempt[Any]) -> bool:
        return not self.full and super().start(attempt)


def test_a_source_whose_probe_finds_no_room_is_asked_again():
    reads = Crowded()
    bench = Bench(reads)
    bench.source.error = FollowStoreUnavailableError("away")
    for _ in range(FAILURES):
        bench.look_up(9)
    bench.source.error = None
    for full in (True, False):
        bench.clock.ms += 10_000
        reads.full = full
        bench.look_up(9)
    assert len(bench.source.asked) == FAILURES + 1


def test_a_source_across_a_network_is_waited_for():
    bench = Bench(OnThreads("follows", 1))
    assert bench.look_up(4).pins == [pin(4)]


@pytest.mark.timeout(30)
def test_a_source_that_does_not_answer_is_waited_for_until_the_deadline():
    by_hand = ByHand()
    bench = Bench(by_hand)
    for _ in range(FAILURES + 1):
        assert bench.pins.look_up([key_of(1), key_of(9)], bench.clock()).pins == [pin(1), None]
    assert len(by_hand.begun) == FAILURES, "and then left alone"


def test_a_mistake_in_the_source_is_not_hidden():
    bench = Bench()
    bench.source.error = RuntimeError("a mistake")
    with pytest.raises(RuntimeError, match="a mistake"):
        bench.look_up(9)


def test_no_pins_are_none():
    assert Bench().look_up() == Hydrated([], 0)


def test_a_page_may_name_a_pin_twice():
    bench = Bench()
    assert bench.look_up(1, 4, 1, 4, 9, 9).pins == [pin(1), pin(4), pin(1), pin(4), None, None]
    assert bench.source.asked == [[4, 9]]


UNREADABLE = b"\x09 of a version that this program does not know"


def test_a_record_that_cannot_be_read_is_not_held_and_the_source_is_asked_for_that_pin():
    bench = Bench()
    bench.reader.records[key_of(2)] = UNREADABLE
    assert bench.look_up(1, 2).pins == [pin(1), pin(2)]
    assert bench.source.asked == [[2]]
    bench.reader.records[key_of(2)] = record_of(pin(2), deleted=False)
    bench.look_up(1, 2)
    assert (bench.source.asked, bench.reader.calls) == ([[2]], [[key_of(1), key_of(2)], [key_of(2)]])


def test_without_the_source_a_page_ends_before_a_record_that_cannot_be_read():
    bench = Bench(skip=True)
    bench.reader.records[key_of(2)] = UNREADABLE
    assert bench.look_up(1, 2).pins == [pin(1)]
    with pytest.raises(CatalogUnavailableError, match="pin 2: its record cannot be read"):
        bench.look_up(2, 1)


def test_an_update_that_cannot_be_read_ends_what_is_held():
    bench = Bench()
    bench.catalog.heard_from(bench.clock.ms)
    bench.look_up(1)
    bench.clock.ms += 1_000
    deleted = update_of(PinDeleted(pin(1), bench.clock.ms))
    bench.catalog.entered(deleted._replace(record=UNREADABLE))
    bench.reader.update(deleted)
    bench.reader.known_ms = bench.clock.ms + 1
    assert bench.look_up(1).pins == [None], "what the store has by now is newer, and can be read"
