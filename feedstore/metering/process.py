"""A process: its processor time, memory, descriptors and threads, as the kernel says."""

import os
import platform
import resource
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from feedstore.metering import metrics
from feedstore.metering.meter import Counts, Sample

_PAGE_BYTES: Final = resource.getpagesize()


def program_version() -> str:
    """`unknown` for code that was not installed."""
    try:
        return version("feedstore")
    except PackageNotFoundError:
        return "unknown"


class ProcessCounts:
    """What this process says of itself. name: of the process, among those of one endpoint."""

    def __init__(self, name: str) -> None:
        self._labels = (name,)
        self._build = (program_version(), platform.python_version())
        self._started_s = time.time() - _age_s()

    def counts(self) -> Counts:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        gauges = {
            metrics.RESIDENT: int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES,
            metrics.OPEN_FILES: sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1,  # the one that lists them
            metrics.MAX_FILES: float("inf") if soft == resource.RLIM_INFINITY else soft,
            metrics.THREADS: sum(1 for _ in Path("/proc/self/task").iterdir()),
            metrics.STARTED: self._started_s,
        }
        return Counts(
            [Sample(metrics.CPU.name, self._labels, used.ru_utime + used.ru_stime)],
            [
                Sample(metrics.BUILD.name, self._build, 1),
                *(Sample(each.name, self._labels, value) for each, value in gauges.items()),
            ],
        )


def _age_s() -> float:
    """How long ago this process began. The name of its program, in brackets, may hold spaces."""
    began = int(Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19])
    up_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return max(0.0, up_s - began / os.sysconf("SC_CLK_TCK"))
