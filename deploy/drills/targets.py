"""Which hosts a drill breaks."""

import random
from collections.abc import Callable, Sequence

from deploy.docker.names import KAFKA, MARIADB
from deploy.drills.catalogue import Drill
from deploy.drills.hosts import Host, NotDrillableError
from deploy.drills.regions import Region


def choose(
    drill: Drill,
    cluster: str,
    named: str | None,
    marked: Sequence[Host],
    regions: Sequence[Region],
    meta: str,
    active_master: Callable[[], str | None],
    rng: random.Random,
    but: Sequence[str] = (),
) -> list[Host]:
    """The hosts that are broken: all at once, or one after the other if the drill goes in turn.

    named: by the operator of the drill; None: the seed chooses among those that fit. regions: those of the feeds; meta:
    the host of hbase:meta. but: names that are left out.

    Raises NotDrillableError: the host that is named is none that the drill may break, or no host fits.
    """
    possible = [host for host in _possible(drill, cluster, marked, active_master) if host.name not in but]
    if drill.aim in {"zone", "cluster"}:
        if named is not None:
            raise NotDrillableError(f"{drill.name} breaks a whole cluster: choose it with --cluster, not with --target")
        return possible
    names = ", ".join(host.name for host in possible)
    if named is not None:
        chosen = [host for host in possible if host.name == named]
        if not chosen:
            raise NotDrillableError(f"{named} is not what {drill.name} breaks in cluster {cluster}; there are {names}")
        return chosen
    if drill.aim == "region host":
        holding = {region.server for region in regions}
        possible = [
            host
            for host in possible
            if host.name in holding and (drill.on_meta is None or (host.name == meta) == drill.on_meta)
        ]
        # A host that runs the active master too would be two faults at once: it is chosen only if no other host fits,
        # or if it is named.
        master = active_master()
        possible = [host for host in possible if host.name != master] or possible
    if not possible:
        raise NotDrillableError(
            f"nothing in cluster {cluster} fits {drill.name}: hbase:meta is on {meta or 'no host'}, and regions of "
            f"the feeds are on {', '.join(sorted({region.server for region in regions}))}"
        )
    return [rng.choice(possible)]


def _possible(
    drill: Drill, cluster: str, marked: Sequence[Host], active_master: Callable[[], str | None]
) -> list[Host]:
    its = [host for host in marked if host.cluster == cluster]
    match drill.aim:
        case "region host":
            return [host for host in its if host.holds_regions]
        case "active master":
            name = active_master()
            return [host for host in its if host.name == name]
        case "control":
            return [host for host in its if host.role == "control"]
        case "gateway" | "zone":
            return [host for host in its if host.role == "gateway"]
        case "broker" | "database":
            name = KAFKA if drill.aim == "broker" else MARIADB
            return [host for host in marked if host.role == name]
        case "cluster":
            # The control host last: the servers that wait for its NameNode have been started again by then.
            return sorted(its, key=lambda host: (host.role == "control", host.role == "gateway", host.name))
