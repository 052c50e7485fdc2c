"""Runs relay, expander, writers and housekeeper, each in a thread of its own, until told to stop."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from feedstore.errors import NotNowError
from feedstore.metering import UNCOUNTED, Meter
from workers.pipeline import metrics
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.retry import log_failure
from workers.queue.port import DamagedQueueError, PositionLostError

_log = structlog.get_logger()


_ASK_S = 0.05
"""How often a worker asks whether it may end. Not more often, because asking reads the stores."""
AGAIN_S: Final = 60.0
"""After a failed round an `Every` tries again within this time."""

SAY_S: Final = 2.0
"""If loops take longer than this to end, the log names them."""

LOST_REST_S: Final = 5.0
"""How often a loop that has lost its position asks whether it is restored."""

_LOOK_S: Final = 1.0
"""The longest rest of an `Every`: the age of a loop's last step shows whether it hangs."""


class Loop(Protocol):
    """Something that a worker runs over and over.

    rest_s: how long it rests if there was nothing to do. Each end of a rest takes the interpreter away from other
    threads of the process, above all from pages: a loop with work once an hour should not look fifty times a second.
    """

    @property
    def name(self) -> str: ...

    @property
    def rest_s(self) -> float: ...

    def step(self) -> bool:
        """One round; False if there was nothing to do, and the loop may rest for a moment."""

    def close(self) -> None: ...


class Every:
    """A loop that does something at intervals. If a round found something away, it is repeated soon.

    do: does a round; it raises NotNowError if the round must be repeated. every_s: the time from the beginning of one
    round to that of the next, and before the first one. clock: monotonic seconds. event: the log line about a round
    that failed (`log_failure`). meter: counts all that failed.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[], object],
        every_s: float,
        clock: Callable[[], float],
        event: str,
        meter: Meter = UNCOUNTED,
    ) -> None:
        self.name = name
        self._do = do
        self._every_s = every_s
        self._clock = clock
        self._event = event
        self._meter = meter
        self._due_s = clock() + every_s
        self._failures = 0  # in a row

    @property
    def rest_s(self) -> float:
        return min(_LOOK_S, max(0.0, self._due_s - self._clock()))

    def step(self) -> bool:
        """Does a round if it is time; False, so that a rest follows."""
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        try:
            self._do()
            self._due_s = now_s + self._every_s
            self._failures = 0
        except NotNowError as error:
            self._due_s = now_s + min(AGAIN_S, self._every_s)
            self._meter.add(metrics.AWAY, 1, self.name, "round")
            self._failures += 1
            log_failure(_log, self._event, self._failures, loop=self.name, error=str(error))
        return False

    def close(self) -> None:
        """Nothing to release: what it uses belongs to others."""


class WorkerFailedError(Exception):
    """Part of the worker stopped for good; the message says which and why. Everything else was stopped in order.

    causes: what the loops raised, the first one first; never empty.
    """

    def __init__(self, message: str, causes: Sequence[Exception]) -> None:
        super().__init__(message)
        self.causes = causes


class Worker:
    """Runs loops in threads.

    A loop whose position is lost stops alone, because one dead cluster must not stop the other (rule 12). So does a
    loop that can read no further because the queue is damaged: a restart would not help. Any other error stops the
    worker: its supervisor restarts it, and everything uncommitted comes again.

    are_lost: for names of loops, whether their position is lost; it may raise NotNowError. Such a loop continues once
    somebody has restored its position. Until then it counts as one that has ended.
    """

    def __init__(
        self,
        loops: Sequence[Loop],
        meter: Meter = UNCOUNTED,
        clock: Callable[[], float] = time.monotonic,
        are_lost: Mapping[str, Callable[[], bool]] = MappingProxyType({}),
    ) -> None:
        self._loops = loops
        self._meter = meter
        self._clock = clock
        self._are_lost = are_lost
        self._stop = threading.Event()
        self._failures: list[tuple[str, Exception]] = []
        self._ended: set[str] = set()
        self._pausing = threading.Lock()
        self._paused: set[str] = set()
        self._in_step: set[str] = set()

    def running(self) -> set[str]:
        """The names of the loops that have not ended by themselves."""
        return {loop.name for loop in self._loops} - self._ended

    def stop(self) -> None:
        """Asks every loop to end after its current step. Returns at once; safe in a signal handler."""
        self._stop.set()

    def pause(self, names: Collection[str]) -> bool:
        """Asks loops to rest after their current step, until `resume`. Returns at once: True if none of them is in a
        step now.
        """
        with self._pausing:
            self._paused.update(names)
            return self._in_step.isdisjoint(names)

    def resume(self, names: Collection[str]) -> None:
        """Lets loops that `pause` named continue."""
        with self._pausing:
            self._paused.difference_update(names)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Runs until `stop` is called or `until` (asked every `_ASK_S`) says so; then ends every loop in order.

        Raises WorkerFailedError: a loop ended by itself.
        """
        started: list[threading.Thread] = []
        try:
            for loop in self._loops:
                thread = threading.Thread(target=self._run_loop, args=(loop,), name=loop.name)
                try:
                    thread.start()
                except RuntimeError as error:  # the loops that run must end: they would keep the process alive
                    raise WorkerFailedError(f"{loop.name}: {error}", [error]) from error
                started.append(thread)
            if until is None:
                self._stop.wait()
            else:
                while not self._stop.wait(_ASK_S) and not until():
                    pass
        finally:
            self._stop.set()
            say_s = time.monotonic() + SAY_S
            for thread in started:
                thread.join(max(0.0, say_s - time.monotonic()))
            if left := [thread.name for thread in started if thread.is_alive()]:
                _log.info("loops.ending", loops=left)
            for thread in started:
                thread.join()
            for loop in self._loops[len(started) :]:
                loop.close()
        if self._failures:
            messages, causes = zip(*self._failures, strict=True)
            raise WorkerFailedError("; ".join(dict.fromkeys(messages)), causes)  # two loops of a cluster say the same

    def _run_loop(self, loop: Loop) -> None:
        log = _log.bind(loop=loop.name)
        log.info("loop.started")
        in_order = False
        try:
            while not in_order:
                self._meter.note(metrics.LOOP_RUNNING, 1, loop.name)
                try:
                    self._take_steps(loop)
                    in_order = True
                except PositionLostError as error:
                    failure = str(error), error
                    self._failures.append(failure)
                    log.error("loop.position_lost", error=str(error))  # noqa: TRY400 - the message says it all
                    self._end_loop(loop)
                    if not self._wait_until_restored(loop.name):
                        break
                    self._failures.remove(failure)
                    self._ended.discard(loop.name)
                    log.info("loop.continues", detail="its position was restored")
        except DamagedQueueError as error:
            self._failures.append((str(error), error))
            log.error("loop.queue_damaged", error=str(error))  # noqa: TRY400 - the message says it all
        except TooManyDeadLettersError as error:
            self._failures.append((str(error), error))
            log.error("loop.too_many_dead_letters", error=str(error))  # noqa: TRY400 - the message says it all
            self._stop.set()
        except Exception as error:
            self._failures.append((f"{loop.name}: {type(error).__name__}: {error}", error))
            log.exception("loop.failed", error=str(error))
            self._stop.set()
        finally:
            self._end_loop(loop)
            if in_order:
                self._meter.forget(metrics.LOOP_RUNNING, loop.name)
            log.info("loop.stopped")

    def _take_steps(self, loop: Loop) -> None:
        while not self._stop.is_set():
            self._meter.since(metrics.LOOP_STEP_AGE, self._clock(), loop.name)
            if not self._begin_step(loop.name):
                self._stop.wait(_ASK_S)
                continue
            try:
                had_work = loop.step()
            finally:
                self._in_step.discard(loop.name)
            if not had_work:
                self._stop.wait(loop.rest_s)

    def _begin_step(self, name: str) -> bool:
        """Begins a step of a loop. False if the loop is paused."""
        with self._pausing:
            if name in self._paused:
                return False
            self._in_step.add(name)
            return True

    def _end_loop(self, loop: Loop) -> None:
        self._ended.add(loop.name)
        self._meter.forget(metrics.LOOP_STEP_AGE, loop.name)
        self._meter.note(metrics.LOOP_RUNNING, 0, loop.name)
        loop.close()

    def _wait_until_restored(self, name: str) -> bool:
        """Waits until the lost position of a loop is restored; False if it never showed as lost, or the worker ends."""
        is_lost = self._are_lost.get(name)
        seen = False
        while is_lost is not None and not self._stop.is_set():
            with suppress(NotNowError):
                if not is_lost():
                    return seen  # if it never showed, nothing says that it was restored
                seen = True
            self._stop.wait(LOST_REST_S)
        return False
