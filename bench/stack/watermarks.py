"""A look at how far a cluster is, after many holds that have passed: each leaves a delete marker for days."""

import os
import time
from collections.abc import Callable

from bench.context import Context
from bench.results import Row, at_most, interleaved, latencies, ratios
from bench.stack.servers import Servers, replica
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn.progress import Progress, Through

NAME = "watermarks"
NAMESPACE = f"bench{os.getpid()}marks"
BEGAN_MS = 1_700_000_000_000
AT_ONCE = 10_000
"""An advance drops no more of them."""
BLOCKS = 10


def measure(servers: Servers, context: Context) -> list[Row]:
    """The watermark of a cluster that many holds have passed through, against one without any"""
    holds, calls = context.pick(100_000, 10_000), context.pick(100, 20) // BLOCKS
    with replica(servers, NAMESPACE) as passed, replica(servers, f"{NAMESPACE}none") as none:
        for place, number in (passed, holds), (none, 0):
            _fill(place, number)
        context.say(f"{NAME}: {holds:,} holds have passed")
        looks = {"passed": _looks(passed, calls), "none": _looks(none, calls)}
        interleaved(looks, BLOCKS)
        at = latencies(interleaved(looks, context.repeats * BLOCKS), BLOCKS)
    what = f"a watermark, after {holds:,} holds"
    return [
        *(
            Row(NAME, f"{what} / without any, {share}", "x", ratios(p["passed"], p["none"]), at_most(1.5))
            for share, p in at.items()
        ),
        *(Row(NAME, f"{what}, {share}", "us", p["passed"]) for share, p in at.items()),
    ]


def _fill(place: Replica, holds: int) -> None:
    progress = Progress(place.progress)
    _advance(progress, BEGAN_MS)
    for start in range(BEGAN_MS, BEGAN_MS + holds, AT_ONCE):
        progress.hold_for_refills((ms, ms + 1) for ms in range(start, start + AT_ONCE))
        _advance(progress, start + AT_ONCE + 1)
    _advance(progress, BEGAN_MS + holds + 2)


def _advance(progress: Progress, ms: int) -> None:
    progress.advance({Through(0, 1, 0, 1): ms})


def _looks(place: Replica, calls: int) -> Callable[[], list[float]]:
    progress = Progress(place.progress)

    def timed() -> list[float]:
        took_us = []
        for _ in range(calls):
            began_ns = time.perf_counter_ns()
            assert progress.watermark() is not None
            took_us.append((time.perf_counter_ns() - began_ns) / 1_000)
        return took_us

    return timed
