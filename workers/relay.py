"""The relay: from the outboxes of the follow store to the queue, and the ticks that say how far it is.

Each shard has a relay of its own, in a thread of its own: one that is away, or slow, holds up its own rows. Ticks need
every shard, and wait for all of them.
"""

import random
from collections.abc import Callable

import structlog

from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from workers.messages import Tick, encode_action, wrap_action
from workers.queue.port import ACTIONS, Queue, QueueUnavailableError
from workers.retry import Rest, RetryPolicy

_log = structlog.get_logger()

MAX_BATCH = 2_000

_REST_S = 0.05
"""A look at an outbox is a query, and most of a quiet day it finds nothing."""

_POLICY = RetryPolicy(longest_s=2.0)
"""Ticks go every second: a longer rest would keep the watermarks back."""


class Relay:
    """Publishes the recorded actions of one shard as tasks. Any number may run: a row that two of them relay arrives
    twice.

    clock: monotonic seconds.
    """

    rest_s = _REST_S

    def __init__(self, follows: FollowStore, shard: int, queue: Queue, clock: Callable[[], float]) -> None:
        self.name = f"relay-{shard}"
        self._follows = follows
        self._shard = shard
        self._queue = queue
        self._rest = Rest(_POLICY, random.Random(), clock)  # noqa: S311 - jitter needs no secrecy

    def step(self) -> bool:
        """Relays one batch; False if there was nothing to relay, or it could not be done now.

        Rows are copied as they are: one that this version does not know reaches a reader that does, or a dead letter.
        A crash between the publishing and the marking publishes the rows again: what reads them is idempotent (rule 1).
        """
        if self._rest.goes_on():
            return False
        try:
            rows = self._follows.unrelayed(MAX_BATCH, self._shard)
            if rows:
                self._queue.publish(ACTIONS, [wrap_action(row.body) for row in rows])
                self._follows.mark_relayed(rows)
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            wait_s = self._rest.failed()
            _log.warning("relay.unavailable", shard=self._shard, wait_s=round(wait_s, 3), error=str(error))
            return False
        self._rest.ended()
        return bool(rows)

    def close(self) -> None:
        """Nothing to release: the ports are their owner's."""


class Ticker:
    """Sends ticks. Any number may run.

    clock: monotonic seconds. every_s: how often a tick is sent; it also goes when nothing happens (rule 10).
    """

    name = "ticker"
    rest_s = _REST_S

    def __init__(self, follows: FollowStore, queue: Queue, clock: Callable[[], float], every_s: float = 1.0) -> None:
        self._follows = follows
        self._queue = queue
        self._clock = clock
        self._every_s = every_s
        self._ticked_s: float | None = None
        self._rest = Rest(_POLICY, random.Random(), clock)  # noqa: S311 - jitter needs no secrecy

    def step(self) -> bool:
        """Ticks if it is time and every shard answers; False, so that a rest follows."""
        now_s = self._clock()
        if self._rest.goes_on() or (self._ticked_s is not None and now_s - self._ticked_s < self._every_s):
            return False
        try:
            self.tick()
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            wait_s = self._rest.failed()
            _log.warning("ticks.wait", wait_s=round(wait_s, 3), error=str(error))
            return False
        self._rest.ended()
        self._ticked_s = now_s
        return False

    def tick(self) -> int:
        """Sends the settled time through every partition of the actions; returns it."""
        settled_ms = self._follows.settled_ms()
        # Counted after that: what settled before may have been relayed to a partition that was added just before.
        sources = self._queue.partitions(ACTIONS)
        for source in range(sources):
            self._queue.publish(ACTIONS, [encode_action(Tick(settled_ms, source, sources))], source)
        return settled_ms

    def close(self) -> None:
        """Nothing to release: the ports are their owner's."""
