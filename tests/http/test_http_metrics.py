"""Metrics: the documented ones, and no others."""

import re
from pathlib import Path
from typing import get_args

from http_servers import InProcess, client_of
from prometheus_client.parser import text_string_to_metric_families

from feedstore.serving.http.metrics import MetricName

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


def test_every_metric_is_documented_and_no_other():
    assert set(re.findall(r"`(feed_[a-z0-9_]+)`", OPERATING.read_text())) == set(get_args(MetricName))


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
    assert served | {"feed_cluster_behind_seconds"} == set(get_args(MetricName))
    assert families["feed_dead_letters"].samples[0].value == 5
    requests = {
        (sample.labels["endpoint"], sample.labels["method"], sample.labels["status"]): sample.value
        for sample in families["feed_http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert requests["feed", "GET", "200"] == 30
    assert requests["none", "GET", "404"] == 1
    # Nothing that a caller made up becomes a label.
    assert not any("1234" in str(key) or "BREW" in str(key) for key in requests)
