"""How busy this machine's processors are: a recovery on busy ones takes longer, and a report should show it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from deploy.drills.repeating import repeating

EVERY_S = 0.25


class Times(NamedTuple):
    """The time of all processors together since the machine started, in seconds of one processor. used: by any process,
    and by other machines of the same host too.
    """

    used_s: float
    idle_s: float


class Busy(NamedTuple):
    """share: of all processors' time, since the measurement before; 0 to 1. at_s: of `time.monotonic`."""

    at_s: float
    share: float


def share(before: Times, after: Times) -> float | None:
    """The share that was used between two moments; None if no time is between them."""
    used_s, idle_s = after.used_s - before.used_s, after.idle_s - before.idle_s
    return None if used_s + idle_s <= 0 else used_s / (used_s + idle_s)


def mean_share(measured: Sequence[Busy], from_s: float, until_s: float) -> float | None:
    """The mean of the measurements from `from_s` to `until_s`; None if there are none."""
    shares = [each.share for each in measured if from_s < each.at_s <= until_s]
    return sum(shares) / len(shares) if shares else None


def times() -> Times:
    import psutil  # noqa: PLC0415 - an extra

    found = psutil.cpu_times()._asdict()
    # The kernel counts what guests take among what users take.
    used_s = sum(seconds for name, seconds in found.items() if name not in {"idle", "iowait", "guest", "guest_nice"})
    return Times(used_s, found["idle"] + found.get("iowait", 0.0))


@contextmanager
def measuring(measured: list[Busy]) -> Iterator[None]:
    """Adds to the list until the end of the block."""
    before = times()

    def measure() -> None:
        nonlocal before
        after = times()
        used = share(before, after)
        if used is not None:
            measured.append(Busy(time.monotonic(), used))
            before = after

    with repeating(EVERY_S, measure):
        yield
