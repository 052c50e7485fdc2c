"""What every endpoint answers, by a real `feedctl serve` on a home in files. Each test has users of its own."""

import itertools
from typing import Any

import httpx
import pytest
from http_servers import Client

from tests.cli.command import eventually

MANY_BITS = 2**53 + 1
"""An id that a number of JavaScript cannot hold."""
_numbers = itertools.count(1)


@pytest.fixture
def ids() -> list[int]:
    """Ids that no other test uses."""
    start = next(_numbers) * 1_000
    return list(range(start, start + 100))


def feed(client: Client, user: int, **params: Any) -> list[str]:
    return [entry["pin"] for entry in client.get(f"/v1/users/{user}/feed", params=params)["entries"]]


def save(client: Client, pin: int, owner: int, board: int, **more: Any) -> Any:
    return client.post("/v1/pins", {"pin": str(pin), "owner": str(owner), "board": str(board), **more})


def test_a_pin_travels_into_the_feed_of_a_follower_and_leaves_it(client: Client, ids: list[int]):
    reader, owner, board, first, second, *_ = ids
    client.post("/v1/follows", {"follower": str(reader), "user": str(owner)})
    save(client, first, owner, board, created_ms=1_000)
    save(client, second, owner, board, created_ms=2_000)
    eventually(lambda: feed(client, reader) == [str(second), str(first)], "both pins arrive")

    [line, _] = client.get(f"/v1/users/{reader}/feed?hydrate=true")["entries"]
    assert line == {"pin": str(second), "created_ms": 2_000, "owner": str(owner), "board": str(board)}
    assert client.get(f"/v1/users/{reader}/feed/size")["entries"] == 2

    assert client.delete(f"/v1/pins/{second}")["deleted"] is True
    eventually(lambda: feed(client, reader) == [str(first)], "the deleted one goes")
    ended = client.delete("/v1/follows", {"follower": str(reader), "user": str(owner)})
    assert ended["follows"] is False
    eventually(lambda: feed(client, reader) == [], "the feed is empty")


def test_pages_join(client: Client, ids: list[int]):
    reader, owner, board, *pins = ids[:13]
    client.post("/v1/follows", {"follower": str(reader), "board": str(board)})
    for number, pin in enumerate(pins):
        save(client, pin, owner, board, created_ms=1_000 + number)
    expected = [str(pin) for pin in reversed(pins)]
    eventually(lambda: feed(client, reader) == expected, "all arrive")
    for hydrate in ("false", "true"):
        found, params = [], {"limit": "3", "hydrate": hydrate}
        while True:
            page = client.get(f"/v1/users/{reader}/feed", params=params)
            assert len(page["entries"]) <= 3
            assert page["user"] == str(reader)
            assert page["served_by"] in {"a", "b"}
            found += [entry["pin"] for entry in page["entries"]]
            if page["cursor"] is None:
                break
            params["cursor"] = page["cursor"]
        assert found == expected


def test_ids_keep_all_their_bits(client: Client, ids: list[int]):
    reader, owner, board, *_ = ids
    answer = save(client, MANY_BITS, owner, board)
    assert answer["pin"] == str(MANY_BITS)
    client.post("/v1/follows", {"follower": reader, "user": owner})  # numbers, as they are small enough
    eventually(lambda: feed(client, reader) == [str(MANY_BITS)], "it arrives")


def test_relations(client: Client, ids: list[int]):
    follower, user, board, other, *_ = ids
    assert client.get(f"/v1/users/{follower}/following") == {"user": str(follower), "following": [], "cursor": None}
    followed = client.post("/v1/follows", {"follower": str(follower), "user": str(user)})
    client.post("/v1/follows", {"follower": str(follower), "board": str(board)})
    client.post("/v1/follows", {"follower": str(other), "board": str(board)})

    assert client.get(f"/v1/users/{follower}/following/users/{user}") == followed
    nothing = {"follower": str(follower), "follows": False, "since_ms": None, "user": str(other)}
    assert client.get(f"/v1/users/{follower}/following/users/{other}") == nothing
    assert client.get(f"/v1/users/{other}/following/boards/{board}")["follows"] is True

    first = client.get(f"/v1/users/{follower}/following?limit=1")
    assert [line.get("board") for line in first["following"]] == [str(board)]
    second = client.get(f"/v1/users/{follower}/following", params={"limit": 1, "cursor": first["cursor"]})
    assert (second["following"], second["cursor"]) == ([followed], None)

    def followers(path: str) -> list[str]:
        return [line["follower"] for line in client.get(path)["followers"]]

    eventually(lambda: followers(f"/v1/boards/{board}/followers") == [str(follower), str(other)], "both are indexed")
    eventually(lambda: followers(f"/v1/users/{user}/followers") == [str(follower)], "it is indexed")
    page = client.get(f"/v1/boards/{board}/followers?limit=1")
    rest = client.get(f"/v1/boards/{board}/followers", params={"cursor": page["cursor"]})
    assert [line["follower"] for line in rest["followers"]] == [str(other)]


def test_why_a_pin_is_in_a_feed(client: Client, ids: list[int]):
    reader, owner, board, pin, *_ = ids
    save(client, pin, owner, board, created_ms=7_000)
    path = f"/v1/users/{reader}/feed/{pin}/why"
    assert client.get(path)["edges"] == []
    assert client.get(path)["clusters"] == {"a": False, "b": False}
    edge = client.post("/v1/follows", {"follower": str(reader), "board": str(board)})
    eventually(lambda: client.get(path)["clusters"] == {"a": True, "b": True}, "it lands in both")
    found = client.get(path)
    assert found["edges"] == [edge]
    assert (found["owner"], found["board"], found["created_ms"]) == (str(owner), str(board), 7_000)
    assert found["deleted_ms"] is None
    deleted = client.delete(f"/v1/pins/{pin}")
    eventually(lambda: client.get(path)["clusters"] == {"a": False, "b": False}, "it leaves both")
    assert client.get(path)["deleted_ms"] == deleted["committed_ms"]
    # One's own pins: no user follows himself, and that is no fault.
    assert client.get(f"/v1/users/{owner}/feed/{pin}/why")["edges"] == []
    assert client.get(f"/v1/users/{reader}/feed/{ids[50]}/why", 404)["reason"] == "pin_unknown"


def test_the_same_key_does_nothing_twice(client: Client, ids: list[int]):
    follower, user, other, *_ = ids
    body = {"follower": str(follower), "user": str(user)}
    key = {"idempotency-key": f"follow-{follower}"}
    first = client.post("/v1/follows", body, headers=key)
    assert client.post("/v1/follows", body, headers=key) == first
    assert client.post("/v1/follows", body)["since_ms"] > first["since_ms"]
    reused = client.post("/v1/follows", body | {"user": str(other)}, 409, headers=key)
    assert reused["reason"] == "key_reused"
    assert client.get(f"/v1/users/{follower}/following/users/{other}")["follows"] is False


@pytest.mark.parametrize("key", [None, "a-key"])
def test_a_pin_without_a_time_keeps_the_one_that_it_got(client: Client, ids: list[int], key: str | None):
    _, owner, board, pin, *_ = ids
    headers = {} if key is None else {"idempotency-key": f"{key}-{pin}"}
    body = {"pin": str(pin), "owner": str(owner), "board": str(board)}
    first = client.post("/v1/pins", body, headers=headers)
    assert client.post("/v1/pins", body, headers=headers) == first
    assert client.post("/v1/pins", body | {"owner": str(ids[50])}, 409)["type"].endswith(":action-refused")


def test_refused_actions_say_why(client: Client, ids: list[int]):
    _, owner, board, pin, other, *_ = ids
    save(client, pin, owner, board, created_ms=1_000)
    body = {"pin": str(pin), "owner": str(owner), "board": str(board), "created_ms": 2_000}
    assert client.post("/v1/pins", body, 409)["reason"] == "pin_differs"
    foreign = {"pin": str(other), "owner": str(other), "board": str(board)}
    assert client.post("/v1/pins", foreign, 409)["reason"] == "board_of_another_owner"
    client.delete(f"/v1/pins/{pin}")
    assert client.post("/v1/pins", body | {"created_ms": 1_000}, 409)["reason"] == "pin_deleted"
    assert client.delete(f"/v1/pins/{other}", status=404)["reason"] == "pin_unknown"


def test_status_and_metrics_say_how_it_is(client: Client):
    status = eventually(
        lambda: (found := client.get("/v1/status"))["clusters"][0]["watermark_ms"] and found, "a watermark"
    )
    assert [(cluster["name"], cluster["breaker"]) for cluster in status["clusters"]] == [
        ("a", "closed"),
        ("b", "closed"),
    ]
    assert [group["group"] for group in status["groups"]] == [
        "relay",
        "expander",
        "writer-a",
        "retries-a",
        "writer-b",
        "retries-b",
    ]
    assert status["dead_letters"] == 0
    client.get("/v1/users/1/feed")
    text = client.http.get("/metrics").text
    assert 'feed_http_requests_total{endpoint="feed",method="GET",status="200"}' in text
    assert 'feed_cluster_behind_seconds{cluster="a"}' in text
    assert 'feed_group_lag{group="writer-b"}' in text


def test_it_lives_and_is_ready(client: Client):
    assert client.get("/healthz") == {"status": "ok"}
    assert client.get("/readyz") == {"status": "ok"}


def test_a_request_has_an_id(client: Client):
    given = client.http.get("/healthz", headers={"x-request-id": "trace-1:a.b_c"})
    assert given.headers["x-request-id"] == "trace-1:a.b_c"
    made = {client.http.get("/healthz").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for strange in ("a b", "x" * 65, '"', ""):
        answer = client.http.get("/healthz", headers={"x-request-id": strange})
        assert answer.headers["x-request-id"] not in {strange, *made}


def test_head_is_get_without_the_body(client: Client):
    answer = client.http.head("/v1/users/1/feed")
    assert (answer.status_code, answer.content) == (200, b"")


def test_every_answer_is_typed_and_not_kept(client: Client):
    answer: httpx.Response = client.http.get("/v1/users/1/feed")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
