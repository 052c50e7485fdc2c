"""How a drill runs, under load: something is broken, and healed whatever happens."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deploy.drills.bulk import BulkLoad
from deploy.drills.catalogue import Drill
from deploy.drills.drill_lock import DrillLock
from deploy.drills.faults import Fault
from deploy.drills.health import ClusterHealth
from deploy.drills.hosts import Host, HostError, Hosts, NotDrillableError, NotHealedError
from deploy.drills.load import Load
from deploy.drills.report import Moments
from deploy.local.signals import undisturbed

WARM_S = 5.0
WARM_S_MAX = 20.0
"""How long the load runs before the fault: for WARM_S, and then until every caller was served, but no longer than
WARM_S_MAX.
"""

SETTLE_S = 15.0
SETTLE_S_MAX = 120.0
"""How long the load continues after the healing: for SETTLE_S, and then until all callers are served again and the
regions are even, but no longer than SETTLE_S_MAX.
"""

QUIET_S = 3.0
"""A caller counts as served if its last call was done no longer ago than this."""

BETWEEN_HOSTS_S = 60.0
"""How long the drill waits, after all is well again, before it breaks the second host."""

START_AGAIN_S = 2.0

_ASK_S = 0.5
_SETTLED_ASK_S = 2.0
_STARTS = 3


@dataclass(frozen=True)
class Plan:
    """The parameters of a run. target: a host's name, or None to let the seed choose. hold_s: how long it is away.
    budgets: a section of budgets.toml.
    """

    drill: Drill
    cluster: str
    target: str | None
    seed: int
    hold_s: float
    budgets: str


class Timeline:
    """The events of a drill, with their times in seconds from the fault."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.events: list[tuple[float, str]] = []
        self._say = say
        self._fault_s = 0.0

    def begin(self, at_s: float | None = None) -> float:
        """The fault was at `at_s` of `time.monotonic`, or is now; returns that moment."""
        self._fault_s = time.monotonic() if at_s is None else at_s
        return self._fault_s

    def note(self, what: str, at_s: float | None = None) -> None:
        """at_s: of `time.monotonic`; None: now."""
        since_s = (time.monotonic() if at_s is None else at_s) - self._fault_s
        self.events.append((since_s, what))
        self._say(f"{since_s:5.1f} s: {what}")


@dataclass
class Course:
    """One drill under load. Whatever ends it, the targets are healed."""

    hosts: Hosts
    plan: Plan
    targets: Sequence[Host]
    load: Load
    timeline: Timeline
    health: ClusterHealth
    lock: DrillLock
    is_even: Callable[[], bool]
    """Whether no host of the drilled cluster has many regions more than another: the balancer has done its work."""

    def once(self, has_moved: Callable[[], bool] | None) -> tuple[Moments, str]:
        """Breaks every target at once. Returns also why they could not be brought back; empty if they were.

        Raises:
            NotDrillableError: calls fail before anything was broken.
            HostError: a target could not be broken; the part of the fault that was done is undone.
        """
        warm = self._warm_up()
        fault = self.timeline.begin()
        healing = _Healing(self.plan, self.hosts, self.targets, self.timeline, self.lock)
        with healing:
            fault = self.timeline.begin(_fault(self.plan).inject(self.hosts, self.targets))
            # Until here the target may have served: a call that was done before does not show that it is back.
            gone = time.monotonic()
            self.timeline.note(f"{self.plan.drill.what}: {_names(self.targets)}", fault)
            while (left_s := fault + self.plan.hold_s - time.monotonic()) > 0:
                if has_moved is not None and has_moved():
                    self.timeline.note("hbase:meta has every affected region on another host")
                    has_moved = None
                time.sleep(min(_ASK_S, max(0.0, left_s)))
        healed = time.monotonic()
        return Moments(warm, fault, gone, healed, self._settle(healed)), healing.failure

    def in_turn(self) -> tuple[Moments, str]:
        """Breaks one target after the other, each when all is well again; as `once`."""
        warm = self._warm_up()
        fault = gone = self.timeline.begin()
        failure = ""
        for number, target in enumerate(self.targets):
            healing = _Healing(self.plan, self.hosts, [target], self.timeline, self.lock)
            with healing:
                _fault(self.plan).inject(self.hosts, [target])
                self.timeline.note(f"{target.name} is stopped")
                gone = time.monotonic()
                time.sleep(self.plan.hold_s)
            failure = healing.failure
            if not failure and number + 1 < len(self.targets):
                try:
                    self.health.wait([self.plan.cluster], settled=False)
                except (NotDrillableError, HostError) as error:
                    failure = f"{target.name} did not get well: {error}"
                    self.timeline.note(failure)
            if failure:
                break
        healed = time.monotonic()
        return Moments(warm, fault, gone, healed, self._settle(healed)), failure

    def bulk_load(self, bulk: BulkLoad) -> tuple[Moments, str]:
        """Breaks nothing. Returns also why there was no bulk load; empty if there was one."""
        warm = self._warm_up()
        fault = self.timeline.begin()
        self.timeline.note("the bulk load begins")
        try:
            bulk.start()
            while time.monotonic() < fault + self.plan.hold_s and bulk.is_running() and not bulk.failure():
                time.sleep(_ASK_S)
            failure = bulk.failure()
        finally:
            cells = bulk.stop()
        if not cells:
            failure = failure or "the bulk load wrote nothing: what was measured is an idle system"
        healed = time.monotonic()
        self.timeline.note(f"the bulk load has ended: {cells:,} cells")
        return Moments(warm, fault, fault, healed, self._settle(healed)), failure

    def _warm_up(self) -> float:
        """Returns once every caller was served; from some time before that on, all was well."""
        deadline = time.monotonic() + WARM_S_MAX
        time.sleep(WARM_S)
        while True:
            now = time.monotonic()
            if failed := [each for each in self.load.samples if not each.is_done]:
                raise NotDrillableError(f"calls fail before anything was broken: {failed[0].kind}: {failed[0].detail}")
            if self.load.quiet_s(now) is not None:
                return now - WARM_S / 2
            if now > deadline:
                raise NotDrillableError(f"a caller was not served in {WARM_S_MAX:.0f} s, before anything was broken")
            time.sleep(_ASK_S)

    def _settle(self, healed: float) -> float:
        """Returns when all callers were served again and the regions are even, or SETTLE_S_MAX after the healing."""
        time.sleep(SETTLE_S)
        while (now := time.monotonic()) < healed + SETTLE_S_MAX:
            quiet = self.load.quiet_s(now)
            if quiet is not None and quiet < QUIET_S and self.is_even():
                break
            time.sleep(_SETTLED_ASK_S)
        return time.monotonic()


class _Healing:
    """Heals at its end, whatever ended it. The healing is tried several times if it fails, and again if it is
    interrupted.

    Raises NotHealedError if something else was raised, and the targets cannot be healed either.
    """

    def __init__(self, plan: Plan, hosts: Hosts, targets: Sequence[Host], timeline: Timeline, lock: DrillLock) -> None:
        self._fault, self._hosts, self._targets, self._timeline = _fault(plan), hosts, targets, timeline
        self._drill, self._lock = plan.drill.name, lock
        self.failure = ""
        """Why the targets could not be brought back; empty if they were."""

    def __enter__(self) -> None:
        self._lock.write(self._drill, [each.name for each in self._targets])

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._heal()
        except BaseException:
            # The healing was interrupted: it begins again, and this time signals do not interrupt it.
            with undisturbed():
                self._heal()
            raise
        if error is not None and self.failure:
            raise NotHealedError(self.failure) from error

    def _heal(self) -> None:
        for attempt in range(_STARTS):
            if attempt:
                time.sleep(START_AGAIN_S)
            try:
                self._fault.heal(self._hosts, self._targets)
            except Exception as error:  # noqa: BLE001 - whatever the engine raises, it is tried again, and reported
                self.failure = (
                    f"{_names(self._targets)} could not be healed: {type(error).__name__}: {error}; the next drill "
                    f"tries it again, or bring it back by hand: docker restart feedstore-{self._targets[0].name}"
                )
                self._timeline.note(self.failure)
            else:
                self._lock.wipe()
                self._timeline.note(f"{_names(self._targets)}: healed")
                self.failure = ""
                return


def _fault(plan: Plan) -> Fault:
    if plan.drill.fault is None:
        raise ValueError(f"{plan.drill.name} breaks nothing")
    return plan.drill.fault


def _names(targets: Sequence[Host]) -> str:
    return ", ".join(each.name for each in targets)


def one_before(
    hosts: Hosts, plan: Plan, target: Host, health: ClusterHealth, timeline: Timeline, lock: DrillLock
) -> None:
    """Another host dies, comes back, and gets well; that is not measured. Raises NotDrillableError: it does not."""
    healing = _Healing(plan, hosts, [target], timeline, lock)
    timeline.begin()
    with healing:
        _fault(plan).inject(hosts, [target])
        timeline.note(f"before the drill: {plan.drill.what}: {target.name}")
        time.sleep(plan.hold_s)
    if healing.failure:
        raise NotDrillableError(healing.failure)
    health.wait([plan.cluster], settled=False)
    timeline.note(f"all is well again; {BETWEEN_HOSTS_S:.0f} s more")
    time.sleep(BETWEEN_HOSTS_S)
    timeline.events.clear()
