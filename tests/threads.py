"""Threads that work while a test looks on."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def running(threads: Sequence[threading.Thread], ended: threading.Event) -> Iterator[None]:
    """Runs them until the end of the block, at which `ended` tells them to end, and waits for them."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
