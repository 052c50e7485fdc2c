"""Metrics of a process, from the kernel: its processor time, memory, descriptors and threads."""

import errno
import os
import platform
import resource
import time
import weakref
from pathlib import Path
from typing import Final

from feedstore import __version__
from feedstore.metering import metrics
from feedstore.metering.meter import Counts, Sample

_PAGE_BYTES: Final = resource.getpagesize()


class ProcessCounts:
    """The metrics of this process. name: distinguishes the processes whose metrics one endpoint serves."""

    def __init__(self, name: str) -> None:
        self._labels = (name,)
        self._build = (__version__, platform.python_version())
        # Kept open, so that the metrics work even if the process cannot open any more files.
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._stat = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._statm)
        weakref.finalize(self, os.close, self._stat)
        self._started_s = time.time() - self._age_s()

    def counts(self) -> Counts:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = float("inf") if soft == resource.RLIM_INFINITY else soft
        gauges = {
            metrics.RESIDENT: int(os.pread(self._statm, 200, 0).split()[1]) * _PAGE_BYTES,
            metrics.OPEN_FILES: _open_files(most),
            metrics.MAX_FILES: most,
            metrics.THREADS: int(self._stat_fields()[17]),
            metrics.STARTED: self._started_s,
        }
        return Counts(
            [Sample(metrics.CPU.name, self._labels, used.ru_utime + used.ru_stime)],
            [
                Sample(metrics.BUILD.name, self._build, 1),
                *(Sample(each.name, self._labels, value) for each, value in gauges.items()),
            ],
        )

    def _stat_fields(self) -> list[bytes]:
        """The fields from the third one on. The second, the name of the program in brackets, may have spaces in it."""
        return os.pread(self._stat, 4_000, 0).rpartition(b")")[2].split()

    def _age_s(self) -> float:
        up_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return max(0.0, up_s - int(self._stat_fields()[19]) / os.sysconf("SC_CLK_TCK"))


def _open_files(most: float) -> float:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1  # minus the one that lists them
    except OSError as error:
        if error.errno == errno.EMFILE:  # no descriptor is left to list them with
            return most
        raise
