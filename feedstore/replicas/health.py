"""What all reads have shown of the clusters: which of them a read asks, in which order and how soon. It asks none."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from feedstore.replicas.attempts import Attempt
from feedstore.replicas.breaker import Breaker, State
from feedstore.replicas.hedging import HEDGE_S_MAX, Budget, Latency, hedge_after_s

LAGGING_MS, CAUGHT_UP_MS = 30_000, 5_000
"""A cluster lags if its watermark is more than the first of these older than the newest one. It has caught up once the
difference is at most the second.
"""

_LOOK_AGAIN: Final = 16


class Candidate(NamedTuple):
    """A cluster that a read may ask. is_well: its breaker is closed, and it does not lag; only such a cluster gets an
    early hedge.
    """

    name: str
    is_well: bool


class ReplicaStatus(NamedTuple):
    """The state of a cluster. watermark_ms: None if unknown. p95_s: of its recent reads, None if unknown."""

    name: str
    breaker: State
    is_lagging: bool
    watermark_ms: int | None
    p95_s: float | None


class ReadCounters(NamedTuple):
    """Counts of reads that may need more than one cluster, and of their further reads: hedges, after a wait; failovers,
    after a failure; probes, to see if a cluster is back. (Reads of a cluster in files do not count while all is well.)
    """

    reads: int
    hedges: int
    failovers: int
    probes: int


class ReadPlan(NamedTuple):
    """The plan of a read. hedge_after_s: how long it waits for one cluster before it asks the next one as well. probe:
    a cluster to try on the side; the outcome must be recorded.
    """

    candidates: Sequence[Candidate]
    hedge_after_s: float
    probe: str | None


def lagging(watermarks: Mapping[str, int | None], before: frozenset[str]) -> frozenset[str]:
    """The clusters that lag, from all watermarks and from those that lagged before. A cluster with an unknown watermark
    lags behind one with a known watermark: it may have come back empty. Pure.
    """
    newest = max((each for each in watermarks.values() if each is not None), default=None)
    if newest is None:
        return frozenset()
    return frozenset(
        name
        for name, each in watermarks.items()
        if each is None or newest - each > (CAUGHT_UP_MS if name in before else LAGGING_MS)
    )


class ReplicaHealth:
    """Thread-safe. names: the clusters in the order of preference. clock: monotonic seconds."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._breakers = {name: Breaker() for name in names}
        self._latencies = {name: Latency() for name in names}
        self.watermarks: Mapping[str, int | None] = dict.fromkeys(names)
        """The last known one of each cluster, None if it is unknown. Replaced as a whole."""
        self.newest_ms = 0
        """The newest of these."""
        self._lagging: frozenset[str] = frozenset()
        self._budget = Budget()
        self._hedge_after_s = HEDGE_S_MAX
        self._reads = self._hedges = self._failovers = self._probes = 0
        self._all_closed = True
        self.candidates: Sequence[Candidate] = ()
        """All clusters, in the order in which a read would ask them now. First those that are well, then those that
        lag, then those whose breaker is open: an old page is better than none, and so is a cluster that failed a moment
        ago. Within each of the three, by preference.
        """
        self.quiet: str | None = None
        """The cluster that a read would ask, while that cluster is well and no cluster needs a probe; else None.
        Nothing need be noted of a read of it that succeeds.
        """
        self._decide()

    # What a read asks
    # ------------------------------------------------------------------------------------------------------------

    def begin(self) -> ReadPlan:
        """Begins a read, which earns budget for hedges. Their delay is computed again every `_LOOK_AGAIN` reads."""
        with self._lock:
            self._budget.earn()
            if self._reads % _LOOK_AGAIN == 0:
                well = (name for name, breaker in self._breakers.items() if breaker.state == "closed")
                self._hedge_after_s = hedge_after_s(self._latencies[name].p95_s() for name in well)
            self._reads += 1
            probe = None if self._all_closed else self._probe(self._clock())
            self._probes += probe is not None
            return ReadPlan(self.candidates, self._hedge_after_s, probe)

    def _probe(self, now_s: float) -> str | None:
        return next((name for name, breaker in self._breakers.items() if breaker.take_probe(now_s)), None)

    def may_hedge(self) -> bool:
        """Whether a hedge may be sent before `HEDGE_S_MAX` have passed; if so, it must be sent. Spends budget."""
        with self._lock:
            return self._budget.spend()

    def count(self, *, hedge: bool) -> None:
        """Counts that another cluster is asked as well (a hedge), or instead."""
        with self._lock:
            self._hedges += hedge
            self._failovers += not hedge

    # The outcome of reads
    # -----------------------------------------------------------------------------------------------------------

    def ended(self, attempt: Attempt[Any]) -> None:
        """Records an attempt's outcome. An answer that took longer than `HEDGE_S_MAX` counts as a failure: no caller
        waited for it. A failure that `abandon` has already counted is not counted twice; an attempt that still ended in
        time counts as answered.
        """
        name = attempt.name
        with self._lock:
            is_answered = attempt.error is None
            in_time = is_answered and attempt.took_s <= HEDGE_S_MAX
            if attempt.is_counted and not in_time:
                return
            attempt.is_counted = True
            was_quiet = self._is_quiet(name)
            if is_answered:
                self._latencies[name].add(attempt.took_s)
            if in_time:
                self._breakers[name].succeeded()
            else:
                self._breakers[name].failed(self._clock(), probe=attempt.is_probe, answered=is_answered)
            if not was_quiet or not self._is_quiet(name):
                self._decide()

    def abandon(self, attempts: Sequence[Attempt[Any]]) -> None:
        """Counts attempts that are still running after another cluster has answered: they are failures."""
        if not attempts:
            return
        with self._lock:
            for attempt in attempts:
                if not attempt.is_counted:  # it may have ended just now
                    attempt.is_counted = True
                    self._breakers[attempt.name].failed(self._clock())
            self._decide()

    def failed(self, name: str, *, probe: bool = False) -> None:
        with self._lock:
            self._breakers[name].failed(self._clock(), probe=probe)
            self._decide()

    def set_watermark(self, name: str, watermark_ms: int | None) -> None:
        with self._lock:
            self.watermarks = {**self.watermarks, name: watermark_ms}
            self.newest_ms = max((each for each in self.watermarks.values() if each is not None), default=0)
            self._lagging = lagging(self.watermarks, self._lagging)
            self._decide()

    def _is_quiet(self, name: str) -> bool:
        """Whether a cluster is well, and its last read succeeded: as long as it answers, nothing need be noted."""
        return name not in self._lagging and self._breakers[name].is_quiet

    def _decide(self) -> None:
        """Decides which clusters are asked, in which order. Called under the lock, after every change."""
        rank = {name: (breaker.state != "closed", name in self._lagging) for name, breaker in self._breakers.items()}
        self.candidates = tuple(
            Candidate(name, is_well=rank[name] == (False, False)) for name in sorted(rank, key=rank.__getitem__)
        )
        self._all_closed = not any(is_open for is_open, _ in rank.values())
        name = self.candidates[0].name
        self.quiet = name if self._all_closed and self._is_quiet(name) else None

    # For people
    # ------------------------------------------------------------------------------------------------------------------

    def status(self) -> list[ReplicaStatus]:
        """The state of every cluster, in the order of preference."""
        with self._lock:
            return [
                ReplicaStatus(
                    name, breaker.state, name in self._lagging, self.watermarks[name], self._latencies[name].p95_s()
                )
                for name, breaker in self._breakers.items()
            ]

    def counters(self) -> ReadCounters:
        with self._lock:
            return ReadCounters(self._reads, self._hedges, self._failovers, self._probes)
