"""Runs one drill: checks that all is well, loads, breaks, waits, heals, and looks for the acknowledged pins."""

import dataclasses
import datetime as dt
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import msgspec

from deploy.drills import processors, recovery_log
from deploy.drills import report as reporting
from deploy.drills import targets as aiming
from deploy.drills.bulk import BulkLoad
from deploy.drills.catalogue import Drill
from deploy.drills.course import Course, Plan, Timeline, one_before
from deploy.drills.drill_lock import DrillLock, locked
from deploy.drills.health import UNEVEN, ClusterHealth, active_master, unevenness
from deploy.drills.hosts import Host, HostError, Hosts, LogLine, NotDrillableError
from deploy.drills.load import Load, follow_all
from deploy.drills.processors import Busy
from deploy.drills.regions import Region, regions, server_of_meta
from deploy.drills.report import DrillRun, DrillSetting, Observed
from deploy.drills.samples import Loss, loss
from deploy.local.ports import LOOPBACK
from feedstore.app import services
from feedstore.app import wiring as feedstore_wiring
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.following import FEEDS, entries_of, row_key
from feedstore.widecolumn import UnavailableError, WideColumnStore
from feedstore.widecolumn.hbase import Addresses, HBaseCluster
from workers.app import wiring
from workers.following.groups import cluster_groups
from workers.queue.port import lag_of

LANDED_S = 180.0

_ASK_S = 0.2
_WRITE_MS = 3_000
"""Half of it is each gateway's: longer than a log that loses a DataNode is stuck. If a write is given up sooner, a
drill measures the patience of the caller, and not how long the cluster took.
"""
_CONNECTIONS = 32
_BULK_BEHIND = 1_000_000
_USERS_FROM = 1 << 40
"""Users and pins of drills are numbered from there on: no other of a system that is for drills has such ids."""

_USERS_TRIED = 1 << 16
_CLOCK_SET_S = 0.5
"""From here on the wall clock did not just drift: it was set, and no line of a log is before or after a fault by it."""


@dataclass(frozen=True)
class _Scene:
    """regions: those of the feeds, before the fault; affected: the numbers of those that the fault affects. meta: the
    host of hbase:meta. runs_master: a target that holds regions runs the active master too.
    """

    marked: list[Host]
    regions: list[Region]
    meta: str
    targets: list[Host]
    affected: list[int]
    runs_master: bool

    @property
    def unaffected(self) -> list[int]:
        return [number for number in range(len(self.regions)) if number not in self.affected]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.targets]


def run(config: Config, hosts: Hosts, plan: Plan, say: Callable[[str], None]) -> DrillRun:
    """Runs a drill and returns its result; whatever happens, the target is brought back first. If it cannot be, the
    report says so.

    Raises:
        NotDrillableError: the system is not labelled for it, or not well enough to begin.
        HostError, StoreError, FollowStoreError, QueueError: the system could not be asked before the fault, or not be
            broken.
    """
    urls = {each.name: each.url for each in config.clusters}
    if plan.cluster not in urls:
        raise NotDrillableError(f"there is no cluster {plan.cluster!r} in this home")
    rng = random.Random(plan.seed)  # noqa: S311 - a drill is repeated by its seed
    health = ClusterHealth(hosts, lambda name: regions(urls[name]), say)
    with locked(config.home) as lock:
        if left := lock.heal(hosts):
            say(f"an earlier drill was ended before it had healed: {left}; healed now")
        one = _Run(config, hosts, plan, health, Timeline(say), rng, lock)
        scene = one.prepared()
        target = ", ".join(scene.names) if plan.drill.fault is not None else ""
        say(f"target: {target or 'none'}; {len(scene.affected)} of {len(scene.regions)} regions are affected")
        if scene.runs_master:
            say(f"{target} runs the active master too: that makes two faults of one, and its regions wait for both")
        seen = one.drilled(scene, target)
    setting = DrillSetting(
        drill=plan.drill.name,
        cluster=plan.cluster,
        target=target,
        seed=plan.seed,
        started_at=seen.started_at,
        hold_s=plan.hold_s,
        holds_meta=scene.meta in scene.names,
        regions=len(scene.regions),
        affected=len(seen.affected),
        back_from=plan.drill.back_from,
        what=plan.drill.what,
        runs_master=scene.runs_master,
    )
    return reporting.assemble(setting, reporting.figures(setting, seen), reporting.budgets(plan.budgets), seen)


@dataclass(frozen=True)
class _Run:
    """One run of a drill, as long as it holds the lock."""

    config: Config
    hosts: Hosts
    plan: Plan
    health: ClusterHealth
    timeline: Timeline
    rng: random.Random
    lock: DrillLock

    @property
    def url(self) -> str:
        """Of the cluster that is drilled."""
        return self.config.cluster(self.plan.cluster).url

    def prepared(self) -> _Scene:
        """Refuses hosts that are not marked, waits until all is well, chooses, and breaks the host that comes first."""
        drill, named = self.plan.drill, self.plan.target
        _refuse_unmarked(self.config, self.hosts.all())
        self.hosts.clean()
        marked = self.health.wait([each.name for each in self.config.clusters])
        _refuse_unmarked(self.config, marked)

        def master() -> str | None:
            return active_master(self.hosts, marked, self.plan.cluster)

        def chosen(named: str | None, but: Sequence[str] = ()) -> list[Host]:
            found, meta = regions(self.url), server_of_meta(self.url)
            return aiming.choose(drill, self.plan.cluster, named, marked, found, meta, master, self.rng, but)

        before: list[str] = []
        if drill.course == "after another":
            (other,) = chosen(None, [named] if named else [])
            before = [other.name]
            one_before(self.hosts, self.plan, other, self.health, self.timeline, self.lock)
        targets = chosen(named, before)
        _refuse_unused(self.config, drill, targets)
        found = regions(self.url)
        names = [each.name for each in targets]
        runs_master = drill.aim == "region host" and master() in names
        return _Scene(marked, found, server_of_meta(self.url), targets, _affected(drill, names, found), runs_master)

    def drilled(self, scene: _Scene, target: str) -> Observed:
        """The drill itself, under load, and the count of the acknowledged pins in the feeds. target: the names of the
        hosts that are broken.
        """
        config, plan, timeline = self.config, self.plan, self.timeline
        # Readers prefer the cluster that is broken, so that they feel the fault.
        serving = msgspec.structs.replace(config.serving, prefer=plan.cluster)
        near = dataclasses.replace(config, serving=serving)
        with (
            _opened(config) as stores,
            services.open_service(near) as service,
            _probing(config, self.url) as reads,
            _probing(config, self.url) as writes,
            _lag(config, plan.cluster) as lag,
        ):
            now_ms = wall_ms()
            first = _USERS_FROM + now_ms * 1_000
            users = _one_in_each(scene.regions, first)
            load = Load(service, reads, writes, users, first, wall_ms, lag)
            follow_all(service, users, first)
            load.save_one()
            if _until_landed(stores, load, config.limits.cap) is None:
                raise NotDrillableError(
                    f"a pin did not reach the feeds of both clusters in {LANDED_S:.0f} s: nothing was broken"
                )
            scene = self._just_before(scene)
            started_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            bulk = BulkLoad(self.url, feedstore_wiring.tables(config), first + _BULK_BEHIND, now_ms)
            is_even = _evened(plan, scene, self.url)
            course = Course(self.hosts, plan, scene.targets, load, timeline, self.health, self.lock, is_even)
            hedges = service.counters().hedges
            ahead_s = time.time() - time.monotonic()
            busy: list[Busy] = []
            with load.measuring_backlog(), processors.measuring(busy):
                with _removed(bulk, timeline):
                    with load.running(self.rng):
                        match plan.drill.course:
                            case "in turn":
                                moments, failure = course.in_turn()
                            case "bulk load":
                                moments, failure = course.bulk_load(bulk)
                            case _:
                                moments, failure = course.once(_moved(plan.drill, scene, self.url))
                    timeline.note("the load has ended")
                hedges = service.counters().hedges - hedges
                landed = _until_landed(stores, load, config.limits.cap)
            timeline.note("everything acknowledged is in both clusters" if landed is not None else "not all has landed")
            lost = _lost(stores, load, config.limits.cap, timeline)
        # The logs of the cluster and of the targets have another clock.
        fault_wall_s = moments.fault + ahead_s
        lines = None
        if abs(time.time() - time.monotonic() - ahead_s) > _CLOCK_SET_S:
            timeline.note("the clock was set during the drill: which lines of the logs count is unknown")
        else:
            asked = [each.name for each in scene.marked if each.cluster == plan.cluster or each in scene.targets]
            lines = _lines(self.hosts, asked, fault_wall_s, timeline)
        return Observed(
            moments,
            load.samples,
            scene.affected,
            scene.unaffected,
            lost,
            landed,
            hedges,
            None if lines is None else len(recovery_log.expired(lines, fault_wall_s)),
            recovery_log.recovery(lines or (), fault_wall_s, target),
            load.backlog,
            busy,
            timeline.events,
            failure,
            started_at,
        )

    def _just_before(self, scene: _Scene) -> _Scene:
        """The balancer may have moved regions, and hbase:meta, since the target was chosen.

        Raises NotDrillableError: no region is left on the target, or they are other regions; hbase:meta came to the
            target, or left it, which is another drill.
        """
        found = regions(self.url)
        if [each.start for each in found] != [each.start for each in scene.regions]:
            raise NotDrillableError("a region was split or merged meanwhile: nothing was broken")
        affected = _affected(self.plan.drill, scene.names, found)
        if self.plan.drill.affected != "none" and not affected:
            raise NotDrillableError(f"no region of the feeds is on {', '.join(scene.names)} now: nothing was broken")
        meta = server_of_meta(self.url)
        if (meta in scene.names) != (scene.meta in scene.names):
            moved = f"from {scene.meta or 'no host'} to {meta or 'no host'}"
            raise NotDrillableError(f"hbase:meta has moved {moved} meanwhile: nothing was broken")
        return dataclasses.replace(scene, regions=found, affected=affected, meta=meta)


def _affected(drill: Drill, targets: Sequence[str], found: Sequence[Region]) -> list[int]:
    match drill.affected:
        case "its regions":
            return [number for number, region in enumerate(found) if region.server in targets]
        case "all":
            return list(range(len(found)))
        case "none":
            return []


def _moved(drill: Drill, scene: _Scene, url: str) -> Callable[[], bool] | None:
    """Asks whether every affected region is on another host now, as hbase:meta has it; None if none would move."""
    wanted = {scene.regions[number].start for number in scene.affected}
    if drill.affected != "its regions" or not wanted:
        return None

    def has_moved() -> bool:
        try:
            elsewhere = {region.start for region in regions(url) if region.server not in {"", *scene.names}}
        except UnavailableError:
            return False
        return wanted <= elsewhere

    return has_moved


def _evened(plan: Plan, scene: _Scene, url: str) -> Callable[[], bool]:
    """Asks whether the regions are as even as before a drill; after a drill that moves none, nothing is asked."""
    holders = [each.name for each in scene.marked if each.cluster == plan.cluster and each.holds_regions]

    def is_even() -> bool:
        if plan.drill.affected == "none":
            return True
        try:
            return unevenness(regions(url), holders) <= UNEVEN
        except UnavailableError:
            return False

    return is_even


def _refuse_unmarked(config: Config, marked: Sequence[Host]) -> None:
    """All containers that this home's load goes to must be marked."""
    if not marked:
        raise NotDrillableError(
            "nothing here is marked as drillable: drills run on the Docker clusters (make cluster-up)"
        )
    for cluster in config.clusters:
        addresses = Addresses.parse(cluster.url) if cluster.scheme == "hbase" else None
        its = [host for host in marked if host.cluster == cluster.name]
        if any(not host.is_running for host in its):
            continue  # its published ports are not seen; the drill waits for it, and checks it again
        published = {port for host in its for port in host.ports}
        if addresses is None or any(each.host != LOOPBACK or each.port not in published for each in addresses.thrift2):
            raise NotDrillableError(
                f"cluster {cluster.name} of this home is not one of the marked containers of {cluster.name}: its "
                "load must go to what is broken, and nowhere else (feedctl init --stack docker)"
            )


def _refuse_unused(config: Config, drill: Drill, targets: Sequence[Host]) -> None:
    """A broker or a database that the load does not go to would be broken in vain: nothing could fail."""
    used = {"broker": (config.queue,), "database": config.shards}.get(drill.aim, ())
    published = {f"{LOOPBACK}:{port}" for host in targets for port in host.ports}
    if any(published.isdisjoint(re.split("[/@,?]", url)) for url in used):
        raise NotDrillableError(
            f"this home does not use {', '.join(each.name for each in targets)}: its load would not notice that it is "
            "broken (feedctl init --stack docker)"
        )


def _lines(hosts: Hosts, asked: Sequence[str], since: float, timeline: Timeline) -> list[LogLine] | None:
    try:
        found = [line for name in asked for line in hosts.logs(name, since, time.time())]
    except HostError as error:
        # The rest of the report is worth having.
        timeline.note(f"the logs cannot be read: {error}")
        return None
    return sorted(found, key=lambda line: line.at)


@contextmanager
def _removed(bulk: BulkLoad, timeline: Timeline) -> Iterator[None]:
    """The cells of a bulk load, if there was one, are removed at the end."""
    try:
        yield
    finally:
        try:
            bulk.remove()
        except UnavailableError as error:
            timeline.note(f"what was loaded cannot all be removed: {error}")


@contextmanager
def _lag(config: Config, cluster: str) -> Iterator[Callable[[], int]]:
    """Asks how many messages the cluster's writers have left to do."""
    ports = wiring.open_ports(config, "read", feeds=False)
    with closing(ports):
        yield lambda: sum(lag_of(ports.queue, topic, group) for topic, group in cluster_groups(cluster))


def _one_in_each(found: Sequence[Region], first: int) -> list[int]:
    """Raises NotDrillableError: a region is so small that none of these users' feeds is in it."""
    users: list[int] = []
    for region in found:
        fitting = (user for user in range(first, first + _USERS_TRIED) if region.holds(row_key(user)))
        user = next((user for user in fitting if user not in users), None)
        if user is None:
            raise NotDrillableError(f"no made-up feed is in the region from {region.start.hex()} to {region.end.hex()}")
        users.append(user)
    return users


@contextmanager
def _opened(config: Config) -> Iterator[dict[str, WideColumnStore]]:
    """The feeds of every cluster, each by itself."""
    with ExitStack() as stack:
        yield {
            each.name: stack.enter_context(closing(feedstore_wiring.open_cluster(config, each.name, "read"))).table(
                FEEDS
            )
            for each in config.clusters
        }


@contextmanager
def _probing(config: Config, url: str) -> Iterator[WideColumnStore]:
    """The feeds of the drilled cluster, with connections of its own: enough for every region."""
    probing = f"{url}{'&' if '?' in url else '?'}write_ms={_WRITE_MS}&connections={_CONNECTIONS}"
    with closing(HBaseCluster.open(probing, feedstore_wiring.tables(config), check=False)) as cluster:
        yield cluster.table(FEEDS)


def _feeds(stores: dict[str, WideColumnStore], users: Sequence[int]) -> dict[str, dict[int, frozenset[int]]]:
    return {
        name: {
            user: frozenset(each.pin for each in entries_of(store.read(row_key(user), None, 10_000))) for user in users
        }
        for name, store in stores.items()
    }


def _lost(stores: dict[str, WideColumnStore], load: Load, cap: int, timeline: Timeline) -> Loss | None:
    """The entries that were lost, of those that readers can reach; None if the clusters cannot be asked."""
    try:
        found = _feeds(stores, load.users)
    except UnavailableError as error:
        timeline.note(f"what is in the clusters cannot be counted: {error}")
        return None
    return loss(found, load.users, frozenset(load.acknowledged), frozenset(load.asked), load.behind(cap))


def _until_landed(stores: dict[str, WideColumnStore], load: Load, cap: int) -> float | None:
    """How long it took until every feed of both clusters held all acknowledged pins that readers can reach; None if it
    did not.
    """
    began = time.monotonic()
    wanted = load.acknowledged - load.behind(cap)
    while time.monotonic() - began < LANDED_S:
        try:
            found = _feeds(stores, load.users)
        except UnavailableError:
            found = {}
        if found and all(wanted <= feeds[user] for feeds in found.values() for user in load.users):
            return time.monotonic() - began
        time.sleep(_ASK_S)
    return None
