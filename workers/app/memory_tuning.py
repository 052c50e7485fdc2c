"""How the garbage collector and the allocator are set for long work."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

THRESHOLDS = (50_000, 20, 100)
"""Pipelines make values by the million and hardly any cycles: with Python's own thresholds, looking for cycles took 6 %
of the time of a writer and of an expander (py-spy, on the activity trace of docs/benchmarks.md).
"""

_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3
"""M_ARENA_MAX and M_MMAP_THRESHOLD of mallopt(3)."""
_LARGE_BYTES: Final = 500_000


@contextmanager
def loading() -> Iterator[None]:
    """What is loaded meanwhile stays: looking for garbage in it took 7 % of the time in which `feedctl status`
    starts.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


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
    _set(_ARENA_MAX, 1)


def return_large_blocks() -> None:
    """Blocks of half a megabyte and more go back to the system as soon as they are free: those of a memtable are, and
    would otherwise lie about in the heap of a writer, 7 MiB of them.
    """
    _set(_MMAP_THRESHOLD, _LARGE_BYTES)


def _set(what: int, value: int) -> None:
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(what, value)
