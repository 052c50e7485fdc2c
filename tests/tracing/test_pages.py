"""A page as a trace: a span of each cluster that is asked, so that hedges are seen."""

import time
from collections.abc import Iterator

import pytest

from feedstore.following import FEEDS, row_key
from feedstore.widecolumn import UnavailableError
from tests.replicas.fakes import USER, Pair
from tests.tracing.recorded import Spans, label

READ = f"read {FEEDS}"


def read(clusters: Pair) -> str:
    return clusters.replicas.read(FEEDS, row_key(USER), None, 10).served_by


@pytest.fixture
def clusters(spans: Spans) -> Iterator[Pair]:
    made = Pair(clock=time.monotonic, tracer=spans.tracer)
    yield made
    made.close()


def told(spans: Spans) -> dict[str, tuple[str, str]]:
    """Why each cluster was asked, and what came of it."""
    return {
        label(span): (span.attributes["feedstore.why"], span.attributes["feedstore.outcome"])
        for span in spans.all()
        if span.parent is not None
    }


def test_a_page_that_one_cluster_answers(spans: Spans, clusters: Pair):
    assert read(clusters) == "a"
    assert spans.tree(spans.one(READ)) == [f"{READ} [a]", "  read a [a]"]
    assert told(spans) == {"read a [a]": ("first", "answered")}


def test_a_hedge_shows_who_answered_and_who_was_abandoned(spans: Spans, clusters: Pair):
    clusters.a.gate.clear()
    assert read(clusters) == "b"
    assert told(spans) == {"read a [a]": ("first", "abandoned"), "read b [b]": ("hedge", "answered")}
    assert spans.tree(spans.one(READ)) == [f"{READ} [b]", "  read a [a]", "  read b [b]"]
    assert all(span.end_time <= spans.one(READ).end_time for span in spans.all())


def test_a_failover_shows_what_failed(spans: Spans, clusters: Pair):
    clusters.a.fails = True
    assert read(clusters) == "b"
    assert told(spans) == {"read a [a]": ("first", "failed"), "read b [b]": ("failover", "answered")}
    assert spans.one("read a").attributes["error.type"] == "UnavailableError"


def test_a_page_that_nobody_answers_fails(spans: Spans, clusters: Pair):
    clusters.a.fails = clusters.b.fails = True
    with pytest.raises(UnavailableError):
        read(clusters)
    assert spans.one(READ).attributes["error.type"] == "UnavailableError"
    assert {outcome for _, outcome in told(spans).values()} == {"failed"}


def test_a_page_that_is_not_sampled_is_read_as_if_there_were_no_traces():
    spans = Spans(sample=0)
    clusters = Pair(clock=time.monotonic, tracer=spans.tracer)
    try:
        assert read(clusters) == "a"
        clusters.a.fails = True
        assert read(clusters) == "b"
    finally:
        clusters.close()
    assert spans.all() == []
