"""Boards over HTTP: pages, moves, refusals, and what a client may not do."""

import threading
from pathlib import Path
from typing import Any

import pytest
from http_servers import Client, InProcess, check_problem, client_of, in_process, kind

from feedstore.boards import Boards, Move
from feedstore.boards.wire import CURSOR_CHARS_MAX
from feedstore.domain import DeletePin, Pin, SavePin
from feedstore.follows.arranging import Arranged, PlacedRow
from feedstore.follows.port import Request
from feedstore.http.tokens import issue
from tests.cli.command import eventually
from tests.replicas.fakes import NOW_MS

BOARD, OWNER = 9, 2
PINS = [16, 15, 14, 13, 12, 11]
"""The board, from the top."""
URL = f"/v1/boards/{BOARD}/pins"


def save(inside: InProcess, pins: list[int], board: int = BOARD) -> None:
    saved = [Pin(pin, OWNER, board, 1_000 + pin) for pin in pins]
    recorded = inside.follows.record([Request(SavePin(pin)) for pin in saved])
    inside.follows.index(pins=recorded)  # type: ignore[arg-type]  # none is refused


@pytest.fixture
def board(inside: InProcess) -> InProcess:
    save(inside, PINS)
    return inside


@pytest.fixture
def web(board: InProcess) -> Any:
    with client_of(board.server.address) as client:
        yield client


def order(client: Client) -> list[int]:
    return [int(line["pin"]) for line in client.get(f"{URL}?limit=500")["pins"]]


def place(client: Client, pin: int, status: int = 200, **body: Any) -> Any:
    return client.post(f"{URL}/{pin}/place", body, status)


def test_a_pin_goes_where_it_is_put(web: Client):
    assert order(web) == PINS
    placed = place(web, 11, before="15", after="14")
    assert order(web) == [16, 15, 11, 14, 13, 12]
    assert placed["changed"]
    assert placed["moved_ms"] == NOW_MS
    lines = {line["pin"]: line for line in web.get(URL)["pins"]}
    assert lines["11"]["sequence"] == placed["sequence"]
    assert lines["12"]["moved_ms"] is None
    assert int(placed["sequence"]) == (int(lines["15"]["sequence"]) + int(lines["14"]["sequence"])) // 2
    place(web, 16, to="bottom")
    place(web, 13, to="top")
    place(web, 12, after="15")
    place(web, 15, before=14)
    assert order(web) == [13, 12, 11, 14, 15, 16]


def test_a_repeated_request_is_harmless(web: Client):
    key = {"idempotency-key": "k"}
    first = web.post(f"{URL}/11/place", {"before": "15"}, headers=key)
    again = web.post(f"{URL}/11/place", {"before": "15"}, headers=key)
    assert again == first | {"changed": False}
    assert order(web) == [16, 15, 11, 14, 13, 12]
    # A key is not kept: another request with it is one of its own.
    assert web.post(f"{URL}/11/place", {"before": "16"}, headers=key)["changed"]


def test_pages_join_and_their_cursors_are_of_this_board(web: Client):
    place(web, 11, to="top")
    found, params = [], {"limit": "2"}
    while True:
        page = web.get(URL, params=params)
        assert page["board"] == str(BOARD)
        found += [int(line["pin"]) for line in page["pins"]]
        if page["cursor"] is None:
            break
        assert len(page["cursor"]) <= CURSOR_CHARS_MAX
        params["cursor"] = page["cursor"]
    assert found == [11, 16, 15, 14, 13, 12]
    for path, cursor in (
        ("/v1/boards/8/pins", params["cursor"]),
        (URL, params["cursor"][:-1] + ("A" if params["cursor"][-1] != "A" else "B")),
        (URL, params["cursor"][22:]),
        (URL, "x"),
    ):
        assert kind(web.get(path, 400, params={"cursor": cursor})) == "malformed-cursor"


def test_a_page_begins_anywhere_and_goes_both_ways(web: Client):
    def pins(page: Any) -> list[int]:
        return [int(line["pin"]) for line in page["pins"]]

    top = web.get(f"{URL}?limit=2&start=top")
    assert (pins(top), top["above"]) == ([16, 15], None)
    last = web.get(f"{URL}?limit=2&start=bottom")
    assert (pins(last), last["cursor"]) == ([12, 11], None)
    up = web.get(URL, params={"limit": "2", "cursor": last["above"]})
    assert pins(up) == [14, 13]
    assert pins(web.get(URL, params={"limit": "2", "cursor": up["cursor"]})) == [12, 11]
    first = web.get(URL, params={"limit": "2", "cursor": up["above"]})
    assert (pins(first), first["above"]) == ([16, 15], None)
    sequence = int(up["pins"][0]["sequence"])
    for start, then in ((sequence, [14, 13]), (sequence - 1, [13, 12]), (0, []), (10**38 - 1, [16, 15])):
        assert pins(web.get(f"{URL}?limit=2&start={start}")) == then
    assert kind(web.get(URL, 400, params={"cursor": up["cursor"], "start": "top"})) == "invalid-value"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "cursor=",
        "cursor=" + "x" * (CURSOR_CHARS_MAX + 1),
        "at=1",
        "start=",
        "start=middle",
        "start=-1",
        "start=5%0A",
        "start=top%0A",
        "start=" + 39 * "9",
    ],
)
def test_queries_are_what_is_described(web: Client, query: str):
    assert kind(web.get(f"{URL}?{query}", 400)) == "invalid-value"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before": "11"},
        {"before": "15", "after": "15"},
        {"before": "15", "to": "top"},
        {"to": "middle"},
        {"before": "0"},
        {"before": 2**53},
        {"above": "15"},
        [],
    ],
)
def test_a_place_that_cannot_be_is_refused(web: Client, body: Any):
    assert kind(web.post(f"{URL}/11/place", body, 400)) == "invalid-value"
    assert order(web) == PINS


def test_a_refusal_has_its_reason_and_what_is_between(board: InProcess, web: Client):
    save(board, [21], board=8)
    apart = place(web, 11, 409, before="16", after="13")
    assert (kind(apart), apart["reason"], apart["between"]) == ("action-refused", "neighbours_apart", ["15", "14"])
    assert place(web, 11, 409, before="13", after="16")["reason"] == "neighbours_reversed"
    assert place(web, 11, 409, before="21")["reason"] == "pin_elsewhere"
    assert place(web, 21, 409, to="top")["reason"] == "pin_elsewhere"
    unknown = place(web, 404, 404, to="top")
    assert unknown["reason"] == "pin_unknown"
    assert "between" not in unknown
    assert place(web, 11, 404, after="404")["reason"] == "pin_unknown"
    board.follows.record([Request(DeletePin(15))])
    assert place(web, 11, 409, before="15")["reason"] == "pin_deleted"
    assert order(web) == PINS, "the handler of the deletion has not been there"


def test_a_crowded_board_asks_for_a_second(board: InProcess, web: Client):
    crowd = list(range(101, 901))
    save(board, crowd)
    rows = [PlacedRow(pin, 10**28 - pin, 999, 1_000 + pin, 0) for pin in crowd]
    board.follows.arrange(BOARD, (), lambda _now, _rows: (Arranged(placed=rows), None))
    answer = web.http.post(f"{URL}/11/place", json={"before": "500", "after": "501"})
    check_problem(answer)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert kind(answer.json()) == "board-crowded"


def test_a_store_that_is_away_is_a_problem_that_may_be_asked_again(board: InProcess, web: Client):
    board.follows.close()
    read, moved = web.get(URL, 503), place(web, 11, 503, to="top")
    assert kind(read) == kind(moved) == "follow-store-unavailable"
    assert read["detail"] == "try again"
    assert "harmless" in moved["detail"], "neither takes a key"


def test_metrics_count_what_became_of_reorders(board: InProcess, web: Client):
    place(web, 11, before="15", after="14")
    place(web, 11, before="15")
    place(web, 11, 409, before="16", after="13")
    text = web.http.get("/metrics").text
    for line in (
        'feed_board_reorders_total{outcome="moved"} 1.0',
        'feed_board_reorders_total{outcome="unchanged"} 1.0',
        'feed_board_reorders_total{outcome="neighbours_apart"} 1.0',
        "feed_board_reorder_seconds_count 2.0",
        'feed_board_room_bits_bucket{le="60"} 0.0',
        'feed_board_room_bits_bucket{le="83"} 1.0',
    ):
        assert line in text, line


def test_a_reorder_that_waits_keeps_no_other_request_waiting(
    board: InProcess, web: Client, monkeypatch: pytest.MonkeyPatch
):
    waits, may_go = threading.Event(), threading.Event()
    reorder = Boards.reorder

    def waiting(self: Boards, move: Move) -> Any:
        waits.set()
        assert may_go.wait(60)
        return reorder(self, move)

    monkeypatch.setattr(Boards, "reorder", waiting)
    thread = threading.Thread(target=lambda: place(web, 11, to="top"))
    thread.start()
    try:
        assert waits.wait(60)
        with client_of(board.server.address) as other:
            assert other.get("/healthz") == {"status": "ok"}
            assert len(other.get(URL)["pins"]) == len(PINS)
    finally:
        may_go.set()
        thread.join(60)
    assert order(web)[0] == 11


def test_only_an_operator_resets_an_order(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    path = home / "tokens.toml"
    web, operator = (issue(path, name, [scope]) for name, scope in (("web", "write"), ("operator", "operate")))
    with in_process(home, 'tokens = "tokens.toml"\n') as inside:
        many = list(range(1_000, 10_000))
        save(inside, many[:500])
        rows = [PlacedRow(pin, 10**28 + pin * 10**9, 1_000, 1_000 + pin, 1) for pin in many]
        inside.follows.arrange(BOARD, (), lambda _now, _rows: (Arranged(placed=rows), None))
        with client_of(inside.server.address, web, operator) as client:
            client.ask("DELETE", f"/v1/boards/{BOARD}/order", 403)
            answers = [client.operator.delete(f"/v1/boards/{BOARD}/order").json()["done"] for _ in range(3)]
            inside.follows.close()
            away = client.operator.delete(f"/v1/boards/{BOARD}/order")
            assert (away.status_code, kind(away.json())) == (503, "follow-store-unavailable")
            assert "harmless" in away.json()["detail"], "it takes no key"
        assert answers == [False, True, True], "8,192 places a request"


def test_a_board_arranged_over_http_by_a_real_server(client: Client):
    pins = [9_900_001, 9_900_002, 9_900_003]
    for number, pin in enumerate(pins):
        body = {"pin": str(pin), "owner": "990", "board": "991", "created_ms": 1_000 + number}
        client.post("/v1/pins", body)
    path = "/v1/boards/991/pins"

    def shown() -> list[int]:
        return [int(line["pin"]) for line in client.get(path)["pins"]]

    eventually(lambda: shown() == pins[::-1], "the pins are indexed")
    client.post(f"{path}/{pins[0]}/place", {"before": str(pins[2]), "after": str(pins[1])})
    assert shown() == [pins[2], pins[0], pins[1]]
    client.delete(f"/v1/pins/{pins[0]}")
    eventually(lambda: shown() == [pins[2], pins[1]], "the deletion has been there")
