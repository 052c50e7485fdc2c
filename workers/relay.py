"""The relay: from the outboxes of the follow store to the queue."""

import random
from collections.abc import Callable

import structlog

from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from workers.messages import Task, Tick, encode_action
from workers.queue.port import ACTIONS, Queue, QueueUnavailableError
from workers.retry import Rest, RetryPolicy

_log = structlog.get_logger()

MAX_BATCH = 2_000


class Relay:
    """Publishes recorded actions as tasks, and ticks. Any number may run: a row that two of them relay arrives twice.

    clock: monotonic seconds. tick_every_s: how often a tick is sent; it also goes when nothing happens (rule 10).
    """

    name = "relay"
    # A look is a query to each shard of the follow store, and most of a quiet day they find nothing.
    rest_s = 0.05

    def __init__(
        self, follows: FollowStore, queue: Queue, clock: Callable[[], float], tick_every_s: float = 1.0
    ) -> None:
        self._follows = follows
        self._queue = queue
        self._clock = clock
        self._tick_every_s = tick_every_s
        self._ticked_s: float | None = None
        # Ticks go every second: a longer rest would let the watermarks stand.
        self._rest = Rest(RetryPolicy(longest_s=2.0), random.Random(), clock)  # noqa: S311 - jitter needs no secrecy

    def step(self) -> bool:
        """Relays one batch and, when it is time, ticks; False where there was nothing to relay.

        A crash between the publishing and the marking publishes the rows again: what reads them is idempotent (rule 1).
        """
        if self._rest.goes_on():
            return False
        try:
            rows = self._follows.unrelayed(MAX_BATCH)
            if rows:
                self._queue.publish(ACTIONS, [encode_action(Task(row.action)) for row in rows])
                self._follows.mark_relayed(rows)
            now_s = self._clock()
            if self._ticked_s is None or now_s - self._ticked_s >= self._tick_every_s:
                self.tick()
                self._ticked_s = now_s
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            wait_s = self._rest.failed()
            _log.warning("relay.unavailable", wait_s=round(wait_s, 3), error=str(error))
            return False
        self._rest.ended()
        return bool(rows)

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
