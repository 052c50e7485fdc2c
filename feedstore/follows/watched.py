"""The shards of a store: which of them a row is on, what the clock of each shows, and whether it is away.

Nothing here is stored: a process knows only what its own calls have told it.
"""

import itertools
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, wait
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

import structlog

from feedstore.background import Background, BackgroundLook
from feedstore.clocks import APART_MAX_MS
from feedstore.errors import OF_ANOTHER_PROCESS
from feedstore.follows import metrics
from feedstore.follows.port import ClockStepError, FollowStoreUnavailableError
from feedstore.follows.shard import Shard
from feedstore.metering import Meter

_log = structlog.get_logger()

LOOK_EVERY_S: Final = 1.0
"""A shard is asked for its time in the background at most once in this time."""

AWAY_AFTER: Final = 3
"""A shard counts as away after this many failed calls in a row."""

FORGOTTEN_S: Final = 60.0
"""A shard that has not failed for this long is called again, even if it counted as away."""

DRIFT: Final = 0.001
"""How much faster or slower than a shard's this machine's clock may run. Clocks kept in time stay within half of it."""

_AWAY: Final = "follows.shard_away"

_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_64_BITS: Final = 2**64 - 1

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")


def boot_s() -> float:
    """Monotonic seconds that also count while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def mix(value: int) -> int:
    """Mixes the bits of an id with the finaliser of SplitMix64, so that ids spread evenly even if they have a stride,
    or hold the number of another system's shard. It never changes, because it decides where records are.
    """
    value = ((value ^ (value >> 30)) * _MIX_1) & _64_BITS
    value = ((value ^ (value >> 27)) * _MIX_2) & _64_BITS
    return value ^ (value >> 31)


class _Heard(NamedTuple):
    """The time that a shard's clock showed at some moment between two readings of this machine's clock."""

    shard_ms: int
    asked_s: float
    answered_s: float


class Watched:
    """A shard, and what is known of it. Thread-safe.

    background: begins a look at it while its callers continue. None if asking it costs nothing: it is always asked.
    clock: monotonic seconds that also count while the machine is suspended.
    """

    def __init__(
        self,
        number: int,
        shard: Shard,
        clock: Callable[[], float],
        background: Background | None,
        meter: Meter,
    ) -> None:
        self._meter = meter
        self._label = str(number)
        meter.note(metrics.AWAY, 0, self._label)
        meter.add(metrics.FAILURES, 0, self._label)
        self.shard = shard
        self._process = os.getpid()
        self._number = number
        self._clock = clock
        self._looks: BackgroundLook | None = None
        if background is not None:
            self._looks = BackgroundLook(self._look_and_rest, background, self._not_looked_at)
        self._heard: _Heard | None = None
        self._failures = 0
        self._failed_s = 0.0
        self._reason = ""
        self._look_again_s = -math.inf

    def call(self, call: Callable[[Shard, _Work], _Result], work: _Work) -> _Result:
        """Calls this shard.

        Raises FollowStoreUnavailableError: at once if the shard is known to be away.
        """
        self.refuse_away()
        began_s = self._clock()
        try:
            result = call(self.shard, work)
        except ClockStepError:
            raise  # it has answered: what needs no time can be read
        except FollowStoreUnavailableError as error:
            self._failed(error)
            raise
        finally:
            self._meter.observe(metrics.CALL_SECONDS, [self._clock() - began_s], self._label)
        self._answered()
        return result

    def refuse_away(self) -> None:
        """Raises FollowStoreUnavailableError if the shard failed so often that it counts as away, or if this process
        was forked from the one that opened the shard.

        So no caller waits for the time-outs of a shard that is away. It is looked at in the background, and is back
        once it has answered.
        """
        if os.getpid() != self._process:
            raise FollowStoreUnavailableError(f"shard {self._number}: {OF_ANOTHER_PROCESS}")
        if self._looks is None or self._failures < AWAY_AFTER or self._clock() - self._failed_s > FORGOTTEN_S:
            return
        self._look_soon(self._looks)
        self._meter.add(metrics.FAILURES, 1, self._label)
        raise FollowStoreUnavailableError(f"shard {self._number} is away, and is looked at again: {self._reason}")

    def between(self) -> tuple[int, int] | None:
        """The earliest and the latest time, in ms, that the shard's clock may show now; None if it was never heard.
        Does not wait for the shard, unless asking it costs nothing.
        """
        if self._looks is not None:
            self._look_soon(self._looks)
        elif self.look() and self._heard is not None:
            return self._heard.shard_ms, self._heard.shard_ms
        heard = self._heard
        return None if heard is None else self._extrapolated(heard)

    def _extrapolated(self, heard: _Heard) -> tuple[int, int]:
        now_s = self._clock()
        least_ms = (now_s - heard.answered_s) * (1 - DRIFT) * 1_000
        most_ms = (now_s - heard.asked_s) * (1 + DRIFT) * 1_000
        # Its clock shows whole ms, so the time was up to one ms later than it showed.
        return heard.shard_ms + math.floor(least_ms), heard.shard_ms + 1 + math.ceil(most_ms)

    def _look_soon(self, looks: BackgroundLook) -> None:
        """Begins to ask the shard for its time, unless that is under way or was done a moment ago."""
        if self._clock() >= self._look_again_s:
            looks.begin()

    def _look_and_rest(self) -> None:
        try:
            self.look()
        finally:
            self._look_again_s = self._clock() + LOOK_EVERY_S

    def _not_looked_at(self, error: str) -> None:
        _log.warning("shard.not_looked_at", shard=self._number, error=error)

    def look(self) -> bool:
        """Asks the shard for its time, and notes it. Returns whether it answered."""
        asked_s = self._clock()
        try:
            shard_ms = self.shard.now_ms()
        except ClockStepError:
            self._answered()
            return False
        except FollowStoreUnavailableError as error:
            self._failed(error)
            return False
        before, heard = self._heard, _Heard(shard_ms, asked_s, self._clock())
        if before is not None and shard_ms > (expected_ms := self._extrapolated(before)[1]) + APART_MAX_MS:
            _log.error("follows.clock_jumped", shard=self._number, ahead_ms=shard_ms - expected_ms)
        self._heard = heard
        self._answered()
        return True

    def _answered(self) -> None:
        if self._failures:
            if self._failures >= AWAY_AFTER:
                _log.info("answers.again", shard=self._number, after=_AWAY, failures=self._failures)
            self._failures = 0
            self._meter.note(metrics.AWAY, 0, self._label)

    def _failed(self, error: FollowStoreUnavailableError) -> None:
        self._failures += 1
        self._failed_s = self._clock()
        self._reason = str(error)
        self._meter.add(metrics.FAILURES, 1, self._label)
        self._meter.note(metrics.AWAY, int(self._looks is not None and self._failures >= AWAY_AFTER), self._label)
        if self._failures == AWAY_AFTER:
            _log.warning(_AWAY, shard=self._number, error=str(error))


class Shards:
    """The shards of a store. Thread-safe. executor, background, clock, meter: as in `FollowStore`."""

    def __init__(
        self,
        shards: Sequence[Shard],
        executor: Executor | None,
        clock: Callable[[], float],
        background: Background | None,
        meter: Meter,
    ) -> None:
        self._watched = [Watched(number, shard, clock, background, meter) for number, shard in enumerate(shards)]
        self._executor = executor
        self._turns = itertools.count()

    def __len__(self) -> int:
        return len(self._watched)

    def shard_of(self, any_id: int) -> int:
        return 0 if len(self._watched) == 1 else mix(any_id) % len(self._watched)

    def shard_of_key(self, key: str) -> int:
        return self.shard_of(crc32(key.encode()))

    def by_shard(self, values: Iterable[_Value], id_of: Callable[[_Value], int]) -> dict[int, list[_Value]]:
        """Groups values by the shards of their ids. Shards without any are left out."""
        if len(self._watched) == 1:
            mine = list(values)
            return {0: mine} if mine else {}
        grouped: dict[int, list[_Value]] = defaultdict(list)
        for value in values:
            grouped[self.shard_of(id_of(value))].append(value)
        return grouped

    def on(self, number: int, call: Callable[[Shard], _Result]) -> _Result:
        return self._watched[number].call(lambda shard, _: call(shard), None)

    def on_each(self, work: Mapping[int, _Work], call: Callable[[Shard, _Work], _Result]) -> dict[int, _Result]:
        """Calls each shard that has work. If one fails, the others may have been called or not. If one is known to be
        away, none is called.
        """
        for number in work:
            self._watched[number].refuse_away()
        executor = self._executor
        if executor is None or len(work) < 2:
            return {number: self._watched[number].call(call, mine) for number, mine in work.items()}
        try:
            calls = {number: executor.submit(self._watched[number].call, call, mine) for number, mine in work.items()}
        except RuntimeError as error:  # closed meanwhile, or there are too many threads
            raise FollowStoreUnavailableError(str(error)) from error
        wait(calls.values())
        return {number: called.result() for number, called in calls.items()}

    def on_those_of(
        self, values: Iterable[_Value], id_of: Callable[[_Value], int], call: Callable[[Shard, list[_Value]], _Result]
    ) -> list[_Result]:
        """Calls each shard that has any of the values, with its own. As `on_each`."""
        return list(self.on_each(self.by_shard(values, id_of), call).values())

    def on_all(self, call: Callable[[Shard], _Result]) -> list[_Result]:
        every = dict.fromkeys(range(len(self._watched)))
        return list(self.on_each(every, lambda shard, _: call(shard)).values())

    def in_turns(self) -> list[int]:
        """The numbers of all shards, beginning with another one at each call."""
        first = next(self._turns) % len(self._watched)
        return [*range(first, len(self._watched)), *range(first)]

    def between(self) -> list[tuple[int, int]]:
        """The earliest and the latest time that the clock of each shard may show now, without those that never
        answered. If none ever has, each is asked first.
        """
        bounds = self._bounds()
        if not bounds:
            for watched in self._watched:
                watched.look()
            bounds = self._bounds()
        return bounds

    def _bounds(self) -> list[tuple[int, int]]:
        return [each for each in (watched.between() for watched in self._watched) if each is not None]

    def close(self) -> None:
        # The shards themselves tell later callers that the store was closed.
        executor, self._executor = self._executor, None
        for watched in self._watched:
            watched.shard.close()
        if executor is not None:
            executor.shutdown()
