"""Metrics: the documented ones, and no others."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from catalog_servers import KNOWN_MS, NEW_MS, shelf
from http_servers import InProcess, client_of, feedctl_serve
from prometheus_client.parser import text_string_to_metric_families

from feedstore.boards import metrics as of_boards
from feedstore.catalog import metrics as of_catalogs
from feedstore.following import metrics as of_the_feed
from feedstore.http import metrics as of_requests
from feedstore.metering import Counts, Definition, definitions_of, exposition
from tests.cli.command import Cli, eventually
from tests.replicas.fakes import NOW_MS, USER

OF_CATALOGS = {each.name for each in definitions_of(of_catalogs)}
NAMED = {each.name for room in (of_requests, of_the_feed, of_boards) for each in definitions_of(room)}


def test_what_is_served_is_what_is_named(inside: InProcess):
    with client_of(inside.server.address) as client:
        inside.pair.fill(range(1, 3))
        for _ in range(30):  # a p95 wants a few
            client.get("/v1/users/7/feed")
        client.get("/nowhere", 404)
        client.http.request("BREW", "/coffee/1234")
        families = {family.name: family for family in text_string_to_metric_families(client.http.get("/metrics").text)}
    served = {name + ("_total" if family.type == "counter" else "") for name, family in families.items()}
    # How far a cluster is is not known here.
    assert served | {"feed_cluster_behind_seconds"} == NAMED
    assert families["feed_dead_letters"].samples[0].value == 5
    requests = {
        (sample.labels["endpoint"], sample.labels["method"], sample.labels["status"]): sample.value
        for sample in families["feed_http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert requests["feed", "GET", "200"] == 30
    assert requests["none", "GET", "404"] == 1
    assert requests["none", "other", "501"] == 1
    # Nothing that a caller made up becomes a label.
    assert not any("1234" in str(key) or "BREW" in str(key) for key in requests)


def test_no_request_waits_for_the_text_of_metrics(inside: InProcess, monkeypatch: pytest.MonkeyPatch):
    on_loop: list[bool] = []
    text = exposition.text

    def noting(counts: Counts, definitions: Sequence[Definition]) -> bytes:
        on_loop.append(asyncio._get_running_loop() is not None)
        return text(counts, definitions)

    monkeypatch.setattr(exposition, "text", noting)
    with client_of(inside.server.address) as client:
        client.http.get("/metrics")
    assert on_loop == [False]


@pytest.mark.processes
def test_a_server_counts_reorders_whether_it_is_the_worker_or_not(cli: Cli):
    cli("save-pin", 1, "--owner", 2, "--board", 3)
    with feedctl_serve(cli) as (_, worker), feedctl_serve(cli) as (_, plain):
        for address in (worker, plain):
            with client_of(address) as client:
                client.post("/v1/boards/3/pins/1/place", {"to": "top"})
                assert 'feed_board_reorders_total{outcome="unchanged"} 1.0' in client.http.get("/metrics").text


def test_of_catalogs_too(tmp_path: Path):
    with shelf(tmp_path / "home") as on, client_of(on.address) as client:
        on.fill(range(1, 11))
        on.delete(3)
        for _ in range(2):
            client.post("/v1/catalogs/pins/get", {"keys": ["1", "2", "999"]})
        client.get(f"/v1/users/{USER}/feed?hydrate=true")

        def families() -> dict[str, Any]:
            text = client.http.get("/metrics").text
            return {family.name: family for family in text_string_to_metric_families(text)}

        def is_known() -> dict[str, Any] | None:
            found = families()
            entries = found.get("feed_catalog_delta_entries")
            return found if entries and [each.value for each in entries.samples] == [1, 1, 0, 0] else None

        found = eventually(is_known, "the clusters have been heard")
    served = {name + ("_total" if family.type == "counter" else "") for name, family in found.items()}
    # It does not listen, and how long a build took is not known.
    assert OF_CATALOGS - served == {"feed_catalog_heard_behind_seconds", "feed_catalog_build_seconds"}
    for name in OF_CATALOGS & served:
        assert found[name.removesuffix("_total")].documentation

    def value(name: str, **labels: str) -> float:
        samples = found[name.removesuffix("_total").removesuffix("_count")].samples
        [value] = [each.value for each in samples if each.name == name and each.labels == {"catalog": "pins"} | labels]
        return float(value)

    # 1 and 2 once, and the other eight pins of the page: fetched. 999 is asked for twice, and has no record.
    outcomes = {"hit": 4, "stale": 0, "fetched": 10, "joined": 0, "missing": 2, "source": 0}
    for outcome, count in outcomes.items():
        assert value("feed_catalog_keys_total", outcome=outcome) == count, outcome
    fetches = [each for each in found["feed_catalog_fetch_seconds"].samples if each.name.endswith("_count")]
    assert sum(each.value for each in fetches) == 2
    assert {(each.labels["catalog"], each.labels["cluster"]) for each in fetches} <= {("pins", "a"), ("pins", "b")}
    assert value("feed_catalog_failed_fetches_total") == 0
    assert value("feed_catalog_cache_bytes") > 0
    assert value("feed_catalog_updates_total") == 0
    for cluster in "ab":
        assert value("feed_catalog_records", cluster=cluster) == 10
        assert value("feed_catalog_swaps_total", cluster=cluster) >= 0
        assert value("feed_catalog_behind_seconds", cluster=cluster) == (NOW_MS - KNOWN_MS) / 1_000
        assert value("feed_catalog_generation_age_seconds", cluster=cluster) == (NOW_MS - NEW_MS) / 1_000
    of_ads = [each for each in found["feed_catalog_records"].samples if each.labels["catalog"] == "ads"]
    assert not of_ads, "nothing is loaded there"
