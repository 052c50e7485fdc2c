"""The drills that there are."""

from dataclasses import dataclass
from typing import Literal

from deploy.docker import names
from deploy.drills.faults import Blackhole, Fault, KillHost, KillServers, SlowDisk, SlowNetwork, StopHost, Suspend

Aim = Literal["region host", "active master", "control", "gateway", "zone", "broker", "database", "cluster"]
"""The target of a drill. region host: one of the hosts that hold regions of the feeds. zone: both gateways of a
cluster, its only doors. cluster: each of its hosts in turn.
"""

Affected = Literal["its regions", "all", "none"]
"""The regions that cannot be expected to serve during the fault."""

Course = Literal["once", "in turn", "after another", "bulk load"]
"""once: break, wait, heal. in turn: that for one target after the other, each when the one before is well again. after
another: once, a minute after another host has died, come back and got well. bulk load: nothing is broken.
"""

_HOLD_S = 20.0


@dataclass(frozen=True)
class Drill:
    """what: what happens to the target. budgets: the section of budgets.toml. on_meta: whether a target that is not
    named shall hold hbase:meta; None: it may or may not. hold_s: how long it stays broken by default.
    """

    name: str
    what: str
    aim: Aim
    budgets: str
    fault: Fault | None = None
    on_meta: bool | None = None
    affected: Affected = "none"
    course: Course = "once"
    hold_s: float = _HOLD_S

    @property
    def back_from(self) -> Literal["fault", "healing"]:
        """From when regions are counted as back: before the healing, none can be if all are affected."""
        return "healing" if self.affected == "all" else "fault"


_HOST_SERVERS = ("datanode", "regionserver")
_STARTED_AGAIN_S = 10.0
"""A server's supervisor starts it again by itself (deploy/docker): regions that move back are the return's cost."""
_HOST_FAULTS: tuple[tuple[str, str, Fault, float], ...] = (
    (
        "kill-regionserver",
        "SIGKILL to the region server of a host; its DataNode keeps running",
        KillServers(("regionserver",)),
        _STARTED_AGAIN_S,
    ),
    ("kill-host", "SIGKILL to DataNode, region server and everything else of a host", KillHost(), _HOLD_S),
    (
        "suspend-host",
        "SIGSTOP to DataNode and region server of a host, which keep their connections",
        Suspend(_HOST_SERVERS),
        _HOLD_S,
    ),
    ("blackhole-host", "a host loses its network: whatever it sends or should get is dropped", Blackhole(), _HOLD_S),
)


def _host_drills() -> list[Drill]:
    made = []
    for name, what, fault, hold_s in _HOST_FAULTS:
        for suffix, on_meta in (("", False), ("-with-meta", True)):
            what_here = f"{what}; it holds hbase:meta" if on_meta else what
            made.append(
                Drill(
                    name + suffix, what_here, "region host", "host", fault,
                    on_meta=on_meta, affected="its regions", hold_s=hold_s,
                )
            )  # fmt: skip
    return made


_ALL = (
    *_host_drills(),
    Drill(
        "kill-second-host",
        "a host is killed and comes back; a minute after all is well, another is killed, and that is measured",
        "region host",
        "host",
        KillHost(),
        affected="its regions",
        course="after another",
    ),
    Drill("kill-master", "SIGKILL to the active master", "active master", "control", KillServers(("master",))),
    Drill(
        "kill-namenode",
        "SIGKILL to the NameNode, which comes back by itself",
        "control",
        "control",
        KillServers(("namenode",)),
    ),
    Drill(
        "pause-zookeeper",
        "SIGSTOP to ZooKeeper, for longer than every session of the cluster",
        "control",
        "cluster",
        Suspend(("zookeeper",)),
        affected="all",
    ),
    Drill("kill-gateway", "SIGKILL to one of the two gateways", "gateway", "gateway", KillHost()),
    Drill(
        "cut-zone",
        "both gateways lose the network between the zones: the cluster is whole, and cannot be reached",
        "zone",
        "cluster",
        Blackhole(names.CORE_NETWORK),
        affected="all",
    ),
    Drill("kill-broker", "SIGKILL to Kafka", "broker", "broker", KillHost()),
    Drill("kill-database", "SIGKILL to the follow store's database", "database", "database", KillHost()),
    Drill(
        "slow-network",
        "what a host sends goes through a bucket of 1 Mbit/s",
        "region host",
        "slow",
        SlowNetwork(1_000),
        affected="its regions",
    ),
    Drill(
        "slow-disk",
        "reads and synced writes of a host are limited to 512 KiB/s; writes that the kernel makes later are not",
        "region host",
        "slow",
        SlowDisk(512 << 10),
        affected="its regions",
    ),
    Drill(
        "rolling-restart",
        "every host of the cluster is stopped and started in turn, each when the one before serves again",
        "cluster",
        "rolling",
        StopHost(),
        affected="all",
        course="in turn",
        hold_s=1.0,
    ),
    Drill(
        "bulk-load",
        "nothing is broken: 900,000 cells, or as many as a minute takes, are written during the load",
        "cluster",
        "bulk",
        course="bulk load",
        hold_s=60.0,
    ),
)
DRILLS = {drill.name: drill for drill in _ALL}
