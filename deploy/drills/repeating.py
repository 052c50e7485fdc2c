"""Something that is done during a drill, again and again."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LEAVE_S = 1.0


@contextmanager
def repeating(every_s: float, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` so often until the end of the block. It may hang, and is then not waited for; it must not raise."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(every_s):
            act()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LEAVE_S)
