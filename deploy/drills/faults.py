"""The faults that a drill can cause on hosts, and how they are undone."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deploy.drills.hosts import Host, HostError, Hosts

CHAIN = "FEED-DRILL"
"""The chain of iptables that drops packets for a drill, so that its rules can be found and taken away."""

CORE = "feedstore-core"
"""The network between the zones."""

_JOIN = f"""
for chain in INPUT OUTPUT; do
    iptables -w -S $chain | sed -n 's/^-A \\(.*-j {CHAIN}\\)$/-D \\1/p' | while read -r rule; do iptables -w $rule; done
done
if iptables -w -F {CHAIN} 2>/dev/null; then iptables -w -X {CHAIN}; fi
"""

_DEVICES = "$(ip -o -4 address show scope global | awk '{print $2}' | sort -u)"


class Fault(Protocol):
    """One way of breaking hosts."""

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        """Breaks each of them. Returns when the first of it began, in s of `time.monotonic`. If it raises, some may
        be broken.
        """
        ...

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        """Undoes the fault, or the part of it that was done; does nothing if nothing was done. May be repeated."""
        ...


class _HostAway:
    """A host that is away is brought back by starting it."""

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        for each in targets:
            hosts.start(each.name)


@dataclass(frozen=True)
class KillHost(_HostAway):
    """SIGKILL to everything on a host, which then stays away."""

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return min([hosts.kill(each.name) for each in targets])


@dataclass(frozen=True)
class StopHost(_HostAway):
    """Everything on a host is asked to end, and does."""

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return min([hosts.stop(each.name) for each in targets])


@dataclass(frozen=True)
class KillServers:
    """SIGKILL to servers of a host. The host itself starts them again, some seconds later, so healing does nothing."""

    servers: tuple[str, ...]

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return _signal_all(hosts, targets, self.servers, signal.SIGKILL)

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        pass


@dataclass(frozen=True)
class Suspend:
    """SIGSTOP to servers of a host: they are there, hold their connections, and say nothing."""

    servers: tuple[str, ...]

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return _signal_all(hosts, targets, self.servers, signal.SIGSTOP)

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        for each in _running(hosts, targets):
            # One that ended meanwhile has been started again, and is not suspended.
            hosts.signal(each.name, self.servers, signal.SIGCONT)


@dataclass(frozen=True)
class Blackhole:
    """Nothing comes in and nothing goes out, and nothing reports it: as when a host loses its network.

    network: only the packets that a host sends and gets by its address there; empty: everything but the host's own
    loopback.
    """

    network: str = ""

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return min([hosts.in_network(each.name, _JOIN + self._cut(each)) for each in targets])

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        for each in _running(hosts, targets):
            hosts.in_network(each.name, _JOIN)

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
class SlowNetwork:
    """Data that a host sends go through a bucket of this rate, in kbit/s; data that it gets are as fast as before."""

    rate_kbit: int

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        bucket = f"tbf rate {self.rate_kbit}kbit burst 16kb latency 500ms"
        script = f"for device in {_DEVICES}; do tc qdisc replace dev $device root {bucket}; done"
        return min([hosts.in_network(each.name, script) for each in targets])

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        script = f"""for device in {_DEVICES}; do
    if tc qdisc show dev $device | grep -q '^qdisc tbf '; then tc qdisc del dev $device root; fi
done"""
        for each in _running(hosts, targets):
            hosts.in_network(each.name, script)


@dataclass(frozen=True)
class SlowDisk:
    """The reads of a host from its disk are limited, and its writes to it, each to this many bytes a second.

    With control groups of version 1, the limit holds for the reads and writes that a process waits for (a synchronous
    write, a read of data that are not in memory). It does not hold for data that the kernel writes back later, which
    are most of the data that a DataNode writes.
    """

    bytes_s: int

    def inject(self, hosts: Hosts, targets: Sequence[Host]) -> float:
        return min([hosts.throttle(each.name, self.bytes_s) for each in targets])

    def heal(self, hosts: Hosts, targets: Sequence[Host]) -> None:
        for each in _running(hosts, targets):
            hosts.throttle(each.name, 0)


def _signal_all(hosts: Hosts, targets: Sequence[Host], servers: tuple[str, ...], number: signal.Signals) -> float:
    moments = []
    for each in targets:
        at_s, reached = hosts.signal(each.name, servers, number)
        if missing := set(servers) - reached:
            raise HostError(f"{each.name}: {', '.join(sorted(missing))} does not run there: no {number.name}")
        moments.append(at_s)
    return min(moments)


def _running(hosts: Hosts, targets: Sequence[Host]) -> list[Host]:
    """The targets that run. If a host ended meanwhile, its fault ended with it."""
    running = {each.name for each in hosts.all() if each.is_running}
    return [each for each in targets if each.name in running]
