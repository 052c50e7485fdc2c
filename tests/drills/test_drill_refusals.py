"""What a drill refuses to break, and what it chooses."""

import dataclasses
import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from feedstore.feeds.layout import bucket
from feedstore.serving import config as configuration
from feedstore.serving.config import Config
from workers.drills import running
from workers.drills.catalogue import DRILLS
from workers.drills.hosts import DockerHosts, Host, NotDrillableError
from workers.drills.regions import Region
from workers.drills.running import Plan

URL = "hbase://127.0.0.1:1,127.0.0.1:2/?thrift1=127.0.0.1:3"
GATEWAY = Host("a-gateway-1", "a", holds_regions=False, is_running=True, ports=frozenset({1, 2, 3}))
BESIDE = dataclasses.replace(GATEWAY, name="b-gateway-1", cluster="b")
HOSTS = [Host(f"a-host-{number}", "a", holds_regions=True, is_running=True, ports=frozenset()) for number in (1, 2, 3)]


class Marked:
    """Hosts of which none is ever broken here."""

    def __init__(self, *hosts: Host) -> None:
        self._hosts = list(hosts)

    def all(self) -> list[Host]:
        return self._hosts

    def kill(self, name: str) -> None:
        raise AssertionError(name)

    def start(self, name: str) -> None:
        raise AssertionError(name)


def home(url: str) -> Config:
    text = configuration.DEFAULT.replace("rocksdb:data/a", url).replace("rocksdb:data/b", url)
    return configuration.parse(Path(), text, {})


@pytest.mark.parametrize(
    ("hosts", "url", "said"),
    [
        ((), URL, "marked as drillable"),
        ((GATEWAY, Host("a-host-1", "a", holds_regions=True, is_running=False, ports=frozenset())), URL, "is away"),
        ((GATEWAY, BESIDE), "hbase://10.0.0.1:1/?thrift1=10.0.0.1:3", "not one of the marked"),
        ((GATEWAY,), URL, "cluster b of this home is not one of the marked"),
        ((GATEWAY, BESIDE), "hbase://127.0.0.1:1/?thrift1=127.0.0.1:9", "not one of the marked"),
        ((GATEWAY, BESIDE), "hbase://127.0.0.1:9/?thrift1=127.0.0.1:3", "not one of the marked"),
        ((GATEWAY, BESIDE), "rocksdb:data", "not one of the marked"),
    ],
)
def test_what_is_not_marked_or_not_well_is_left_alone(hosts: tuple[Host, ...], url: str, said: str) -> None:
    plan = Plan(DRILLS["kill-host"], "a", None, 0, 1)
    with pytest.raises(NotDrillableError, match=said):
        running.run(home(url), Marked(*hosts), plan, lambda _: None)


def test_the_seed_chooses_and_meta_decides() -> None:
    marked = [*HOSTS, GATEWAY]

    def chosen(name: str, target: str | None, seed: int) -> str:
        return running._target(Plan(DRILLS[name], "a", target, seed, 1), marked, "a-host-2", random.Random(seed))

    assert {chosen("kill-host", None, seed) for seed in range(20)} == {"a-host-1", "a-host-3"}
    assert {chosen("kill-host-with-meta", None, seed) for seed in range(20)} == {"a-host-2"}
    assert chosen("kill-host", None, 7) == chosen("kill-host", None, 7)
    assert chosen("kill-host", "a-host-2", 0) == "a-host-2"
    with pytest.raises(NotDrillableError, match="a-host-1, a-host-2, a-host-3"):
        chosen("kill-host", "a-gateway-1", 0)


def test_there_is_one_feed_in_each_region() -> None:
    edges = [b"", *(bytes([start]) for start in range(16, 256, 16)), b""]
    regions = [Region(start, end, "a-host-1") for start, end in pairwise(edges)]
    users = running._one_in_each(regions, 1 << 40)
    assert len(set(users)) == 16
    assert [bucket(user) // 16 for user in users] == list(range(16))


class Container(SimpleNamespace):
    """One of the engine's."""


def containers(*found: Container) -> Any:
    asked: list[Any] = []

    def of(**words: Any) -> list[Container]:
        asked.append(words)
        assert words["filters"] == {"label": "feedstore.drillable=true"}
        return list(found)

    return SimpleNamespace(containers=SimpleNamespace(list=of))


def test_only_containers_with_the_mark_are_hosts_and_only_they_can_be_broken() -> None:
    ended: list[str] = []
    one = Container(
        labels={"feedstore.drillable": "true", "feedstore.cluster": "b", "feedstore.role": "standby"},
        attrs={
            "Config": {"Hostname": "b-host-1"},
            "NetworkSettings": {"Ports": {"9091/tcp": [{"HostPort": "19091"}], "1/tcp": None}},
        },
        status="running",
        kill=lambda: ended.append("b-host-1"),
    )
    hosts = DockerHosts(containers(one))
    assert hosts.all() == [Host("b-host-1", "b", holds_regions=True, is_running=True, ports=frozenset({19091}))]
    hosts.kill("b-host-1")
    assert ended == ["b-host-1"]
    with pytest.raises(NotDrillableError, match="no container"):
        hosts.kill("somebody-elses")
