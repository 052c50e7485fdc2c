"""Settings of the garbage collector and the allocator for long work."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

THRESHOLDS = (50_000, 20, 100)
"""Pipelines make millions of values and hardly any cycles: with Python's own thresholds, the search for cycles took 6 %
of the time of a writer and of an expander (py-spy, on the activity trace of docs/benchmarks.md).
"""

_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3
"""M_ARENA_MAX and M_MMAP_THRESHOLD of mallopt(3)."""
_LARGE_BYTES: Final = 500_000


@contextmanager
def loading() -> Iterator[None]:
    """Until the end of the block, no garbage is looked for: modules that are loaded stay, and the search took 7 % of
    the start of `feedctl status`.
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
    """From now on cycles are looked for more rarely, and never among the objects that exist already."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def share_heap() -> None:
    """Makes all threads take their memory from one heap. Call it before there are threads.

    glibc gives threads heaps of their own, and each keeps the memory that was freed in it: 21 of 107 MiB of a worker on
    the trace of docs/benchmarks.md. Threads of Python wait for the interpreter, and hardly ever for the heap. Other C
    libraries have no such heaps.
    """
    _set(_ARENA_MAX, 1)


def return_large_blocks() -> None:
    """Makes blocks of half a megabyte and more go back to the system as soon as they are free. The blocks of a memtable
    are of that size, and 7 MiB of them would otherwise stay in the heap of a writer.
    """
    _set(_MMAP_THRESHOLD, _LARGE_BYTES)


def _set(what: int, value: int) -> None:
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(what, value)
