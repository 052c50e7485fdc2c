"""The faults that a drill can cause on hosts, and how they are undone."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.drills.hosts import Host, HostError, Hosts

CHAIN = "FEED-DRILL"
"""The chain of iptables that drops packets for a drill, so that its rules can be found and taken away."""

_JOIN = f"""
for chain in INPUT OUTPUT; do
    iptables -w -S $chain | sed -n 's/^-A \\(.*-j {CHAIN}\\)$/-D \\1/p' | while read -r rule; do iptables -w $rule; done
done
if iptables -w -F {CHAIN} 2>/dev/null; then iptables -w -X {CHAIN}; fi
"""

_DEVICES = "$(ip -o -4 address show scope global | awk '{print $2}' | sort -u)"


class Fault(ABC):
    """One way of breaking hosts."""

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        """Breaks each of them. Returns when the first of it began, in s of `time.monotonic`. If it raises, some may
        be broken.
        """
        return min([self._break(hosts, each) for each in targets])

    @abstractmethod
    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        """Undoes the fault, or the part of it that was done; does nothing if nothing was done. May be repeated."""

    @abstractmethod
    def _break(self, hosts: Hosts, host: Host) -> float: ...


class _OnHost(Fault):
    """Something is done to a host that runs. If the host ended meanwhile, the fault ended with it."""

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        running = {each.name for each in hosts.all() if each.is_running}
        for each in targets:
            if each.name in running:
                self._mend(hosts, each)

    @abstractmethod
    def _mend(self, hosts: Hosts, host: Host) -> None: ...


class _HostAway(Fault):
    """A host that is away is brought back by starting it."""

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        for each in targets:
            hosts.start(each.name)


@dataclass(frozen=True)
class KillHost(_HostAway):
    """SIGKILL to everything on a host, which then stays away."""

    def _break(self, hosts: Hosts, host: Host) -> float:
        return hosts.kill(host.name)


@dataclass(frozen=True)
class StopHost(_HostAway):
    """Everything on a host is asked to end, and does."""

    def _break(self, hosts: Hosts, host: Host) -> float:
        return hosts.stop(host.name)


@dataclass(frozen=True)
class KillServers(Fault):
    """SIGKILL to servers of a host. The host itself starts them again, some seconds later, so healing does nothing."""

    servers: tuple[str, ...]

    def _break(self, hosts: Hosts, host: Host) -> float:
        return _signal(hosts, host, self.servers, signal.SIGKILL)

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        pass


@dataclass(frozen=True)
class Suspend(_OnHost):
    """SIGSTOP to servers of a host: they are there, hold their connections, and say nothing."""

    servers: tuple[str, ...]

    def _break(self, hosts: Hosts, host: Host) -> float:
        return _signal(hosts, host, self.servers, signal.SIGSTOP)

    def _mend(self, hosts: Hosts, host: Host) -> None:
        # A server that ended meanwhile has been started again, and is not suspended.
        hosts.signal(host.name, self.servers, signal.SIGCONT)


@dataclass(frozen=True)
class Blackhole(_OnHost):
    """Nothing comes in and nothing goes out, and nothing reports it: as when a host loses its network.

    network: only the packets that a host sends and gets by its address there; empty: everything but the host's own
    loopback.
    """

    network: str = ""

    def _break(self, hosts: Hosts, host: Host) -> float:
        return hosts.in_network(host.name, _JOIN + self._cut(host))

    def _mend(self, hosts: Hosts, host: Host) -> None:
        hosts.in_network(host.name, _JOIN)

    def _cut(self, host: Host) -> str:
        into, out_of = "! -i lo", "! -o lo"
        if self.network:
            address = host.addresses.get(self.network)
            if not address:
                raise HostError(f"{host.name} is not on the network {self.network}")
            into, out_of = f"-d {address}", f"-s {address}"
        # All at once: both directions fall silent at the same moment.
        return f"""
iptables-restore -w --noflush <<'RULES'
*filter
:{CHAIN} - [0:0]
-A {CHAIN} -j DROP
-I INPUT {into} -j {CHAIN}
-I OUTPUT {out_of} -j {CHAIN}
COMMIT
RULES
"""


@dataclass(frozen=True)
class SlowNetwork(_OnHost):
    """Data that a host sends go through a bucket of this rate, in kbit/s; data that it gets are as fast as before."""

    rate_kbit: int

    def _break(self, hosts: Hosts, host: Host) -> float:
        bucket = f"tbf rate {self.rate_kbit}kbit burst 16kb latency 500ms"
        script = f"for device in {_DEVICES}; do tc qdisc replace dev $device root {bucket}; done"
        return hosts.in_network(host.name, script)

    def _mend(self, hosts: Hosts, host: Host) -> None:
        script = f"""for device in {_DEVICES}; do
    if tc qdisc show dev $device | grep -q '^qdisc tbf '; then tc qdisc del dev $device root; fi
done"""
        hosts.in_network(host.name, script)


@dataclass(frozen=True)
class SlowDisk(_OnHost):
    """The reads of a host from its disk are limited, and its writes to it, each to this many bytes a second.

    With control groups of version 1, the limit holds for the reads and writes that a process waits for (a synchronous
    write, a read of data that are not in memory). It does not hold for data that the kernel writes back later, which
    are most of the data that a DataNode writes.
    """

    bytes_s: int

    def _break(self, hosts: Hosts, host: Host) -> float:
        return hosts.throttle(host.name, self.bytes_s)

    def _mend(self, hosts: Hosts, host: Host) -> None:
        hosts.throttle(host.name, 0)


def _signal(hosts: Hosts, host: Host, servers: tuple[str, ...], number: signal.Signals) -> float:
    at_s, reached = hosts.signal(host.name, servers, number)
    if missing := set(servers) - reached:
        raise HostError(f"{host.name}: {', '.join(sorted(missing))} does not run there: no {number.name}")
    return at_s
