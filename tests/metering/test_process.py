"""What a process says of itself, against what the kernel says elsewhere."""

import contextlib
import os
import resource
import time
from pathlib import Path

import pytest

from feedstore.metering import metrics
from feedstore.metering.process import ProcessCounts
from tests.cli.command import eventually


def gauges(counts: ProcessCounts) -> dict[str, float]:
    return {each.name: each.value for each in counts.counts().gauges}


def counts_one_more(counts: ProcessCounts) -> bool:
    """Whether an open file is counted."""
    before = gauges(counts)[metrics.OPEN_FILES.name]
    with open(os.devnull, "rb"):  # noqa: PTH123
        return gauges(counts)[metrics.OPEN_FILES.name] == before + 1


def test_it_says_what_the_kernel_says():
    counts = ProcessCounts("tests")
    found = gauges(counts)
    assert {each.labels for each in counts.counts().gauges if each.name != metrics.BUILD.name} == {("tests",)}
    assert found[metrics.RESIDENT.name] > 1_000_000
    assert found[metrics.MAX_FILES.name] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # Threads of earlier tests may end between two looks, and close their files.
    tasks = Path("/proc/self/task")
    eventually(lambda: gauges(counts)[metrics.THREADS.name] == len(list(tasks.iterdir())), "all threads are counted")
    eventually(lambda: counts_one_more(counts), "all files are counted")
    [cpu] = counts.counts().counters
    assert cpu.value > 0
    assert found[metrics.STARTED.name] == pytest.approx(time.time(), abs=86_400)


def test_one_that_may_open_no_more_files_says_so():
    counts = ProcessCounts("tests")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(gauges(counts)[metrics.OPEN_FILES.name])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    filled: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while len(filled) <= most:
                filled.append(os.open(os.devnull, os.O_RDONLY))
        found = gauges(counts)
    finally:
        for each in filled:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found[metrics.OPEN_FILES.name] == found[metrics.MAX_FILES.name] == most
    assert found[metrics.RESIDENT.name] > 0
