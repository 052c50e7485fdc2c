"""A writer as a thread of the process of a test, where `feedctl` has a process for it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from feedstore.app.config import Config
from feedstore.errors import PortError
from workers.app import wiring
from workers.app.metering import MetricsEndpoint
from workers.app.writer_process import ProcessEndedError
from workers.following.groups import writer_group
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.retry import REST_S
from workers.pipeline.runtime import Worker, WorkerFailedError
from workers.queue.port import DamagedQueueError, PositionLostError


class WriterThread:
    """In the place of a `WriterProcess`: the same loops on stores of their own. A process that runs tests has threads,
    and cannot be forked.
    """

    rest_s = REST_S

    def __init__(self, config: Config, cluster: str) -> None:
        self.name = writer_group(cluster)
        self._config = config
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended: BaseException | None = None

    def begin(self, endpoint: MetricsEndpoint | None) -> None:
        assert endpoint is None, "what a thread counts is not told apart: give the test a process"
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name)
            self._thread.start()

    def step(self) -> bool:
        assert self._thread is not None
        self._thread.join(0.1)
        if self._thread.is_alive():
            return True
        raise ProcessEndedError("ended by itself") if self._ended is None else self._ended

    def close(self) -> None:
        pass

    def end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except WorkerFailedError as error:
            known = isinstance(error.causes[0], PositionLostError | DamagedQueueError | TooManyDeadLettersError)
            self._ended = (type(error.causes[0]) if known else ProcessEndedError)(str(error))
        except PortError as error:
            self._ended = ProcessEndedError(str(error))
        except BaseException as error:  # noqa: BLE001 - raised by `step`
            self._ended = error

    def _write(self) -> None:
        with closing(wiring.open_ports(self._config, "write")) as ports:
            wiring.refuse_unsafe(ports, self._config, [self._cluster])
            worker = Worker(wiring.writing(ports, self._config, self._cluster), ports.meter)
            every = worker.running()
            worker.run(lambda: self._stop.is_set() or worker.running() != every)


@contextmanager
def threads(config: Config, _log_level: str) -> Iterator[Sequence[WriterThread]]:
    """In the place of `writer_process.forked`."""
    writers = [WriterThread(config, cluster.name) for cluster in config.clusters]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.end()
