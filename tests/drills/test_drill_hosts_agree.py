"""The made-up hosts of the tests do what the containers do: one suite for both."""

import signal
import time
from collections.abc import Iterator

import pytest

from deploy.docker import names
from deploy.docker.clusters import run_check
from deploy.drills.faults import Blackhole, SlowDisk, SlowNetwork
from deploy.drills.hosts import HostError, Hosts, HostState, NotDrillableError
from tests.cli.command import eventually
from tests.drills.fake_hosts import CORE, FakeHosts

PATIENCE_S = 90.0


@pytest.fixture(
    params=["made up", pytest.param("containers", marks=[pytest.mark.docker, pytest.mark.timeout(900)])], scope="module"
)
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    if request.param == "made up":
        yield FakeHosts()
        return
    request.getfixturevalue("clusters")
    yield Hosts.connect()
    eventually(lambda: not run_check(names.container("b-gateway-2")), "b-gateway-2 is ready again", PATIENCE_S)


def test_every_host_of_the_clusters_is_there_with_its_role(hosts: Hosts) -> None:
    found = {host.name: host for host in hosts.all()}
    assert set(names.SERVERS) <= set(found)
    assert all(host.is_running for host in found.values())
    assert [found[name].role for name in ("a-control", "a-host-1", "b-host-3", "b-gateway-2", "kafka", "mariadb")] == [
        "control", "standby", "host", "gateway", "kafka", "mariadb",
    ]  # fmt: skip
    assert {host.name for host in found.values() if host.holds_regions} == {
        f"{cluster}-host-{number}" for cluster in "ab" for number in (1, 2, 3)
    }
    assert CORE in found["b-gateway-1"].addresses
    assert CORE not in found["b-host-1"].addresses


def test_nobody_elses_host_is_touched(hosts: Hosts) -> None:
    for call in (hosts.kill, hosts.stop, hosts.start, hosts.lacks):
        with pytest.raises(NotDrillableError):
            call("somebody-elses")


def test_a_signal_reaches_those_that_are_there_and_says_when(hosts: Hosts) -> None:
    before = time.monotonic()
    at_s, reached = hosts.signal("b-host-2", ("datanode", "regionserver", "master"), signal.SIGCONT)
    assert reached == {"datanode", "regionserver"}
    assert before <= at_s <= time.monotonic()
    assert hosts.signal("b-host-2", ("master",), signal.SIGKILL)[1] == frozenset()


def test_servers_have_ages_and_the_active_master_is_asked_by_every_region_server(hosts: Hosts) -> None:
    def states() -> list[HostState]:
        return [hosts.state(name) for name in ("b-control", "b-host-1")]

    found = states()
    assert set(found[0].ages_s) == {"zookeeper", "namenode", "master"}
    assert all(age_s > 0 for state in found for age_s in state.ages_s.values())
    asking = [set(host.addresses.values()) for host in hosts.all() if host.cluster == "b" and host.holds_regions]
    # A server that was started a moment ago asks a little later.
    eventually(
        lambda: any(all(state.peers & its for its in asking) for state in states()),
        "a master that every region server asks",
        PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (Blackhole(), "b-gateway-2"),
        (Blackhole(CORE), "b-gateway-2"),
        (SlowNetwork(1_000), "b-gateway-2"),
        (SlowDisk(1 << 20), "b-host-2"),
    ],
)
def test_networks_and_disks_are_broken_and_mended_twice(
    hosts: Hosts, fault: Blackhole | SlowNetwork | SlowDisk, name: str
) -> None:
    target = next(host for host in hosts.all() if host.name == name)
    try:
        for _ in range(2):
            before = time.monotonic()
            assert before <= fault.inject(hosts, [target]) <= time.monotonic()
    finally:
        for _ in range(2):
            fault.heal(hosts, [target])


def test_a_host_without_a_disk_of_its_own_cannot_be_throttled(hosts: Hosts) -> None:
    with pytest.raises(HostError):
        hosts.throttle("b-gateway-2", 1 << 20)


def test_a_host_that_does_not_run_can_only_be_started_as_often_as_one_likes(hosts: Hosts) -> None:
    hosts.kill("b-gateway-2")
    try:
        assert not next(host for host in hosts.all() if host.name == "b-gateway-2").is_running
        with pytest.raises(HostError):
            hosts.in_network("b-gateway-2", "true")
        with pytest.raises(HostError):
            hosts.throttle("b-gateway-2", 1)
        with pytest.raises(HostError):
            hosts.signal("b-gateway-2", ("thrift2",), signal.SIGCONT)
        with pytest.raises(HostError):
            hosts.lacks("b-gateway-2")
    finally:
        for _ in range(2):
            hosts.start("b-gateway-2")
    assert next(host for host in hosts.all() if host.name == "b-gateway-2").is_running


def test_a_log_is_of_a_span(hosts: Hosts) -> None:
    assert hosts.logs("b-control", 1.0, 2.0) == []
