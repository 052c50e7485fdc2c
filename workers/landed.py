"""How far each cluster is, with a worker and without, and what waits where no worker runs."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from feedstore.domain import InvalidValueError, RefillAsked
from feedstore.feeds import Progress
from feedstore.follows.port import OutboxRow
from feedstore.widecolumn import DamagedError
from workers import wiring
from workers.wiring import Ports

_OUTBOX_ROWS = 1_000
"""How many of the rows that wait are looked at; more of them are work, whatever they are."""


def landed_before(ports: Ports) -> dict[str, int]:
    """For each cluster a store time such that everything that committed before it has landed there (rule 10); 0 where
    nothing is known. It is its watermark, or later if nothing is on its way through the queue: ticks come only while a
    worker runs. A cluster that is damaged is left out.

    Raises:
        UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: look again later.
    """
    # In this order: what had been relayed by then is in the queue, or has left it; and what was put off by whoever
    # took it from there is noted.
    settled_ms = ports.follows.settled_ms()
    found: dict[str, int] = {}
    for name, replica in ports.replicas.items():
        drained = wiring.drained(ports, [name])
        progress = Progress(replica.progress)
        with suppress(DamagedError):
            at_rest_ms = progress.landed_before(settled_ms) if drained else 0
            found[name] = max(at_rest_ms, progress.watermark() or 0)
    return found


class Waiting(NamedTuple):
    """What waits for a worker.

    work: messages and outbox rows by who must take them. Requests for refills do not count: they change no feed's
        contents, and where an unfollow waits for one, its cluster's notes say so.
    refills_ms: when the oldest request for a refill among the outbox rows committed; None where there is none.
    """

    work: Mapping[str, int]
    refills_ms: int | None


def waiting(ports: Ports) -> Waiting:
    """Raises FollowStoreUnavailableError, QueueUnavailableError."""
    rows = ports.follows.unrelayed(_OUTBOX_ROWS)
    refills = [asked for asked in map(_refill, rows) if asked is not None]
    lags = {name: lag for name, lag in wiring.lags(ports).items() if lag}
    if len(rows) < _OUTBOX_ROWS:
        lags.pop(wiring.RELAY, None)
        if len(refills) < len(rows):
            lags[wiring.RELAY] = len(rows) - len(refills)
    return Waiting(lags, min((asked.committed_ms for asked in refills), default=None))


def _refill(row: OutboxRow) -> RefillAsked | None:
    try:
        action = row.action
    except (msgspec.MsgspecError, InvalidValueError):
        return None  # an action of a newer program
    return action if isinstance(action, RefillAsked) else None
