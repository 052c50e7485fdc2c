"""Actions that were lost on their way to the expander: how that shows, and how the follow store brings them back.

Retention may drop messages of `feed.actions` that no expander has read, and the topic may be removed and made again.
Then these actions are in no index and in no feed, and ticks that come later claim that they are. The follow store still
has them: its outbox keeps rows for the purge window after they were relayed (rule 8).
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import DamagedError, UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.following import applied
from workers.following.groups import EXPANDER
from workers.following.landed import NOT_KNOWN_MS
from workers.following.messages import Hold, encode_delivery
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import DamagedQueueError, PositionLostError, lost_of, refuse_live, reset
from workers.queue.sqlite_file import THEN

_MARKING_MS: Final = 10_000
"""How long it may take to mark all rows of the outbox."""

LOST = "actions were lost before they were expanded: end all expanders, then: feedctl reindex"


class BroughtBack(NamedTuple):
    """actions: how many are relayed again. missing_before_ms: actions that committed before this time and were not
    expanded are not in the outbox any more; None if there are none. lacking: the clusters for which such an action was
    sent back, or may have been.
    """

    actions: int
    missing_before_ms: int | None
    lacking: tuple[str, ...] = ()


def are_lost(ports: Ports, *, can_wait: bool = False, known: bool = False) -> bool:
    """Whether the topic had messages that no expander has read and none can read any more.

    can_wait: whether the caller can do without an answer while there is no cluster at all: the first ones may not have
    been made yet. known: leaves out partitions that are away.

    Raises QueueUnavailableError, UnavailableError, FollowStoreUnavailableError: that cannot be said now.
    """
    return _is_forgotten(ports, can_wait=can_wait) or lost_of(ports.queue, ACTIONS, EXPANDER, known=known) > 0


def refuse_lost(ports: Ports, *, can_wait: bool = False) -> None:
    """Call it before an expander joins its group: from then on, the group has positions in whatever topic is there.

    can_wait: as in `are_lost`.

    Raises PositionLostError; QueueUnavailableError, UnavailableError, FollowStoreUnavailableError: later.
    """
    # A partition that no broker leads must not keep the others from being read (rule 12). If its position is lost, the
    # expander is told so when it reads that partition.
    if are_lost(ports, can_wait=can_wait, known=True):
        raise PositionLostError(LOST)


def refuse_older(ports: Ports, path: Path) -> None:
    """Refuses a queue in a file that is older than the clusters, as if it had been put back from a copy. What the copy
    lacks counts as relayed: clusters that are rebuilt would lack actions that had not been expanded. Call it before an
    expander publishes anything: nothing shows the loss once there are as many deliveries as before.

    Only the cluster that is the furthest in time is asked: another one may be a copy from elsewhere. Those that do not
    answer say nothing.

    Raises DamagedQueueError; QueueUnavailableError: later.
    """
    found: list[tuple[int, str, Mapping[tuple[int, int], int]]] = []
    for name, replica in ports.replicas.items():
        progress = Progress(replica.progress)
        with suppress(UnavailableError):
            found.append((progress.watermark() or 0, name, progress.applied()))
    if not found:
        return
    _, furthest, noted = max(found, key=lambda each: each[0])
    if applied.are_ahead(noted, ports.queue):
        raise DamagedQueueError(
            f"{path}: older than cluster {furthest}, as if it had been put back from a copy: actions that were relayed"
            f" since may be in no feed: stop the worker, {THEN}"
        )


def begin_all_groups(ports: Ports) -> None:
    """Gives the groups of the expander and of all clusters their first positions, unless it shows that something was
    relayed before. A relay calls it before it publishes its first rows. If there are no positions, it waits for shards
    that are away: they may have relayed something.

    Raises QueueUnavailableError, FollowStoreUnavailableError: a part is done; do it again.
    """
    if ports.queue.positions(ACTIONS, EXPANDER) or ports.follows.has_relayed():
        return
    # Rows that were relayed long ago are not in the outbox any more. A cluster that is away must not hold up a relay.
    with suppress(UnavailableError):
        if _expanded_before_ms(ports, can_wait=True):
            return
    applied.begin_groups(ports.queue, ports.replicas)
    applied.begin_group(ports.queue, ACTIONS, EXPANDER)


def _is_forgotten(ports: Ports, *, can_wait: bool = False) -> bool:
    """Whether the group has lost its positions: it gets them before anything is relayed, and they are removed with
    their topic. A cluster has a watermark if an expander has passed ticks on.
    """
    if ports.queue.positions(ACTIONS, EXPANDER):
        return False
    # The second look at the positions: meanwhile a relay, or another expander, may have begun.
    return _was_used(ports, can_wait=can_wait) and not ports.queue.positions(ACTIONS, EXPANDER)


def _was_used(ports: Ports, *, can_wait: bool) -> bool:
    """Whether the outbox shows that something was relayed, or a cluster that something was expanded."""
    try:
        if ports.follows.has_relayed():
            return True
    except FollowStoreUnavailableError:
        if _expanded_before_ms(ports, can_wait=can_wait) is None:
            raise
        return True
    return _expanded_before_ms(ports, can_wait=can_wait) is not None


def _expanded_before_ms(ports: Ports, *, can_wait: bool = False) -> int | None:
    """A time such that everything that committed before it was expanded: the latest of the watermarks that can be read.
    None if no cluster has one. Clusters that are gone or damaged are not waited for: they are only made again once no
    actions are lost. 0 if all are: then the time is not known. Raises UnavailableError: some are away, and none of the
    others has one.
    """
    marks: list[int | None] = []
    away: UnavailableError | None = None
    gone: UnavailableError | None = None
    for name, replica in ports.replicas.items():
        try:
            marks.append(Progress(replica.progress).watermark())
        except DamagedError:
            continue
        except UnavailableError as error:
            if ports.is_gone(name):
                gone = error
            else:
                away = error
    known = [mark for mark in marks if mark is not None]
    if away is not None and not known:
        raise away
    if can_wait and gone is not None and not marks:
        raise gone
    return max(known, default=None if marks else 0)


def _kept_back_ms(ports: Ports) -> dict[str, int]:
    """For each cluster, the commit time of the earliest action that keeps its watermark back and may be only in the
    topic: one that was sent back to the expander for this cluster alone (rule 8), or a fanout with ranges left. 0 if
    the cluster does not answer: then it is not known. Left out are clusters without such an action, and those that are
    gone or damaged, because they will be made again.
    """
    found: dict[str, int] = {}
    for name, replica in ports.replicas.items():
        try:
            state = Progress(replica.progress).state()
        except DamagedError:
            continue
        except UnavailableError:
            if not ports.is_gone(name):
                found[name] = 0
            continue
        # The marks of a rebuild and of an unknown watermark are no commit times.
        if since := [each for each in (*state.put_off, *state.fanouts) if each > NOT_KNOWN_MS]:
            found[name] = min(since)
    return found


def bring_back(ports: Ports, purge_window_ms: int, *, everything: bool) -> BroughtBack:
    """Relays actions again, behind what is left in the topic: those that committed since the latest watermark, because
    all before it were expanded; or, if that is earlier, since the first that a cluster has sent back to the expander.
    If a cluster does not say what it has sent back, all that the outbox keeps are relayed again. What had been expanded
    is expanded once more, which changes nothing (rule 1). Watermarks wait for it.

    purge_window_ms: how long the outbox keeps rows. everything: relay all that it keeps: dead letters keep no watermark
        back, and their actions may be lost with the others.

    If it is interrupted, do it again. The actions then still count as lost, or no cluster has a watermark and all
    actions are being relayed again.

    Raises:
        GroupBusyError: an expander runs; nothing was changed.
        FollowStoreUnavailableError, QueueUnavailableError, UnavailableError: later.
    """
    refuse_live(ports.queue, [(ACTIONS, EXPANDER)])
    expanded_ms = _expanded_before_ms(ports) or 0
    kept_back_ms = _kept_back_ms(ports)
    held_ms: dict[str | None, int] = {name: each_ms for name, each_ms in kept_back_ms.items() if each_ms < expanded_ms}
    held_ms[None] = expanded_ms
    since_ms = 0 if everything else min(held_ms.values())
    if not expanded_ms:
        # Once the rows are marked, nothing shows any more that actions were lost. With this, watermarks wait even if
        # this process is then killed, or an expander begins.
        _hold_watermarks(ports, held_ms, later_ms=_MARKING_MS)
    again = ports.follows.relay_again(since_ms)
    # From now on a tick says that the rows before it were relayed again. Ticks that are in the topic already, or on
    # their way to it, do not say so, and none of them is later than this time.
    now_ms = _hold_watermarks(ports, held_ms)
    if since_ms == 0 and again.is_whole:
        # A cluster that has noted nothing gets everything. In the others, their notes show what they lack.
        applied.begin_groups(ports.queue, [name for name, each in ports.replicas.items() if _has_noted_nothing(each)])
    # Last: with positions, nothing shows any more that actions were lost.
    reset(ports.queue, ACTIONS, EXPANDER)
    ports.queue.consumer(ACTIONS, EXPANDER).close()
    kept_ms = 0 if again.is_whole else now_ms - purge_window_ms
    lacking = tuple(name for name, each_ms in kept_back_ms.items() if each_ms < kept_ms)
    return BroughtBack(again.actions, kept_ms if expanded_ms < kept_ms else None, lacking)


def _hold_watermarks(ports: Ports, since_ms: Mapping[str | None, int], later_ms: int = 0) -> int:
    """Publishes holds: the watermark of each named cluster (None: of all) may not pass its time until all that is
    recorded until `later_ms` from now has landed. Returns the time now.
    """
    now_ms = max(ports.follows.now(shard) for shard in range(ports.follows.shards()))
    holds = [
        Hold(max(NOT_KNOWN_MS, min(each_ms, now_ms)), now_ms + later_ms, name) for name, each_ms in since_ms.items()
    ]
    ports.queue.publish(DELIVERIES, [encode_delivery(hold) for hold in holds])
    return now_ms


def _has_noted_nothing(replica: Replica) -> bool:
    progress = Progress(replica.progress)
    try:
        return not progress.topics() and not progress.applied()
    except UnavailableError:
        return False
