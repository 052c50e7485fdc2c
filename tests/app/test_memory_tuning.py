"""How the allocator is set for long work."""

import subprocess
import sys

import pytest

STATISTICS = """
import ctypes, threading
from workers.app import memory_tuning

if {shares}:
    memory_tuning.share_heap()
libc = ctypes.CDLL(None)
barrier = threading.Barrier(4)


def allocate():
    barrier.wait()
    libc.malloc(100_000)
    barrier.wait()


threads = [threading.Thread(target=allocate) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc.malloc_stats()
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
@pytest.mark.parametrize(("shares", "heaps"), [(True, {1}), (False, {2, 3, 4, 5})])
def test_all_threads_take_from_one_heap(shares: bool, heaps: set[int]) -> None:
    command = [sys.executable, "-c", STATISTICS.format(shares=shares)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.count("Arena ") in heaps, done.stderr
