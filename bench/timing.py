"""How long calls take."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Given = TypeVar("Given")


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def each_us(
    call: Callable[[Given], object], given: Iterable[Given], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The microseconds of each call. What makes the next argument does not count."""
    times = []
    for each in given:
        began = clock()
        call(each)
        times.append((clock() - began) * 1e6)
    return times
