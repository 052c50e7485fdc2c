"""Many batches at once: each key is fetched once, and whatever becomes of a fetch, no batch waits in vain."""

import threading

import pytest

from feedstore.catalog.flights import Boarded, Flight, Flights
from feedstore.catalog.port import CatalogUnavailableError, Fetched
from feedstore.catalog.reader import Catalog, Got
from feedstore.replicas.attempts import Attempt, InPlace, OnThreads
from tests.catalog.reader_fakes import LONG_S, ByHand, Clock, FakeReader, catalog_of, threads

THREADS = 100
KEYS = [number.to_bytes(8, "big") for number in range(100)]
RECORDS = {key: b"record " + key for key in KEYS}


class Crowd:
    """Threads that all have begun the same batch before the store answers any of them."""

    def __init__(self, reader: FakeReader, keys: list[bytes]) -> None:
        self.reader = reader
        self.clock = Clock()
        self.reads = OnThreads("a", 8)
        self.catalog = catalog_of(reader, self.clock, self.clock.now_ms, self.reads)
        self.got: list[Got] = []
        self._keys = keys

    def run(self) -> None:
        self.reader.gate.clear()
        begun = threading.Barrier(THREADS + 1)

        def ask(_: int) -> None:
            fetch = self.catalog.begin(self._keys, self.clock() + LONG_S)
            begun.wait(LONG_S)
            self.got.append(fetch.result())

        with threads(ask, THREADS):
            begun.wait(LONG_S)
            self.reader.gate.set()
        self.catalog.close()


def test_a_hundred_threads_that_ask_for_the_same_hundred_keys_make_one_call():
    crowd = Crowd(FakeReader(RECORDS), KEYS)
    crowd.run()
    assert crowd.reader.calls == [KEYS]
    assert [got.records for got in crowd.got] == THREADS * [RECORDS]
    counts = crowd.catalog.counts()
    assert (counts.fetched, counts.joined) == (100, 9_900)


def test_all_who_waited_for_a_flight_that_failed_try_once_more_together():
    reader = FakeReader(RECORDS)
    reader.fails = 1
    crowd = Crowd(reader, KEYS)
    crowd.run()
    answered = [got for got in crowd.got if got.failure is None]
    assert len(answered) == THREADS - 1, "whose flight it was has tried"
    assert all(got.records == RECORDS for got in answered)
    assert reader.calls[:2] == 2 * [KEYS]
    assert len(reader.calls) == 2


def test_a_store_that_keeps_failing_is_asked_a_few_times_by_a_crowd_and_again_by_the_next_batch():
    reader = FakeReader(RECORDS)
    reader.fails = 1_000
    crowd = Crowd(reader, KEYS)
    crowd.run()
    assert all(got.unanswered == set(KEYS) and str(got.failure) == "out of order" for got in crowd.got)
    # Threads that are late may find that the second flight has failed too, and try their own once.
    assert 2 <= len(reader.calls) <= THREADS
    reader.fails = 0
    later = catalog_of(reader, crowd.clock, crowd.clock.now_ms)
    assert later.begin(KEYS).result().records == RECORDS


def test_a_failure_is_not_held():
    clock, reader = Clock(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms)
    reader.fails = 1
    assert catalog.begin(KEYS[:1]).result().unanswered == {KEYS[0]}
    assert catalog.begin(KEYS[:1]).result().records == {KEYS[0]: RECORDS[KEYS[0]]}
    assert len(reader.calls) == 2


def test_who_waits_has_its_own_deadline():
    clock, reads, reader = Clock(), ByHand(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms, reads)
    patient = catalog.begin(KEYS[:2], clock() + LONG_S)
    hasty = catalog.begin(KEYS[:2], clock())
    assert len(reads.begun) == 1
    got = hasty.result()
    assert (got.unanswered, got.records, got.behind_ms) == (set(KEYS[:2]), {}, None)
    assert "in time" in str(got.failure)
    reads.read()
    reads.land()
    assert patient.result().records == {key: RECORDS[key] for key in KEYS[:2]}


def test_a_result_that_is_asked_for_after_the_deadline_is_still_what_has_landed():
    clock, reader = Clock(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms)
    fetch = catalog.begin(KEYS, clock() + 1)
    clock.ms += 5_000
    assert fetch.result().records == RECORDS


def test_a_short_deadline_is_no_deadline_of_the_store():
    """Others may wait for the same flight."""
    clock, reader = Clock(), FakeReader(RECORDS)
    catalog_of(reader, clock, clock.now_ms).begin(KEYS, clock())
    assert reader.deadlines == [clock() + LONG_S]


def test_a_batch_joins_two_flights_and_fetches_the_rest_in_one_call():
    clock, reads, reader = Clock(), ByHand(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms, reads)
    catalog.begin(KEYS[0:2])
    catalog.begin(KEYS[2:4])
    both = catalog.begin(KEYS[1:6])
    for number, generation in ((2, "1-a"), (0, "1-a"), (1, "2-b")):
        reader.generation = generation
        reads.read(number)
        reads.land(number)
    assert both.result().records == {key: RECORDS[key] for key in KEYS[1:6]}
    assert both.result().generation is None, "of two"
    assert reader.calls == [KEYS[4:6], KEYS[0:2], KEYS[2:4]]
    assert (catalog.counts().joined, catalog.counts().fetched) == (3, 2)


def test_of_two_flights_that_a_batch_joined_only_the_keys_of_the_failed_one_are_tried_again():
    clock, reads, reader = Clock(), ByHand(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms, reads)
    catalog.begin(KEYS[0:2])
    catalog.begin(KEYS[2:4])
    both = catalog.begin(KEYS[0:4])
    reader.fails = 1
    for number in (0, 1):
        reads.read(number)
        reads.land(number)
    begun = reads.start

    def at_once(attempt: Attempt) -> bool:
        begun(attempt)
        reads.read()
        reads.land()
        return True

    reads.start = at_once
    assert both.result().records == {key: RECORDS[key] for key in KEYS[0:4]}
    assert reader.calls[2:] == [KEYS[0:2]]


def test_a_flight_that_hangs_is_not_joined_for_ever_and_what_it_brings_at_last_is_not_held():
    clock, reads, reader = Clock(), ByHand(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms, reads)
    hung = catalog.begin(KEYS[:1])
    reads.read(0)
    clock.ms += int(2_000 * LONG_S)
    reader.records = {KEYS[0]: b"newer"}
    second = catalog.begin(KEYS[:1])
    assert len(reads.begun) == 2
    reads.land(0)
    assert hung.result().records == {KEYS[0]: RECORDS[KEYS[0]]}
    reads.read(1)
    reads.land(1)
    assert second.result().records == {KEYS[0]: b"newer"}
    assert catalog.begin(KEYS[:1]).result().records == {KEYS[0]: b"newer"}


def test_with_too_many_fetches_under_way_a_batch_says_so_and_the_next_one_is_served():
    clock, reader = Clock(), FakeReader(RECORDS)
    reader.gate.clear()
    catalog = catalog_of(reader, clock, clock.now_ms, OnThreads("a", 1))
    first = catalog.begin(KEYS[:1], clock() + LONG_S)
    refused = catalog.begin(KEYS[1:2]).result()
    assert refused.unanswered == {KEYS[1]}
    assert "too many" in str(refused.failure)
    reader.gate.set()
    assert first.result().records
    assert catalog.begin(KEYS[1:2], clock() + LONG_S).result().records
    catalog.close()


def test_an_interrupt_in_a_fetch_leaves_no_flight_behind():
    clock, reader = Clock(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms)

    def interrupt() -> None:
        raise KeyboardInterrupt

    reader.on_read = interrupt
    with pytest.raises(KeyboardInterrupt):
        catalog.begin(KEYS)
    reader.on_read = lambda: None
    assert catalog.begin(KEYS).result().records == RECORDS


def test_an_error_that_is_not_the_stores_is_raised_to_whose_fetch_it_was_and_not_held():
    clock, reader = Clock(), FakeReader(RECORDS)
    catalog = catalog_of(reader, clock, clock.now_ms)
    reader.fails, reader.error = 1, ZeroDivisionError("a mistake")
    with pytest.raises(ZeroDivisionError):
        catalog.begin(KEYS).result()
    assert catalog.begin(KEYS).result().records == RECORDS


# Without a guard
# ----------------------------------------------------------------------------------------------------------------------


def test_without_joining_a_crowd_makes_many_calls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Flights, "board", lambda self, keys, now_s, until_s: Boarded(Flight(list(keys), until_s), {}))
    with pytest.raises(AssertionError):
        test_a_batch_joins_two_flights_and_fetches_the_rest_in_one_call()


def test_a_failure_that_were_held_is_found(monkeypatch: pytest.MonkeyPatch):
    fail = Catalog._fail

    def hold(self: Catalog, flight: Flight, error: Exception) -> None:
        self._enter(flight, Fetched({}, "", 1))
        fail(self, flight, error)

    monkeypatch.setattr(Catalog, "_fail", hold)
    with pytest.raises(AssertionError):
        test_a_failure_is_not_held()


def test_a_flight_that_nobody_ends_holds_up_no_batch_past_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(InPlace, "start", lambda self, attempt: attempt.run() is None)
    clock, reader = Clock(), FakeReader(RECORDS)
    got = catalog_of(reader, clock, clock.now_ms).begin(KEYS, clock()).result()
    assert isinstance(got.failure, CatalogUnavailableError)
