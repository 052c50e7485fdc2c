"""The state that all reads share: the `Choice` behind a lock, and its results, computed once for each change."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from feedstore.replicas.attempts import Attempt
from feedstore.replicas.choice import Candidate, Choice, ReplicaStatus
from feedstore.replicas.hedging import HEDGE_S_MAX


class ReadCounters(NamedTuple):
    """Counts of reads that may need more than one cluster, and of their further reads: hedges, after a wait; failovers,
    after a failure; probes, to see whether a cluster is back. (Reads of a cluster in files do not count while all is
    well.)
    """

    reads: int
    hedges: int
    failovers: int
    probes: int


class ReadPlan(NamedTuple):
    """The plan of a read. probe: a cluster to try on the side."""

    candidates: Sequence[Candidate]
    hedge_after_s: float
    probe: str | None


class ReplicaHealth:
    """Thread-safe. names: the clusters in the order of preference. clock: monotonic seconds."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._choice = Choice(names)
        self._reads = self._hedges = self._failovers = self._probes = 0
        self._all_closed = True
        self.candidates: Sequence[Candidate] = ()
        """The clusters in the order in which a read would ask them now."""
        self.quiet: str | None = None
        """The cluster that a read would ask. It is set while that cluster is well and no cluster needs a probe: then
        nothing need be noted of a read that succeeds.
        """
        self._decide()

    def begin(self) -> ReadPlan:
        with self._lock:
            self._reads += 1
            probe = None if self._all_closed else self._choice.probe(self._clock())
            self._probes += probe is not None
            return ReadPlan(self.candidates, self._choice.begin_read(), probe)

    def may_hedge(self) -> bool:
        """Whether a hedge may be sent before `HEDGE_S_MAX` have passed; if so, it must be sent."""
        with self._lock:
            return self._choice.try_spend_hedge()

    def count(self, *, hedge: bool) -> None:
        """Counts that another cluster is asked as well (a hedge), or instead."""
        with self._lock:
            self._hedges += hedge
            self._failovers += not hedge

    def ended(self, attempt: Attempt[Any]) -> None:
        """Records an attempt's outcome. A failure that `abandon` has already counted is not counted twice; an attempt
        that still ended in time counts as answered.
        """
        name = attempt.name
        with self._lock:
            in_time = attempt.error is None and attempt.took_s <= HEDGE_S_MAX
            if attempt.is_counted and not in_time:
                return
            attempt.is_counted = True
            was_quiet = self._choice.is_quiet(name)
            if attempt.error is None:
                self._choice.answered(name, attempt.took_s, self._clock(), probe=attempt.is_probe)
            else:
                self._choice.failed(name, self._clock(), probe=attempt.is_probe)
            if not was_quiet or not self._choice.is_quiet(name):
                self._decide()

    def abandon(self, attempts: Sequence[Attempt[Any]]) -> None:
        """Counts attempts as failures that are still running after another cluster has answered."""
        if not attempts:
            return
        with self._lock:
            for attempt in attempts:
                if not attempt.is_counted:  # it may have ended just now
                    attempt.is_counted = True
                    self._choice.failed(attempt.name, self._clock())
            self._decide()

    def failed(self, name: str, *, probe: bool = False) -> None:
        with self._lock:
            self._choice.failed(name, self._clock(), probe=probe)
            self._decide()

    def set_watermark(self, name: str, watermark_ms: int | None) -> None:
        with self._lock:
            self._choice.set_watermark(name, watermark_ms)
            self._decide()

    def status(self) -> list[ReplicaStatus]:
        """The state of every cluster, in the order of preference."""
        with self._lock:
            return self._choice.status()

    def counters(self) -> ReadCounters:
        with self._lock:
            return ReadCounters(self._reads, self._hedges, self._failovers, self._probes)

    def _decide(self) -> None:
        """Under the lock, after every change."""
        self.candidates = tuple(self._choice.candidates())
        self._all_closed = self._choice.all_closed()
        name = self.candidates[0].name
        self.quiet = name if self._all_closed and self._choice.is_quiet(name) else None
