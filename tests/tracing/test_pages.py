"""A page as a trace: a span of each cluster that is asked, so that hedges are seen."""

import time
from collections.abc import Iterator

import pytest

from feedstore.following import FEEDS, row_key
from feedstore.replicas.attempts import OnThreads
from feedstore.replicas.replicas import Replica, ReplicaSource, TracedReplicas
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import PROGRESS, progress_table
from tests.replicas.fakes import LONG_S, NOW_MS, USER, WINDOW_MS, FakeStore
from tests.tracing.recorded import Spans, label
from tests.widecolumn.memory_store import MemoryStore

READ = f"read {FEEDS}"


class Clusters:
    def __init__(self, spans: Spans) -> None:
        self.a, self.b = FakeStore(), FakeStore()
        self.replicas = TracedReplicas(
            [
                ReplicaSource(
                    Replica(name, {FEEDS: store, PROGRESS: MemoryStore(progress_table(WINDOW_MS))}), OnThreads(name, 8)
                )
                for name, store in (("a", self.a), ("b", self.b))
            ],
            lambda: NOW_MS,
            LONG_S,
            time.monotonic,
            spans.tracer,
        )

    def read(self) -> str:
        return self.replicas.read(FEEDS, row_key(USER), None, 10).served_by


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def clusters(spans: Spans) -> Iterator[Clusters]:
    made = Clusters(spans)
    yield made
    for store in (made.a, made.b):
        store.gate.set()
    made.replicas.close()


def told(spans: Spans) -> dict[str, tuple[str, str]]:
    """Why each cluster was asked, and what came of it."""
    return {
        label(span): (span.attributes["feedstore.why"], span.attributes["feedstore.outcome"])
        for span in spans.all()
        if span.parent is not None
    }


def test_a_page_that_one_cluster_answers(spans: Spans, clusters: Clusters):
    assert clusters.read() == "a"
    assert spans.tree(spans.one(READ)) == [f"{READ} [a]", "  read a [a]"]
    assert told(spans) == {"read a [a]": ("first", "answered")}


def test_a_hedge_shows_who_answered_and_who_was_abandoned(spans: Spans, clusters: Clusters):
    clusters.a.gate.clear()
    assert clusters.read() == "b"
    assert told(spans) == {"read a [a]": ("first", "abandoned"), "read b [b]": ("hedge", "answered")}
    assert spans.tree(spans.one(READ)) == [f"{READ} [b]", "  read a [a]", "  read b [b]"]
    assert all(span.end_time <= spans.one(READ).end_time for span in spans.all())


def test_a_failover_shows_what_failed(spans: Spans, clusters: Clusters):
    clusters.a.fails = True
    assert clusters.read() == "b"
    assert told(spans) == {"read a [a]": ("first", "failed"), "read b [b]": ("failover", "answered")}
    assert spans.one("read a").attributes["error.type"] == "UnavailableError"


def test_a_page_that_nobody_answers_fails(spans: Spans, clusters: Clusters):
    clusters.a.fails = clusters.b.fails = True
    with pytest.raises(UnavailableError):
        clusters.read()
    assert spans.one(READ).attributes["error.type"] == "UnavailableError"
    assert {outcome for _, outcome in told(spans).values()} == {"failed"}


def test_a_page_that_is_not_sampled_is_read_as_if_there_were_no_traces():
    spans = Spans(sample=0)
    clusters = Clusters(spans)
    try:
        assert clusters.read() == "a"
        clusters.a.fails = True
        assert clusters.read() == "b"
    finally:
        clusters.replicas.close()
    assert spans.all() == []
