"""The gauges: what a worker looks at every few seconds for its metrics.

If something does not answer, its gauges have no value. Each cluster has a loop of its own, because one that hangs must
not hide the state of the others.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.errors import NotNowError
from feedstore.following.metrics import BEHIND, DEAD_LETTERS, LAG
from feedstore.follows.port import Backlog, ClockStepError
from feedstore.metering import Definition
from feedstore.widecolumn.progress import MARK_MAX_MS, Progress, State, behind_ms
from workers.following import metrics
from workers.following.faults import PartAwayError, fault
from workers.following.groups import RELAY
from workers.following.landed import groups
from workers.following.lost_actions import are_lost
from workers.following.ports import Ports
from workers.queue.metrics import PARTITION_LAG
from workers.queue.port import lags_of

LOOK_EVERY_S: Final = 5.0
FAULTS_EVERY_S: Final = 15.0
"""At most this often every part of a cluster is asked whether it is there and holds what it must."""

Values = Mapping[tuple[str, ...], float]


class QueueGauges:
    """Looks at the queue, the outboxes, the file systems and the clocks."""

    def __init__(self, ports: Ports, config: Config) -> None:
        self._ports = ports
        self._config = config
        self._home_clock = feedstore_wiring.home_clock(config)

    def look(self) -> None:
        # Asked once for all gauges: a shard counts its rows, of which there are millions if the queue is away for long.
        backlogs = self._backlogs()
        self._look([LAG, PARTITION_LAG], lambda: self._lags(backlogs))
        self._look([DEAD_LETTERS], lambda: [{(): self._ports.dead.count()}])
        self._look([metrics.OUTBOX, metrics.OUTBOX_ACTIONS, metrics.OUTBOX_ROWS], lambda: self._outboxes(backlogs))
        self._look([metrics.FREE, metrics.SIZE], self._stores)
        self._look([metrics.CLOCK], lambda: [self._clocks()])
        if self._home_clock is not None:
            self._ports.meter.saw(metrics.CLOCKS_OFF, {(): len(self._home_clock.off())})
        # Last: it may ask clusters, which may be away.
        self._look([metrics.ACTIONS_LOST], lambda: [{(): int(are_lost(self._ports, can_wait=True, known=True))}])

    def _look(self, gauges: Sequence[Definition], look: Callable[[], Sequence[Values]]) -> None:
        try:
            found = look()
        except (NotNowError, OSError):
            found = [{} for _ in gauges]  # unknown now, whatever was seen before
        for gauge, values in zip(gauges, found, strict=True):
            self._ports.meter.saw(gauge, values)

    def _backlogs(self) -> dict[int, Backlog]:
        """The backlog of each shard of the follow store that answers."""
        found: dict[int, Backlog] = {}
        for shard in range(self._ports.follows.shards()):
            with suppress(NotNowError):
                found[shard] = self._ports.follows.backlog(shard)
        return found

    def _lags(self, backlogs: Mapping[int, Backlog]) -> Sequence[Values]:
        ports = self._ports
        lags = {group: lags_of(ports.queue, topic, group) for topic, group in groups(ports)}
        of_groups: dict[tuple[str, ...], float] = {(group,): sum(each.values()) for group, each in lags.items()}
        if len(backlogs) == ports.follows.shards():  # if a shard is away, the queue is known all the same
            of_groups[(RELAY,)] = sum(each.actions for each in backlogs.values())
        return [of_groups, {(group, str(number)): lag for group, each in lags.items() for number, lag in each.items()}]

    def _outboxes(self, backlogs: Mapping[int, Backlog]) -> Sequence[Values]:
        ages: dict[tuple[str, ...], float] = {}
        told: dict[tuple[str, ...], Backlog] = {}
        for shard, backlog in backlogs.items():
            try:
                age_ms = 0 if backlog.oldest_ms is None else self._ports.follows.now(shard) - backlog.oldest_ms
            except NotNowError:
                continue
            ages[(str(shard),)] = max(0.0, age_ms / 1_000)
            told[(str(shard),)] = backlog
        return [
            ages,
            {shard: each.actions for shard, each in told.items()},
            {shard: each.rows for shard, each in told.items()},
        ]

    def _stores(self) -> Sequence[Values]:
        rooms = {
            (store,): min(map(os.statvfs, paths), key=lambda room: room.f_bavail / max(1, room.f_blocks))
            for store, paths in stores_in_files(self._config).items()
        }
        return [
            {store: room.f_bavail * room.f_frsize for store, room in rooms.items()},
            {store: room.f_blocks * room.f_frsize for store, room in rooms.items()},
        ]

    def _clocks(self) -> Values:
        ports = self._ports
        found: dict[tuple[str, ...], float] = {("process",): (wall_ms() - ports.clock()) / 1_000}
        for shard in range(ports.follows.shards()):
            with suppress(NotNowError):
                found[(f"shard-{shard}",)] = ahead_ms(ports, shard) / 1_000
        return found


def stores_in_files(config: Config) -> dict[str, Sequence[Path]]:
    """The paths of the stores in files, by their names in metrics; the home for a path that is missing. Each shard of
    the follow store may be on a disk of its own.
    """
    paths: dict[str, Sequence[Path]] = {
        f"cluster-{each.name}": [config.path(each.url)] for each in config.clusters if each.in_files
    }
    if config.shard_files:
        paths["follows"] = config.shard_files
    if config.queue_file is not None:
        paths["queue"] = [config.queue_file]
    return {store: [each if each.exists() else config.home for each in some] for store, some in paths.items()}


class ClusterGauges:
    """Looks how far one cluster is, and what keeps it back. faults: whether it also looks at every part of the cluster;
    then the table of the feeds must be open. clock: monotonic seconds.
    """

    def __init__(self, ports: Ports, cluster: str, clock: Callable[[], float], *, faults: bool) -> None:
        self.name = f"gauges-{cluster}"
        self._ports = ports
        self._cluster = cluster
        self._clock = clock
        self._faults_due_s = clock() + FAULTS_EVERY_S if faults else math.inf

    def look(self) -> None:
        try:
            state = Progress(self._ports.replicas[self._cluster].progress).state()
        except NotNowError:
            state = None
        found = {} if state is None else gauges_of(state, self._cluster, self._ports.clock())
        for gauge in _OF_CLUSTERS:
            self._saw(gauge, found.get(gauge, {}))
        self._saw(metrics.ANSWERS, {(self._cluster,): int(state is not None)})
        now_s = self._clock()
        if now_s >= self._faults_due_s:
            self._faults_due_s = now_s + FAULTS_EVERY_S
            self._look_for_faults()

    def _saw(self, gauge: Definition, values: Values) -> None:
        self._ports.meter.saw(gauge, values, self.name)

    def _look_for_faults(self) -> None:
        parts: Values = {}
        damaged: Values = {}
        try:
            found = fault(self._ports.replicas[self._cluster], self._ports.queue, self._clock, 0.0)
        except PartAwayError:
            parts = {(self._cluster,): 0}
        except NotNowError:
            pass  # both are unknown
        else:
            parts = {(self._cluster,): 1}
            damaged = {(self._cluster,): int(found is not None and not found.is_mended_by_writers)}
        self._saw(metrics.PARTS_ANSWER, parts)
        self._saw(metrics.DAMAGED, damaged)


_OF_CLUSTERS: Final = (
    BEHIND,
    metrics.HOLDS,
    metrics.HOLD_AGE,
    metrics.KEPT_BACK,
    metrics.PARTITION_BEHIND,
)


def gauges_of(state: State, cluster: str, now_ms: int) -> dict[Definition, Values]:
    """The gauges of a cluster, from its notes and the time. Pure."""
    held = holds_of(state)
    # A mark keeps the watermark back as a time does, and has no age.
    ages = {kind: [each for each in since if each > MARK_MAX_MS] for kind, since in held.items()}
    found: dict[Definition, Values] = {
        metrics.HOLDS: {(cluster, kind): len(since) for kind, since in held.items()},
        metrics.HOLD_AGE: {
            (cluster, kind): _ago_s(min(since), now_ms) if since else 0.0
            for kind, since in ages.items()
            if since or not held[kind]
        },
        metrics.KEPT_BACK: {(cluster, by): int(by == kept_back_by(state)) for by in ("ticks", *held, "unknown")},
    }
    behind = behind_ms(state.watermark, now_ms)
    if behind is not None:
        found[BEHIND] = {(cluster,): behind / 1_000}
    found[metrics.PARTITION_BEHIND] = {
        (cluster, str(partition)): _ago_s(settled_ms, now_ms) for partition, settled_ms in state.heard.items()
    }
    return found


def ahead_ms(ports: Ports, shard: int) -> int:
    """By how much the clock of a shard is ahead of the home's. Raises FollowStoreUnavailableError."""
    try:
        return ports.follows.now(shard) - ports.clock()
    except ClockStepError as error:
        return error.offset_ms


def kept_back_by(state: State) -> str:
    """The group that keeps a cluster's watermark back, by its name in the metric's label. Pure."""
    if state.watermark is None:
        return "unknown"
    for kind, since in holds_of(state).items():
        if state.watermark != state.settled and state.watermark in since:
            return kind
    return "ticks"


def holds_of(state: State) -> dict[str, Sequence[int]]:
    """The commit times of the actions that may keep a cluster back, by the kind of hold, as metrics name it. The kind
    that may last longest comes first. Pure.
    """
    return {"parked": state.parked, "put_off": state.put_off, "refill": state.refills, "fanout": state.fanouts}


def _ago_s(ms: int, now_ms: int) -> float:
    return max(0, now_ms - ms) / 1_000
