"""Catalogs over HTTP: their state, records by key, swaps, metrics, refusals."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from catalog_servers import KNOWN_MS, NEW_MS, OLD_MS, Shelf, shelf
from described import a_few, ask, schema_of
from http_servers import Client, client_of, feedctl_serve, kind
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.schemas import BaseSchema

from feedstore.app.http import ENDPOINTS
from feedstore.catalog.endpoints import ENDPOINTS as OF_CATALOGS
from feedstore.catalog.pins import key_of, record_of
from feedstore.catalog.port import MAX_RECORD_BYTES, Update
from feedstore.catalog.posting import AHEAD_MAX_MS
from feedstore.domain import Pin
from feedstore.http.tokens import issue
from tests.cli.command import Cli, eventually
from tests.replicas.fakes import LONG_S, NOW_MS

PINS = range(1, 11)
GET, ADS = "/v1/catalogs/pins/get", "/v1/catalogs/ads/get"


def state(client: Client, name: str = "pins") -> Any:
    return next(each for each in client.get("/v1/catalogs")["catalogs"] if each["name"] == name)


def is_watched(client: Client, name: str = "pins") -> Any:
    """Its state, once each cluster's generations have been heard of."""
    return eventually(
        lambda: (found := state(client, name)) and all(each["generations"] for each in found["clusters"]) and found,
        "the generations are known",
    )


# Their state
# --------------------------------------------------------------------------------------------------------------------


def test_each_cluster_has_its_generations_and_how_far_it_is(on: Shelf, web: Client):
    on.fill(PINS)
    a, b = eventually(
        lambda: (
            (found := is_watched(web)["clusters"]) and all(each["known_ms"] == KNOWN_MS for each in found) and found
        ),
        "the updates are known",
    )
    old, new = a["generations"]
    assert (old["as_of_ms"], old["records"], old["bytes"], old["current"]) == (OLD_MS, 10, None, False)
    assert (new["as_of_ms"], new["records"], new["bytes"], new["current"]) == (NEW_MS, 10, None, True)
    assert (a["name"], b["name"]) == ("a", "b")
    assert (a["floor_ms"], a["behind_ms"], a["delta_entries"], a["answered_ms"]) == (1, NOW_MS - KNOWN_MS, 0, NOW_MS)


def test_it_counts_what_reads_found(on: Shelf, web: Client):
    assert (state(web)["hit_rate"], state(web)["missing_rate"]) == (None, None)
    on.fill(PINS)
    for _ in range(4):
        web.post(GET, {"keys": [1, 2, 3, 999]})
    found = state(web)
    assert found["keys"]["hit"] == 9
    assert (found["hit_rate"], found["missing_rate"]) == (9 / 16, 4 / 16)
    assert found["cache_bytes"] > 0


def test_a_cluster_that_hangs_delays_no_answer_about_it(on: Shelf, web: Client):
    on.pins["a"].gate.clear()
    on.fill(PINS)
    found = eventually(lambda: (each := state(web)["clusters"])[1]["generations"] and each, "b is known")
    assert found[1]["answered_ms"] == NOW_MS
    families = {each.name: each for each in text_string_to_metric_families(web.http.get("/metrics").text)}
    assert ("pins", "b") in {
        (each.labels["catalog"], each.labels["cluster"]) for each in families["feed_catalog_records"].samples
    }


# Records by key
# --------------------------------------------------------------------------------------------------------------------


def test_pins_by_their_ids(on: Shelf, web: Client):
    on.fill(PINS)
    on.delete(3)
    found = web.post(GET, {"keys": ["1", 2, "3", "999", "1"]})
    assert found["records"] == {
        "1": {"owner": "2", "board": "9", "created_ms": 1_001},
        "2": {"owner": "2", "board": "9", "created_ms": 1_002},
    }
    assert found["missing"] == ["3", "999"]
    assert (found["unanswered"], found["stale"], found["base64"]) == ([], [], {})
    assert found["behind_ms"] == NOW_MS - KNOWN_MS
    assert found["generation"] in {ids(on, cluster)[1] for cluster in "ab"}
    assert web.post(GET, {"keys": ["1"]})["generation"] is None, "it is held"


def test_records_of_other_catalogs_are_json_as_it_is_or_base64(on: Shelf, web: Client):
    on.load(on.ads, [(b"a", b'{"bid": 123456789012345678901234567890}'), (b"b", b'"x"'), (b"c", b"\xff\x00")])
    answer = web.http.post(ADS, json={"keys": ["c", "b", "a", "d"]})
    assert '{"bid": 123456789012345678901234567890}' in answer.text, "no digit is lost"
    found = answer.json()
    assert (found["records"]["b"], found["base64"], found["missing"]) == ("x", {"c": "/wA="}, ["d"])


def test_a_thousand_long_keys_fit_and_one_more_does_not(on: Shelf, web: Client):
    on.fill(PINS)
    ids = [str(2**63 - 1 - number) for number in range(1_001)]
    assert len(web.post(GET, {"keys": ids[:1_000]})["missing"]) == 1_000
    assert kind(web.post(GET, {"keys": ids}, 400)) == "invalid-value"
    assert kind(web.post(ADS, {"keys": ["x" * 256] * 1_000}, 413)) == "body-too-large"


def test_an_answer_is_bounded(on: Shelf, web: Client):
    on.load(on.ads, [(b"%03d" % number, b"x" * 65_536) for number in range(65)])
    keys = [f"{number:03d}" for number in range(65)]
    assert kind(web.post(ADS, {"keys": keys}, 400)) == "answer-too-large"
    assert len(web.post(ADS, {"keys": keys[:64]})["base64"]) == 64


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (GET, {"keys": ["x"]}),
        (GET, {"keys": ["0"]}),
        (GET, {"keys": []}),
        (GET, {"keys": [""]}),
        (GET, {"keys": ["1"], "max_behind_ms": -1}),
        (GET, {"key": ["1"]}),
        (ADS, {"keys": [1]}),
        (ADS, {"keys": ["x" * 257]}),
    ],
)
def test_bodies_are_what_is_described(web: Client, path: str, body: Any):
    assert kind(web.post(path, body, 400)) == "invalid-value"


def test_a_key_that_is_longer_in_bytes_is_refused(on: Shelf, web: Client):
    on.load(on.ads, [(b"a", b"1")])
    assert kind(web.post(ADS, {"keys": ["\u00e9" * 200]}, 400)) == "catalog-refused"


def test_an_unknown_catalog_is_not_found(web: Client):
    for word in ("get", "rollback", "use"):
        body = {"get": {"keys": ["1"]}, "rollback": {"from": {"a": "1-a"}}, "use": {"to": {"a": "1-a"}}}[word]
        web.post(f"/v1/catalogs/nothing/{word}", body, 403 if word != "get" else 404)
    assert "there are: pins, ads" in web.post("/v1/catalogs/nothing/get", {"keys": ["1"]}, 404)["detail"]


def test_how_far_behind_can_be_demanded(on: Shelf, web: Client):
    on.fill(PINS)
    behind_ms = NOW_MS - KNOWN_MS
    assert web.post(GET, {"keys": ["1"], "max_behind_ms": behind_ms})["behind_ms"] == behind_ms
    refused = web.post(GET, {"keys": ["1"], "max_behind_ms": behind_ms - 1}, 503)
    assert kind(refused) == "catalog-unavailable"
    assert f"at most {behind_ms - 1} ms behind" in refused["detail"]


def test_without_the_clusters_what_is_held_is_answered_and_the_rest_is_named(on: Shelf, web: Client):
    on.fill(PINS)
    web.post(GET, {"keys": ["1"]})
    # Else the last that was heard of them is that they are empty, and that is what the server would say.
    eventually(
        lambda: all(each["generations"] for each in state(web)["clusters"]), "it is known that they are not empty"
    )
    on.stop(hangs=False)
    found = web.post(GET, {"keys": ["1", "2"]})
    assert ([*found["records"]], found["unanswered"], found["missing"]) == (["1"], ["2"], [])
    refused = web.post(GET, {"keys": ["2"]}, 503)
    assert kind(refused) == "catalog-unavailable"
    assert "secret" not in str(refused)


def test_an_empty_catalog_says_what_to_do(on: Shelf, web: Client):
    eventually(lambda: all(each["answered_ms"] for each in state(web)["clusters"]), "the clusters have been asked")
    refused = web.post(GET, {"keys": ["1"]}, 503)
    assert kind(refused) == "no-generation"
    assert "feedctl catalog build pins" in refused["detail"]
    eventually(lambda: all(each["answered_ms"] for each in state(web, "ads")["clusters"]), "these too")
    assert "feedctl catalog load ads FILE --as-of MS" in web.post(ADS, {"keys": ["1"]}, 503)["detail"]


# Updates
# --------------------------------------------------------------------------------------------------------------------

UPDATES = "/v1/catalogs/ads/updates"


def test_updates_are_posted_as_they_are_given(on: Shelf, web: Client):
    lines = [
        {"key": "a", "time_ms": NOW_MS, "record": {"bid": 2**70, "x": [1.50, None]}},
        {"key": "a", "time_ms": NOW_MS - 1, "base64": "/wA="},
        {"key": "b", "time_ms": NOW_MS + AHEAD_MAX_MS, "deleted": True},
        {"key": "\u00e9", "time_ms": 1, "record": None},
    ]
    assert web.post(UPDATES, {"updates": lines}) == {"catalog": "ads", "updates": 4}
    assert on.posting.taken == [
        (
            "ads",
            [
                Update(b"a", NOW_MS, b'{"bid":1180591620717411303424,"x":[1.5,null]}'),
                Update(b"a", NOW_MS - 1, b"\xff\x00"),
                Update(b"b", NOW_MS + AHEAD_MAX_MS, None),
                Update(b"\xc3\xa9", 1, b"null"),
            ],
        )
    ]


GOOD = {"key": "a", "time_ms": 1, "record": 5}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (GOOD | {"key": ""}, "updates[1].key: expected text of 1 to 256 characters, got ''"),
        (GOOD | {"key": "\u00e9" * 129}, "updates[1].key: expected at most 256 bytes"),
        (
            GOOD | {"time_ms": NOW_MS + AHEAD_MAX_MS + 1},
            "updates[1].time_ms: expected a time that is at most 2",
        ),
        (GOOD | {"time_ms": 1_341_122_873}, "updates[1].time_ms: expected ms since 1970, not seconds"),
        (GOOD | {"time_ms": 0}, "updates[1].time_ms: expected a time in ms since 1970, from 1 to 2^53-1, got 0"),
        (GOOD | {"record": "x" * MAX_RECORD_BYTES}, "updates[1].record: expected at most 65536 bytes"),
        (GOOD | {"deleted": True}, "expected one of"),
        ({"key": "a", "time_ms": 1}, "expected one of"),
        ({"key": "a", "time_ms": 1, "base64": "?"}, "base64"),
        (GOOD | {"ttl": 1}, "ttl"),
    ],
)
def test_of_updates_with_a_bad_one_none_is_posted(on: Shelf, web: Client, line: Any, why: str):
    found = web.post(UPDATES, {"updates": [GOOD, line]}, 400)
    assert kind(found) == "invalid-value"
    assert why in found["detail"]
    assert on.posting.taken == []


def test_so_many_updates_fit_and_no_more(on: Shelf, web: Client):
    assert web.post(UPDATES, {"updates": [GOOD] * 1_000})["updates"] == 1_000
    assert kind(web.post(UPDATES, {"updates": [GOOD] * 1_001}, 400)) == "invalid-value"
    assert kind(web.post(UPDATES, {"updates": []}, 400)) == "invalid-value"
    large = GOOD | {"record": "x" * 60_000}
    assert web.post(UPDATES, {"updates": [large] * 8})["updates"] == 8
    assert kind(web.post(UPDATES, {"updates": [large] * 9}, 413)) == "body-too-large"


def test_what_takes_no_updates_says_so(on: Shelf, web: Client):
    found = web.post("/v1/catalogs/pins/updates", {"updates": [GOOD]}, 400)
    assert (kind(found), "saved and deleted pins update it" in found["detail"]) == ("catalog-refused", True)
    assert kind(web.post("/v1/catalogs/offers/updates", {"updates": [GOOD]}, 404)) == "not-found"
    on.posting.away = True
    found = web.post(UPDATES, {"updates": [GOOD]}, 503)
    assert (kind(found), "harmless" in found["detail"]) == ("queues-unavailable", True)
    assert "secret" not in found["detail"]


def test_updates_need_the_scope_of_writes(operated: tuple[Shelf, Client]):
    on, client = operated
    assert kind(client.post(UPDATES, {"updates": [GOOD]}, 403)) == "forbidden"
    assert client.operator.post(UPDATES, json={"updates": [GOOD]}).status_code == 403
    assert on.posting.taken == []


# Swaps
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[tuple[Shelf, Client]]:
    home = tmp_path / "home"
    home.mkdir()
    path = home / "tokens.toml"
    reader, operator = (
        issue(path, name, scopes) for name, scopes in (("web", ["read"]), ("operator", ["read", "operate"]))
    )
    with shelf(home, 'tokens = "tokens.toml"\n') as on, client_of(on.address, reader, operator) as client:
        on.fill(PINS)
        yield on, client


def swap(client: Client, word: str, body: Any, status: int = 200) -> Any:
    answer = client.operator.post(f"/v1/catalogs/pins/{word}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def ids(on: Shelf, cluster: str) -> tuple[str, str]:
    old, new = on.pins[cluster].store.generations()
    return old.id, new.id


def current(on: Shelf) -> dict[str, str]:
    return {
        name: next(each.id for each in cluster.store.generations() if each.current) for name, cluster in on.pins.items()
    }


def test_a_rollback_and_the_way_back_for_one_cluster_or_all(operated: tuple[Shelf, Client]):
    on, client = operated
    (old_a, new_a), (old_b, new_b) = ids(on, "a"), ids(on, "b")
    is_watched(client)
    found = swap(client, "rollback", {"from": {"a": new_a}})
    assert found["clusters"] == [{"cluster": "a", "generation": old_a, "before": new_a, "changed": True}]
    assert current(on) == {"a": old_a, "b": new_b}
    shown = state(client)["clusters"][0]["generations"]
    assert [each["current"] for each in shown] == [True, False], "at once, at this server"

    both = {"from": {"a": new_a, "b": new_b}}
    assert sorted(line["changed"] for line in swap(client, "rollback", both)["clusters"]) == [False, True]
    assert not any(line["changed"] for line in swap(client, "rollback", both)["clusters"]), "a repetition is harmless"
    assert current(on) == {"a": old_a, "b": old_b}

    back = {"to": {"a": new_a, "b": new_b}}
    assert all(line["changed"] for line in swap(client, "use", back)["clusters"])
    assert not any(line["changed"] for line in swap(client, "use", back)["clusters"])
    assert current(on) == {"a": new_a, "b": new_b}


def test_a_swap_needs_an_operator(operated: tuple[Shelf, Client]):
    on, client = operated
    before = current(on)
    client.post("/v1/catalogs/pins/rollback", {"from": before}, 403)
    client.post("/v1/catalogs/pins/use", {"to": {"a": ids(on, "a")[0]}}, 403)
    assert current(on) == before


def test_a_swap_that_cannot_be_is_refused_with_its_reason(operated: tuple[Shelf, Client]):
    on, client = operated
    old, new = ids(on, "a")
    assert swap(client, "use", {"to": {"a": "1-b"}}, 409)["reason"] == "generation_unknown"
    assert swap(client, "rollback", {"from": {"a": "1-b"}}, 409)["reason"] == "generation_unknown"
    on.pins["a"].store.use(old)
    assert swap(client, "rollback", {"from": {"a": old}}, 409)["reason"] == "no_generation_before"
    on.pins["a"].store.use(new)
    third = on.pins["a"].store.load(NEW_MS + 1, []).id
    on.pins["a"].store.use(third)
    refused = swap(client, "rollback", {"from": {"a": new}}, 409)
    assert (refused["reason"], third in refused["detail"]) == ("generation_not_current", True)
    assert current(on) == {"a": third, "b": ids(on, "b")[1]}
    unknown = swap(client, "use", {"to": {"c": new}}, 400)
    assert (kind(unknown), "there are: a, b" in unknown["detail"]) == ("catalog-refused", True)
    assert kind(swap(client, "use", {"to": {}}, 400)) == "invalid-value"


def test_what_is_held_of_a_wrong_batch_is_gone_after_a_rollback(operated: tuple[Shelf, Client]):
    on, client = operated
    wrong = [(key_of(1), record_of(Pin(1, 666, 9, 1_001), deleted=False))]

    def owner() -> str:
        return client.post(GET, {"keys": ["1"]})["records"]["1"]["owner"]

    for cluster in on.pins.values():
        cluster.store.use(cluster.store.load(NEW_MS + 1, wrong).id)
    eventually(lambda: len(is_watched(client)["clusters"][0]["generations"]) == 3, "the wrong batch is there")
    assert owner() == "666"
    swap(client, "rollback", {"from": current(on)})
    eventually(lambda: owner() == "2", "it is read again")


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
def test_a_cluster_that_is_away_keeps_no_other_from_a_rollback(operated: tuple[Shelf, Client], hangs: bool):
    on, client = operated
    (old_a, new_a), (_, new_b) = ids(on, "a"), ids(on, "b")
    on.stop(clusters="b", follows=False, hangs=hangs)
    refused = swap(client, "rollback", {"from": {"a": new_a, "b": new_b}}, 503)
    assert kind(refused) == "catalog-unavailable"
    assert f"a: {old_a} is in use" in refused["detail"]
    assert refused["detail"].startswith("b: ")
    assert current(on)["a"] == old_a


def test_two_rollbacks_at_once_go_back_once(operated: tuple[Shelf, Client]):
    on, client = operated
    third = on.pins["a"].store.load(NEW_MS + 1, []).id
    on.pins["a"].store.use(third)
    both = threading.Barrier(2)

    def roll_back() -> None:
        both.wait(LONG_S)
        swap(client, "rollback", {"from": {"a": third}})

    threads = [threading.Thread(target=roll_back) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONG_S)
    assert current(on)["a"] == on.pins["a"].store.generations()[1].id


# A real server
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, str]]:
    """`feedctl serve`, which is the worker too, on a home with two catalogs, both in use."""
    cli = Cli(tmp_path_factory.mktemp("catalogs") / "home")
    cli("init")
    cli.set("tick", '"100ms"')
    with (cli.home / "feed.toml").open("a") as file:
        file.write("[catalogs.pins]\n[catalogs.ads]\n")
    ads = cli.home.parent / "ads.jsonl"
    ads.write_text('{"key":"b","record":{"budget":5}}\n{"key":"a","record":"x"}\n')
    cli("catalog", "load", "ads", ads, "--as-of", 1_341_100_000_000)
    cli("save-pin", 101, "--owner", 2, "--board", 9)
    with feedctl_serve(cli) as (_, address), client_of(address) as client:
        eventually(lambda: client.http.post(GET, json={"keys": ["101"]}).status_code == 200, "the worker has built")
        yield cli, address


def test_a_real_server_answers_from_what_its_worker_keeps_fresh(real: tuple[Cli, str]):
    with client_of(real[1]) as client:
        client.post("/v1/pins", {"pin": "102", "owner": "2", "board": "9"})
        eventually(lambda: "102" in client.post(GET, {"keys": ["102"]})["records"], "a new pin")
        client.delete("/v1/pins/101")
        assert client.post(ADS, {"keys": ["a", "b"]})["records"] == {"a": "x", "b": {"budget": 5}}
        generation = state(client, "ads")["clusters"][0]["generations"][0]
        assert (generation["records"], generation["current"], generation["bytes"] > 0) == (2, True, True)


_schema = schemathesis.pytest.from_fixture("described")  # made when the test runs, not in each process that collects it


@pytest.fixture
def described() -> BaseSchema:
    return schema_of(OF_CATALOGS)


@_schema.parametrize()
@a_few
def test_every_answer_is_one_that_is_described(case: schemathesis.Case, real: tuple[Cli, str]):
    assert ask(case, real[1]) != 500, "what is demanded may not be there now, which is a 503"


def test_the_description_has_all_of_it_and_the_examples_work(real: tuple[Cli, str]):
    with client_of(real[1]) as client:
        served = client.get("/openapi.json")
        described = {(path, method) for path, methods in served["paths"].items() for method in methods}
        assert described >= {(each.path, each.method.lower()) for each in (*ENDPOINTS, *OF_CATALOGS)}
        for endpoint in OF_CATALOGS:
            path = endpoint.path.format(**endpoint.words)
            body = {} if endpoint.body_example is None else {"json": endpoint.body_example}
            answer = client.http.request(endpoint.method, path, **body)
            assert answer.status_code == (403 if endpoint.scope == "operate" else 200), answer.text


def test_a_home_without_catalogs_has_none_of_it(client: Client):
    client.get("/v1/catalogs", 404)
    assert not [path for path in client.get("/openapi.json")["paths"] if "catalog" in path]
    assert "feed_catalog" not in client.http.get("/metrics").text
