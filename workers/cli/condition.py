"""The condition of a home, found by one look, and what an operator must know of it: for `status` and `top`.

Each part is looked at by itself, so that one that is away hides nothing of the others. Looking is apart from judging:
`problems` is pure.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from feedstore.app.catalogs import place
from feedstore.app.config import Config
from feedstore.app.wiring import home_clock
from feedstore.catalog.port import CatalogReader, NoGenerationError
from feedstore.clocks import APART_MAX_MS, Process
from feedstore.errors import MisconfiguredError
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import UnavailableError, WillNotError
from feedstore.widecolumn.progress import Progress, State, behind_ms
from workers.app import home, until, wiring
from workers.app.checks.policy import FREE_BYTES_MIN, machine_off
from workers.app.gauges import ahead_ms, holds_of, kept_back_by, stores_in_files
from workers.cli.looks import BegunLook, Looks, NoAnswer
from workers.cli.output import ago, plural
from workers.following import landed, lost_actions
from workers.following.faults import ReplicaFault, fault
from workers.following.groups import EXPANDER, RELAY, cluster_groups, gone_message
from workers.following.ports import Ports
from workers.queue.embedded import refuse_damaged
from workers.queue.port import PartitionsAwayError, Queue, UnsafeTopicsError, lags_of

T = TypeVar("T")

WAITS_MS: Final = 60_000
"""How old waiting actions may be if no worker runs."""
BEHIND_MS: Final = 180_000
"""How far behind a cluster may be while a worker runs, if the caller does not say."""
FULL_BYTES: Final = 1 << 20
"""A disk with less room is full: stores write more than that at once."""
PARKED_MS: Final = 600_000
"""How long deliveries may be parked."""
ANSWER_S: Final = 12.0
"""How long a part may take to answer: longer than the ten seconds of the clients of Kafka, whose errors say more."""
CLOSE_S: Final = 2.0
"""How long the end of a look waits for what hangs."""
_SAID: Final = {"follows": "the follow store", "queue": "the queue"}
"""The names of stores in sentences, if they are not those in metrics."""
SAME_MS: Final = 5_000
"""Processes whose clocks differ by less than this have the same clock, that of their machine."""


@dataclass(frozen=True)
class ClusterStatus:
    """The state of a cluster. watermark_ms: None if it is unknown. error: why the cluster, or a part of it, does not
    answer, or what it lost. kept_back_by: the group that its watermark waits for. holds: how many notes of each kind
    keep it back. parked_ms: how long ago the oldest parked action committed.
    """

    watermark_ms: int | None
    behind_ms: int | None
    error: str | None
    kept_back_by: str | None = None
    holds: Mapping[str, int] = field(default_factory=dict)
    parked_ms: int | None = None


@dataclass(frozen=True)
class Disk:
    """The file system of a store that is in files. shared: the other stores on it."""

    store: str
    free_bytes: int
    capacity_bytes: int
    shared: Sequence[str] = ()


@dataclass(frozen=True)
class Condition:
    """The condition of a home. worker: the process that holds the home (0: unknown); None if there is none. stopped:
    why it has stopped by itself. has_worker: whether a process may be working; on servers `members` says more. quiet:
    whether there is nothing to do. groups: what each group has left to do. members: how many processes read for a
    group, if the queue knows. done: how many messages each group is done with. waits_ms: how long ago the oldest action
    that is not relayed committed. clocks: by how much the clocks of shards are ahead. own_off_ms: how far this
    machine's clock is ahead of the home's time, if that is too far. off: processes whose clocks are off. away: a
    sentence for each part that does not answer, but for clusters; what it would have told is None, or left out. unsafe:
    the settings of topics with which acknowledged messages could be lost, if there are any. damaged: where the messages
    of a queue in a file are damaged, if that keeps a group from reading on. lost: whether actions were
    lost before they were expanded; None if that is unknown.
    """

    worker: int | None
    stopped: str | None
    has_worker: bool
    quiet: bool | None
    groups: Mapping[str, int | None]
    members: Mapping[str, int]
    done: Mapping[str, int]
    waits_ms: int | None
    dead: int | None
    clusters: Mapping[str, ClusterStatus]
    clocks: Mapping[int, int]
    own_off_ms: int | None
    off: Sequence[Process]
    disks: Sequence[Disk] | None
    away: Mapping[str, str] = field(default_factory=dict)
    unsafe: str | None = None
    damaged: str | None = None
    lost: bool | None = False


@contextmanager
def looking(config: Config) -> Iterator[tuple[Ports, Looks]]:
    """The ports of a home, and looks at them. The end does not wait for what hangs."""
    ports = wiring.open_ports(config, "read", may_be_away=True)
    try:
        yield ports, Looks(ANSWER_S)
    finally:
        Looks(CLOSE_S).begin("closing", ports.close).found()


def look(ports: Ports, config: Config, read_s: float, looks: Looks) -> Condition:
    """Looks at a home once. The parts are looked at at the same time; only faults of clusters, which may show in the
    queue, are looked for after it. A part that is away raises nothing.

    read_s: how long rows of each cluster are read, to find blocks that cannot be read.
    """
    away: dict[str, str] = {}

    def known(part: str, which: str, begun: BegunLook[T]) -> T | None:
        found = begun.found()
        if isinstance(found, NoAnswer):
            away[part] = f"{which} not answer: {found.why}"
            return None
        return found

    at_queue = looks.begin("queue", partial(_groups, ports))
    at_letters = looks.begin("dead_letters", ports.dead.count)
    at_topics = looks.begin("topics", partial(_unsafe, config))
    at_messages = looks.begin("messages", partial(_damaged, ports, config))
    at_shards = [looks.begin(f"shard_{number}", partial(_shard, ports, number)) for number in range(len(config.shards))]
    at_disks = looks.begin("disks", lambda: tuple(disks(config)))
    replicas = ports.replicas.values()
    at_clusters = [looks.begin(f"state of {each.name}", Progress(each.progress).state) for each in replicas]
    at_catalogs = {
        (name, each.name): looks.begin(
            f"catalog_{name}_{each.name}", partial(_look_at, _reader(ports, config, name, each.name))
        )
        for name in config.catalogs
        for each in replicas
    }

    queue = known("queue", "the queue does", at_queue)
    asked = None if queue is None else ports.queue
    ask_lost = partial(lost_actions.are_lost, ports, can_wait=True, known=True)
    at_lost = None if queue is None else looks.begin("actions", ask_lost)
    of_faults = partial(_fault, ports, asked, read_s)
    at_faults = [looks.begin(f"faults of {each.name}", partial(of_faults, each)) for each in replicas]
    shards = [
        known(f"shard_{number}", f"shard {number} of the follow store does", each)
        for number, each in enumerate(at_shards)
    ]
    seen = {number: each for number, each in enumerate(shards) if each is not None}
    oldest_ms = min((each.oldest_ms for each in seen.values() if each.oldest_ms is not None), default=None)
    to_relay = sum(each.actions for each in seen.values()) if len(seen) == len(shards) else None
    quiet = None if queue is None or to_relay is None else looks.begin("quiet", partial(until.idle, ports)).answer()
    queue = queue or _Groups(dict.fromkeys(group for _, group in landed.groups(ports)), {}, {}, {})
    away |= queue.away
    # These are in the queue. If all are away, the sentence about the queue is enough.
    lost = None if at_lost is None else at_lost.answer()
    letters = at_letters.answer() if asked is None else known("dead_letters", "the dead letters do", at_letters)
    unsafe = at_topics.answer() if asked is None else known("topics", "the settings of the topics do", at_topics)
    states = {each.name: begun.found() for each, begun in zip(replicas, at_clusters, strict=True)}
    for (name, cluster), begun in at_catalogs.items():
        if not isinstance(states[cluster], NoAnswer):  # the sentence about the cluster is enough
            known(f"catalog_{name}_{cluster}", f"the catalog {name} in cluster {cluster} does", begun)
    clock = home_clock(config)
    worker = home.worker_runs(config.home)
    return Condition(
        worker=worker,
        stopped=home.worker_stopped(config.home),
        # In other homes workers may run on other machines.
        has_worker=worker is not None or not wiring.is_embedded(config),
        quiet=quiet,
        groups={RELAY: to_relay, **queue.left},
        members=queue.members,
        done=queue.done,
        waits_ms=None if oldest_ms is None else ports.clock() - oldest_ms,
        dead=letters,
        clusters={
            each.name: _cluster(each.name, states[each.name], faults.found(), ports.clock())
            for each, faults in zip(replicas, at_faults, strict=True)
        },
        clocks=_ahead({number: each.ahead_ms for number, each in seen.items()}),
        own_off_ms=None if clock is None else clock.own_offset_ms(),
        off=() if clock is None else clock.off(),
        disks=known("disks", "the disks do", at_disks),
        away=away,
        unsafe=unsafe,
        damaged=at_messages.answer(),
        lost=lost,
    )


def _unsafe(config: Config) -> str | None:
    """What a worker that refuses to start on these topics would say. One that runs already does not look again."""
    try:
        wiring.refuse_unsafe_topics(config)
    except UnsafeTopicsError as error:
        return str(error)
    return None


def _damaged(ports: Ports, config: Config) -> str | None:
    """Where a group can read no further. A worker that has met this has ended the loop that reads there, and says
    nothing more.
    """
    try:
        if config.queue_file is not None:
            refuse_damaged(config.queue_file, landed.groups(ports))
        wiring.refuse_older_queue(ports, config)
    except MisconfiguredError as error:
        return str(error)
    return None


def _reader(ports: Ports, config: Config, catalog: str, cluster: str) -> CatalogReader:
    return ports.once(("looks", catalog, cluster), place(config, catalog, cluster).reader)


def _look_at(catalog: CatalogReader) -> None:
    """Reads what each fetch needs. One that is still empty is no fault: a build or a load fills it."""
    with suppress(NoGenerationError):
        catalog.check()
    catalog.delta()


class _Groups(NamedTuple):
    """What each group has left to do, how many processes read for it, and how many messages it is done with. away: a
    sentence for each topic of which partitions are away; what waits in these is not counted.
    """

    left: Mapping[str, int | None]
    members: Mapping[str, int]
    done: Mapping[str, int]
    away: Mapping[str, str]


def _groups(ports: Ports) -> _Groups:
    queue, groups = ports.queue, landed.groups(ports)
    members = {group: queue.members(topic, group) for topic, group in groups}
    away: dict[str, str] = {}
    for topic in dict.fromkeys(topic for topic, _ in groups):
        try:
            queue.ends(topic)
        except PartitionsAwayError as error:
            away[topic.name] = f"a part of the queue does not answer, and what is in it waits: {error}"
    lags = {group: lags_of(queue, topic, group, known=True) for topic, group in groups}
    return _Groups(
        {group: sum(each.values()) if each else None for group, each in lags.items()},
        {group: count for group, count in members.items() if count is not None},
        {group: sum(queue.positions(topic, group).values()) for topic, group in groups},
        away,
    )


class _Shard(NamedTuple):
    """By how much the clock of a shard is ahead of the home's, and its outbox."""

    ahead_ms: int
    actions: int
    oldest_ms: int | None


def _shard(ports: Ports, number: int) -> _Shard:
    backlog = ports.follows.backlog(number)
    return _Shard(ahead_ms(ports, number), backlog.actions, backlog.oldest_ms)


def _fault(ports: Ports, queue: Queue | None, read_s: float, cluster: Replica) -> ReplicaFault | None:
    """As `fault`. If a cluster answers, and has no tables, it says what to do."""
    try:
        return fault(cluster, queue, time.monotonic, read_s)
    except UnavailableError as error:
        has_answered = isinstance(error, WillNotError) or isinstance(error.__cause__, WillNotError)
        if not has_answered or not ports.is_gone(cluster.name):
            raise
        return ReplicaFault(gone_message(cluster.name, _why(cluster.name, str(error))))


def _cluster(name: str, state: State | NoAnswer, found: ReplicaFault | NoAnswer | None, now_ms: int) -> ClusterStatus:
    error = found.message if isinstance(found, ReplicaFault) else None
    if isinstance(state, NoAnswer):
        return ClusterStatus(None, None, error or f"cluster {name} does not answer: {_why(name, state.why)}")
    if isinstance(found, NoAnswer):
        error = f"cluster {name} answers, but could not be looked at as a whole: {found.why}"
    watermark = state.watermark
    if watermark is None and landed.REBUILDING_MS in state.put_off:  # no tick has come yet
        watermark = landed.REBUILDING_MS
    if watermark == landed.NOT_KNOWN_MS:
        watermark = None
    return ClusterStatus(
        watermark,
        behind_ms(watermark, now_ms),
        error,
        kept_back_by(state),
        {kind: len(since) for kind, since in holds_of(state).items()},
        max(0, now_ms - min(state.parked)) if state.parked else None,
    )


def _why(cluster: str, error: str) -> str:
    """The rest of a sentence about a cluster, which begins with its name."""
    return error.removeprefix(f"cluster {cluster}: ")


def clocks_ahead_ms(ports: Ports) -> dict[int, int]:
    """By how much the clocks of shards are ahead of the home's, if that is more than clocks may differ. Actions that
    commit there get no earlier times: the clock was wrong once, and times continue from it.
    """
    return _ahead({shard: ahead_ms(ports, shard) for shard in range(ports.follows.shards())})


def _ahead(clocks: Mapping[int, int]) -> dict[int, int]:
    return {shard: ms for shard, ms in clocks.items() if ms > APART_MAX_MS}


def disks(config: Config) -> Iterator[Disk]:
    """The file systems of the stores that are in files, each once."""
    on: dict[int, dict[str, Path]] = {}
    for store, paths in stores_in_files(config).items():
        for path in paths:
            on.setdefault(path.stat().st_dev, {}).setdefault(store, path)
    for stores in on.values():
        room = os.statvfs(next(iter(stores.values())))
        store, *shared = (_SAID.get(each, each.replace("-", " ", 1)) for each in stores)
        yield Disk(store, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize, shared)


# What an operator must know
# --------------------------------------------------------------------------------------------------------------------


def problems(condition: Condition, most_ms: int | None) -> list[str]:
    """A sentence for each problem. most_ms: how far a cluster may be behind, for whatever reason; None: BEHIND_MS, and
    only while there is something to do.
    """
    return [
        *([] if condition.stopped is None else [f"the worker has stopped, and only serves: {condition.stopped}"]),
        *condition.away.values(),
        *([] if condition.unsafe is None else [f"acknowledged messages could be lost: {condition.unsafe}"]),
        *([] if condition.damaged is None else [condition.damaged]),
        *([lost_actions.LOST] if condition.lost else []),
        # RocksDB's own messages may have several lines.
        *(" ".join(state.error.split()) for state in condition.clusters.values() if state.error is not None),
        *_nothing_works(condition),
        *_nothing_reads(condition),
        *late(condition, most_ms),
        *_parked(condition),
        *clocks_off(condition.own_off_ms, condition.off, condition.clocks),
        *_full(condition),
        *_dead(condition),
    ]


def _dead(condition: Condition) -> list[str]:
    if not condition.dead:
        return []
    return [f"there {'is' if condition.dead == 1 else 'are'} {plural(condition.dead, 'dead letter')}"]


def late(condition: Condition, most_ms: int | None) -> list[str]:
    """A sentence for each cluster that answers but may lack something that is older than `most_ms`.

    If no worker runs, watermarks may rest while there is nothing to do; but a cluster that is being rebuilt is empty.
    """
    why = "" if condition.has_worker else ", and no worker runs in this home"
    rests = most_ms is None and not condition.has_worker
    bound_ms = BEHIND_MS if most_ms is None else most_ms
    found: list[str] = []
    for name, state in condition.clusters.items():
        if state.error is not None or (state.behind_ms is not None and state.behind_ms <= bound_ms):
            continue
        if state.watermark_ms == landed.REBUILDING_MS:
            found.append(f"cluster {name} is being rebuilt{why}")
        elif rests or (state.behind_ms is None and most_ms is None):
            continue
        elif state.behind_ms is None:
            found.append(f"how far cluster {name} is behind is unknown{why}")
        else:
            found.append(f"cluster {name} is {ago(state.behind_ms)} behind, more than {ago(bound_ms)}{why}")
    return found


def _nothing_works(condition: Condition) -> Iterator[str]:
    if condition.has_worker or condition.quiet is not False:
        return
    behind = [each.behind_ms for each in condition.clusters.values() if each.behind_ms is not None]
    # Actions that have left the outbox are no older than the clusters are behind.
    oldest_ms = condition.waits_ms if condition.waits_ms is not None else max(behind, default=None)
    if oldest_ms is not None and oldest_ms > WAITS_MS:
        most = max(left for left in condition.groups.values() if left is not None)
        have = "message has" if most == 1 else "messages have"
        how = "for" if condition.waits_ms is not None else "for up to"
        yield f"{most:,} {have} waited {how} {ago(oldest_ms)}, and no worker runs in this home: start feedctl work"


def _nothing_reads(condition: Condition) -> Iterator[str]:
    """On servers: sentences about work that has waited for more than a minute and that no process takes."""
    if not condition.members:
        return
    to_relay, waits_ms = condition.groups[RELAY], condition.waits_ms
    if to_relay is not None and waits_ms is not None and waits_ms > WAITS_MS:
        actions = plural(to_relay, "action")
        yield f"{actions} to relay, the oldest for {ago(waits_ms)}, and nothing relays them: feedctl relay"
    reads = {EXPANDER: ("feedctl expand", tuple(condition.clusters))}
    for name in condition.clusters:
        reads |= {group: (f"feedctl write --cluster {name}", (name,)) for _, group in cluster_groups(name)}
    for group, (command, clusters) in reads.items():
        left = condition.groups.get(group, 0)
        behind_ms = [condition.clusters[name].behind_ms for name in clusters]
        is_late = any(each is None or each > WAITS_MS for each in behind_ms)
        if left and is_late and not condition.members[group]:
            yield f"{plural(left, 'message')} to do for {group}, and no process does them: {command}"


def _parked(condition: Condition) -> Iterator[str]:
    for name, state in condition.clusters.items():
        if state.parked_ms is not None and state.parked_ms > PARKED_MS:
            yield (
                f"deliveries have been parked for cluster {name} for {ago(state.parked_ms)}: a part of it is away, and"
                " they land once it is back"
            )


def _full(condition: Condition) -> Iterator[str]:
    for disk in condition.disks or ():
        if disk.free_bytes < FULL_BYTES:
            stores = (disk.store, *disk.shared)
            what = "actions are refused" if "the follow store" in stores else "nothing lands there"
            yield f"the disk of {', '.join(stores)} is full: {what} until there is room"
        elif disk.free_bytes < FREE_BYTES_MIN:
            yield f"the disk of {disk.store} has {disk.free_bytes >> 20} MiB left: make room before it is full"


def clocks_off(own_off_ms: int | None, off: Sequence[Process], shards: Mapping[int, int]) -> Iterator[str]:
    """A sentence for each clock that must be set. own_off_ms: how far this machine's clock is ahead of the home's time,
    if that is too far. shards: by how many ms the clocks of shards are ahead.
    """
    if own_off_ms is None:
        for shard, ms in shards.items():
            yield f"the clock of shard {shard} is {ago(ms)} ahead of this machine: set them, then feedctl clock set"
        yield from map(_clock_off, off)
    else:  # a process that differs from the home's time, but not from this machine's, is mended with it
        yield machine_off(own_off_ms)
        yield from (_clock_off(each) for each in off if abs(each.offset_ms - own_off_ms) > SAME_MS)


def _clock_off(process: Process) -> str:
    """The fault of a process's clock, and how the process deals with it."""
    which = "ahead of" if process.offset_ms > 0 else "behind"
    return (
        f"the clock of {process.program} (pid {process.pid} on {process.host}) is {ago(abs(process.offset_ms))} {which}"
        " the home's time. It goes by the home's: set its clock"
    )
