"""Takes samples of this process, on a thread of its own."""

import threading
from collections.abc import Callable, Sequence

import structlog

from feedstore.errors import PortError
from feedstore.metering.meter import Counts
from feedstore.metering.plots import EVERY_S, Hour, Plot, Recorder

_log = structlog.get_logger()


class Sampler:
    """Takes samples. Thread-safe. counts: returns the current counts; if it takes long, samples are missing. wall_ms:
    the time.
    """

    def __init__(
        self,
        plots: Sequence[Plot],
        counts: Callable[[], Counts],
        wall_ms: Callable[[], int],
    ) -> None:
        self._recorder = Recorder(plots)
        self._counts = counts
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Makes the thread end after the sample that it is taking; does not wait for it."""
        self._end.set()

    def hour(self) -> Hour:
        with self._lock:
            return self._recorder.hour()

    def take(self) -> None:
        """Takes one sample now."""
        try:
            counts = self._counts()
        except PortError as error:
            _log.info("sample.unavailable", error=str(error))
            return
        except Exception:  # noqa: BLE001  # a fault of ours: if the thread ended, the plots would stop for good
            _log.exception("sample.failed")
            return
        with self._lock:
            self._recorder.take(self._wall_ms(), counts)

    def _run(self) -> None:
        self.take()
        while not self._end.wait(EVERY_S):
            self.take()
