"""When to try again, and when to give up. Time and randomness are arguments; what is away is counted and logged."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from feedstore.metering import Meter
from workers.pipeline import metrics

_log = structlog.get_logger()

Thing = TypeVar("Thing")

REST_S: Final = 0.02
"""How long a loop that should notice new work soon rests if there was nothing to do."""

RETRY_REST: Final = 7.0
"""After a failed attempt, others like it rest for this many times its duration, if other work gets done meanwhile: in
the long run failing attempts take an eighth of the time."""


class Share:
    """How long attempts rest if they fail while other work gets done: in the long run they take an eighth of the time.
    A rest is never longer than the time for which they have failed while other work got done, so that the end of a
    short outage is noticed soon.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._failed_s: float | None = None
        self._worked = 0

    def failed(self, began_s: float, now_s: float, worked: int) -> float:
        """How long to rest, in s; 0 if no other work got done since the previous failure: a rest would help nothing.

        began_s: when the attempt began. worked: how much other work has got done so far.
        """
        if self._failed_s is None or worked == self._worked:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = self._failed_s
        self._worked = worked
        self._failed_s = now_s
        return 0.0 if self._since_s is None else min(RETRY_REST * (now_s - began_s), now_s - self._since_s)

    def ended(self) -> None:
        """Notes that what failed works again."""
        self._since_s = self._failed_s = None


class Later(Generic[Thing]):
    """Things to try later, each at a time of its own, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Thing]] = []
        self._order = itertools.count()

    def __iter__(self) -> Iterator[Thing]:
        return (thing for _, _, thing in self._heap)

    def put(self, thing: Thing, due_s: float) -> None:
        heapq.heappush(self._heap, (due_s, next(self._order), thing))

    def due_s(self) -> float:
        """When the first thing is due; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def take_due(self, now_s: float) -> Thing | None:
        """Removes the first thing and returns it, if it is due."""
        return heapq.heappop(self._heap)[2] if self.due_s() <= now_s else None


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter", 2015).

    first_s, longest_s: the bounds of the k-th wait are 0 and min(longest_s, first_s x 2^(k-1)).
    attempts: how often a message may fail by its own fault before it is given up. dead_in_a_row: how many dead letters
    in a row stop the worker, instead of draining the queue into them.
    """

    first_s: float = 0.1
    longest_s: float = 30.0
    attempts: int = 8
    dead_in_a_row: int = 100

    def wait_s(self, attempt: int, rng: random.Random) -> float:
        """How long to wait after the `attempt`-th failure, counted from 1."""
        bound: float = min(self.longest_s, self.first_s * 2 ** min(attempt - 1, 30))
        return rng.uniform(0, bound)


DEFAULT: Final = RetryPolicy()


def log_failure(log: Any, event: str, failures: int, **about: object) -> None:
    """Logs the last of so many failures in a row. Ever fewer of these lines are warnings, so that an outage of a day
    does not fill the log.
    """
    (log.warning if failures.bit_count() == 1 else log.debug)(event, failures=failures, **about)


class Rest:
    """The rests that a loop takes from something that fails again and again. clock: monotonic seconds."""

    def __init__(
        self, clock: Callable[[], float], policy: RetryPolicy = DEFAULT, rng: random.Random | None = None
    ) -> None:
        self._clock = clock
        self._policy = policy
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._failures = 0
        self._until_s: float | None = None

    def failed(self, *, least_s: float = 0.0) -> float:
        """Begins a rest, at least `least_s` long; its greatest length grows each time. Returns its length in s."""
        self._failures += 1
        wait_s = max(least_s, self._policy.wait_s(self._failures, self._rng))
        self._until_s = self._clock() + wait_s
        return wait_s

    def ended(self) -> None:
        """Notes that it worked: the next rest is a short one."""
        self._failures = 0
        self._until_s = None

    def is_resting(self) -> bool:
        return self._until_s is not None and self._clock() < self._until_s


class Away(Rest):
    """Something that a loop calls and that may be away: each failure is counted, logged by `log_failure`, and begins a
    rest. Its end is logged once.

    name: the name of the loop. what: what is called, as the metric names it. event, about: what the log line says.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        meter: Meter,
        name: str,
        what: str,
        event: str,
        policy: RetryPolicy = DEFAULT,
        rng: random.Random | None = None,
        **about: object,
    ) -> None:
        super().__init__(clock, policy, rng)
        self._share = Share()
        self._meter = meter
        self._labels = name, what
        self._event = event
        self._about = about
        meter.add(metrics.AWAY, 0, *self._labels)  # from the beginning: the first failure is an increase, too

    def noted(self, error: object, attempt: tuple[float, int] | None = None) -> None:
        """Notes that it did not answer. attempt: given if other work had to wait for the call: when the call began, and
        how much other work has got done so far. The rest is then long enough for other work to get its share of the
        time (`Share`).
        """
        least_s = 0.0 if attempt is None else self._share.failed(attempt[0], self._clock(), attempt[1])
        wait_s = self.failed(least_s=least_s)
        self._meter.add(metrics.AWAY, 1, *self._labels)
        log_failure(_log, self._event, self._failures, **self._about, wait_s=round(wait_s, 3), error=str(error))

    def ended(self) -> None:
        if self._failures:
            _log.info("answers.again", **self._about, after=self._event, failures=self._failures)
        super().ended()
        self._share.ended()
