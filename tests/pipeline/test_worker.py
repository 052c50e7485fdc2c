"""The runtime: loops in threads, what stops them, and what does not."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from feedstore.errors import NotNowError
from feedstore.metering import Counting
from workers.pipeline import metrics, runtime
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.queue.port import DamagedQueueError, PositionLostError


class Loop:
    def __init__(self, name: str, step: Callable[[], bool] = lambda: False, rest_s: float = 0.001) -> None:
        self.name = name
        self.rest_s = rest_s
        self.steps = 0
        self.closed = threading.Event()
        self._step = step

    def step(self) -> bool:
        self.steps += 1
        return self._step()

    def close(self) -> None:
        self.closed.set()


def raising(error: Exception) -> Callable[[], bool]:
    def step() -> bool:
        raise error

    return step


def test_every_loop_runs_until_it_is_told_to_stop() -> None:
    loops = [Loop("one"), Loop("two")]
    worker = Worker(loops)

    worker.run(until=lambda: all(loop.steps > 3 for loop in loops))

    assert all(loop.closed.is_set() for loop in loops)


def test_stop_ends_a_run_from_another_thread() -> None:
    loop = Loop("one", lambda: True)
    worker = Worker([loop])
    thread = threading.Thread(target=worker.run)
    thread.start()

    worker.stop()
    thread.join(30)

    assert not thread.is_alive()
    assert loop.closed.is_set()


def test_a_loop_that_rests_long_keeps_nobody_from_ending() -> None:
    loop = Loop("one", rest_s=3_600)
    worker = Worker([loop])

    worker.run(until=lambda: loop.steps > 0)

    assert loop.steps == 1
    assert loop.closed.is_set()


def test_loops_that_take_long_to_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told, said = threading.Event(), []

    class Log:
        bind = staticmethod(structlog.get_logger().bind)

        def info(self, event: str, **about: Any) -> None:
            said.append((event, about))
            told.set()

    monkeypatch.setattr(runtime, "_log", Log())
    monkeypatch.setattr(runtime, "SAY_S", 0.0)
    waiting = threading.Event()

    def step() -> bool:
        waiting.set()
        return not told.wait(60)

    Worker([Loop("waits", step)]).run(waiting.is_set)

    assert said == [("loops.ending", {"loops": ["waits"]})]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), TooManyDeadLettersError("too many")])
def test_an_error_stops_everything(error: Exception) -> None:
    other = Loop("other")
    worker = Worker([Loop("bad", raising(error)), other])

    with pytest.raises(WorkerFailedError, match=str(error)):
        worker.run()

    assert other.closed.is_set()


@pytest.mark.parametrize("error", [PositionLostError, DamagedQueueError])
def test_rule_12_a_lost_position_or_a_damaged_queue_stops_its_loop_alone(error: type[Exception]) -> None:
    lost = Loop("writer-b", raising(error("cluster b lost deliveries: rebuild it")))
    other = Loop("writer-a")
    worker = Worker([lost, other])

    def until() -> bool:
        return lost.closed.is_set() and worker.running() == {"writer-a"} and other.steps > 50

    with pytest.raises(WorkerFailedError, match="cluster b lost deliveries"):
        worker.run(until)
    assert lost.steps == 1


def _after(error: Exception) -> Callable[[], bool]:
    """A step that raises at first, and works from then on."""
    left = [error]

    def step() -> bool:
        if left:
            raise left.pop()
        return False

    return step


def _said(*answers: bool | Exception) -> Callable[[], bool]:
    """Says one thing after the other, and the last one again and again."""
    left = list(answers)

    def are_lost() -> bool:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return are_lost


def test_a_loop_continues_once_somebody_has_restored_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOST_REST_S", 0.0)
    loop = Loop("expander", _after(PositionLostError("actions were lost")))
    meter = Counting(lambda: 0.0)
    is_lost = _said(NotNowError("away"), True, NotNowError("away"), True, False)

    Worker([loop], meter, are_lost={"expander": is_lost}).run(lambda: loop.steps > 3)

    assert loop.closed.is_set(), "it has left its group, which is not moved while it is read"


def test_a_loop_that_was_paused_while_its_position_was_lost_is_in_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOST_REST_S", 0.0)
    loop = Loop("expander", _after(PositionLostError("actions were lost")))
    rests: list[bool] = []

    def is_lost() -> bool:
        worker.pause(["expander"])
        return next(answers)

    def until() -> bool:
        if loop.closed.is_set() and "expander" in worker.running():
            rests.append(worker.pause(["expander"]))
        return bool(rests)

    answers = iter((True, False))
    worker = Worker([loop], are_lost={"expander": is_lost})
    worker.run(until)

    assert rests == [True]
    assert loop.steps == 1


def test_a_loop_that_waits_for_its_position_counts_as_ended() -> None:
    meter = Counting(lambda: 0.0)
    loop = Loop("expander", raising(PositionLostError("actions were lost")))
    worker = Worker([loop], meter, are_lost={"expander": lambda: True})

    def until() -> bool:
        running = [each.value for each in meter.counts().gauges if each.name == metrics.LOOP_RUNNING.name]
        return loop.closed.is_set() and not worker.running() and running == [0]

    with pytest.raises(WorkerFailedError, match="actions were lost"):
        worker.run(until)
    assert loop.steps == 1


def test_a_loop_of_which_nothing_says_that_its_position_is_lost_does_not_continue() -> None:
    """Its own consumer says so, and it would not show when the position is restored."""
    loop = Loop("expander", _after(PositionLostError("made again")))
    worker = Worker([loop, Loop("other")], are_lost={"expander": lambda: False})

    with pytest.raises(WorkerFailedError, match="made again"):
        worker.run(lambda: loop.closed.is_set() and all(not each.is_alive() for each in _threads("expander")))
    assert loop.steps == 1


def _threads(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def test_an_error_of_whoever_asks_ends_every_loop() -> None:
    loop = Loop("one")

    with pytest.raises(ZeroDivisionError):
        Worker([loop]).run(until=lambda: 1 // 0 == 0)
    assert loop.closed.is_set()


def test_a_thread_that_cannot_start_ends_every_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = [Loop("one"), Loop("two"), Loop("three")]
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "two":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)

    with pytest.raises(WorkerFailedError, match="can't start new thread"):
        Worker(loops).run()
    assert all(loop.closed.is_set() for loop in loops)


def test_a_loop_that_ends_by_itself_is_counted_and_one_that_is_told_to_is_not() -> None:
    meter = Counting(lambda: 0.0)

    def running() -> dict[tuple[str, ...], float]:
        return {each.labels: each.value for each in meter.counts().gauges if each.name == metrics.LOOP_RUNNING.name}

    lost, other = Loop("lost", raising(PositionLostError("gone"))), Loop("other")
    seen: list[dict[tuple[str, ...], float]] = []

    def until() -> bool:
        seen.append(running())
        return seen[-1] == {("lost",): 0, ("other",): 1}

    with pytest.raises(WorkerFailedError):
        Worker([lost, other], meter).run(until)
    assert running() == {("lost",): 0}


def test_a_loop_that_hangs_is_seen_by_the_age_of_its_step() -> None:
    now_s = [10.0]
    meter = Counting(lambda: now_s[0])
    stepping, release = threading.Event(), threading.Event()

    def step() -> bool:
        stepping.set()
        release.wait(30)
        return False

    def age() -> float:
        return max(each.value for each in meter.counts().gauges if each.name == metrics.LOOP_STEP_AGE.name)

    worker = Worker([Loop("one", step)], meter, lambda: now_s[0])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert stepping.wait(30)
    now_s[0] += 500
    assert age() == 500
    worker.stop()
    release.set()
    thread.join(30)
    assert not [each for each in meter.counts().gauges if each.name == metrics.LOOP_STEP_AGE.name]


def test_a_loop_that_is_paused_takes_no_step_until_it_is_resumed() -> None:
    in_step, may_end = threading.Event(), threading.Event()

    def step() -> bool:
        in_step.set()
        return may_end.wait(60)

    paused, other = Loop("paused", step, rest_s=0.0), Loop("other")
    worker = Worker([paused, other])
    seen: list[tuple[int, int]] = []

    def until() -> bool:
        if not in_step.is_set():
            return False
        if not may_end.is_set():
            assert not worker.pause(["paused"]), "it is in a step"
            may_end.set()
        elif worker.pause(["paused"]):
            seen.append((paused.steps, other.steps))
        return len(seen) > 3

    worker.run(until)
    assert {steps for steps, _ in seen} == {seen[0][0]}
    assert seen[0][1] < seen[-1][1]


def test_a_loop_continues_once_it_is_resumed_and_counts_as_paused_while_it_rests_or_has_ended() -> None:
    rests, ends = Loop("rests", rest_s=0.001), Loop("ends", raising(PositionLostError("ends: lost")))
    worker = Worker([rests, ends])
    steps: list[int] = []

    def until() -> bool:
        if "ends" in worker.running() or not worker.pause(["rests", "ends"]):
            return False
        steps.append(rests.steps)
        worker.resume(["rests", "ends"])
        return rests.steps > steps[0]

    with pytest.raises(WorkerFailedError):
        worker.run(until)
    assert rests.steps > steps[0]
