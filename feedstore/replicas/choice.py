"""Which clusters a read asks, in which order and how soon, from what is known of them. Asks none of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from feedstore.replicas.breaker import Breaker, State
from feedstore.replicas.hedging import HEDGE_S_MAX, Budget, Latency, hedge_after_s

LAGGING_MS, CAUGHT_UP_MS = 30_000, 5_000
"""A cluster lags if its watermark is so much older than the newest, until it is only so much older."""

_LOOK_AGAIN = 16


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


class Choice:
    """Time is an argument; not thread-safe.

    names: in the order of preference.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._breakers = {name: Breaker() for name in names}
        self._latencies = {name: Latency() for name in names}
        self._watermarks: dict[str, int | None] = dict.fromkeys(names)
        self._lagging: frozenset[str] = frozenset()
        self._budget = Budget()
        self._reads = 0
        self._hedge_after_s = HEDGE_S_MAX

    # What a read asks
    # ------------------------------------------------------------------------------------------------------------

    def candidates(self) -> list[Candidate]:
        """All clusters. First those that are well, then those that lag, then those whose breaker is open: an old page
        is better than none, and a cluster that failed a moment ago better than none. Each by preference.
        """
        rank = {name: (breaker.state != "closed", name in self._lagging) for name, breaker in self._breakers.items()}
        return [Candidate(name, is_well=rank[name] == (False, False)) for name in sorted(rank, key=rank.__getitem__)]

    def is_quiet(self, name: str) -> bool:
        """Whether it is well, and its last read succeeded: as long as it answers, nothing need be noted."""
        return name not in self._lagging and self._breakers[name].is_quiet

    def all_closed(self) -> bool:
        """Whether no breaker is open, so that no probe is needed."""
        return all(breaker.state == "closed" for breaker in self._breakers.values())

    def probe(self, now_s: float) -> str | None:
        """The cluster that this read must also probe, if it is time for one; the caller must note the outcome."""
        return next((name for name, breaker in self._breakers.items() if breaker.take_probe(now_s)), None)

    def begin_read(self) -> float:
        """Begins a read: earns budget for hedges, and returns after how long to send one. The p95 behind it is computed
        again every `_LOOK_AGAIN` reads.
        """
        self._budget.earn()
        if self._reads % _LOOK_AGAIN == 0:
            well = (name for name, breaker in self._breakers.items() if breaker.state == "closed")
            self._hedge_after_s = hedge_after_s(self._latencies[name].p95_s() for name in well)
        self._reads += 1
        return self._hedge_after_s

    def try_spend_hedge(self) -> bool:
        """Whether a hedge may be sent before `HEDGE_S_MAX` have passed. Spends budget."""
        return self._budget.spend()

    # What became of it
    # -----------------------------------------------------------------------------------------------------------

    def answered(self, name: str, took_s: float, now_s: float, *, probe: bool = False) -> None:
        """An answer that took longer than `HEDGE_S_MAX` counts as a failure: no caller waited for it."""
        self._latencies[name].add(took_s)
        if took_s <= HEDGE_S_MAX:
            self._breakers[name].succeeded()
        else:
            self._breakers[name].failed(now_s, probe=probe, answered=True)

    def failed(self, name: str, now_s: float, *, probe: bool = False) -> None:
        """It raised, or another cluster was asked later and answered sooner."""
        self._breakers[name].failed(now_s, probe=probe)

    def set_watermark(self, name: str, watermark_ms: int | None) -> None:
        self._watermarks[name] = watermark_ms
        self._lagging = lagging(self._watermarks, self._lagging)

    def status(self) -> list[ReplicaStatus]:
        """The state of every cluster, in the order of preference."""
        return [
            ReplicaStatus(
                name, breaker.state, name in self._lagging, self._watermarks[name], self._latencies[name].p95_s()
            )
            for name, breaker in self._breakers.items()
        ]
