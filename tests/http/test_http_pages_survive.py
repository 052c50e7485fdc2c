"""Hydrated pages, by a real server, while what they are made from is away: in time, and saying how far behind."""

import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from catalog_servers import KNOWN_MS, Shelf, shelf
from http_servers import Client, client_of, kind

from feedstore.catalog.cache import Lifetimes
from feedstore.following.service import FeedService
from feedstore.follows.port import FollowStoreUnavailableError
from tests.replicas.fakes import LONG_S, NOW_MS, USER

PINS = range(1, 11)
ALL = [str(pin) for pin in reversed(PINS)]
BEHIND_MS = NOW_MS - KNOWN_MS
PATH = f"/v1/users/{USER}/feed?hydrate=true"
either = pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])


def pins(page: dict[str, Any]) -> list[str]:
    return [line["pin"] for line in page["entries"]]


@either
def test_without_the_follow_store(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS)
    on.stop(clusters="", hangs=hangs)
    page = web.get(PATH)
    assert pins(page) == ALL
    assert page["entries"][0] == {"pin": "10", "created_ms": 1_010, "owner": "2", "board": "9"}
    assert page["behind_ms"] == BEHIND_MS
    assert not on.follows.asked


@either
def test_without_the_follow_store_new_pins_are_left_out_and_it_is_said(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS, catalog=range(1, 9))
    assert pins(web.get(PATH)) == ALL
    on.stop(clusters="", hangs=hangs)
    page = web.get(PATH)
    assert pins(page) == ALL[2:]
    assert page["behind_ms"] == BEHIND_MS
    assert page["cursor"] is None


@either
def test_without_one_cluster(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS)
    on.stop(clusters="a", hangs=hangs)
    page = web.get(PATH)
    assert pins(page) == ALL
    assert page["behind_ms"] == BEHIND_MS


def test_without_the_updater_pages_say_how_far_behind_they_are(on: Shelf, web: Client):
    on.fill(PINS, known_ms=NOW_MS - 2_500)
    page = web.get(PATH)
    assert (pins(page), page["behind_ms"]) == (ALL, 2_500)


def test_deleted_pins_leave_by_the_catalog_alone(on: Shelf, web: Client):
    on.fill(PINS)
    on.stop(clusters="", hangs=False)
    on.delete(7)
    assert pins(web.get(PATH)) == [pin for pin in ALL if pin != "7"]


@either
def test_without_any_cluster_the_follow_store_answers_in_time(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS)
    on.stop(follows=False, hangs=hangs)
    page = web.get(PATH)
    assert (pins(page), page["behind_ms"]) == (ALL, 10), "as far behind as the feed"


@either
def test_without_everything_what_is_held_is_shown(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS)
    first = web.get(PATH)
    on.stop(hangs=hangs)
    assert web.get(PATH) == first


@either
def test_what_is_held_for_too_long_is_shown_if_nothing_answers(tmp_path: Path, hangs: bool):
    with shelf(tmp_path / "home", lifetimes=Lifetimes(ttl_ms=0)) as on, client_of(on.address) as web:
        on.fill(PINS)
        first = web.get(PATH)
        on.stop(hangs=hangs)
        assert web.get(PATH) == first
        assert 'feed_catalog_keys_total{catalog="pins",outcome="stale"} 10.0' in web.http.get("/metrics").text


@either
def test_without_everything_and_with_nothing_held_it_is_a_problem_that_passes(on: Shelf, web: Client, hangs: bool):
    on.fill(PINS)
    on.stop(hangs=hangs)
    refused = web.get(PATH, 503)
    assert kind(refused) == "catalog-unavailable"
    assert "secret" not in str(refused)
    assert web.get(f"/v1/users/{USER}/feed")["entries"], "pages of ids need none of it"


def test_requests_that_wait_for_the_follow_store_keep_no_page_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waiting, may_go = threading.Semaphore(0), threading.Event()
    ended: SimpleQueue[int] = SimpleQueue()

    def following(*_: object) -> Any:
        waiting.release()
        assert may_go.wait(LONG_S)
        raise FollowStoreUnavailableError("out of order")

    def ask(address: str) -> None:
        with client_of(address) as client:
            ended.put(client.http.get("/v1/users/1/following").status_code)

    monkeypatch.setattr(FeedService, "following", following)
    with shelf(tmp_path / "home", "threads = 2\n") as on, client_of(on.address) as web:
        on.fill(PINS)
        others = [threading.Thread(target=ask, args=(on.address,), daemon=True) for _ in range(2)]
        try:
            for each in others:
                each.start()
                assert waiting.acquire(timeout=LONG_S)
            assert pins(web.get(PATH)) == ALL
            assert web.get(f"/v1/users/{USER}/feed")["entries"]
            assert web.post("/v1/catalogs/pins/get", {"keys": ["1"]})["records"]
            assert web.get("/v1/catalogs")["catalogs"]
            assert web.get("/readyz") == {"status": "ok"}, "no balancer takes it away"
        finally:
            may_go.set()
            for each in others:
                each.join(LONG_S)
    assert [ended.get_nowait() for _ in others] == [503, 503]
