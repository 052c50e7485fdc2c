"""How busy this machine's processors are: a recovery on busy ones takes longer, and a report should show it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from deploy.drills.repeating import repeating

EVERY_S = 0.25


class Busy(NamedTuple):
    """share: of all processors' time in the EVERY_S before; 0 to 1. Used by any process, and by other machines of the
    same host too. at_s: of `time.monotonic`.
    """

    at_s: float
    share: float


def mean_share(measured: Sequence[Busy], from_s: float, until_s: float) -> float | None:
    """The mean of the measurements from `from_s` to `until_s`; None if there are none."""
    shares = [each.share for each in measured if from_s < each.at_s <= until_s]
    return sum(shares) / len(shares) if shares else None


@contextmanager
def measuring(measured: list[Busy]) -> Iterator[None]:
    """Adds to the list until the end of the block."""
    import psutil  # noqa: PLC0415 - an extra

    def measure() -> None:
        share = psutil.cpu_percent(EVERY_S) / 100
        measured.append(Busy(time.monotonic(), share))

    with repeating(0.0, measure):
        yield
