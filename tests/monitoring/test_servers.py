"""Which metrics of HBase and Kafka are shown: each rule of the agent means one attribute, and the page lists all."""

import json
import re
from itertools import chain

import pytest

from deploy.monitoring import dashboard, servers
from deploy.monitoring.servers import ServerMetric

EVERY = list(chain.from_iterable(metrics for _, metrics in servers.SECTIONS))


def told(metric: ServerMetric) -> str:
    """What the agent looks for its patterns in."""
    domain, _, keys = metric.bean.partition(":")
    return f"{domain}<{keys.replace(',', ', ')}><>{metric.attribute}: 17"


def test_the_page_is_up_to_date() -> None:
    assert servers.PAGE.read_text(encoding="utf-8") == servers.page(), "`make schemas` writes it"


@pytest.mark.parametrize("metrics", [metrics for _, metrics in servers.SECTIONS])
def test_each_rule_is_for_one_attribute(metrics: list[ServerMetric]) -> None:
    conf = json.loads(servers.agent_yml(metrics))
    assert set(conf["includeObjectNames"]) == {each.bean for each in metrics}
    for rule, metric in zip(conf["rules"], metrics, strict=True):
        matched = [each for each in metrics if re.search(rule["pattern"], told(each))]
        assert matched == [metric]
        assert rule["name"] == metric.name
        # An attribute whose name ends alike is another one.
        assert not re.search(rule["pattern"], told(metric).replace("><>", "><>other"))


def test_names_say_what_they_count() -> None:
    for each in EVERY:
        assert re.fullmatch(r"(hbase|kafka)_[a-z_]+[a-z]", each.name)
        assert (each.kind == "counter") == each.name.endswith("_total"), each.name
    series = [(each.name, tuple(each.labels.items())) for each in EVERY]
    assert len(set(series)) == len(series)
    for each in EVERY:
        alike = [other for other in EVERY if other.name == each.name]
        assert len({(tuple(other.labels), other.kind, other.help) for other in alike}) == 1, each.name


def test_each_has_a_panel() -> None:
    asked = " ".join(target["expr"] for panel in dashboard.dashboard()["panels"] for target in panel.get("targets", ()))
    assert {each.name for each in EVERY} == set(re.findall(r"\b(?:hbase|kafka)_[a-z_]+", asked))


def test_the_counters_of_the_trim_are_those_that_it_has() -> None:
    source = servers.PAGE.parents[1] / "coprocessor/src/main/java/feedstore/trim/TrimMetrics.java"
    counted = re.findall(r'registry\.counter\("(\w+)"\)', source.read_text(encoding="utf-8"))
    shown = [each.attribute for each in EVERY if each.name.startswith("hbase_trim_")]
    assert sorted(shown) == sorted(name[0].upper() + name[1:] for name in counted)
