"""What is refused, and that every refusal is a problem document which says enough and not too much."""

import json

import pytest
from http_servers import Client, InProcess, check_problem, client_of, kind

from feedstore.boards import endpoints as board_endpoints
from feedstore.catalog import endpoints as catalog_endpoints
from feedstore.domain import MAX_ID, RESERVED_FROM
from feedstore.following import endpoints as following_endpoints
from feedstore.http import problems
from feedstore.http.incoming import BODY_BYTES_MAX
from tests.cli.command import eventually
from tests.replicas.fakes import USER

FOLLOW = {"follower": "1", "user": "2"}


@pytest.mark.parametrize(
    "given", ["0", "-1", "01", "1.0", "1e3", " 1", "x", "%00", "%F0%9F%98%80", "\u0661", str(MAX_ID + 1), "9" * 4_000]
)
@pytest.mark.parametrize("path", ["/v1/users/{}/feed", "/v1/users/1/following/boards/{}", "/v1/users/1/feed/{}/why"])
def test_ids_in_a_path_are_63_bits(client: Client, given: str, path: str):
    assert kind(client.get(path.format(given), 400)) == "invalid-value"


def test_the_largest_id_is_one(client: Client):
    assert client.get(f"/v1/users/{MAX_ID}/feed")["entries"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/follows", {"follower": str(RESERVED_FROM), "user": "2"}),
        ("/v1/follows", {"follower": "1", "user": str(MAX_ID)}),
        ("/v1/follows", {"follower": "1", "board": str(MAX_ID)}),
        ("/v1/pins", {"pin": str(RESERVED_FROM), "owner": "2", "board": "3"}),
        ("/v1/pins", {"pin": "1", "owner": str(MAX_ID), "board": "3"}),
        ("/v1/pins", {"pin": "1", "owner": "2", "board": str(MAX_ID)}),
    ],
)
def test_the_ids_of_the_canaries_are_no_real_ones(client: Client, path: str, body: dict[str, str]):
    document = client.post(path, body, 400)
    assert kind(document) == "invalid-value"
    assert "canaries" in document["detail"]


def test_a_canary_is_not_unfollowed_and_its_pin_is_not_deleted(client: Client):
    assert "canaries" in client.delete(f"/v1/pins/{MAX_ID}", status=400)["detail"]
    assert "canaries" in client.delete("/v1/follows", {"follower": "1", "user": str(MAX_ID)}, 400)["detail"]
    client.post("/v1/follows", {"follower": str(RESERVED_FROM - 1), "user": str(RESERVED_FROM - 2)})


@pytest.mark.parametrize("given", [0, -1, 2**53, 2**63, 1.5, True, None, "", "0", "1 ", str(MAX_ID + 1), [], {}])
def test_ids_in_a_body_are_strings_or_numbers_that_every_client_holds(client: Client, given: object):
    assert kind(client.post("/v1/follows", {"follower": given, "user": "2"}, 400)) == "invalid-value"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=",
        "limit=1&limit=2",
        "limit",
        "offset=1",
        "hydrate=perhaps",
        "&&&",
        "%FF=1",
        "limit=%FF",
        "cursor=",
        "cursor=" + "x" * 201,
        "&".join(f"x{number}=1" for number in range(100)),
    ],
)
def test_queries_are_what_is_described(client: Client, query: str):
    assert kind(client.get(f"/v1/users/1/feed?{query}", 400)) in {"invalid-value", "malformed-cursor"}


@pytest.mark.parametrize(
    "body",
    [
        FOLLOW | {"board": "3"},
        {"follower": "1"},
        {"user": "2"},
        FOLLOW | {"unknown": 1},
        {"follower": "1", "user": "1"},
        {"follower": "1", "user": None},
        [],
        "1",
    ],
)
def test_bodies_are_what_is_described(client: Client, body: object):
    assert kind(client.post("/v1/follows", body, 400)) == "invalid-value"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 10_000, b'{"follower":"1","user":"2"} x', b"\x00", b"null"]
)
def test_bodies_are_json(client: Client, body: bytes):
    headers = {"content-type": "application/json"}
    document = client.ask("POST", "/v1/follows", 400, content=body, headers=headers)
    assert kind(document) in {"malformed-json", "invalid-value"}


@pytest.mark.parametrize(
    "body", [b'{"follower":"1","user":"2","user":"3"}', b'{"follower": "1", "user": "2", "\\u0075ser" : "2"}']
)
def test_a_name_is_given_once_in_a_body(client: Client, body: bytes):
    """It is not guessed which of two values was meant."""
    document = client.ask("POST", "/v1/follows", 400, content=body, headers={"content-type": "application/json"})
    assert (kind(document), document["detail"]) == ("invalid-value", "the body: user is given twice")


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
def test_a_body_says_that_it_is_json(client: Client, given: str):
    """A browser sends these for a page of any website without asking first."""
    headers = {"content-type": given}
    content = json.dumps(FOLLOW)
    assert kind(client.ask("POST", "/v1/follows", 415, content=content, headers=headers)) == "unsupported-media-type"


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_a_body_is_sent_as_it_is(client: Client, coding: str):
    headers = {"content-type": "application/json", "content-encoding": coding}
    document = client.ask("POST", "/v1/follows", 415, content=json.dumps(FOLLOW), headers=headers)
    assert kind(document) == "unsupported-media-type"
    assert "Content-Encoding" in document["detail"]
    client.ask(
        "POST", "/v1/follows", 200, content=json.dumps(FOLLOW), headers={**headers, "content-encoding": "Identity"}
    )


def test_a_body_is_bounded_whether_its_length_is_announced_or_not(client: Client):
    content = json.dumps(FOLLOW).encode().ljust(BODY_BYTES_MAX + 1)
    headers = {"content-type": "application/json"}
    assert kind(client.ask("POST", "/v1/follows", 413, content=content, headers=headers)) == "body-too-large"
    chunks = iter([content[:100], content[100:]])
    assert kind(client.ask("POST", "/v1/follows", 413, content=chunks, headers=headers)) == "body-too-large"
    client.ask("POST", "/v1/follows", 200, content=content[:BODY_BYTES_MAX], headers=headers)


@pytest.mark.parametrize("key", ["x" * 129, ""])
def test_a_key_is_short_and_printable(client: Client, key: str):
    assert kind(client.post("/v1/follows", FOLLOW, 400, headers={"idempotency-key": key})) == "invalid-value"


def test_two_keys_of_one_request_are_refused(client: Client):
    """A repetition that came by another way, with one of them only, could take effect a second time."""
    keys = [("idempotency-key", "first"), ("idempotency-key", "second")]
    refused = client.post("/v1/follows", FOLLOW, 400, headers=keys)
    assert kind(refused) == "invalid-value"
    assert "Idempotency-Key" in refused["detail"]


def test_paths_and_methods_that_are_not_there(client: Client):
    for path in (
        "/v1",
        "/v1/users/1",
        "/v1/users/1/feed/",
        "/v1//feed",
        "/v2/users/1/feed",
        "/etc/passwd",
        "/../x",
        "/healthz%0A",
    ):
        assert kind(client.get(path, 404)) == "not-found"
    answer = client.http.put("/v1/follows")
    check_problem(answer)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"DELETE", "POST"}
    assert answer.json()["detail"] == "this path allows: DELETE, POST"
    assert client.http.post("/healthz").status_code == 405


def test_without_the_follow_store_it_is_ready_for_pages_and_refuses_actions(inside: InProcess):
    with client_of(inside.server.address) as client:
        inside.follows.close()
        document = client.post("/v1/follows", {"follower": "1", "user": "2"}, 503)
        assert kind(document) == "follow-store-unavailable"
        assert "same Idempotency-Key" in document["detail"]
        read = client.get("/v1/users/1/following", 503)
        assert (kind(read), read["detail"]) == ("follow-store-unavailable", "try again")
        assert client.get("/v1/users/1/feed")["entries"] == []
        assert client.get("/readyz") == {"status": "ok"}


def test_what_is_unavailable_may_be_asked_again_and_names_no_server(inside: InProcess):
    with client_of(inside.server.address) as client:
        inside.pair.a.fails = inside.pair.b.fails = True
        document = client.get(f"/v1/users/{USER}/feed", 503)
        assert kind(document) == "clusters-unavailable"
        assert "out of order" not in json.dumps(document)
        assert kind(client.get("/readyz", 503)) == "clusters-unavailable"
        assert client.get("/healthz") == {"status": "ok"}
        inside.queues.away = True
        status = client.get("/v1/status")
        assert (status["groups"], status["dead_letters"]) == (None, None)
        assert [cluster["name"] for cluster in status["clusters"]] == ["a", "b"]
        assert "feed_group_lag" not in client.http.get("/metrics").text


def test_a_queue_that_hangs_keeps_neither_metrics_nor_the_status_waiting(
    inside: InProcess, monkeypatch: pytest.MonkeyPatch
):
    """A server that says nothing while a broker hangs would hide that its pages are well."""
    monkeypatch.setattr("feedstore.http.queues.STATE_S", 0.05)
    inside.queues.gate.clear()
    with client_of(inside.server.address) as client:
        for _ in range(6):  # more than there are threads for it
            assert client.get("/v1/status")["groups"] is None
            assert "feed_group_lag{" not in client.http.get("/metrics").text
        inside.queues.gate.set()
        eventually(lambda: client.get("/v1/status")["groups"], "it is asked again")


def test_a_fault_is_a_problem_too(inside: InProcess, monkeypatch: pytest.MonkeyPatch):
    def broken() -> None:
        raise ZeroDivisionError("a secret of the code")

    monkeypatch.setattr(inside.service, "clusters", broken)
    with client_of(inside.server.address) as client:
        document = client.get("/v1/status", 500)
    assert kind(document) == "internal"
    assert "secret" not in json.dumps(document)


def test_every_kind_has_a_type_of_its_own():
    modules = (problems, board_endpoints, catalog_endpoints, following_endpoints)
    kinds = {each for module in modules for each in vars(module).values() if isinstance(each, problems.Kind)}
    assert len(kinds) > 20
    assert len({each.type for each in kinds}) == len(kinds)
