"""Runs a cluster's writer in a process of its own.

One interpreter runs one thread at a time: writers and an expander in one process take turns, and the whole is as slow
as one core. In separate processes they share only files, and if one is killed, the other clusters are unaffected.

The processes are forked before their worker has opened anything or has a second thread. They share the memory of all
that was imported by then, and take no time to start.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import structlog

from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.tracing import open_tracer
from feedstore.errors import NotNowError, PortError
from feedstore.metering.meter import together
from feedstore.metering.process import ProcessCounts
from workers.app import logs, memory_tuning, wiring
from workers.app.metering import HeardProcess, MetricsEndpoint, tell
from workers.following.groups import writer_group
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.retry import REST_S
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.queue.port import DamagedQueueError, PositionLostError

_log = structlog.get_logger()

FAILED, LOST, DEAD_LETTERS, DAMAGED = 1, 4, 5, 6
"""Exit codes: any failure, and those that the parent process answers differently."""

_LOOK_S: Final = 0.1
_END_S: Final = 60.0
"""How long all writers together may take to end. Killing one loses nothing: messages that it had not committed come
again."""
_SAY_S: Final = 2.0
"""If a writer takes longer than this to end, the log says so."""
_SAID_MAX: Final = 4_000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
"""A constant of prctl(2). A name may have 15 bytes."""
_BEGIN, _BEGIN_COUNTED = b"b", b"c"
"""The words that a process waits for before it opens a store. With the second one it also tells what it counts."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class ProcessEndedError(Exception):
    """A process of this worker has ended by itself; the message says how."""


class NoProcessError(NotNowError):
    """No process can be started for a writer; the message says what to do."""


class _Pipe(NamedTuple):
    read: int
    write: int


class WriterProcess:
    """A loop of a worker that watches a writer's process. The context that forked the process ends it.

    pid: the process's id. word: the end of a pipe by which the process is told to begin; it works as long as the pipe
    is open, so that it ends in whatever way this process dies. said: the end of a pipe by which it says why it ended;
    the pipe is closed once it has. told: the end of the pipe by which it tells what it counts.
    """

    rest_s = REST_S

    def __init__(self, cluster: str, pid: int, word: int, said: int, told: int) -> None:
        self.name = writer_group(cluster)
        self._pid = pid
        self._word = word
        self._said = said
        self._told = told
        self._begun = False
        self._ended: Exception | None = None

    def begin(self, endpoint: MetricsEndpoint | None) -> None:
        """Lets the process open its stores and work, unless it already does. endpoint: serves its counts; None: they
        are not wanted.
        """
        if self._begun:
            return
        self._begun = True
        if endpoint is not None:
            endpoint.hear(HeardProcess(os.dup(self._told)))
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile: `step` says so
            os.write(self._word, _BEGIN if endpoint is None else _BEGIN_COUNTED)

    def step(self) -> bool:
        """Checks whether the process still runs.

        Raises:
            PositionLostError, DamagedQueueError, TooManyDeadLettersError: the process's stage raised it.
            ProcessEndedError: the process ended in any other way.
        """
        if self._runs(_LOOK_S):
            return True
        assert self._ended is not None
        raise self._ended

    def close(self) -> None:
        """Does nothing: the process continues, and the next run of a worker may watch it."""

    def let_end(self) -> None:
        """Asks the process to end after its current step. Returns at once."""
        if self._word != -1:
            os.close(self._word)
            self._word = -1

    def wait(self, end_s: float) -> None:
        """Waits for the process's end, and kills it at `end_s` of `time.monotonic`."""
        if self._runs(min(_SAY_S, _left_s(end_s))):
            _log.info("writer.ending", loop=self.name, within_s=round(_left_s(end_s)))
        if self._runs(_left_s(end_s)):
            _log.warning("writer.killed", loop=self.name, reason="it did not end in time")
            os.kill(self._pid, signal.SIGKILL)
            self._runs(None)
        self.forget()

    def forget(self) -> None:
        """Closes this process's ends of the pipes."""
        self.let_end()
        os.close(self._said)
        os.close(self._told)

    def _runs(self, wait_s: float | None) -> bool:
        """Whether the process runs. wait_s: how long to wait for its end; None: until it has ended."""
        if self._ended is not None:
            return False
        poll = select.poll()
        poll.register(self._said, select.POLLIN)
        if not poll.poll(None if wait_s is None else 1_000 * wait_s):
            return True
        said = b"".join(iter(lambda: os.read(self._said, _SAID_MAX), b"")).decode(errors="replace").strip()
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        kinds = {LOST: PositionLostError, DEAD_LETTERS: TooManyDeadLettersError, DAMAGED: DamagedQueueError}
        self._ended = kinds.get(code, ProcessEndedError)(said or _how(code))
        return False


def _left_s(end_s: float) -> float:
    return max(0.0, end_s - time.monotonic())


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


@contextmanager
def forked(config: Config, log_level: str) -> Iterator[Sequence[WriterProcess]]:
    """Forks a process for each cluster, in the clusters' order. A process opens nothing before it is told to begin. All
    end with this context, and with this process.

    They inherit every descriptor, above all that of the home's lock: no other worker can take the home while one of
    them is still ending. Call it before there is a second thread or an open store: locks that a thread holds would stay
    locked in the new process for ever, and SQLite must not be used across a fork.

    Raises NoProcessError, ConfigError.
    """
    _load(config)
    if (threads := _threads()) > 1:
        names = ", ".join(each.name for each in threading.enumerate())
        raise NoProcessError(
            f"no process for a writer can be forked: {threads} threads run in this one already (of Python: {names}): "
            "unset LD_PRELOAD, which loads libraries that may start some"
        )
    # If this signal is ignored, which is inherited, the system keeps no process's exit, and none can be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    memory_tuning.share_heap()
    memory_tuning.relax()
    processes: list[WriterProcess] = []
    try:
        for cluster in config.clusters:
            with _signals_wait():
                processes.append(_fork(config, cluster.name, log_level, processes))
        yield processes
    finally:
        end_s = time.monotonic() + _END_S
        with ExitStack() as all_of_them:
            for process in processes:
                process.let_end()
                all_of_them.callback(process.wait, end_s)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Delays signals that end this process until the end of this context. Between the fork and the first line of the
    new process they would run this process's handlers in both: an error in the new process would unwind its copy of its
    parent's contexts, which end the other writers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _threads() -> int:
    """The number of threads, with those of libraries if the system tells. RocksDB keeps its threads when everything is
    closed, and a process that is forked then would wait for them for ever.
    """
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return threading.active_count()


def _load(config: Config) -> None:
    """Imports what writers import at their first write, once for all of them."""
    for cluster in config.clusters:
        place(config, cluster.name)
    # numpy multiplies no matrices here, and the library that does that would start a thread before the fork.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import_module("feedstore.widecolumn.arrays")


def _fork(config: Config, cluster: str, log_level: str, others: Sequence[WriterProcess]) -> WriterProcess:
    pipes: list[_Pipe] = []
    try:
        while len(pipes) < 3:
            pipes.append(_Pipe(*os.pipe()))
        parent = os.getpid()
        pid = os.fork()
    except OSError as error:
        for descriptor in (each for pipe in pipes for each in pipe):
            os.close(descriptor)
        raise NoProcessError(
            f"no process for the writer of {cluster}: {error.strerror}: end others, or raise its limit"
        ) from error
    word, said, told = pipes
    if pid == 0:
        _die_with(parent)
        _live(config, cluster, log_level, others, word, said, told)
    for descriptor in (word.read, said.write, told.write):
        os.close(descriptor)
    return WriterProcess(cluster, pid, word.write, said.read, told.read)


def _live(
    config: Config, cluster: str, log_level: str, others: Sequence[WriterProcess], word: _Pipe, said: _Pipe, told: _Pipe
) -> NoReturn:
    """The whole life of the new process. It never returns into its parent's code, whose contexts it must not end."""
    code, why = FAILED, ""
    try:
        for number in _ENDING:  # terminals, systemd or pkill send them to all processes; the parent decides
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        for process in others:  # otherwise they would not notice their parent's death
            process.forget()
        for descriptor in (word.write, said.read, told.read):
            os.close(descriptor)
        code, why = _written(config, cluster, log_level, word.read, told.write)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            os.write(said.write, why.encode()[:_SAID_MAX])
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def _written(config: Config, cluster: str, log_level: str, word: int, told: int) -> tuple[int, str]:
    """Runs one cluster's loops in this process; returns the exit code, and why they ended."""
    stop = threading.Event()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # so that a reader of the parent's output sees its end
        os.dup2(nothing, descriptor)
    os.close(nothing)
    _show_as(writer_group(cluster))
    logs.configure(log_level)
    memory_tuning.return_large_blocks()
    heard = os.read(word, 1)
    if not heard:
        return 0, ""
    threading.Thread(target=_wait_for_end, args=(word, stop), daemon=True).start()
    try:
        with ExitStack() as opened:
            tracer = open_tracer(config, "write")
            opened.callback(tracer.close)
            ports = wiring.open_ports(config, "write", tracer=tracer)
            opened.callback(ports.close)
            memory_tuning.relax()
            logs.name_traces(tracer)
            process = ProcessCounts(writer_group(cluster))
            if heard == _BEGIN_COUNTED:
                what = (told, lambda: together([ports.meter.counts(), process.counts()]))
                threading.Thread(target=tell, args=what, daemon=True).start()
            wiring.refuse_unsafe(ports, config, [cluster])
            worker = Worker(wiring.writing(ports, config, cluster), ports.meter)
            every = worker.running()
            worker.run(lambda: stop.is_set() or worker.running() != every)
    except WorkerFailedError as error:
        codes = {PositionLostError: LOST, TooManyDeadLettersError: DEAD_LETTERS, DamagedQueueError: DAMAGED}
        return codes.get(type(error.causes[0]), FAILED), str(error)
    except PortError as error:
        return FAILED, str(error)
    return 0, ""


def _die_with(parent: int) -> None:
    """Makes the system kill this process if the parent is killed. Otherwise a process that hangs would keep the home
    and its cluster's files from the next worker; killing it loses nothing. Linux does this once the *thread* that
    forked has ended: that is the parent's only thread at that time, and lives as long as the parent. Other systems
    cannot do it: there a process that hangs stays.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent had ended before that
        os._exit(FAILED)


def _show_as(name: str) -> None:
    """Sets this process's name in `top` and `ps -o comm`: its command line is its parent's. Only Linux shows it."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def _wait_for_end(word: int, stop: threading.Event) -> None:
    while os.read(word, 1):
        pass
    stop.set()
