"""Keeps the processes of one host running: starts each when the servers that it needs answer, and again when it ends.

It is the first process of a container, so that it also waits for the processes that its children leave behind. Between
events it sleeps.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ASK_S = 0.5
"""How often something is asked whether it answers."""

STOP_S = 15.0
"""How long all processes together may take to end in order, before the engine kills the container."""
_CONNECT_S = 0.3
_STABLE_S = 30.0
_DELAY_MAX_S = 15.0
_ALONE_S = 1.0
_DOUBLINGS_MAX = 30
"""More change no delay that is a tenth of a second at first, and a float takes a thousand of them at most."""
_ENDING = (signal.SIGTERM, signal.SIGINT)
_EVENTS = (signal.SIGCHLD, *_ENDING)


@dataclass(frozen=True)
class SupervisedProcess:
    """One server of a host.

    needs: the places that must accept connections before it is started, each as (host, port).
    needs_some: the same of a group: so many of these places, whichever they are.
    configure: writes its configuration; run before every start.
    prepare: makes the data that it needs; run after that, before every start, so that an interrupted run is made good.
    check: sends the running server a request as its clients will; raises NotReadyError.
    after: a command that is run each time when it has ended; it is not waited for, and must end by itself.
    is_alone: whether no other takes its place when it ends; then it is started again at once.
    """

    name: str
    argv: Sequence[str]
    check: Callable[[], None]
    needs: Sequence[tuple[str, int]] = ()
    needs_some: tuple[int, Sequence[tuple[str, int]]] = (0, ())
    configure: Callable[[], None] = lambda: None
    prepare: Callable[[], None] = lambda: None
    after: Sequence[str] = ()
    is_alone: bool = False


def restart_delay_s(first_s: float, short_lives: int, *, is_alone: bool) -> float:
    """How long a process that ended stays down. The time doubles with each life in a row that did not last.

    first_s: after the first end; recovery must be the cluster's own work for as long as this. short_lives: how many
    lives in a row, this one included, ended before they were stable; 0 for none. is_alone: it comes back sooner,
    because no other takes its place.
    """
    if is_alone:
        first_s = min(_ALONE_S, first_s)
    doublings = min(max(0, short_lives - 1), _DOUBLINGS_MAX)
    return min(first_s * 2.0**doublings, max(first_s, _DELAY_MAX_S))


@dataclass
class _Child:
    process: SupervisedProcess
    due_s: float = 0.0
    pid: int | None = None
    began_s: float = 0.0
    short_lives: int = 0
    lives: int = 0


@dataclass
class Supervisor:
    """Runs the processes until it is asked to end. restart_s: how long one stays down that ended."""

    processes: Sequence[SupervisedProcess]
    restart_s: float
    _children: list[_Child] = field(default_factory=list)
    _is_ending: bool = False

    def run(self) -> None:
        """Returns after SIGTERM or SIGINT, when every process has ended."""
        # The signals are taken out of the queue below: no handler runs, and none is missed between a check and a sleep.
        signal.pthread_sigmask(signal.SIG_BLOCK, _EVENTS)
        self._children = [_Child(process) for process in self.processes]
        while not self._is_ending:
            self._reap()
            self._start_what_is_due()
            self._sleep(self._next_s())
        self._end()

    def _next_s(self) -> float:
        waiting = [child.due_s for child in self._children if child.pid is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else 3_600.0

    def _sleep(self, seconds: float) -> None:
        event = signal.sigtimedwait(_EVENTS, seconds)
        # If this process was suspended until the time was over, Python 3.11 makes up a signal that is none of these.
        self._is_ending = event is not None and event.si_signo in _ENDING

    def _start_what_is_due(self) -> None:
        for child in self._children:
            if child.pid is not None or child.due_s > time.monotonic():
                continue
            if not _is_served(child.process):
                child.due_s = time.monotonic() + ASK_S
                continue
            child.process.configure()
            child.process.prepare()
            child.pid = _spawn(child.process.argv)
            child.began_s = time.monotonic()
            child.lives += 1
            _say(f"{child.process.name}: started, process {child.pid}, life {child.lives}")

    def _reap(self) -> None:
        while (ended := _ended()) is not None:
            pid, status = ended
            child = next((each for each in self._children if each.pid == pid), None)
            if child is None:
                continue  # left behind by a process of ours that ended earlier, or run after one
            now = time.monotonic()
            if child.process.after:
                _spawn(child.process.after)
            child.pid = None
            child.short_lives = child.short_lives + 1 if now - child.began_s < _STABLE_S else 0
            delay = restart_delay_s(self.restart_s, child.short_lives, is_alone=child.process.is_alone)
            child.due_s = now + delay
            code = os.waitstatus_to_exitcode(status)
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            after = "" if self._is_ending else f"; again in {delay:.1f} s"
            _say(f"{child.process.name}: ended {how}{after}")

    def _end(self) -> None:
        """Ends the processes, the last first: a region server can still close its files while the DataNode runs.

        Each has its share of the time that is left: one that does not end leaves the others theirs.
        """
        end_s = time.monotonic() + STOP_S
        for left, child in reversed(list(enumerate(self._children, 1))):
            self._signal(child, signal.SIGTERM)
            deadline = time.monotonic() + (end_s - time.monotonic()) / left
            while child.pid is not None and time.monotonic() < deadline:
                signal.sigtimedwait([signal.SIGCHLD], min(0.5, max(0.0, deadline - time.monotonic())))
                self._reap()
            self._signal(child, signal.SIGKILL)

    @staticmethod
    def _signal(child: _Child, number: signal.Signals) -> None:
        """Signals a child that runs; its process id is not reused before it was waited for."""
        if child.pid is not None:
            os.kill(child.pid, number)


def _spawn(argv: Sequence[str]) -> int:
    """A child must not begin with this process's blocked signals."""
    return os.posix_spawnp(argv[0], list(argv), dict(os.environ), setsigmask=[])


def _ended() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _is_served(process: SupervisedProcess) -> bool:
    """Whether the places that a process needs accept connections."""
    count, group = process.needs_some
    return all(_answers(*need) for need in process.needs) and (
        not count or sum(_answers(*need) for need in group) >= count
    )


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _say(line: str) -> None:
    print(f"supervisor: {line}", file=sys.stderr, flush=True)
