"""One trace through the real servers: from a request over HTTP, through MariaDB and Kafka, to the cells of both HBase
clusters, each step in a process of its own; and a page with its hedge.
"""

import itertools
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from deploy.local import Stack
from tests.cli.command import Cli
from tests.http.http_servers import Client, client_of, feedctl_serve
from tests.stack import homes
from tests.stack.homes import eventually
from tests.stack.own_home import own_home
from tests.tracing.receiver import Receiver, receiving

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

TRACE = 7
ASKED = {"traceparent": f"00-{TRACE:032x}-{TRACE:016x}-01", "x-request-id": "asked-7"}
PIN = {"pin": "101", "owner": "2", "board": "9", "created_ms": 1_341_100_973_000}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


@pytest.fixture(scope="module")
def home(stack: Stack, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Whose processes send their spans to the receiver. Only what a client asks for is recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEED_TRACES_ENDPOINT", receiver.address)
        patch.setenv("FEED_TRACES_SAMPLE", "0")
        with own_home(stack, tmp_path_factory.mktemp("spans") / "home") as cli:
            parts = list(homes.parts_of(cli).values())
            with homes.telling(stack, parts), homes.running(parts):
                yield cli


@pytest.fixture
def client(home: Cli) -> Iterator[Client]:
    with feedctl_serve(home) as (_, address), client_of(address) as asking:
        yield asking


def attribute(span: Span, key: str) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == key), "")


def said(receiver: Receiver) -> set[str]:
    """The spans of the trace: the program, the name, and the cluster."""
    mine = [(service, span) for service, span in receiver.spans() if int.from_bytes(span.trace_id) == TRACE]
    return {
        f"{service.removeprefix('feedstore-')}: {span.name} {attribute(span, 'feedstore.cluster')}".rstrip()
        for service, span in mine
    }


def test_the_trace_of_a_pin_goes_from_its_request_to_both_clusters(client: Client, receiver: Receiver) -> None:
    client.post("/v1/follows", {"follower": "1", "user": "2"})
    client.post("/v1/pins", {**PIN, "pin": "100"})
    # Expanded together with the follow, the pin that is traced could reach the clusters with that.
    eventually(lambda: client.get("/v1/users/1/feed")["entries"], "the follow has landed")
    client.post("/v1/pins", PIN, headers=ASKED)
    wanted = {
        "serve: POST /v1/pins",
        "serve: record",
        "relay: send feed.actions",
        "expand: process feed.actions",
        "expand: send feed.deliveries",
        "write: process feed.deliveries a",
        "write: apply following_feed a",
        "write: process feed.deliveries b",
        "write: apply following_feed b",
    }
    eventually(lambda: wanted <= said(receiver), f"all of {sorted(wanted)}")
    mine = {span.span_id: span for _, span in receiver.spans() if int.from_bytes(span.trace_id) == TRACE}
    roots = [span for span in mine.values() if span.parent_span_id not in mine]
    assert [(span.name, int.from_bytes(span.parent_span_id)) for span in roots] == [("POST /v1/pins", TRACE)], (
        "one tree"
    )
    of_request = {span.name for span in mine.values() if attribute(span, "feedstore.request_id") == "asked-7"}
    assert {"POST /v1/pins", "process feed.actions", "process feed.deliveries"} <= of_request


def page(client: Client, number: int) -> str:
    """The cluster that served a page. number: of its trace."""
    headers = {**ASKED, "traceparent": f"00-{number:032x}-{number:016x}-01"}
    served_by: str = client.get("/v1/users/1/feed", headers=headers)["served_by"]
    return served_by


def reads(receiver: Receiver, number: int) -> dict[str, tuple[str, str]]:
    """Why each cluster was asked for a page, and what came of it."""
    return {
        attribute(span, "feedstore.cluster"): (attribute(span, "feedstore.why"), attribute(span, "feedstore.outcome"))
        for _, span in receiver.spans()
        if int.from_bytes(span.trace_id) == number and attribute(span, "feedstore.why")
    }


def test_a_page_shows_whom_it_asked_when_the_first_was_slow(stack: Stack, client: Client, receiver: Receiver) -> None:
    client.post("/v1/follows", {"follower": "1", "user": "2"})
    numbers = itertools.count(TRACE + 1)

    def without_a_hedge() -> str | None:
        """The cluster that is asked first. On a busy machine it may be so slow that the other one serves the page."""
        number = next(numbers)
        served_by = page(client, number)
        eventually(lambda: served_by in reads(receiver, number), "the spans of a page")
        return served_by if reads(receiver, number) == {served_by: ("first", "answered")} else None

    first = eventually(without_a_hedge, "a page that is served by the cluster that is asked first")
    number = next(numbers)
    stack.suspend(f"hbase-{first}")
    try:
        other = page(client, number)
    finally:
        stack.up()
    assert other != first
    wanted = {first: ("first", "abandoned"), other: ("hedge", "answered")}
    eventually(lambda: len(reads(receiver, number)) == len(wanted), "the spans of both reads")
    assert reads(receiver, number) == wanted
