"""What has to be forgotten in time: expired rows and messages, and in each cluster what lies beyond the caps."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

import structlog

from feedstore.feeds import Limits, Progress, Replica
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.widecolumn import Sweep, UnavailableError
from workers.queue.port import Queue, QueueUnavailableError, Topic

_log = structlog.get_logger()

_ROWS_AT_ONCE = 5_000
_LOOK_S = 1.0
"""How often it is looked whether it is time, at most."""


class _Rounds:
    """Says when it is time again; the first time comes after `every_s`. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float], every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._last_s = clock()

    def due(self) -> bool:
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True


class Housekeeper:
    """Forgets what the follow store and the queue need no more, every so often. One is enough; several do no harm.

    clock: monotonic seconds. every_s: how long between two rounds; the first comes after as long. readers: the groups
        that every message of a topic is for, and which lose none of them here.
    """

    name = "housekeeper"

    def __init__(
        self,
        follows: FollowStore,
        queue: Queue,
        limits: Limits,
        clock: Callable[[], float],
        every_s: float,
        readers: Mapping[Topic, Collection[str]],
    ) -> None:
        self._readers = readers
        self.rest_s = min(every_s, _LOOK_S)
        self._follows = follows
        self._queue = queue
        self._limits = limits
        self._rounds = _Rounds(clock, every_s)

    def step(self) -> bool:
        """Does a round when it is time; False otherwise."""
        if not self._rounds.due():
            return False
        window_ms = self._limits.purge_window_ms
        try:
            # By the queue's own clock: the follow store's may have been wrong for a moment, and never goes back.
            self._queue.expire(window_ms, self._readers)
            while self._follows.expire(window_ms, _ROWS_AT_ONCE) == _ROWS_AT_ONCE:
                pass
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            _log.warning("housekeeping.unavailable", error=str(error))
        return True

    def close(self) -> None:
        """Nothing to release: the ports are their owner's."""


class Sweeper:
    """Trims one cluster, and drops what is masked or expired in it, every so often; where the cluster's writer runs.

    clock, every_s: as the Housekeeper's.
    """

    def __init__(
        self, replica: Replica, follows: FollowStore, limits: Limits, clock: Callable[[], float], every_s: float
    ) -> None:
        self.name = f"sweeper-{replica.name}"
        self.rest_s = min(every_s, _LOOK_S)
        self._replica = replica
        self._follows = follows
        self._limits = limits
        self._rounds = _Rounds(clock, every_s)

    def step(self) -> bool:
        """Sweeps when it is time; False otherwise."""
        if not self._rounds.due():
            return False
        try:
            self.sweep()
        except (FollowStoreUnavailableError, UnavailableError) as error:
            _log.warning("sweep.unavailable", cluster=self._replica.name, error=str(error))
        return True

    def sweep(self) -> Sweep | None:
        """Sweeps now. None: the cluster does it by itself, and was asked to look whether it is time.

        Raises:
            UnavailableError, FollowStoreUnavailableError: do it again later.
        """
        replica = self._replica
        now_ms = self._follows.now()
        Progress(replica.progress).forget(now_ms - self._limits.purge_window_ms)
        replica.progress.sweep(now_ms)
        swept = replica.feeds.sweep(now_ms)
        if swept is None:
            _log.info("sweep.asked", cluster=replica.name)
        else:
            _log.info("sweep.done", cluster=replica.name, **dataclasses.asdict(swept))
        return swept

    def close(self) -> None:
        """Nothing to release: the ports are their owner's."""
