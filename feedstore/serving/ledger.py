"""What all reads share: the `Choice` behind a lock, and what follows from it, worked out once for every change."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from feedstore.serving.attempts import Attempt
from feedstore.serving.choice import Choice, Standing, Turn
from feedstore.serving.hedging import HEDGE_S_MAX


class Tally(NamedTuple):
    """Reads that may need more than one cluster, and what they asked beyond one each: hedges, after a wait; failovers,
    after a failure; probes, to see whether a cluster is back. (Reads of a cluster in files do not count where all is
    well.)
    """

    reads: int
    hedges: int
    failovers: int
    probes: int


class Begun(NamedTuple):
    """What a read goes by. probe: a cluster to be tried on the side."""

    turns: Sequence[Turn]
    hedge_after_s: float
    probe: str | None


class Ledger:
    """Thread-safe. names: the clusters in the order of preference. clock: monotonic seconds."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._choice = Choice(names)
        self._reads = self._hedges = self._failovers = self._probes = 0
        self._all_closed = True
        self.turns: Sequence[Turn] = ()
        """In the order in which a read would ask now."""
        self.quiet: str | None = None
        """The cluster that a read would ask, as long as it is well and nobody needs a probe: then nothing need be
        noted of a read that succeeds.
        """
        self._decide()

    def begin(self) -> Begun:
        with self._lock:
            self._reads += 1
            probe = None if self._all_closed else self._choice.probe(self._clock())
            self._probes += probe is not None
            return Begun(self.turns, self._choice.hedge_after_s(), probe)

    def may_hedge(self) -> bool:
        """Whether a hedge may be sent before `HEDGE_S_MAX` have passed; if so, it must be sent."""
        with self._lock:
            return self._choice.hedge()

    def count(self, *, hedge: bool) -> None:
        """Another cluster is asked as well (a hedge), or instead."""
        with self._lock:
            self._hedges += hedge
            self._failovers += not hedge

    def ended(self, attempt: Attempt) -> None:
        """What became of an attempt. One that was taken for a failure before it ended is no second one, and none at
        all if it ended in good time.
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

    def overtaken(self, attempts: Sequence[Attempt]) -> None:
        """They have not ended, and nobody waits for them any more."""
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

    def heard(self, name: str, watermark_ms: int | None) -> None:
        with self._lock:
            self._choice.heard(name, watermark_ms)
            self._decide()

    def standing(self) -> list[Standing]:
        """Of every cluster, in the order of preference."""
        with self._lock:
            return self._choice.standing()

    def tally(self) -> Tally:
        with self._lock:
            return Tally(self._reads, self._hedges, self._failovers, self._probes)

    def _decide(self) -> None:
        """Under the lock, after every change."""
        self.turns = tuple(self._choice.turns())
        self._all_closed = self._choice.all_closed()
        name = self.turns[0].name
        self.quiet = name if self._all_closed and self._choice.is_quiet(name) else None
