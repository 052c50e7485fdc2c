"""Hosts that are a few words in memory, and behave like containers where a drill would notice."""

import signal
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from deploy.drills.faults import CHAIN
from deploy.drills.hosts import Host, HostError, Hosts, HostState, LogLine, NotDrillableError

CORE = "feedstore-core"
SERVERS = {
    "control": ("zookeeper", "namenode", "master"),
    "standby": ("datanode", "regionserver", "master"),
    "host": ("datanode", "regionserver"),
    "gateway": ("thrift2",),
    "kafka": ("kafka",),
    "mariadb": ("mariadb",),
    "feedctl": (),
}
OLD_S = 1_000.0


def marked() -> list[Host]:
    """Two zones and the network between them."""
    found = []
    for zone, cluster in enumerate("ab", 1):
        roles = [("control", "control"), ("host-1", "standby"), ("host-2", "host"), ("host-3", "host")]
        for number, (name, role) in enumerate(roles):
            addresses = {f"feedstore-zone-{cluster}": f"10.231.{zone}.{10 + number}"}
            found.append(Host(f"{cluster}-{name}", cluster, role, is_running=True, addresses=addresses))
        for number in (1, 2):
            addresses = {f"feedstore-zone-{cluster}": f"10.231.{zone}.2{number}", CORE: f"10.231.0.{zone}{number}"}
            ports = frozenset({100 * zone + number})
            name = f"{cluster}-gateway-{number}"
            found.append(Host(name, cluster, "gateway", is_running=True, ports=ports, addresses=addresses))
    return [*found, *(Host(name, "", name, is_running=True) for name in ("kafka", "mariadb"))]


@dataclass
class FakeHosts(Hosts):
    """Keeps of each host whether it runs, what its servers do, and what was done to its network and disk."""

    hosts: dict[str, Host] = field(default_factory=lambda: {each.name: each for each in marked()})
    suspended: set[tuple[str, str]] = field(default_factory=set)
    killed: set[tuple[str, str]] = field(default_factory=set)
    networks: dict[str, list[str]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    ages_s: dict[str, float] = field(default_factory=dict)
    master: dict[str, str] = field(default_factory=lambda: {"a": "a-control", "b": "b-control"})
    unreported: set[str] = field(default_factory=set)
    printed: list[LogLine] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    fails: list[BaseException | None] = field(default_factory=list)
    """What the next calls that change something raise, when they have done it; None: nothing."""

    def all(self) -> list[Host]:
        return list(self.hosts.values())

    def kill(self, name: str) -> float:
        return self._ended("kill", name)

    def stop(self, name: str) -> float:
        return self._ended("stop", name)

    def start(self, name: str) -> None:
        self._known(name)
        self.hosts[name] = replace(self.hosts[name], is_running=True)
        self._done(f"start {name}")

    def signal(self, name: str, servers: Collection[str], number: int) -> tuple[float, frozenset[str]]:
        host = self._alive(name)
        reached = frozenset(servers) & frozenset(SERVERS[host.role]) - {each for at, each in self.killed if at == name}
        places = {(name, each) for each in reached}
        match number:
            case signal.SIGSTOP:
                self.suspended |= places
            case signal.SIGCONT:
                self.suspended -= places
            case signal.SIGKILL:
                self.killed |= places
        self._done(f"{signal.Signals(number).name} {name} {' '.join(sorted(reached))}")
        return time.monotonic(), reached

    def in_network(self, name: str, script: str) -> float:
        self._alive(name)
        state = self.networks.setdefault(name, [])
        if f"-X {CHAIN}" in script:
            state[:] = [each for each in state if each != "cut"]
        if "iptables-restore" in script:
            state.append("cut")
        if "qdisc del" in script:
            state[:] = [each for each in state if each != "slow"]
        if "qdisc replace" in script:
            state[:] = [*(each for each in state if each != "slow"), "slow"]
        self._done(f"network {name}")
        return time.monotonic()

    def throttle(self, name: str, bytes_s: int) -> float:
        if self._alive(name).role == "gateway":
            raise HostError(f"{name} has no disk of its own")
        self.limits[name] = bytes_s
        self._done(f"throttle {name} {bytes_s}")
        return time.monotonic()

    def lacks(self, name: str) -> str:
        self._alive(name)
        return self.lacking.get(name, "")

    def state(self, name: str) -> HostState:
        host = self._alive(name)
        its = [each for each in self.hosts.values() if each.cluster == host.cluster and each.holds_regions]
        reporting = [each for each in its if each.name not in self.unreported]
        is_master = self.master.get(host.cluster) == name
        peers = {address for each in reporting for address in each.addresses.values()} if is_master else set()
        ages = {each: self.ages_s.get(f"{name} {each}", OLD_S) for each in SERVERS[host.role]}
        return HostState(ages, frozenset(peers))

    def logs(self, name: str, since: float, until: float) -> list[LogLine]:
        self._known(name)
        return [line for line in self.printed if line.host == name]

    def clean(self) -> None:
        pass

    def is_whole(self) -> bool:
        """Whether nothing is broken any more. Servers that were killed come back by themselves."""
        return (
            all(each.is_running for each in self.hosts.values())
            and not self.suspended
            and not any(self.networks.values())
            and not any(self.limits.values())
        )

    def _ended(self, how: str, name: str) -> float:
        self._known(name)
        self.hosts[name] = replace(self.hosts[name], is_running=False)
        # What was done to it goes with it.
        self.networks.pop(name, None)
        self.limits.pop(name, None)
        self.suspended = {each for each in self.suspended if each[0] != name}
        self._done(f"{how} {name}")
        return time.monotonic()

    def _done(self, event: str) -> None:
        self.events.append(event)
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error

    def _known(self, name: str) -> Host:
        if name not in self.hosts:
            raise NotDrillableError(f"{name}: no container of this name carries the label")
        return self.hosts[name]

    def _alive(self, name: str) -> Host:
        host = self._known(name)
        if not host.is_running:
            raise HostError(f"{name} does not run")
        return host
