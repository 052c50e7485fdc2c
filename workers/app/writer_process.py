"""A cluster's writer in a process of its own.

One interpreter runs one thread at a time: writers and an expander in one process take turns with it, and the whole
is as slow as one core. Apart, they share only files, and what kills one of them leaves the other cluster alone.

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
from workers.app.metering import HeardProcess, tell
from workers.following.groups import writer_group
from workers.pipeline.retry import REST_S
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.pipeline.stage import TooManyDeadLettersError
from workers.queue.port import PositionLostError

_log = structlog.get_logger()

FAILED, LOST, DEAD_LETTERS = 1, 4, 5
"""Exit codes: any failure, and the two that the parent process answers differently."""

_LOOK_S: Final = 0.1
_END_S: Final = 60.0
"""How long writers may take to end, all together. One that is killed loses nothing: what it had not committed comes
again."""
_SAY_S: Final = 2.0
"""How long the end of a writer is waited for before the log says so."""
_SAID_MAX: Final = 4_000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
"""Of prctl(2). A name may have 15 bytes."""
_BEGIN, _BEGIN_COUNTED = b"b", b"c"
"""What a process waits for before it opens a store, and before it tells what it counts."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


class ProcessEndedError(Exception):
    """A process of this worker ended by itself; the message says how."""


class NoProcessError(NotNowError):
    """No process can be started for a writer; the message says what to do."""


class _Pipe(NamedTuple):
    read: int
    write: int


class WriterProcess:
    """A loop of a worker that is a process: watches it. The context that forked it ends it.

    pid: of the process. word: the end of a pipe that the process waits for, and works as long as it is open: this
    process may die in any way. said: the end of one that says why it ended, and is closed when it has. told: what it
    counts.
    """

    rest_s = REST_S

    def __init__(self, cluster: str, pid: int, word: int, said: int, told: int) -> None:
        self.name = writer_group(cluster)
        self.heard: HeardProcess | None = None
        """What it counts, once it began, if it was asked for that."""
        self._pid = pid
        self._word = word
        self._said = said
        self._told = told
        self._begun = False
        self._ended: Exception | None = None

    def begin(self, *, counted: bool) -> None:
        """Lets it open its stores and work, unless it does already. counted: whether it is asked for what it counts."""
        if self._begun:
            return
        self._begun = True
        if counted:
            self.heard = HeardProcess(os.dup(self._told))
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile: `step` says so
            os.write(self._word, _BEGIN_COUNTED if counted else _BEGIN)

    def step(self) -> bool:
        """Looks whether it still runs.

        Raises:
            PositionLostError, TooManyDeadLettersError: as its stage did.
            ProcessEndedError: it ended in any other way.
        """
        if self._runs(_LOOK_S):
            return True
        assert self._ended is not None
        raise self._ended

    def close(self) -> None:
        """It works on: the next run of a worker may watch it."""

    def let_end(self) -> None:
        """Asks it to end after its current step. Returns at once."""
        if self._word != -1:
            os.close(self._word)
            self._word = -1

    def wait(self, end_s: float) -> None:
        """Waits for its end, which it is forced to at `end_s` of `time.monotonic`."""
        if self._runs(min(_SAY_S, _left_s(end_s))):
            _log.info("writer.ending", loop=self.name, within_s=round(_left_s(end_s)))
        if self._runs(_left_s(end_s)):
            _log.warning("writer.killed", loop=self.name, reason="it did not end in time")
            os.kill(self._pid, signal.SIGKILL)
            self._runs(None)
        self.forget()

    def forget(self) -> None:
        """Closes what this process has of it."""
        self.let_end()
        os.close(self._said)
        os.close(self._told)

    def _runs(self, wait_s: float | None) -> bool:
        """wait_s: how long its end is waited for; None: until it has ended."""
        if self._ended is not None:
            return False
        poll = select.poll()
        poll.register(self._said, select.POLLIN)
        if not poll.poll(None if wait_s is None else 1_000 * wait_s):
            return True
        said = b"".join(iter(lambda: os.read(self._said, _SAID_MAX), b"")).decode(errors="replace").strip()
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        kinds = {LOST: PositionLostError, DEAD_LETTERS: TooManyDeadLettersError}
        self._ended = kinds.get(code, ProcessEndedError)(said or _how(code))
        return False


def _left_s(end_s: float) -> float:
    return max(0.0, end_s - time.monotonic())


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


@contextmanager
def forked(config: Config, log_level: str) -> Iterator[Sequence[WriterProcess]]:
    """A process for each cluster, in their order. None opens anything before it is told to begin. They end with this
    context, and with this process.

    They inherit every descriptor: above all that of the home's lock, so that no other worker takes the home while one
    of them is still ending. Call it before there is a second thread, or an open store: a thread's locks would stay as
    they are in the new process for ever, and SQLite must not be carried into it.

    Raises NoProcessError, ConfigError.
    """
    _load(config)
    if (threads := _threads()) > 1:
        names = ", ".join(each.name for each in threading.enumerate())
        raise NoProcessError(
            f"no process for a writer can be forked: {threads} threads run in this one already (of Python: {names}): "
            "unset LD_PRELOAD, which loads libraries that may start some"
        )
    # If it is ignored, which is inherited, the system keeps no process's end, and none can be waited for.
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
    """Signals that end this process come after this context. Between the fork and the first line of the new process
    they would run this process's handlers in both: an error in the new one would lead it into its parent's contexts,
    and it would end its brothers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _threads() -> int:
    """Those of libraries as well, where the system tells: RocksDB keeps its own when all is closed, and a process that
    was forked then would wait for them for ever.
    """
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return threading.active_count()


def _load(config: Config) -> None:
    """Imports what writers import when they first write: once for all of them."""
    for cluster in config.clusters:
        place(config, cluster.name)
    # numpy multiplies no matrices here, and a thread of the library that does would be there before the fork.
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
    """The whole life of the new process. It never returns into the code of its parent, whose contexts are not its."""
    code, why = FAILED, ""
    try:
        for number in _ENDING:  # they are sent to all three by a terminal, systemd or pkill; the parent decides
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        for process in others:  # or they would not see that this one's parent has died
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
    """Runs one cluster's loops in this process; returns the exit code, and why it ended."""
    stop = threading.Event()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what reads the output of the parent sees its end
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
        codes = {PositionLostError: LOST, TooManyDeadLettersError: DEAD_LETTERS}
        return codes.get(type(error.causes[0]), FAILED), str(error)
    except PortError as error:
        return FAILED, str(error)
    return 0, ""


def _die_with(parent: int) -> None:
    """If the parent is killed, this process is, too: one that hangs would keep the home and its cluster's files from
    the next worker, and nothing is lost by it. Linux does that once the *thread* that forked has ended; it is the only
    one of the parent, and so lives as long. Other systems do not: there one that hangs stays.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before that
        os._exit(FAILED)


def _show_as(name: str) -> None:
    """In `top` and `ps -o comm`: its command line is that of its parent. Other systems than Linux show no such name."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def _wait_for_end(word: int, stop: threading.Event) -> None:
    while os.read(word, 1):
        pass
    stop.set()
