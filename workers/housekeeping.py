"""What has to be forgotten in time: expired rows, messages and notes, and what lies beyond the caps of feeds."""

import dataclasses
from collections.abc import Callable, Mapping

import structlog

from feedstore.feeds import Limits, Progress, Replica
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.widecolumn import Sweep, UnavailableError
from workers.queue.port import Queue, QueueUnavailableError

_log = structlog.get_logger()

_ROWS_AT_ONCE = 5_000


class Housekeeper:
    """Forgets, and trims, every so often. One of them is enough; several do no harm.

    clock: monotonic seconds. every_s: how long between two rounds; the first comes after as long.
    """

    name = "housekeeper"

    def __init__(
        self,
        follows: FollowStore,
        queue: Queue,
        replicas: Mapping[str, Replica],
        limits: Limits,
        clock: Callable[[], float],
        every_s: float,
    ) -> None:
        self._follows = follows
        self._queue = queue
        self._replicas = replicas
        self._limits = limits
        self._clock = clock
        self._every_s = every_s
        self._last_s = clock()

    def step(self) -> bool:
        """Does a round when it is time; False otherwise."""
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        self.round()
        return True

    def round(self) -> None:
        """Forgets what nothing can need any more, and trims every cluster that answers."""
        window_ms = self._limits.purge_window_ms
        try:
            while self._follows.expire(window_ms, _ROWS_AT_ONCE) == _ROWS_AT_ONCE:
                pass
            # Retention is longer than any action may wait (rule 8): a group that lost its position must be rebuilt.
            self._queue.expire(self._follows.now() - window_ms)
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            _log.warning("housekeeping.unavailable", error=str(error))
            return
        for name in self._replicas:
            try:
                self.sweep(name)
            except (FollowStoreUnavailableError, UnavailableError) as error:
                _log.warning("sweep.unavailable", cluster=name, error=str(error))

    def sweep(self, cluster: str) -> Sweep:
        """Trims one cluster and drops what is masked or expired in it.

        Raises:
            UnavailableError, FollowStoreUnavailableError: do it again later.
        """
        replica = self._replicas[cluster]
        now_ms = self._follows.now()
        Progress(replica.progress).forget_parts(now_ms - self._limits.purge_window_ms)
        replica.progress.sweep(now_ms)
        swept = replica.feeds.sweep(now_ms)
        _log.info("sweep.done", cluster=cluster, **dataclasses.asdict(swept))
        return swept

    def close(self) -> None:
        """Nothing to release: the ports are their owner's."""
