"""Up to which time everything has landed in each cluster, and what waits while no worker runs."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from feedstore.domain import InvalidValueError, RefillAsked
from feedstore.follows.port import FollowStoreUnavailableError, OutboxRow
from feedstore.widecolumn import DamagedError
from feedstore.widecolumn.progress import MARK_MAX_MS, Progress
from workers.following.groups import EXPANDER, RELAY, cluster_groups
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.queue.port import Topic, lag_of

REBUILDING_MS: Final = 1
"""The watermark of a cluster that is rebuilt from nothing: nothing has landed for certain."""
NOT_KNOWN_MS: Final = MARK_MAX_MS
"""The time at which a hold keeps a cluster that has no watermark yet and is not being rebuilt."""

_ACTIONS = 1_000
"""The most waiting recorded actions that are looked at. If there are more, all count as work, whatever they are."""


def landed_before(ports: Ports) -> dict[str, int]:
    """For each cluster a store time such that everything that committed before it has landed there (rule 10); 0 if
    nothing is known. It is the cluster's watermark, or a later time if nothing is on its way through the queue: ticks,
    which move the watermark, come only while a worker runs. A damaged cluster is left out.

    Raises UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: look again later.
    """
    # The order matters: an action that was relayed before this time is in the queue or has left it; and if a stage took
    # it and put it off, the cluster has noted that.
    settled_ms = ports.follows.settled_ms()
    found: dict[str, int] = {}
    for name, replica in ports.replicas.items():
        # Groups of catalogs do not count: their updates are in no feed.
        at_rest = _have_nothing_left(ports, [(ACTIONS, EXPANDER), *cluster_groups(name)])
        progress = Progress(replica.progress)
        with suppress(DamagedError):
            at_rest_ms = progress.landed_before(settled_ms) if at_rest else 0
            found[name] = max(at_rest_ms, progress.watermark() or 0)
    return found


class Waiting(NamedTuple):
    """What still waits for a worker before feeds are as recorded.

    work: the number of waiting messages, by the loop that must take them; for the relay, of recorded actions. Requests
        for refills do not count: they change no feed's contents, and if an unfollow waits for one, its cluster's notes
        say so. Updates of catalogs do not count either.
    refills_ms: when the oldest request for a refill in the outbox committed; None if there is none.
    """

    work: Mapping[str, int]
    refills_ms: int | None


def waiting(ports: Ports) -> Waiting:
    """Counts what waits. Raises FollowStoreUnavailableError, QueueUnavailableError."""
    rows = ports.follows.unrelayed(_ACTIONS)
    refills = [asked for row in rows for asked in _refills(row)]
    actions = sum(row.number for row in rows)
    of_catalogs = {group for some in ports.entering.values() for _, group in some}
    left = {name: lag for name, lag in lags(ports).items() if lag and name not in of_catalogs}
    if actions < _ACTIONS:
        left.pop(RELAY, None)
        if len(refills) < actions:
            left[RELAY] = actions - len(refills)
    return Waiting(left, min((asked.committed_ms for asked in refills), default=None))


def _refills(row: OutboxRow) -> list[RefillAsked]:
    try:
        return [action for action in row.actions if isinstance(action, RefillAsked)]
    except (msgspec.MsgspecError, InvalidValueError):
        return []  # one action is a newer program's: all of them count as work


def lags(ports: Ports) -> dict[str, int]:
    """How much is left to do: recorded actions for the relay, messages for each group. If a shard of the follow store
    is away, the relay is left out. Raises QueueUnavailableError.
    """
    found: dict[str, int] = {}
    with suppress(FollowStoreUnavailableError):
        found[RELAY] = ports.follows.backlog().actions
    return found | {group: lag_of(ports.queue, topic, group) for topic, group in groups(ports)}


def groups(ports: Ports, clusters: Iterable[str] | None = None) -> list[tuple[Topic[object], str]]:
    """Every consumer group of a home, and the topic that it reads: the expander's, and those of each cluster. clusters:
    only these clusters; None: all.
    """
    names = ports.replicas if clusters is None else clusters
    of_clusters = ((*cluster_groups(name), *ports.entering.get(name, ())) for name in names)
    return [(ACTIONS, EXPANDER), *chain.from_iterable(of_clusters)]


def drained(ports: Ports, clusters: Iterable[str]) -> bool:
    """Whether the expander and the groups that write these clusters have nothing to do. The relay does not count."""
    return _have_nothing_left(ports, groups(ports, clusters))


def _have_nothing_left(ports: Ports, some: Iterable[tuple[Topic[object], str]]) -> bool:
    return not any(lag_of(ports.queue, topic, group) for topic, group in some)
