"""Two clusters' catalogs read as one, whatever one of them does."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from feedstore.catalog.port import CatalogRefusedError, CatalogUnavailableError, NoGenerationError
from feedstore.catalog.reader import Catalog
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.catalog.watch import CatalogWatch
from feedstore.replicas.attempts import InPlace, OnThreads, Reads
from feedstore.replicas.breaker import FAILURES, OPEN_S_MAX
from feedstore.replicas.health import LAGGING_MS
from feedstore.replicas.watermarks import Watermarks
from tests.catalog.reader_fakes import LONG_S, START_MS, Clock, FakeReader, catalog_of
from tests.replicas.fakes import until

KEY = b"k"


class Pair:
    """Time does not move, so that no cluster is ever slow, unless there is a clock."""

    def __init__(self, *, in_place: bool, clock: Callable[[], float] | None = None) -> None:
        self.clock = Clock()
        self.a, self.b = FakeReader({KEY: b"of a"}), FakeReader({KEY: b"of b"})
        made: dict[bool, type] = {True: InPlace, False: OnThreads}
        self.replicas = CatalogReplicas(
            [CatalogSource(name, getattr(self, name), self.reads(name, made[in_place])) for name in "ab"],
            LONG_S,
            clock or self.clock,
        )

    @staticmethod
    def reads(name: str, made: type) -> Reads:
        return made() if made is InPlace else made(name, 8)

    def breakers(self) -> list[str]:
        return [each.breaker for each in self.replicas._contest.health.status()]

    def fetch(self) -> bytes:
        return self.replicas.fetch([KEY]).records[KEY]


@pytest.fixture(params=[True, False], ids=["in place", "on threads"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(in_place=request.param)
    yield pair
    pair.replicas.close()


def test_the_preferred_cluster_answers_while_all_is_well(pair: Pair):
    assert [pair.fetch() for _ in range(5)] == 5 * [b"of a"]
    assert pair.replicas.fetch([KEY]).cluster == "a"
    assert pair.b.calls == []


@pytest.mark.parametrize("error", [CatalogUnavailableError("away"), NoGenerationError("nothing was loaded")])
def test_no_batch_fails_while_one_cluster_does_and_it_is_left_alone_then(pair: Pair, error: Exception):
    pair.a.fails, pair.a.error = 1_000, error
    assert [pair.fetch() for _ in range(50)] == 50 * [b"of b"]
    assert pair.breakers() == ["open", "closed"]
    assert len(pair.a.calls) < 50
    assert pair.replicas._contest.health.counters().failovers == FAILURES
    pair.a.fails = 0

    def is_asked_again() -> bool:
        pair.clock.ms += int(OPEN_S_MAX * 1_000)
        return pair.fetch() == b"of a"

    until(is_asked_again, "a is asked again")


def test_where_all_clusters_fail_the_error_names_each(pair: Pair):
    pair.a.fails = pair.b.fails = 1_000
    with pytest.raises(CatalogUnavailableError, match="a: out of order; b: out of order"):
        pair.fetch()


def test_what_is_refused_is_asked_of_nobody_else(pair: Pair):
    pair.a.fails, pair.a.error = 1, CatalogRefusedError("an empty key")
    with pytest.raises(CatalogRefusedError):
        pair.fetch()
    assert pair.b.calls == []


def test_a_cluster_that_hangs_is_overtaken():
    pair = Pair(in_place=False, clock=time.monotonic)
    pair.a.gate.clear()
    assert pair.fetch() == b"of b"
    assert pair.replicas._contest.health.counters().hedges == 1
    pair.a.gate.set()
    pair.replicas.close()


def test_a_deadline_holds_though_all_clusters_hang():
    pair = Pair(in_place=False, clock=time.monotonic)
    pair.a.gate.clear()
    pair.b.gate.clear()
    with pytest.raises(CatalogUnavailableError, match="in time"):
        pair.replicas.fetch([KEY], time.monotonic() + 0.1)
    pair.a.gate.set()
    pair.b.gate.set()
    pair.replicas.close()


def test_a_cluster_whose_updates_are_far_behind_is_asked_last(pair: Pair):
    pair.replicas.set_known("a", START_MS)
    pair.replicas.set_known("b", START_MS + LAGGING_MS + 1)
    assert pair.fetch() == b"of b"
    pair.b.fails = 1
    assert pair.fetch() == b"of a", "old answers are better than none"


def test_a_cluster_that_lacks_updates_is_asked_last(pair: Pair):
    pair.a.floor_ms = START_MS - 1  # a gap since its generation, although it hears all that is new
    watch = CatalogWatch("ab", lambda: None, lambda: START_MS)
    for name in "ab":
        pair.replicas.set_known(name, watch.look(CatalogSource(name, getattr(pair, name), InPlace())))
    assert pair.fetch() == b"of b"


def test_an_answer_that_is_older_than_was_demanded_is_asked_of_the_other_cluster(pair: Pair):
    catalog: Catalog[bytes] = catalog_of(pair.replicas, pair.clock, pair.clock.now_ms)
    pair.a.known_ms = START_MS - 20_000
    for _ in range(2 * FAILURES):
        assert catalog.begin([KEY], max_behind_ms=5_000).result().records == {KEY: b"of b"}
        catalog.rolled_back()  # nothing is held
    assert pair.breakers() == ["closed", "closed"], "an old answer is no failure"
    assert catalog.begin([KEY]).result().records == {KEY: b"of a"}, "nothing was demanded"


def test_if_all_answers_are_older_than_was_demanded_the_newest_is_given(pair: Pair):
    pair.a.known_ms, pair.b.known_ms = START_MS - 20_000, START_MS - 10_000
    assert pair.replicas.fetch([KEY], None, START_MS).cluster == "b"
    assert (len(pair.a.calls), len(pair.b.calls)) == (1, 1), "each was asked once"
    pair.b.fails = 1
    assert pair.replicas.fetch([KEY], None, START_MS).cluster == "a", "the other one does not answer"


def test_a_cluster_that_is_left_alone_is_not_asked_for_a_newer_answer(pair: Pair):
    """It may hang: each batch that demands one would wait for it until its deadline, although there is an answer."""
    for _ in range(FAILURES):
        pair.replicas._contest.health.failed("a")
    assert pair.breakers() == ["open", "closed"]
    pair.b.known_ms = START_MS - 10_000
    assert pair.replicas.fetch([KEY], pair.clock() + 1, START_MS).cluster == "b"
    assert pair.a.calls == []


@pytest.mark.parametrize(("fails", "said"), [(0, {"a": None, "b": START_MS}), (1_000, {"b": START_MS})])
def test_how_far_the_clusters_are_is_looked_at_and_kept_of_one_that_fails(
    pair: Pair, fails: int, said: dict[str, int | None]
):
    pair.a.known_ms, pair.a.fails = 0, fails
    heard: dict[str, int | None] = {}
    watch = CatalogWatch("ab", lambda: None, lambda: START_MS)
    looks = {name: partial(watch.look, CatalogSource(name, getattr(pair, name), InPlace())) for name in "ab"}
    watching = Watermarks(looks, heard.__setitem__, time.monotonic)
    watching.wait(LONG_S)
    watching.close()
    assert heard == said


def test_closing_closes_the_readers(pair: Pair):
    pair.replicas.close()
    assert (pair.a.closed, pair.b.closed) == (True, True)


def test_a_catalog_reads_them_as_one(pair: Pair):
    catalog: Catalog[bytes] = catalog_of(pair.replicas, pair.clock, pair.clock.now_ms)
    pair.a.fails = 1
    assert catalog.begin([KEY]).result().records == {KEY: b"of b"}
    assert catalog.begin([KEY]).result().records == {KEY: b"of b"}
    assert len(pair.b.calls) == 1
