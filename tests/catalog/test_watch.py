"""The facts that clusters give of a catalog, as a report has them."""

import threading
from collections.abc import Sequence
from unittest import mock

import pytest

from feedstore.catalog import watch as watching
from feedstore.catalog.counts import CatalogCounting
from feedstore.catalog.metrics import counts
from feedstore.catalog.port import CatalogUnavailableError, Delta, Generation
from feedstore.catalog.replicas import CatalogSource
from feedstore.catalog.service import CatalogState
from feedstore.catalog.watch import CatalogWatch, Facts
from feedstore.clocks import APART_MAX_MS
from feedstore.metering.meter import Spread
from feedstore.replicas.attempts import InPlace
from tests.catalog.reader_fakes import LONG_S, FakeReader

OLD, NEW = (Generation(f"{as_of_ms}-x", as_of_ms, 10, 0, "", current=False) for as_of_ms in (1_000, 2_000))


def using(current: Generation) -> list[Generation]:
    return [(current if each.id == current.id else each)._replace(current=each.id == current.id) for each in (OLD, NEW)]


class Shown(FakeReader):
    """A cluster with two generations; a swap may come while they are read."""

    def __init__(self) -> None:
        super().__init__(known_ms=5_000)
        self.shown: Sequence[Generation] = using(NEW)
        self.swap = lambda: None

    def generations(self) -> list[Generation]:
        found = list(self.shown)
        self.swap()
        return found


class Looking:
    """Looks at cluster a of two. heard: its rollbacks, and what else a test enters."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.watch = CatalogWatch(["a", "b"], lambda: self.heard.append("rollback"), lambda: 6_000)
        self.reader = Shown()

    def look(self) -> int | None:
        return self.watch.look(CatalogSource("a", self.reader, InPlace()))

    def facts(self) -> Facts:
        found = self.watch.facts()["a"]
        assert found is not None
        return found


@pytest.fixture
def looking() -> Looking:
    return Looking()


def test_what_a_cluster_said_is_kept_while_it_is_away(looking: Looking):
    assert looking.watch.facts() == {"a": None, "b": None}
    assert looking.look() == 5_000
    said = looking.watch.facts()
    assert said == {"a": Facts(using(NEW), Delta(1, 5_000, 0), 6_000), "b": None}
    looking.reader.fails = 1
    with pytest.raises(CatalogUnavailableError):
        looking.look()
    assert looking.watch.facts() == said


def test_a_rollback_is_heard_although_the_rest_of_a_look_fails(looking: Looking):
    looking.look()
    looking.reader.rolled_back = 1
    looking.reader.fails = 1
    with pytest.raises(CatalogUnavailableError):
        looking.look()
    assert looking.heard == ["rollback"]
    looking.look()
    assert looking.heard == ["rollback"], "once"


def test_a_cluster_whose_generation_cannot_be_read_does_not_answer_and_its_rollback_is_heard(looking: Looking):
    looking.look()
    looking.reader.rolled_back = 1
    looking.reader.unreadable = True
    with pytest.raises(CatalogUnavailableError, match="damaged"):
        looking.look()
    assert looking.heard == ["rollback"]


def test_a_rollback_is_heard_before_what_is_in_use_now_is_opened(looking: Looking, monkeypatch: pytest.MonkeyPatch):
    looking.look()
    looking.reader.rolled_back = 1
    monkeypatch.setattr(looking.reader, "check", lambda: looking.heard.append("opened"))
    looking.look()
    assert looking.heard == ["rollback", "opened"]


def test_a_rollback_is_heard_while_what_is_in_use_is_being_opened(looking: Looking, monkeypatch: pytest.MonkeyPatch):
    opened = threading.Event()
    monkeypatch.setattr(watching, "OPENED_WITHIN_S", 0)
    begun = mock.Mock(side_effect=lambda: opened.wait(LONG_S))
    monkeypatch.setattr(looking.reader, "check", begun)
    for looking.reader.rolled_back in (0, 1):
        with pytest.raises(CatalogUnavailableError, match="not open yet"):
            looking.look()
    assert looking.heard == ["rollback"]
    opened.set()
    monkeypatch.setattr(watching, "OPENED_WITHIN_S", LONG_S)
    assert looking.look() == 5_000
    assert begun.call_count == 1


def test_a_look_that_began_before_a_swap_does_not_undo_what_the_swap_has_left(looking: Looking):
    looking.look()
    looking.reader.swap = lambda: looking.watch.note_generations("a", using(OLD))
    looking.look()
    facts = looking.facts()
    assert facts.current == OLD._replace(current=True)
    looking.reader.swap, looking.reader.shown = lambda: None, using(OLD)
    looking.look()
    assert looking.facts() == facts


@pytest.mark.parametrize(
    ("delta", "current", "now_ms", "expected"),
    [
        (Delta(1, 5_000, 0), NEW, 6_000, 1_000),
        (Delta(0, 0, 0), NEW, 6_000, 4_000),
        (Delta(2_001, 5_000, 0), NEW, 6_000, 4_000),
        (Delta(2_001, 5_000, 0), OLD, 6_000, 5_000),
        (Delta(1, 5_000, 0), NEW, 4_900, 0),
        (Delta(1, 5_000 + APART_MAX_MS, 0), NEW, 4_900, None),
        (Delta(1, 5_000, 0), OLD._replace(id="0-x"), 6_000, None),
    ],
    ids=["updates", "none", "gap", "gap-after-a-rollback", "a-clock-ahead", "a-clock-far-ahead", "nothing-in-use"],
)
def test_how_far_behind_a_cluster_is_is_never_too_little(
    delta: Delta, current: Generation, now_ms: int, expected: int | None
):
    assert Facts(using(current), delta, now_ms).behind_ms(now_ms) == expected


@pytest.mark.parametrize(
    ("delta", "shown", "expected"),
    [
        (Delta(1, 5_000, 0), using(NEW), 5_000),
        (Delta(2_001, 5_000, 0), using(NEW), 2_000),
        (Delta(2_001, 5_000, 0), [OLD, NEW], 5_000),
        (Delta(2_001, 0, 0), using(NEW), None),
    ],
    ids=["updates", "gap", "nothing-in-use", "a-new-delta"],
)
def test_a_cluster_with_a_gap_is_as_far_as_its_batch(
    looking: Looking, delta: Delta, shown: list[Generation], expected: int | None
):
    reader = looking.reader
    reader.known_ms, reader.floor_ms, reader.shown = delta.known_ms, delta.floor_ms, shown
    assert looking.look() == expected


def test_swaps_are_counted_once_whoever_made_them(looking: Looking):
    def swaps() -> int:
        looking.look()
        return looking.facts().swaps

    assert [swaps(), swaps()] == [0, 0]
    looking.reader.shown = using(OLD)
    assert [swaps(), swaps()] == [1, 1]
    looking.watch.note_generations("a", using(NEW))
    looking.reader.shown = using(NEW)
    assert swaps() == 2


def test_metrics_say_how_long_the_current_generation_took_and_which_cluster_answered():
    counting = CatalogCounting()
    counting.fetched("a", 0.25)
    counting.fetched("a", 0.25)
    counting.fetched(None, 1.0)
    facts = Facts(using(NEW._replace(took_ms=2_500)), Delta(1, 5_000, 0), 6_000, swaps=3)
    state = CatalogState("pins", {"a": facts, "b": None}, counting.counts(), 0, None)
    found = counts([state], 6_000)
    samples = {(each.name, *each.labels): each.value for each in [*found.counters, *found.gauges]}
    assert samples["feed_catalog_build_seconds", "pins", "a"] == 2.5
    assert samples["feed_catalog_swaps_total", "pins", "a"] == 3
    assert Spread("feed_catalog_fetch_seconds", ("pins", "a"), [2], 0.5) in found.spreads
    assert samples["feed_catalog_failed_fetches_total", "pins"] == 1
