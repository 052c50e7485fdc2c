"""Processes that the bench starts: each is stopped when its block ends. Of some the peak memory is known, and some
answer.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

MIB = 1024 * 1024
POLL_S = 0.05
STOP_S = 10.0
BARE = Path(__file__).resolve().parents[1] / "tests" / "bare"
"""Hides a library of the test tools, `rich`, as in `tests/conftest.py`: structlog loads it where it is there, and then
each process takes 5 MiB more than where `feedctl` is installed.
"""


def without_settings() -> None:
    """Forgets variables of the caller's that would override settings of the homes that are measured, here and in all
    processes that are started from here; passwords stay.
    """
    for name in list(os.environ):
        if name.startswith("FEED_") and not name.endswith("_PASSWORD"):
            del os.environ[name]


class ChildError(Exception):
    """A process that the bench started failed, or took longer than it may."""


class Child:
    """A running process in a session of its own, so that Ctrl-C reaches the bench alone, which then stops it.

    peak_bytes: the most memory that it and the processes that it started held together, as far as it was looked at;
    what several hold is divided among them (Linux' proportional set size).
    """

    def __init__(self, args: Sequence[str], log: Path, *, watched: bool) -> None:
        self.args = list(args)
        self.log = log
        self._log = log.open("ab")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            self.args,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(BARE), os.environ.get("PYTHONPATH")]))},
        )
        self.seconds: float | None = None
        self.peak_bytes = 0
        self._watch = threading.Thread(target=self._follow, name="bench-child", daemon=True)
        if watched:
            self._watch.start()

    def _follow(self) -> None:
        while self.process.poll() is None:
            self.peak_bytes = max(self.peak_bytes, sum(map(_memory_bytes, _family(self.process.pid))))
            time.sleep(POLL_S)
        self.seconds = time.perf_counter() - self.started

    def wait(self, timeout_s: float, expect: Sequence[int] = (0,)) -> float:
        """Waits for the end; returns how many seconds the process ran."""
        ended = self.process.poll() is not None
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise ChildError(f"{self._name()}: still running after {timeout_s:.0f} s") from None
        seconds = time.perf_counter() - self.started
        self._end_watch()
        if not ended or self.seconds is None:
            self.seconds = seconds  # the watch looks only now and then
        if status not in expect:
            raise self._ended(status)
        return self.seconds

    def refuse_ended(self) -> None:
        """Raises ChildError if the process has ended: what it should do will not come."""
        status = self.process.poll()
        if status is not None:
            raise self._ended(status)

    def _ended(self, status: int) -> ChildError:
        tail = self.log.read_bytes()[-2_000:].decode(errors="replace").strip()
        return ChildError(f"{self._name()}: exit status {status}\n{tail}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watch.ident is not None:
            self._watch.join()
        self._log.close()

    def _name(self) -> str:
        return " ".join([Path(self.args[0]).name, *self.args[1:]])


@contextmanager
def child(args: Sequence[str], log: Path, *, watched: bool = True) -> Iterator[Child]:
    """watched: whether its peak memory is wanted, which costs this process a look every now and then."""
    running = Child(args, log, watched=watched)
    try:
        yield running
    finally:
        running.stop()


def run(args: Sequence[str], log: Path, timeout_s: float) -> Child:
    """Runs a process to its end; raises ChildError where it fails or takes too long."""
    with child(args, log) as running:
        running.wait(timeout_s)
    return running


class Answering:
    """A running process that answers each line with one of JSON."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path, answer_s: float) -> None:
        self.process = process
        self._log = log
        self._answer_s = answer_s

    def ask(self, line: str) -> dict[str, Any]:
        """Raises ChildError if the process ends before it answers. It is killed if that takes too long."""
        assert self.process.stdin
        assert self.process.stdout
        impatience = threading.Timer(self._answer_s, self.process.kill)
        impatience.start()
        try:
            with suppress(BrokenPipeError):  # reading says the same
                self.process.stdin.write(f"{line}\n")
                self.process.stdin.flush()
            said = self.process.stdout.readline()
        finally:
            impatience.cancel()
        if not said:
            tail = self._log.read_bytes()[-2_000:].decode(errors="replace").strip()
            raise ChildError(f"{self._log.stem}: it ended, or gave no answer within {self._answer_s:.0f} s\n{tail}")
        answer: dict[str, Any] = json.loads(said)
        return answer


@contextmanager
def answering(args: Sequence[str], log: Path, answer_s: float) -> Iterator[Answering]:
    """log: where its errors go. answer_s: how long an answer may take."""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):
        try:
            yield Answering(process, log, answer_s)
        finally:
            assert process.stdin
            with suppress(BrokenPipeError):  # what it did not read is no news
                process.stdin.close()
            try:
                process.wait(STOP_S)
            finally:
                process.kill()


def processor_s(process: psutil.Process) -> float:
    """The processor time of a process, and of those that it has started and that run."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _family(pid: int) -> list[int]:
    """The process, and those that it started."""
    try:
        return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def _memory_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.Error:
        return 0
