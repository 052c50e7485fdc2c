"""Every fault is undone, whole or in part, as often as anybody likes."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from deploy.drills.catalogue import DRILLS, Drill
from deploy.drills.faults import Blackhole, Fault, KillServers, SlowNetwork, Suspend
from deploy.drills.hosts import Host, HostError
from tests.drills.fake_hosts import CORE, FakeHosts

BREAKING = [drill for drill in DRILLS.values() if drill.fault is not None]
AIMED_AT = {
    "region host": ["a-host-1"],
    "active master": ["a-control"],
    "control": ["a-control"],
    "gateway": ["a-gateway-1"],
    "zone": ["a-gateway-1", "a-gateway-2"],
    "broker": ["kafka"],
    "database": ["mariadb"],
    "cluster": ["a-host-1", "a-host-2"],
}


@pytest.fixture
def hosts() -> FakeHosts:
    return FakeHosts()


def aimed(drill: Drill, hosts: FakeHosts) -> tuple[Fault, list[Host]]:
    assert drill.fault is not None
    return drill.fault, [hosts.hosts[name] for name in AIMED_AT[drill.aim]]


@pytest.mark.parametrize("drill", BREAKING, ids=lambda drill: drill.name)
def test_a_fault_breaks_its_targets_and_nothing_else_and_is_healed(drill: Drill, hosts: FakeHosts) -> None:
    fault, targets = aimed(drill, hosts)
    before = time.monotonic()
    assert before <= fault.inject(hosts, targets) <= time.monotonic()
    broken = {event.split()[1] for event in hosts.events}
    assert broken == {each.name for each in targets}
    assert not hosts.is_whole() or isinstance(fault, KillServers)
    fault.heal(hosts, targets)
    assert hosts.is_whole()
    fault.heal(hosts, targets)
    assert hosts.is_whole()


@pytest.mark.parametrize("drill", BREAKING, ids=lambda drill: drill.name)
def test_healing_what_was_never_broken_breaks_nothing(drill: Drill, hosts: FakeHosts) -> None:
    fault, targets = aimed(drill, hosts)
    fault.heal(hosts, targets)
    assert hosts.is_whole()


@pytest.mark.parametrize("drill", BREAKING, ids=lambda drill: drill.name)
def test_a_fault_that_was_cut_off_half_done_is_healed(drill: Drill, hosts: FakeHosts) -> None:
    fault, targets = aimed(drill, hosts)
    hosts.fails = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        fault.inject(hosts, targets)
    fault.heal(hosts, targets)
    assert hosts.is_whole()


@pytest.mark.parametrize("drill", BREAKING, ids=lambda drill: drill.name)
def test_a_healing_that_was_cut_off_is_done_by_the_next(drill: Drill, hosts: FakeHosts) -> None:
    fault, targets = aimed(drill, hosts)
    fault.inject(hosts, targets)
    if isinstance(fault, KillServers):
        return  # there is nothing to cut off
    hosts.fails = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        fault.heal(hosts, targets)
    fault.heal(hosts, targets)
    assert hosts.is_whole()


@pytest.mark.parametrize("fault", [Suspend(("datanode",)), Blackhole(), SlowNetwork(1_000)])
def test_a_host_that_ended_meanwhile_took_what_was_done_to_it_along(fault: Fault, hosts: FakeHosts) -> None:
    target = hosts.hosts["a-host-1"]
    fault.inject(hosts, [target])
    hosts.kill("a-host-1")
    fault.heal(hosts, [target])
    hosts.start("a-host-1")
    assert hosts.is_whole()


def test_a_server_that_does_not_run_cannot_be_killed_or_suspended(hosts: FakeHosts) -> None:
    target = hosts.hosts["a-host-2"]
    for fault in (KillServers(("regionserver", "master")), Suspend(("master",))):
        with pytest.raises(HostError, match="a-host-2: master does not run there"):
            fault.inject(hosts, [target])


def test_a_zone_is_cut_off_by_the_address_towards_the_core(hosts: FakeHosts) -> None:
    scripts: list[str] = []
    hosts.in_network = lambda name, script: scripts.append(script) or 1.0  # type: ignore[method-assign,func-returns-value]
    Blackhole(CORE).inject(hosts, [hosts.hosts["b-gateway-2"]])
    assert "-I INPUT -d 10.231.0.22 " in scripts[0]
    assert "-I OUTPUT -s 10.231.0.22 " in scripts[0]
    with pytest.raises(HostError, match="b-host-1 is not on the network"):
        Blackhole(CORE).inject(hosts, [hosts.hosts["b-host-1"]])


class Namespace(FakeHosts):
    """Runs the scripts in a network of their own, which a process holds open."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid

    def said(self, *words: str) -> str:
        words = ("nsenter", f"--net=/proc/{self._pid}/ns/net", *words)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout

    def in_network(self, name: str, script: str) -> float:
        self.said("sh", "-euc", script)
        return time.monotonic()

    def rules(self) -> list[str]:
        return self.said("iptables", "-w", "-S").splitlines()

    def queues(self) -> str:
        return self.said("tc", "qdisc", "show", "dev", "drill0")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "iptables", "tc", "ip"))):
        pytest.skip("only root has networks of its own, and it needs iptables and iproute2")
    script = """ip link set lo up
ip link add drill0 type veth peer name drill1
ip address add 10.9.9.9/24 dev drill0
echo up
cat"""
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-euc", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "up\n":
            pytest.skip("this kernel gives no network of its own")
        yield Namespace(process.pid)
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def test_the_rules_of_a_blackhole_come_once_and_go_without_a_trace(namespace: Namespace) -> None:
    target = namespace.hosts["a-host-1"]
    namespace.said("iptables", "-w", "-A", "INPUT", "-s", "10.7.7.7", "-j", "DROP")
    before = namespace.rules()
    fault = Blackhole()
    fault.heal(namespace, [target])
    assert namespace.rules() == before
    for _ in range(2):
        fault.inject(namespace, [target])
        added = [rule for rule in namespace.rules() if rule not in before]
        assert added == [
            "-N FEED-DRILL",
            "-A INPUT ! -i lo -j FEED-DRILL",
            "-A OUTPUT ! -o lo -j FEED-DRILL",
            "-A FEED-DRILL -j DROP",
        ]
    for _ in range(2):
        fault.heal(namespace, [target])
        assert namespace.rules() == before


def test_the_rules_of_a_cut_are_of_one_address(namespace: Namespace) -> None:
    target = Host("a-gateway-1", "a", "gateway", is_running=True, addresses={CORE: "10.231.0.21"})
    Blackhole(CORE).inject(namespace, [target])
    rules = namespace.rules()
    assert "-A INPUT -d 10.231.0.21/32 -j FEED-DRILL" in rules
    assert "-A OUTPUT -s 10.231.0.21/32 -j FEED-DRILL" in rules
    Blackhole(CORE).heal(namespace, [target])
    assert not [rule for rule in namespace.rules() if "FEED-DRILL" in rule]


def test_the_bucket_of_a_slow_network_comes_once_and_goes(namespace: Namespace) -> None:
    target = namespace.hosts["a-host-1"]
    fault = SlowNetwork(1_000)
    before = namespace.queues()
    fault.heal(namespace, [target])
    assert namespace.queues() == before
    for _ in range(2):
        fault.inject(namespace, [target])
        assert "tbf" in namespace.queues()
        assert "rate 1Mbit" in namespace.queues()
    for _ in range(2):
        fault.heal(namespace, [target])
        assert "tbf" not in namespace.queues()
