"""Waits for what nothing tells of: it is asked for again and again."""

import time
from collections.abc import Callable


def becomes(done: Callable[[], bool], within_s: float, every_s: float = 0.05) -> bool:
    """Whether it is so, now or within that time. It is asked at least once."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
