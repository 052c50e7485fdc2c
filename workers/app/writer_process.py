"""A cluster's writer in a process of its own.

One interpreter runs one thread at a time: writers and an expander in one process take turns with it, and the whole
is as slow as one core. Apart, they share only files, and what kills one of them leaves the other cluster alone.

    python -m workers.app.writer_process HOME CLUSTER LOG_LEVEL [DESCRIPTOR]

It writes one cluster, and sweeps it, until its standard input ends: its parent holds the other end, and may
die in any way. The reason of a failure is on its standard output. What it counts it tells the descriptor, if there is
one.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from feedstore.app import config as configuration
from feedstore.app.tracing import open_tracer
from feedstore.errors import PortError
from feedstore.metering.meter import together
from feedstore.metering.process import ProcessCounts
from workers.app import logs, memory_tuning, wiring
from workers.app.metering import HeardProcess, tell
from workers.following.groups import writer_group
from workers.pipeline.retry import REST_S
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.pipeline.stage import TooManyDeadLettersError
from workers.queue.port import PositionLostError

FAILED, LOST, DEAD_LETTERS = 1, 4, 5
"""Exit codes: any failure, and the two that the parent process answers differently."""

_LOOK_S: Final = 0.1
_END_S: Final = 60.0
"""How long a writer may take to end. One that is killed loses nothing: what it had not committed comes again."""
_SAID_MAX: Final = 4_000
_ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": "500000", "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
"""glibc gives blocks of this size back as soon as they are free: those of a memtable are, and would otherwise lie about
in the heap, 7 MiB of them in each writer. One heap for all threads, as `memory_tuning.share_heap` has it. numpy
multiplies no matrices here.
"""


class ProcessEndedError(Exception):
    """A process of this worker ended by itself; the message says how."""


class WriterProcess:
    """A loop of a worker that is a process: starts it, watches it, ends it.

    lock: a descriptor that the process inherits and holds as long as it lives: that of the home's lock, so that no
    other worker takes the home while a process of this one is still ending. heard: gets what it counts; None: it
    is not asked for.
    """

    rest_s = REST_S

    def __init__(self, home: Path, cluster: str, log_level: str, lock: int, heard: HeardProcess | None = None) -> None:
        self.name = writer_group(cluster)
        self._command = [sys.executable, "-P", "-m", __name__, str(home.resolve()), cluster, log_level]
        self._lock = lock
        self._heard = heard
        self._process: subprocess.Popen[bytes] | None = None

    def step(self) -> bool:
        """Starts it, then looks whether it still runs.

        Raises:
            PositionLostError, TooManyDeadLettersError: as its stage did.
            ProcessEndedError: it ended in any other way.
        """
        if self._process is None:
            self._process = self._started()
        try:
            code = self._process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            return True
        assert self._process.stdout is not None
        said = self._process.stdout.read().decode(errors="replace").strip() or _how(code)
        if code == LOST:
            raise PositionLostError(said)
        if code == DEAD_LETTERS:
            raise TooManyDeadLettersError(said)
        raise ProcessEndedError(said)

    def _started(self) -> "subprocess.Popen[bytes]":
        told = () if self._heard is None else (self._heard.begin(),)
        try:
            return subprocess.Popen(  # noqa: S603 - this interpreter and this module
                [*self._command, *map(str, told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**_ALLOCATOR, **os.environ},
                pass_fds=(self._lock, *told),
            )
        finally:
            for descriptor in told:
                os.close(descriptor)

    def close(self) -> None:
        """Ends it after its current step."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def main() -> int:
    """Runs one cluster's loops in this process; returns the exit code."""
    home, cluster, log_level, *told = sys.argv[1:]
    logs.configure(log_level)
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; who started this one decides
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    try:
        config = configuration.load(Path(home), os.environ)
        tracer = open_tracer(config, "write")
        ports = wiring.open_ports(config, "write", tracer=tracer)
    except PortError as error:
        return _fail(FAILED, str(error))
    memory_tuning.relax()
    logs.name_traces(tracer)
    process = ProcessCounts(writer_group(cluster))
    for descriptor in told:
        what = (int(descriptor), lambda: together([ports.meter.counts(), process.counts()]))
        threading.Thread(target=tell, args=what, daemon=True).start()
    try:
        wiring.refuse_unsafe(ports, config, [cluster])
        worker = Worker(wiring.writing(ports, config, cluster), ports.meter)
        every = worker.running()
        worker.run(lambda: stop.is_set() or worker.running() != every)
    except WorkerFailedError as error:
        codes = {PositionLostError: LOST, TooManyDeadLettersError: DEAD_LETTERS}
        return _fail(codes.get(type(error.causes[0]), FAILED), str(error))
    except PortError as error:
        return _fail(FAILED, str(error))
    finally:
        ports.close()
        tracer.close()
    return 0


def _wait_for_end(stop: threading.Event) -> None:
    # Not through sys.stdin: the interpreter could not end while this waits in it.
    while os.read(0, 1):
        pass
    stop.set()


def _fail(code: int, text: str) -> int:
    sys.stdout.write(text[:_SAID_MAX])
    return code


if __name__ == "__main__":
    sys.exit(main())
