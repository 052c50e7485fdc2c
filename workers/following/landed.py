"""How far each cluster is, with a worker and without, and what waits where no worker runs."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from feedstore.domain import InvalidValueError, RefillAsked
from feedstore.follows.port import OutboxRow
from feedstore.widecolumn import DamagedError
from feedstore.widecolumn.progress import Progress
from workers.following.groups import EXPANDER, RELAY, cluster_groups
from workers.following.ports import Ports
from workers.following.topics import ACTIONS

_OUTBOX_ROWS = 1_000
"""How many of the rows that wait are looked at; more of them are work, whatever they are."""


def landed_before(ports: Ports) -> dict[str, int]:
    """For each cluster a store time such that everything that committed before it has landed there (rule 10); 0 where
    nothing is known. It is its watermark, or later if nothing is on its way through the queue: ticks come only while a
    worker runs. A cluster that is damaged is left out.

    Raises:
        UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: look again later.
    """
    # In this order: what had been relayed by then is in the queue, or has left it; and what was put off by a stage that
    # took it from there is noted.
    settled_ms = ports.follows.settled_ms()
    found: dict[str, int] = {}
    for name, replica in ports.replicas.items():
        at_rest = drained(ports, [name])
        progress = Progress(replica.progress)
        with suppress(DamagedError):
            at_rest_ms = progress.landed_before(settled_ms) if at_rest else 0
            found[name] = max(at_rest_ms, progress.watermark() or 0)
    return found


class Waiting(NamedTuple):
    """What waits for a worker.

    work: messages and outbox rows, by the loop that must take them. Requests for refills do not count: they change no
        feed's contents, and where an unfollow waits for one, its cluster's notes say so.
    refills_ms: when the oldest request for a refill among the outbox rows committed; None where there is none.
    """

    work: Mapping[str, int]
    refills_ms: int | None


def waiting(ports: Ports) -> Waiting:
    """Raises FollowStoreUnavailableError, QueueUnavailableError."""
    rows = ports.follows.unrelayed(_OUTBOX_ROWS)
    refills = [asked for asked in map(_refill, rows) if asked is not None]
    left = {name: lag for name, lag in lags(ports).items() if lag}
    if len(rows) < _OUTBOX_ROWS:
        left.pop(RELAY, None)
        if len(refills) < len(rows):
            left[RELAY] = len(rows) - len(refills)
    return Waiting(left, min((asked.committed_ms for asked in refills), default=None))


def _refill(row: OutboxRow) -> RefillAsked | None:
    try:
        action = row.action
    except (msgspec.MsgspecError, InvalidValueError):
        return None  # an action of a newer program
    return action if isinstance(action, RefillAsked) else None


def lags(ports: Ports) -> dict[str, int]:
    """How much is left to do: outbox rows of the relay, messages of each group."""
    found = {
        RELAY: ports.follows.backlog(),
        EXPANDER: ports.queue.lag(ACTIONS, EXPANDER),
    }
    groups = [each for name in ports.replicas for each in (*cluster_groups(name), *ports.entering.get(name, ()))]
    return found | {group: ports.queue.lag(topic, group) for topic, group in groups}


def drained(ports: Ports, clusters: Iterable[str]) -> bool:
    """Whether no group has anything left to do, whatever waits for the relay. clusters: only these writers count."""
    if ports.queue.lag(ACTIONS, EXPANDER):
        return False
    return not any(ports.queue.lag(topic, group) for name in clusters for topic, group in cluster_groups(name))
