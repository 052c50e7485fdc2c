"""Runs one drill: checks that all is well, loads, breaks, waits, heals, and looks for what was acknowledged."""

import dataclasses
import datetime as dt
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from feedstore.feeds import FEEDS, entries_of, row_key
from feedstore.feeds.layout import bucket
from feedstore.serving import wiring as serving_wiring
from feedstore.serving.config import Config
from feedstore.widecolumn import Cluster, UnavailableError, WideColumnStore
from feedstore.widecolumn.hbase import Addresses, HBaseCluster
from workers.drills import report as reporting
from workers.drills.catalogue import Drill
from workers.drills.hosts import Host, Hosts, NotDrillableError
from workers.drills.load import Load, follow_all
from workers.drills.regions import Region, regions, server_of_meta
from workers.drills.report import Moments, Run, Setting
from workers.drills.samples import Loss, loss

WARM_S = 5.0
SETTLE_S = 15.0
LANDED_S = 180.0
START_AGAIN_S = 2.0

_ASK_S = 0.2
_STARTS = 3
_WRITE_MS = 1_500
_CONNECTIONS = 48
_USERS_FROM = 1 << 40
"""Users and pins of drills are numbered from there on: no other of a system that is for drills has such ids."""


@dataclass(frozen=True)
class Plan:
    """What a run was asked for. target: a host's name, or None to let the seed choose. hold_s: how long it is away."""

    drill: Drill
    cluster: str
    target: str | None
    seed: int
    hold_s: float


def run(config: Config, hosts: Hosts, plan: Plan, say: Callable[[str], None]) -> Run:
    """Returns what is to be kept; whatever happens, the target is brought back first. Where it cannot be, the report
    says so.

    Raises:
        NotDrillableError: the system is not marked for it, or not well enough to begin.
        StoreError, FollowStoreError: it could not be asked before the fault.
    """
    rng = random.Random(plan.seed)  # noqa: S311 - a drill is repeated by its seed
    marked = _checked(config, hosts)
    url = next((each.url for each in config.clusters if each.name == plan.cluster), None)
    if url is None:
        raise NotDrillableError(f"there is no cluster {plan.cluster!r} in this home")
    found = regions(url)
    meta = server_of_meta(url)
    target = _target(plan, marked, meta, rng)
    affected = [number for number, region in enumerate(found) if region.server == target]
    unaffected = [number for number in range(len(found)) if number not in affected]
    # Readers prefer the cluster that is broken: they are to feel it.
    near = dataclasses.replace(config, prefer=plan.cluster)
    with _opened(config) as stores, serving_wiring.open_service(near) as service, _probing(config, url) as probed:
        first = _USERS_FROM + serving_wiring.wall_ms() * 1_000
        load = Load(service, probed, _one_in_each(found, first), first, first, first, serving_wiring.wall_ms)
        say(f"{len(load.users)} feeds, one in each region; {len(affected)} of them on {target}")
        follow_all(service, load.users, load.board)
        load.save_one()
        if _until_landed(stores, load) is None:
            raise NotDrillableError(
                f"a pin did not reach the feeds of both clusters in {LANDED_S:.0f} s: nothing was broken"
            )
        started_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        timeline = Timeline(say)
        with load.running(rng):
            moments, failure = _break(hosts, plan, target, load, timeline, lambda: _moved(found, url, target))
        timeline.note("the load has ended")
        landed = _until_landed(stores, load)
        timeline.note("everything acknowledged is in both clusters" if landed is not None else "not all has landed")
        lost = _lost(stores, load, timeline)
    figures = reporting.figures(load.samples, moments, affected, unaffected, lost, landed)
    setting = Setting(
        drill=plan.drill.name,
        cluster=plan.cluster,
        target=target,
        seed=plan.seed,
        started_at=started_at,
        hold_s=plan.hold_s,
        holds_meta=meta == target,
        regions=len(found),
        affected=len(affected),
        what=plan.drill.what,
    )
    return reporting.assemble(
        setting,
        figures,
        reporting.budgets(),
        moments,
        load.samples,
        timeline=timeline.events,
        failure=failure,
        affected=affected,
    )


class Timeline:
    """What happened when, in seconds from the fault."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.events: list[tuple[float, str]] = []
        self._say = say
        self._fault_s = 0.0

    def begin(self) -> float:
        """The fault is now; returns that moment of `time.monotonic`."""
        self._fault_s = time.monotonic()
        return self._fault_s

    def note(self, what: str) -> None:
        at_s = time.monotonic() - self._fault_s
        self.events.append((at_s, what))
        self._say(f"{at_s:5.1f} s: {what}")


def _break(
    hosts: Hosts, plan: Plan, target: str, load: Load, timeline: Timeline, has_moved: Callable[[], bool]
) -> tuple[Moments, str]:
    """Under load: warms up, breaks, waits, heals, and lets things settle. Returns also why the target could not be
    brought back; empty where it was.

    Raises:
        NotDrillableError: calls fail before anything was broken.
    """
    warm = time.monotonic() + WARM_S / 2
    time.sleep(WARM_S)
    failed = [each for each in load.samples if not each.is_done]
    if failed:
        raise NotDrillableError(f"calls fail before anything was broken: {failed[0].kind}: {failed[0].detail}")
    fault = timeline.begin()
    try:
        timeline.note(f"{plan.drill.what}: {target}")
        hosts.kill(target)
        # Until here the target may have gone on serving: a call that was done meanwhile is not one that came back.
        gone = time.monotonic()
        is_noted = False
        while (left_s := fault + plan.hold_s - time.monotonic()) > 0:
            if not is_noted and has_moved():
                timeline.note("hbase:meta has every affected region on another host")
                is_noted = True
            time.sleep(min(_ASK_S, left_s))
    finally:
        try:
            failure = _start(hosts, target, timeline)
        except BaseException:
            # Ended while it was being brought back: once more, and then the end.
            hosts.start(target)
            raise
        healed = time.monotonic()
    time.sleep(SETTLE_S)
    return Moments(warm, fault, gone, healed, time.monotonic()), failure


def _start(hosts: Hosts, target: str, timeline: Timeline) -> str:
    """Brings the target back. Returns why it cannot be; empty where it was."""
    failure = ""
    for attempt in range(_STARTS):
        if attempt:
            time.sleep(START_AGAIN_S)
        try:
            hosts.start(target)
        except Exception as error:  # noqa: BLE001 - whatever the engine raises, it is tried again, and reported
            failure = f"{target} could not be started: {type(error).__name__}: {error}"
            timeline.note(failure)
        else:
            timeline.note(f"{target} was started again")
            return ""
    return failure


def _moved(before: Sequence[Region], url: str, target: str) -> bool:
    """Whether every region that was on the target is on another host now, as far as anybody says."""
    try:
        elsewhere = {region.start for region in regions(url) if region.server not in {"", target}}
    except UnavailableError:
        return False
    return {region.start for region in before if region.server == target} <= elsewhere


def _checked(config: Config, hosts: Hosts) -> list[Host]:
    """The marked hosts, if all of them run and this home's clusters are theirs."""
    marked = hosts.all()
    if not marked:
        raise NotDrillableError(
            "nothing here is marked as drillable: drills run on the Docker clusters (make cluster-up)"
        )
    if away := [host.name for host in marked if not host.is_running]:
        raise NotDrillableError(f"not well enough to begin: {', '.join(away)} is away")
    for cluster in config.clusters:
        addresses = Addresses.parse(cluster.url) if cluster.url.startswith("hbase:") else None
        published = {port for host in marked if host.cluster == cluster.name for port in host.ports}
        if addresses is None or any(
            each.host != "127.0.0.1" or each.port not in published for each in (*addresses.thrift2, *addresses.thrift1)
        ):
            raise NotDrillableError(
                f"cluster {cluster.name} of this home is not one of the marked containers of {cluster.name}: its "
                "load must go to what is broken, and nowhere else (feedctl init --stack docker)"
            )
    return marked


def _target(plan: Plan, marked: Sequence[Host], meta: str, rng: random.Random) -> str:
    possible = [host.name for host in marked if host.cluster == plan.cluster and host.holds_regions]
    if plan.target is not None:
        if plan.target not in possible:
            raise NotDrillableError(
                f"{plan.target} is no host of cluster {plan.cluster}; there are {', '.join(possible)}"
            )
        return plan.target
    fitting = [name for name in possible if (name == meta) == plan.drill.on_meta]
    if not fitting:
        raise NotDrillableError(f"no host of cluster {plan.cluster} fits: hbase:meta is on {meta}")
    return rng.choice(fitting)


def _one_in_each(found: Sequence[Region], first: int) -> list[int]:
    users: list[int] = []
    for region in found:
        user = first + len(users)
        while not region.holds(bucket(user)) or user in users:
            user += 1
        users.append(user)
    return users


@contextmanager
def _opened(config: Config) -> Iterator[dict[str, WideColumnStore]]:
    """The feeds of every cluster, each by itself."""
    opened: list[Cluster] = []
    try:
        opened.extend(serving_wiring.open_cluster(config, each.name, "beside") for each in config.clusters)
        yield {each.name: cluster.table(FEEDS) for each, cluster in zip(config.clusters, opened, strict=True)}
    finally:
        for cluster in opened:
            cluster.close()


@contextmanager
def _probing(config: Config, url: str) -> Iterator[WideColumnStore]:
    """The feeds of the drilled cluster, with a connection for every region and little patience."""
    patient = f"{url}&write_ms={_WRITE_MS}&connections={_CONNECTIONS}"
    with closing(HBaseCluster.open(patient, serving_wiring.tables(config), check=False)) as cluster:
        yield cluster.table(FEEDS)


def _feeds(stores: dict[str, WideColumnStore], users: Sequence[int]) -> dict[str, dict[int, frozenset[int]]]:
    return {
        name: {
            user: frozenset(each.pin for each in entries_of(store.read(row_key(user), None, 10_000))) for user in users
        }
        for name, store in stores.items()
    }


def _lost(stores: dict[str, WideColumnStore], load: Load, timeline: Timeline) -> Loss | None:
    """None where the clusters cannot be asked."""
    try:
        found = _feeds(stores, load.users)
    except UnavailableError as error:
        timeline.note(f"what is in the clusters cannot be counted: {error}")
        return None
    return loss(found, load.users, frozenset(load.acknowledged), frozenset(load.asked))


def _until_landed(stores: dict[str, WideColumnStore], load: Load) -> float | None:
    """How long it took until every feed of both clusters held all that was acknowledged; None where it did not."""
    began = time.monotonic()
    while time.monotonic() - began < LANDED_S:
        try:
            found = _feeds(stores, load.users)
        except UnavailableError:
            found = {}
        if found and all(load.acknowledged <= feeds[user] for feeds in found.values() for user in load.users):
            return time.monotonic() - began
        time.sleep(_ASK_S)
    return None
