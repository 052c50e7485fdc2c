"""A writer as a thread of the process of a test, where `feedctl` has a process for it."""

import os
import threading
from contextlib import closing
from pathlib import Path

from feedstore.app import config as configuration
from feedstore.errors import PortError
from workers.app import wiring
from workers.app.metering import HeardProcess
from workers.app.writer_process import ProcessEndedError
from workers.following.groups import writer_group
from workers.pipeline.retry import REST_S
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.pipeline.stage import TooManyDeadLettersError
from workers.queue.port import PositionLostError


class WriterThread:
    """In the place of a `WriterProcess`: the same loops on stores of their own, without the third of a second that a
    process takes to start.
    """

    rest_s = REST_S

    def __init__(
        self, home: Path, cluster: str, _log_level: str, _lock: int, heard: HeardProcess | None = None
    ) -> None:
        assert heard is None, "what a thread counts is not told apart: give the test the marker `processes`"
        self.name = writer_group(cluster)
        self._home = home
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended: BaseException | None = None

    def step(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name)
            self._thread.start()
        self._thread.join(0.1)
        if self._thread.is_alive():
            return True
        raise ProcessEndedError("ended by itself") if self._ended is None else self._ended

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except WorkerFailedError as error:
            known = isinstance(error.causes[0], PositionLostError | TooManyDeadLettersError)
            self._ended = (type(error.causes[0]) if known else ProcessEndedError)(str(error))
        except PortError as error:
            self._ended = ProcessEndedError(str(error))
        except BaseException as error:  # noqa: BLE001 - raised by `step`
            self._ended = error

    def _write(self) -> None:
        config = configuration.load(self._home, os.environ)
        with closing(wiring.open_ports(config, "write")) as ports:
            wiring.refuse_unsafe(ports, config, [self._cluster])
            worker = Worker(wiring.writing(ports, config, self._cluster), ports.meter)
            every = worker.running()
            worker.run(lambda: self._stop.is_set() or worker.running() != every)
