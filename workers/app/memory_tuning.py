"""How the garbage collector and the allocator are set for long work."""

import ctypes
import gc
from contextlib import suppress
from typing import Final

THRESHOLDS = (50_000, 20, 100)
"""Pipelines make values by the million and hardly any cycles: with Python's own thresholds, looking for cycles took 6 %
of the time of a writer and of an expander (py-spy, on the activity trace of docs/benchmarks.md).
"""

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of mallopt(3)."""


def relax() -> None:
    """Looks for cycles more rarely from now on, and not at all among what was made so far."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def share_heap() -> None:
    """All threads take their memory from one heap. Call it before there are threads.

    glibc gives threads heaps of their own, and each keeps what was freed in it: 21 of 107 MiB of a worker on the trace
    of docs/benchmarks.md. Threads of Python wait for the interpreter, and hardly ever for the heap. Other C libraries
    have no such heaps.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
