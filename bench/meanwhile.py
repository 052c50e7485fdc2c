"""Something that is done while a block runs."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs it on a thread of its own until the end of the block, when the event is set. Raises what it has raised: what
    was found meanwhile is no result.
    """
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, ended)
        try:
            yield
        finally:
            ended.set()  # also after Ctrl-C: Python waits for this thread before it ends
    working.result()
