"""Serves the counts of all processes of one worker as one."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import structlog

from feedstore.app.config import Config
from feedstore.errors import ConfigError, needing_extra
from feedstore.metering import Counting, Counts
from feedstore.metering.meter import together
from feedstore.metering.process import ProcessCounts
from workers.app import targets

_log = structlog.get_logger()

TELL_EVERY_S: Final = 1.0
"""How often a process tells its parent what it has counted."""
SILENT_S: Final = 5.0
"""If a process has told nothing for this long, its gauges are unknown: it hangs, or was suspended."""
_LINE_MAX: Final = 50_000_000


class HeardProcess:
    """The counts of another process, heard over a pipe until that process ends. descriptor: this end of the pipe, which
    this closes; `tell` has the other end.
    """

    def __init__(self, descriptor: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = Counts()
        self._heard_s = clock()
        self._ended = False
        threading.Thread(target=self._listen, args=(descriptor,), name="heard", daemon=True).start()

    def _listen(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as lines:
            while (line := lines.readline(_LINE_MAX)).endswith(b"\n"):
                self._counts = msgspec.json.decode(line, type=Counts)
                self._heard_s = self._clock()
        self._ended = True

    def counts(self) -> Counts:
        """The process's counts. Counters stay true; gauges are unknown if it has ended, or is silent."""
        silent = self._ended or self._clock() - self._heard_s > SILENT_S
        return self._counts.without_gauges() if silent else self._counts


def tell(descriptor: int, counts: Callable[[], Counts]) -> None:
    """Tells the other end of a pipe what is counted, until that end is closed."""
    with contextlib.suppress(OSError):
        while True:
            line = msgspec.json.encode(counts()) + b"\n"
            while line:
                line = line[os.write(descriptor, line) :]
            time.sleep(TELL_EVERY_S)


class MetricsEndpoint:
    """The metrics of one worker. program: the name of its processes. counting: the counts of this process, if any."""

    def __init__(self, counting: Counting | None, program: str) -> None:
        self._counting = counting
        self._process = ProcessCounts(program)
        self._heard: list[HeardProcess] = []

    @contextlib.contextmanager
    def of(self, counting: Counting) -> Iterator[None]:
        """Serves these counts as this process's own until the end of the block."""
        self._counting = counting
        try:
            yield
        finally:
            self._counting = None

    def hear(self, heard: HeardProcess) -> None:
        """Adds the counts of another process of the worker."""
        self._heard.append(heard)

    def counts(self) -> Counts:
        counting = self._counting
        own = [] if counting is None else [counting.counts()]
        return together([*own, self._process.counts(), *(each.counts() for each in self._heard)])


@contextlib.contextmanager
def serving(config: Config, at: str | None, program: str) -> Iterator[MetricsEndpoint | None]:
    """Serves the metrics of a worker until the end of the block: all counts that the endpoint is given. at: HOST:PORT;
    None: as configured, or nowhere. Call it before any work, but after processes were forked, because it starts a
    thread.

    Raises ConfigError: it cannot listen there, or the library is missing.
    """
    address = at or config.metrics.listen
    if address is None:
        yield None
        return
    key = "--metrics" if at else f"{config.sources.blamed('metrics.listen')}: metrics.listen"
    with needing_extra("to serve metrics", "metrics"):
        from feedstore.metering import exposition, server  # noqa: PLC0415 - its library is an extra
        from workers.app.metrics import ALL  # noqa: PLC0415 - only what serves them loads all
    try:
        listener = server.listen(address)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
    endpoint = MetricsEndpoint(None, program)
    served = server.MetricsServer(
        listener, lambda: exposition.text(endpoint.counts(), ALL), exposition.MEDIA_TYPE, time.monotonic
    )
    with contextlib.closing(served):
        served.start()
        _log.info("metrics.served", address=f"{served.address}/metrics")
        with targets.named(config, program, served.address):
            yield endpoint
