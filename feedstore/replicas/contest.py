"""The same question to several clusters: the first that answers counts.

The preferred cluster is asked. If it raises, another one is asked at once; if it says nothing, another one is asked
after a short wait (a *hedge*). `health` says which cluster to ask, and when; this module asks it.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from feedstore.errors import NotNowError
from feedstore.replicas.attempts import Attempt, Reads
from feedstore.replicas.health import Candidate, ReplicaHealth
from feedstore.replicas.hedging import HEDGE_S_MAX, Pace
from feedstore.tracing import UNTRACED, Span, Tracer

ATTEMPT_S_MIN = 0.25
"""A read runs at least this long, even if its caller has less time: a short deadline must not discredit a gateway."""

T = TypeVar("T")


class Contest:
    """Asks several clusters the same question. Thread-safe. `health` is what all its reads have shown of the clusters.

    reads: how each cluster is read, in the order of preference. within_s: how long a question without a deadline may
    take. clock: the clock of deadlines, in s. unavailable, late: what is raised if no cluster answered, or none in
    time. tracer: gets a span of each cluster that is asked.
    """

    def __init__(
        self,
        reads: Mapping[str, Reads],
        within_s: float,
        clock: Callable[[], float],
        unavailable: type[NotNowError],
        late: type[NotNowError],
        tracer: Tracer = UNTRACED,
    ) -> None:
        self.health = ReplicaHealth(list(reads), clock)
        self._reads = reads
        self._within_s = within_s
        self._clock = clock
        self._unavailable = unavailable
        self._late = late
        self._tracer = tracer

    def first(
        self, ask: Callable[[str, float], T], deadline_s: float | None, failed: Sequence[tuple[str, str]] = ()
    ) -> tuple[str, T]:
        """The name of the cluster that answered first, and its answer.

        ask: asks the cluster of a name, until a time of the clock at most. If it raises `NotNowError`, the cluster has
            failed, and another one is asked; any other error is passed on. It may run on several threads at once, and
            longer than this call.
        failed: clusters that are not asked, and why: they have already failed, or what they said is not enough.

        Raises `late` or `unavailable`, with what every cluster said.
        """
        began_s = self._clock()
        deadline_s = began_s + self._within_s if deadline_s is None else deadline_s
        until_s = max(deadline_s, began_s + ATTEMPT_S_MIN)

        def begin(name: str, on_done: Callable[[Attempt[T]], None], *, is_probe: bool = False) -> Attempt[T] | None:
            made = Attempt(name, partial(ask, name, until_s), on_done, self._clock, is_probe=is_probe)
            return made if self._reads[name].start(made) else None

        def span(name: str, why: str) -> Span:
            return self._tracer.begun(f"read {name}", {"feedstore.cluster": name, "feedstore.why": why}, kind="client")

        candidates, hedge_after_s, probe = self.health.begin()
        if probe is not None and begin(probe, self.health.ended, is_probe=True) is None:
            self.health.failed(probe, probe=True)
        question = _Question(self.health, begin, span, Pace(hedge_after_s), self._clock)
        for name, error in failed:
            candidates = [candidate for candidate in candidates if candidate.name != name]
            question.failures.append(_failure(name, error))
        winner = question.run(candidates, deadline_s)
        if winner is not None:
            return winner.name, winner.answer
        if question.is_late:
            raise self._late("; ".join(["no cluster answered in time", *question.failures]))
        raise self._unavailable("no cluster answered: " + "; ".join(question.failures))

    def all(self, ask: Callable[[str, float], T], deadline_s: float) -> dict[str, T]:
        """The answer of each cluster that answers in time. All are asked at once, even those whose breaker is open; the
        answers do not count for their health. ask: as in `first`.
        """
        until_s = max(deadline_s, self._clock() + ATTEMPT_S_MIN)
        ended: SimpleQueue[Attempt[T]] = SimpleQueue()
        made = (Attempt(name, partial(ask, name, until_s), ended.put, self._clock) for name in self._reads)
        under_way = sum(self._reads[each.name].start(each) for each in made)
        answers: dict[str, T] = {}
        with contextlib.suppress(Empty):
            for _ in range(under_way):
                attempt = ended.get(timeout=max(0.0, until_s - self._clock()))
                if attempt.error is None:
                    answers[attempt.name] = attempt.answer
                elif not isinstance(attempt.error, NotNowError):
                    raise attempt.error
        return answers

    def close(self) -> None:
        """Begins nothing new."""
        for each in self._reads.values():
            each.close()


def _failure(name: str, error: str) -> str:
    return f"{name}: {error.removeprefix(f'cluster {name}: ')}"  # a cluster may name itself


class _Question(Generic[T]):
    """The attempts of one question. begin: begins an attempt on the cluster of a name, or returns None; takes what is
    called once it has ended. span: begins a span, for the name of a cluster and why it is asked. failures: why attempts
    failed. is_late: the time was up.
    """

    def __init__(
        self,
        health: ReplicaHealth,
        begin: Callable[[str, Callable[[Attempt[T]], None]], Attempt[T] | None],
        span: Callable[[str, str], Span],
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self.failures: list[str] = []
        self.is_late = False
        self._health = health
        self._begin = begin
        self._span = span
        self._spans: dict[str, Span] = {}
        self._pace = pace
        self._clock = clock
        self._ended: SimpleQueue[Attempt[T]] = SimpleQueue()
        self._under_way: list[Attempt[T]] = []

    def run(self, candidates: Sequence[Candidate], deadline_s: float) -> Attempt[T] | None:
        """The first attempt that succeeds; None if there is none."""
        try:
            return self._run(candidates, deadline_s)
        finally:
            # They may still run, and no one waits for them.
            for name in list(self._spans):
                self._end_span(name, "abandoned")

    def _run(self, candidates: Sequence[Candidate], deadline_s: float) -> Attempt[T] | None:
        left = deque(candidates)
        while left or self._under_way:
            now_s = self._clock()
            if now_s >= deadline_s:
                self._health.abandon([each for each in self._under_way if now_s - each.began_s > HEDGE_S_MAX])
                self.is_late = True
                return None
            if left and (not self._under_way or now_s >= self._pace.due_s):
                self._ask_next(left, now_s)
                continue
            until_s = min(self._pace.due_s, deadline_s) if left else deadline_s
            try:
                attempt = self._ended.get(timeout=until_s - now_s)
            except Empty:
                continue
            self._under_way.remove(attempt)
            if attempt.error is None:
                self._end_span(attempt.name, "answered")
                self._health.abandon(self._under_way)
                return attempt
            self._end_span(attempt.name, "failed", type(attempt.error).__name__)
            if not isinstance(attempt.error, NotNowError):
                raise attempt.error
            self.failures.append(_failure(attempt.name, str(attempt.error)))
        return None

    def _ask_next(self, left: "deque[Candidate]", now_s: float) -> None:
        is_hedge = bool(self._under_way)
        if is_hedge and self._pace.is_early(now_s) and not (left[0].is_well and self._health.may_hedge()):
            self._pace.put_off()
            return
        name = left.popleft().name
        if is_hedge or self.failures:
            self._health.count(hedge=is_hedge)
        self._pace.asked(now_s)
        self._spans[name] = self._span(name, "hedge" if is_hedge else "failover" if self.failures else "first")
        begun = self._begin(name, self._on_done)
        if begun is None:
            self._end_span(name, "failed", "too_many_reads")
            self.failures.append(f"{name}: too many reads are under way")
        else:
            self._under_way.append(begun)

    def _end_span(self, name: str, outcome: str, error: str | None = None) -> None:
        """Ends the span of a cluster."""
        span = self._spans.pop(name)
        span.note({"feedstore.outcome": outcome})
        if error is not None:
            span.failed(error)
        span.end()

    def _on_done(self, attempt: Attempt[T]) -> None:
        self._health.ended(attempt)
        self._ended.put(attempt)
