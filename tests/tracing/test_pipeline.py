"""One trace from a request to the cells of both clusters, through a real home in files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedstore.domain import Follow, Pin, SavePin, user
from feedstore.following import row_key
from feedstore.follows.port import Request
from feedstore.replicas.replicas import Replica
from feedstore.tracing.otel import LINKS_MAX
from feedstore.widecolumn import Mutation, RefusedError, UnavailableError
from feedstore.widecolumn.port import WideColumnStore
from tests.mutations import rows_of
from tests.replicas.fakes import until
from tests.tracing.recorded import Home, Spans, home_of, id_of, label, linked, trace_of
from workers.app import wiring
from workers.app.until import Idle

PIN = {"pin": "101", "owner": "2", "board": "9", "created_ms": 1_341_100_973_000}
ASKED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = ASKED[:-2] + "00"


@pytest.fixture
def home(tmp_path: Path, spans: Spans) -> Iterator[Home]:
    with home_of(tmp_path / "home", spans.tracer) as opened:
        yield opened


def test_the_trace_of_a_pin_goes_from_its_request_to_both_clusters(home: Home, spans: Spans):
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    home.client.post("/v1/pins", PIN, headers={"traceparent": ASKED, "x-request-id": "asked-7"})
    home.work()
    request = spans.one("POST /v1/pins")
    assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" == ASKED[3:-3]
    assert spans.tree(request) == [
        "POST /v1/pins",
        "  record",
        "    process feed.actions",
        "      process feed.deliveries [a]",
        "        apply following_feed [a]",
        "      process feed.deliveries [b]",
        "        apply following_feed [b]",
        "      send feed.deliveries",
        "    send feed.actions",
    ]
    assert {trace_of(span) for span in spans.all()} == {trace_of(request)}
    # In the task and in what it leads to, so that a span of a worker tells whose request it works on.
    of_request = [span.name for span in spans.all() if span.attributes.get("feedstore.request_id") == "asked-7"]
    assert sorted(of_request) == [
        "POST /v1/pins",
        "process feed.actions",
        "process feed.deliveries",
        "process feed.deliveries",
        "send feed.actions",
    ]
    assert request.attributes["http.response.status_code"] == 200


def test_a_task_has_the_id_of_its_request_however_long_it_is(home: Home, spans: Spans):
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    longest = "a" * 64
    home.client.post("/v1/pins", PIN, headers={"traceparent": ASKED, "x-request-id": longest})
    [row] = home.ports.follows.unrelayed(10)
    context = f"00-{ASKED[3:35]}-{id_of(spans.one('record')):016x}-01 {longest}"
    assert list(spans.tracer.carried([row.body])) == [context]
    home.work()
    assert [span.attributes["feedstore.request_id"] for span in spans.named("process feed.deliveries")] == [longest] * 2


def test_a_request_that_its_client_does_not_name_has_a_name_in_its_trace(home: Home, spans: Spans):
    named = home.client.http.post("/v1/pins", json=PIN).headers["x-request-id"]
    home.work()
    assert spans.one("POST /v1/pins").attributes["feedstore.request_id"] == named
    assert spans.one("process feed.actions").attributes["feedstore.request_id"] == named


def test_no_span_says_who_or_what_an_action_is_about(home: Home, spans: Spans):
    # Long enough to be in no identifier of a request or a trace by chance.
    follower, followee, pin, board, cursor = "777001001", "777002002", "777101101", "777009009", "777555555"
    home.client.post("/v1/follows", {"follower": follower, "user": followee})
    home.client.post("/v1/pins", {**PIN, "pin": pin, "owner": followee, "board": board})
    home.work()
    home.client.get(f"/v1/users/{follower}/feed")
    home.client.get(f"/v1/users/{follower}/feed?cursor={cursor}", 400)
    until(lambda: len(spans.named("GET /v1/users/{user}/feed")) == 2, "the end of both requests' spans")
    said = [f"{span.name} {dict(span.attributes)} {span.status.description}" for span in spans.all()]
    told = [each for each in said if any(number in each for number in (follower, followee, pin, board, cursor))]
    assert told == []
    assert all(not span.events for span in spans.all())


def test_what_a_client_did_not_sample_is_not_recorded_and_carries_nothing(home: Home, spans: Spans):
    home.client.post("/v1/pins", PIN, headers={"traceparent": UNSAMPLED})
    [row] = home.ports.follows.unrelayed(10)
    assert b"trace" not in row.body
    home.work()
    assert spans.all() == []


@pytest.mark.parametrize(
    "sent", ["", "00-zz", ASKED + "0", ASKED.replace("0af7", "0AF7"), "00-" + "0" * 32 + ASKED[35:]]
)
def test_what_is_no_context_begins_a_trace(home: Home, spans: Spans, sent: str):
    home.client.post("/v1/pins", PIN, headers={"traceparent": sent})
    until(lambda: spans.named("POST /v1/pins"), "the end of the request's span")
    assert spans.one("POST /v1/pins").parent is None


def test_a_lot_of_many_actions_is_one_span_with_links_to_their_traces(home: Home, spans: Spans):
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    for pin in ("101", "102", "103"):
        home.client.post("/v1/pins", {**PIN, "pin": pin})
    home.work()
    records = spans.named("record")
    assert len({trace_of(span) for span in records}) == 3
    for name, before in (
        ("send feed.actions", records),
        ("process feed.actions", records),
        ("process feed.deliveries", [each for each in spans.named("process feed.actions") if each.parent]),
    ):
        whole = {label(each): each for each in spans.named(name) if each.parent is None}
        assert whole
        for each in whole.values():
            # The step of the lot links to each, and each has its own step, which links back.
            assert linked(each) == {id_of(span) for span in before}
            assert each.attributes["messaging.batch.message_count"] == 3 or name == "process feed.deliveries"
            mine = [span for span in spans.named(name) if span.parent is not None and label(span) == label(each)]
            assert [linked(span) for span in mine] == [{id_of(each)}] * 3
            assert {(trace_of(span), span.parent.span_id) for span in mine} == {
                (trace_of(span), id_of(span)) for span in before
            }
    assert {label(span) for span in spans.named("process feed.deliveries")} == {
        "process feed.deliveries [a]",
        "process feed.deliveries [b]",
    }


def test_the_links_of_a_lot_are_bounded(home: Home, spans: Spans):
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    count = LINKS_MAX + 5
    for pin in range(count):
        mine = {"pin": str(1_000 + pin), "owner": str(2_000 + pin), "board": str(3_000 + pin)}
        home.client.post("/v1/pins", {**PIN, **mine})
    home.work()
    [whole] = [span for span in spans.named("process feed.actions") if span.parent is None]
    assert len(whole.links) == LINKS_MAX
    assert whole.attributes["messaging.batch.message_count"] == count
    assert len([span for span in spans.named("process feed.actions") if span.parent]) == LINKS_MAX


def test_many_actions_of_one_request_are_one_trace(home: Home, spans: Spans):
    pins = [Pin(1_000 + number, owner=2, board=9, created_ms=1_341_100_973_000) for number in range(5)]
    home.ports.follows.record([Request(SavePin(pin)) for pin in pins] + [Request(Follow(1, user(2)))])
    home.work()
    record = spans.one("record")
    assert {trace_of(span) for span in spans.all()} == {trace_of(record)}
    assert spans.one("process feed.actions").attributes["messaging.batch.message_count"] == 6


def test_a_purge_and_its_refill_stay_in_the_trace_of_their_unfollow(home: Home, spans: Spans):
    home.client.post("/v1/pins", PIN)
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    home.client.delete("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    unfollow = spans.one("DELETE /v1/follows")
    mine = [label(span) for span in spans.all() if trace_of(span) == trace_of(unfollow)]
    # The writers ask for refills, which go through the outbox again.
    assert mine.count("process feed.actions") > 1
    assert {"process feed.deliveries [a]", "process feed.deliveries [b]"} <= set(mine)


class Away:
    """A table of which the first `fails` writes to the feed of user 1 fail: witnesses are written once a second."""

    def __init__(self, store: WideColumnStore, fails: int) -> None:
        self._store = store
        self._fails = fails

    def apply(self, batch: Sequence[Mutation]) -> None:
        if self._fails and row_key(1) in rows_of(batch):
            self._fails -= 1
            raise UnavailableError("secret-host:9090 is away")
        self._store.apply(batch)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def work_with_feeds_of_b(home: Home, made: Callable[[Any], Any]) -> None:
    """Works until everything has landed. made: what the writer of b gets in place of its table of feeds."""
    tables = home.ports.replicas["b"].tables
    replica = Replica("b", {**tables, "following_feed": made(tables["following_feed"])})
    failing = replace(home.ports, replicas={**home.ports.replicas, "b": replica})
    landed = Idle(failing, home.config, lambda: failing.replicas)
    wiring.worker(failing, home.config).run(landed)


def test_each_attempt_at_a_delivery_is_a_step_of_its_trace(home: Home, spans: Spans):
    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    home.client.post("/v1/pins", PIN)
    work_with_feeds_of_b(home, lambda table: Away(table, 2))
    attempts = [span for span in spans.named("process feed.deliveries") if label(span).endswith("[b]")]
    assert [span.attributes.get("error.type") for span in attempts] == ["UnavailableError", "UnavailableError", None]
    [expanded] = spans.named("process feed.actions")
    assert {span.parent.span_id for span in attempts} == {id_of(expanded)}
    assert "secret-host" not in str([span.to_json() for span in spans.all()])


def test_a_message_that_is_given_up_is_buried_in_its_trace(home: Home, spans: Spans):
    class Refusing(Away):
        def apply(self, batch: Sequence[Mutation]) -> None:
            if row_key(1) in rows_of(batch):
                raise RefusedError("never")
            super().apply(batch)

    home.client.post("/v1/follows", {"follower": "1", "user": "2"})
    home.work()
    spans.clear()
    home.client.post("/v1/pins", PIN)
    work_with_feeds_of_b(home, lambda table: Refusing(table, 0))
    buried = spans.one("bury feed.deliveries")
    assert buried.attributes["feedstore.reason"] == "refused"
    assert buried.parent.span_id == id_of(spans.one("process feed.actions"))
