"""Whether the system is well enough for a drill: an earlier fault must not be measured again."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deploy.drills.hosts import Host, HostError, Hosts, NotDrillableError
from deploy.drills.regions import Region
from feedstore.widecolumn import UnavailableError

PATIENCE_S = 200.0
"""How long a drill waits for that: a server that was started again a moment ago must get as old as is asked of it."""

SETTLED_S = 35.0
"""How old every server of a cluster must be, its gateways apart. Logs are rolled every half minute (deploy/hbase): from
then on, new writes have three replicas again, after a DataNode was away.
"""

UNEVEN = 3
"""One host may have this many regions more than another. If none has more, the balancer has done its work since the
last host came back. It always does so then, even if it tolerates other differences (minCostNeedBalance in
deploy/hbase).
"""

_ASK_S = 2.0
_SAY_AGAIN_S = 15.0
_AT_ONCE = 4


@dataclass(frozen=True)
class ClusterHealth:
    """regions: asks a cluster, by its name, for the regions of the feeds; raises UnavailableError."""

    hosts: Hosts
    regions: Callable[[str], list[Region]]
    say: Callable[[str], None]

    def wait(self, clusters: Sequence[str], *, settled: bool = True) -> list[Host]:
        """Returns the marked hosts once all is well: every host runs, its servers are ready, every region server
        reports to the master, every region has a server. settled: also, every server of these clusters is old enough.

        Raises NotDrillableError: it is not in time; the message says what is missing.
        """
        deadline = time.monotonic() + PATIENCE_S
        said_at = -_SAY_AGAIN_S
        while True:
            marked = self.hosts.all()
            lacking = list(self._lacking(marked, clusters, settled=settled))
            if not lacking:
                return marked
            if time.monotonic() > deadline:
                raise NotDrillableError(f"not well enough to begin: {'; '.join(lacking)}")
            if time.monotonic() - said_at > _SAY_AGAIN_S:
                self.say(f"waiting until all is well: {'; '.join(lacking[:3])}")
                said_at = time.monotonic()
            time.sleep(_ASK_S)

    def _lacking(self, marked: Sequence[Host], clusters: Sequence[str], *, settled: bool) -> Iterator[str]:
        """Yields what is missing, one thing each. The costly questions are asked only if all before them is well."""
        if away := [host.name for host in marked if not host.is_running]:
            yield f"{', '.join(away)} is away"
            return
        asked = [host for host in marked if host.has_servers]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda host: self._lacks(host.name), asked))
        lacks = [f"{host.name}: {lack}" for host, lack in zip(asked, found, strict=True) if lack]
        yield from lacks
        if lacks:
            return
        for cluster in clusters:
            yield from self._cluster_lacks([host for host in marked if host.cluster == cluster], cluster, settled)

    def _lacks(self, name: str) -> str:
        try:
            return self.hosts.lacks(name)
        except (NotDrillableError, HostError) as error:
            return str(error)

    def _cluster_lacks(self, its: Sequence[Host], cluster: str, settled: bool) -> Iterator[str]:
        try:
            states = {host.name: self.hosts.state(host.name) for host in its}
            found = self.regions(cluster)
        except (NotDrillableError, HostError, UnavailableError) as error:
            yield str(error)
            return
        if nowhere := sum(not region.server for region in found):
            yield f"{nowhere} regions of cluster {cluster} are nowhere"
        reporting = max((state.peers for state in states.values()), key=len, default=frozenset())
        for host in its:
            if host.holds_regions and not reporting & set(host.addresses.values()):
                yield f"{host.name} does not report to the master of cluster {cluster}"
        if settled:
            if unevenness(found, [host.name for host in its if host.holds_regions]) > UNEVEN:
                yield f"the balancer has not made the regions of cluster {cluster} even yet"
            # A gateway has no log.
            doors = {host.name for host in its if host.role == "gateway"}
            young = [
                f"{server} of {name} is {age_s:.0f} of {SETTLED_S:.0f} s old"
                for name, state in states.items()
                if name not in doors
                for server, age_s in state.ages_s.items()
                if age_s < SETTLED_S
            ]
            yield from young[:1]


def unevenness(found: Sequence[Region], holders: Sequence[str]) -> int:
    """How many regions more the fullest of these hosts has than the emptiest."""
    servers = [region.server for region in found]
    counts = [servers.count(holder) for holder in holders]
    return max(counts, default=0) - min(counts, default=0)


def active_master(hosts: Hosts, marked: Sequence[Host], cluster: str) -> str | None:
    """The host whose master the region servers are connected to; None if none is. Raises HostError."""
    peers = {
        host.name: len(hosts.state(host.name).peers) for host in marked if host.cluster == cluster and host.is_running
    }
    name = max(peers, key=lambda name: peers[name], default=None)
    return name if name is not None and peers[name] else None
