"""How far each cluster is, with a worker and without, and what waits where no worker runs."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import msgspec

from feedstore.domain import InvalidValueError, RefillAsked
from feedstore.follows.port import OutboxRow
from feedstore.widecolumn import DamagedError
from feedstore.widecolumn.progress import Progress
from workers.following.groups import EXPANDER, RELAY, cluster_groups
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.queue.port import Topic, lag_of

_ACTIONS = 1_000
"""How many of the recorded actions that wait are looked at; more of them are work, whatever they are."""


def landed_before(ports: Ports) -> dict[str, int]:
    """For each cluster a store time such that everything that committed before it has landed there (rule 10); 0 where
    nothing is known. It is its watermark, or later if nothing is on its way through the queue: ticks come only while a
    worker runs. A cluster that is damaged is left out.

    Raises:
        UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: look again later.
    """
    # In this order: an action that had been relayed by then is in the queue, or has left it; and one that a stage took
    # from there and put off is noted.
    settled_ms = ports.follows.settled_ms()
    found: dict[str, int] = {}
    for name, replica in ports.replicas.items():
        # Catalogs do not count: what they lack is in no feed.
        at_rest = _have_nothing_left(ports, [(ACTIONS, EXPANDER), *cluster_groups(name)])
        progress = Progress(replica.progress)
        with suppress(DamagedError):
            at_rest_ms = progress.landed_before(settled_ms) if at_rest else 0
            found[name] = max(at_rest_ms, progress.watermark() or 0)
    return found


class Waiting(NamedTuple):
    """What keeps feeds from being as recorded until a worker runs.

    work: messages, and of the relay recorded actions, by the loop that must take them. Requests for refills do not
        count: they change no feed's contents, and where an unfollow waits for one, its cluster's notes say so. Nor do
        updates of catalogs.
    refills_ms: when the oldest request for a refill in the outbox committed; None if there is none.
    """

    work: Mapping[str, int]
    refills_ms: int | None


def waiting(ports: Ports) -> Waiting:
    """Raises FollowStoreUnavailableError, QueueUnavailableError."""
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
        return []  # there is an action of a newer program among them: all of them are work


def lags(ports: Ports) -> dict[str, int]:
    """How much is left to do: recorded actions of the relay, messages of each group."""
    found = {RELAY: ports.follows.backlog().actions}
    return found | {group: lag_of(ports.queue, topic, group) for topic, group in groups(ports)}


def groups(ports: Ports, clusters: Iterable[str] | None = None) -> list[tuple[Topic[object], str]]:
    """Every consumer group of a home, and the topic that it reads: the expander, and those of each cluster. clusters:
    only of these; None: of all.
    """
    names = ports.replicas if clusters is None else clusters
    of_clusters = ((*cluster_groups(name), *ports.entering.get(name, ())) for name in names)
    return [(ACTIONS, EXPANDER), *chain.from_iterable(of_clusters)]


def drained(ports: Ports, clusters: Iterable[str]) -> bool:
    """Whether the expander and what writes these clusters have nothing left to do, whatever waits for the relay."""
    return _have_nothing_left(ports, groups(ports, clusters))


def _have_nothing_left(ports: Ports, some: Iterable[tuple[Topic[object], str]]) -> bool:
    return not any(lag_of(ports.queue, topic, group) for topic, group in some)
