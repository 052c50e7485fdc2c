"""What a drill refuses to break, what it waits for, and what it chooses."""

import dataclasses
import json
import random
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.drills import health as wellness
from deploy.drills import running, targets
from deploy.drills.catalogue import DRILLS
from deploy.drills.course import Plan
from deploy.drills.health import ClusterHealth, active_master
from deploy.drills.hosts import Host, HostError, Hosts, LogLine, NotDrillableError
from deploy.drills.regions import Region
from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.following import row_key
from feedstore.following.layout import bucket
from feedstore.widecolumn import UnavailableError
from tests.drills.fake_hosts import FakeHosts

URL = "hbase://127.0.0.1:1,127.0.0.1:2/?reads=gateways"
GATEWAY = Host("a-gateway-1", "a", "gateway", is_running=True, ports=frozenset({1, 2}))
GATEWAY_OF_B = dataclasses.replace(GATEWAY, name="b-gateway-1", cluster="b")


def home(path: Path, url: str) -> Config:
    other = url.replace("/?", "/other?") if url.startswith("hbase:") else f"{url}-b"
    text = configuration.DEFAULT.replace("rocksdb:data/a", url).replace("rocksdb:data/b", other)
    return configuration.parse(path, text, {})


def marked(*hosts: Host) -> FakeHosts:
    return FakeHosts({each.name: each for each in hosts})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wellness, "PATIENCE_S", 0.0)
    monkeypatch.setattr(wellness, "_ASK_S", 0.0)


@pytest.mark.parametrize(
    ("hosts", "url", "said"),
    [
        ((), URL, "marked as drillable"),
        ((GATEWAY, Host("a-host-1", "a", "host", is_running=False)), URL, "not one of the marked"),
        ((GATEWAY, GATEWAY_OF_B), "hbase://10.0.0.1:1/?reads=gateways", "not one of the marked"),
        ((GATEWAY,), URL, "cluster b of this home is not one of the marked"),
        ((GATEWAY, GATEWAY_OF_B), "hbase://127.0.0.1:1,127.0.0.1:9/?reads=gateways", "not one of the marked"),
        ((GATEWAY, GATEWAY_OF_B), "rocksdb:data/other", "not one of the marked"),
    ],
)
def test_what_is_not_marked_is_left_alone(tmp_path: Path, hosts: tuple[Host, ...], url: str, said: str) -> None:
    system = marked(*hosts)
    with pytest.raises(NotDrillableError, match=said):
        running.run(home(tmp_path, url), system, Plan(DRILLS["kill-host"], "a", None, 0, 1, "host"), lambda _: None)
    assert system.events == []


def test_a_cluster_that_this_home_does_not_have_is_refused(tmp_path: Path) -> None:
    plan = Plan(DRILLS["kill-host"], "z", None, 0, 1, "host")
    with pytest.raises(NotDrillableError, match="no cluster 'z'"):
        running.run(home(tmp_path, URL), marked(GATEWAY, GATEWAY_OF_B), plan, lambda _: None)


def all_regions(cluster: str) -> list[Region]:
    return [Region(b"", b"\x80", f"{cluster}-host-1"), Region(b"\x80", b"", f"{cluster}-host-2")]


def test_a_system_that_is_well_is_not_waited_for() -> None:
    hosts = FakeHosts()
    assert ClusterHealth(hosts, all_regions, pytest.fail).wait(["a", "b"]) == hosts.all()


def spoil_away(hosts: FakeHosts) -> None:
    hosts.hosts["b-host-3"] = dataclasses.replace(hosts.hosts["b-host-3"], is_running=False)


def spoil_check(hosts: FakeHosts) -> None:
    hosts.lacking["a-control"] = "namenode: 2 of 3 DataNodes are live"


def spoil_report(hosts: FakeHosts) -> None:
    hosts.unreported.add("b-host-2")


def spoil_age(hosts: FakeHosts) -> None:
    hosts.ages_s["a-host-2 datanode"] = 12.0


def spoil_master(hosts: FakeHosts) -> None:
    hosts.master["a"] = "no-host"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_away, "b-host-3 is away"),
        (spoil_check, "a-control: namenode: 2 of 3 DataNodes are live"),
        (spoil_report, "b-host-2 does not report to the master of cluster b"),
        (spoil_age, "datanode of a-host-2 is 12 of 35 s old"),
        (spoil_master, "a-host-1 does not report to the master of cluster a"),
    ],
)
def test_what_is_not_well_is_named(spoil: Any, said: str) -> None:
    hosts, says = FakeHosts(), list[str]()
    spoil(hosts)
    with pytest.raises(NotDrillableError, match=said):
        ClusterHealth(hosts, all_regions, says.append).wait(["a", "b"])


def test_regions_that_are_nowhere_are_not_well_and_neither_is_a_cluster_that_cannot_be_asked() -> None:
    with pytest.raises(NotDrillableError, match="1 regions of cluster a are nowhere"):
        ClusterHealth(FakeHosts(), lambda _: [Region(b"", b"", "")], print).wait(["a"])

    def unavailable(cluster: str) -> list[Region]:
        raise UnavailableError("no gateway answers")

    with pytest.raises(NotDrillableError, match="no gateway answers"):
        ClusterHealth(FakeHosts(), unavailable, print).wait(["a"])


def test_young_servers_are_well_between_two_hosts_of_one_drill() -> None:
    hosts = FakeHosts()
    spoil_age(hosts)
    assert ClusterHealth(hosts, all_regions, pytest.fail).wait(["a"], settled=False)


def test_a_system_that_gets_well_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, said = FakeHosts(), list[str]()
    spoil_check(hosts)

    def say(line: str) -> None:
        said.append(line)
        hosts.lacking.clear()

    monkeypatch.setattr(wellness, "PATIENCE_S", 60.0)
    assert ClusterHealth(hosts, all_regions, say).wait(["a"])
    assert said == ["waiting until all is well: a-control: namenode: 2 of 3 DataNodes are live"]


def chosen(
    name: str, target: str | None = None, seed: int = 0, but: tuple[str, ...] = (), master: str = "a-control"
) -> list[str]:
    hosts = FakeHosts(master={"a": master})
    regions = [Region(b"", b"", f"a-host-{number}") for number in (1, 2, 3)]
    found = targets.choose(
        DRILLS[name], "a", target, hosts.all(), regions, "a-host-2",
        lambda: active_master(hosts, hosts.all(), "a"), random.Random(seed), but,
    )  # fmt: skip
    return [each.name for each in found]


def test_the_seed_chooses_and_meta_decides() -> None:
    assert {chosen("kill-host", seed=seed)[0] for seed in range(20)} == {"a-host-1", "a-host-3"}
    assert {chosen("kill-host-with-meta", seed=seed)[0] for seed in range(20)} == {"a-host-2"}
    assert chosen("kill-host", seed=7) == chosen("kill-host", seed=7)
    assert chosen("kill-host", "a-host-2") == ["a-host-2"]
    assert {chosen("kill-second-host", seed=seed, but=("a-host-3",))[0] for seed in range(20)} == {
        "a-host-1",
        "a-host-2",
    }
    with pytest.raises(NotDrillableError, match="a-host-1, a-host-2, a-host-3"):
        chosen("kill-host", "a-gateway-1")


def test_a_host_that_runs_the_active_master_too_is_taken_where_nothing_else_fits() -> None:
    assert {chosen("kill-host", seed=seed, master="a-host-1")[0] for seed in range(20)} == {"a-host-3"}
    assert chosen("kill-host-with-meta", master="a-host-2") == ["a-host-2"]
    assert chosen("kill-host", "a-host-1", master="a-host-1") == ["a-host-1"]


def test_a_host_without_regions_of_the_feeds_is_not_chosen() -> None:
    hosts = FakeHosts()
    with pytest.raises(NotDrillableError, match="nothing in cluster a fits kill-host"):
        targets.choose(
            DRILLS["kill-host"], "a", None, hosts.all(), [Region(b"", b"", "a-host-2")], "a-host-2",
            lambda: None, random.Random(0),
        )  # fmt: skip


def test_every_aim_finds_its_hosts() -> None:
    assert chosen("kill-master") == ["a-control"]
    assert chosen("kill-namenode") == chosen("pause-zookeeper") == ["a-control"]
    assert {chosen("kill-gateway", seed=seed)[0] for seed in range(20)} == {"a-gateway-1", "a-gateway-2"}
    assert chosen("cut-zone") == ["a-gateway-1", "a-gateway-2"]
    assert (chosen("kill-broker"), chosen("kill-database")) == (["kafka"], ["mariadb"])
    rolled = chosen("rolling-restart")
    assert sorted(rolled) == sorted(each.name for each in FakeHosts().all() if each.cluster == "a")
    assert rolled[-1] == "a-control"
    for name in ("cut-zone", "rolling-restart"):
        with pytest.raises(NotDrillableError, match="with --cluster"):
            chosen(name, "a-host-1")


def test_the_active_master_is_whom_the_region_servers_report_to() -> None:
    hosts = FakeHosts(master={"a": "a-host-1"})
    assert active_master(hosts, hosts.all(), "a") == "a-host-1"
    assert active_master(FakeHosts(master={}), hosts.all(), "a") is None


def test_there_is_one_feed_in_each_region() -> None:
    edges = [b"", *(bytes([start]) for start in range(16, 256, 16)), b""]
    regions = [Region(start, end, "a-host-1") for start, end in pairwise(edges)]
    users = running._one_in_each(regions, 1 << 40)
    assert len(set(users)) == 16
    assert [bucket(user) // 16 for user in users] == list(range(16))


def test_the_halves_of_a_region_that_was_split_have_a_feed_each() -> None:
    middle = b"\x40" + ((1 << 40) + 500).to_bytes(8, "big")
    regions = [Region(b"\x40", middle, "a-host-1"), Region(middle, b"\x41", "a-host-2")]
    low, high = map(row_key, running._one_in_each(regions, 1 << 40))
    assert b"\x40" <= low < middle <= high < b"\x41"


def test_a_region_that_no_feed_can_be_in_is_refused() -> None:
    with pytest.raises(NotDrillableError, match="no made-up feed"):
        running._one_in_each([Region(b"\x40\x80", b"\x41", "a-host-1")], 1 << 40)


class Engine:
    """The part of the Docker SDK that hosts are asked through. Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.said: dict[str, Any] = {}
        self.status = 0
        self.loses_answers = False
        self.containers = self
        self.id, self.image = "c0ffee", SimpleNamespace(id="sha256:1")
        self.labels = {"feedstore.drillable": "true", "feedstore.cluster": "b", "feedstore.role": "standby"}
        self.attrs = {
            "Config": {"Hostname": "b-host-1", "Cmd": ["standby", "b"]},
            "NetworkSettings": {
                "Ports": {"9091/tcp": [{"HostPort": "19091"}], "1/tcp": None},
                "Networks": {"feedstore-zone-b": {"IPAddress": "10.231.2.11"}},
            },
        }

    # The client
    def list(self, *, filters: Any, **_: Any) -> Any:
        if filters == {"label": "feedstore.drill"}:
            return [SimpleNamespace(remove=lambda **words: self.told.append(("remove", words)))]
        assert filters == {"label": "feedstore.drillable=true"}
        return [SimpleNamespace(**{name: getattr(self, name) for name in _OF_CONTAINER}, status="running")]

    def create(self, image: str, command: Any, **words: Any) -> Any:
        self.told.append((image, command, words))
        text = b"" if self.loses_answers else json.dumps({"at_s": time.monotonic(), **self.said}).encode()
        return SimpleNamespace(
            start=lambda: self.told.append("start"),
            wait=lambda **_: {"StatusCode": self.status},
            logs=lambda **only: text if "stderr" in only else b"iptables: no",
            remove=lambda **_: self.told.append("remove"),
        )

    # The container
    def kill(self) -> None:
        self.told.append("kill")

    def stop(self, timeout: int) -> None:
        self.told.append(f"stop {timeout}")

    def start(self) -> None:
        self.told.append("start")

    def exec_run(self, words: Any, demux: bool = False) -> Any:
        self.told.append(words)
        if not demux:
            return self.status, b"regionserver: no connection\n"
        if self.loses_answers:
            return self.status, (None, None)
        return self.status, (json.dumps({"at_s": 0.0, **self.said}).encode(), b"no such")

    def logs(self, **words: Any) -> bytes:
        self.told.append(words)
        return b"2026-11-21T20:00:00.250000000Z one\n2026-11-21T20:00:01Z two words\nnonsense\n"


_OF_CONTAINER = ("id", "image", "labels", "attrs", "kill", "stop", "start", "exec_run", "logs")


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_only_containers_with_the_mark_are_hosts_and_only_they_can_be_broken(engine: Engine) -> None:
    hosts = Hosts(engine)
    (one,) = hosts.all()
    assert one == Host("b-host-1", "b", "standby", True, frozenset({19091}), {"feedstore-zone-b": "10.231.2.11"})
    assert one.holds_regions
    hosts.kill("b-host-1")
    hosts.stop("b-host-1")
    hosts.start("b-host-1")
    assert engine.told == ["kill", "stop 20", "start"]
    for call in (hosts.kill, hosts.stop, hosts.start, hosts.lacks):
        with pytest.raises(NotDrillableError, match="no container"):
            call("somebody-elses")
    with pytest.raises(NotDrillableError, match="no container"):
        hosts.in_network("somebody-elses", "true")


def test_a_helper_enters_the_network_of_one_container_and_goes_again(engine: Engine) -> None:
    before = time.monotonic()
    assert before <= Hosts(engine).in_network("b-host-1", "iptables -S") <= time.monotonic()
    image, command, words = engine.told[0]
    assert image == "sha256:1"
    assert command[2:] == ["shell", "iptables -S"]
    assert words["network_mode"] == "container:c0ffee"
    assert (words["cap_drop"], words["cap_add"], words["user"]) == (["ALL"], ["NET_ADMIN"], "0:0")
    assert words["labels"] == {"feedstore.drill": "helper"}
    assert engine.told[1:] == ["start", "remove"]


def test_a_helper_that_fails_says_why_and_goes_again(engine: Engine) -> None:
    engine.status = 1
    with pytest.raises(HostError, match="shell: iptables: no"):
        Hosts(engine).in_network("b-host-1", "iptables -S")
    assert engine.told[-1] == "remove"


@pytest.mark.parametrize(
    "call",
    [
        lambda hosts: hosts.state("b-host-1"),
        lambda hosts: hosts.signal("b-host-1", ["regionserver"], 9),
        lambda hosts: hosts.in_network("b-host-1", "iptables -S"),
    ],
)
def test_an_answer_that_the_engine_has_lost_is_an_error_of_the_host(engine: Engine, call: Any) -> None:
    engine.loses_answers = True
    with pytest.raises(HostError, match="lost the answer"):
        call(Hosts(engine))


def test_what_an_interrupted_drill_left_is_taken_away(engine: Engine) -> None:
    Hosts(engine).clean()
    assert engine.told == [("remove", {"force": True})]


def test_signals_states_and_checks_are_asked_inside(engine: Engine) -> None:
    hosts = Hosts(engine)
    engine.said = {"reached": ["datanode"]}
    _, reached = hosts.signal("b-host-1", ("datanode", "master"), 9)
    assert reached == {"datanode"}
    assert engine.told[-1][3:] == ["signal", "9", "datanode", "master"]
    engine.said = {"ages_s": {"datanode": 7.5}, "peers": ["10.231.2.12"]}
    assert hosts.state("b-host-1").ages_s == {"datanode": 7.5}
    assert hosts.lacks("b-host-1") == ""
    engine.status = 1
    assert hosts.lacks("b-host-1") == "regionserver: no connection"
    with pytest.raises(HostError, match="no such"):
        hosts.state("b-host-1")


def test_a_log_is_read_with_the_engines_times(engine: Engine) -> None:
    lines = Hosts(engine).logs("b-host-1", 1.0, 2.0)
    assert engine.told == [{"since": 1.0, "until": 2.0, "timestamps": True, "tail": 20_000}]
    assert [line.text for line in lines] == ["one", "two words"]
    assert lines[1].at - lines[0].at == pytest.approx(0.75)
    assert isinstance(lines[0], LogLine)


def test_the_engines_errors_are_those_of_hosts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = pytest.importorskip("docker")

    def refuse() -> None:
        raise docker.errors.APIError("it does not answer")

    monkeypatch.setattr(engine, "kill", refuse)
    with pytest.raises(HostError, match="it does not answer"):
        Hosts(engine).kill("b-host-1")
