"""Python sleeps until a monotonic time, and libfaketime shifts that as if it were one of the wall clock: a process with
this on its path sleeps for a time instead.
"""

import select
import time


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = _sleep
