"""A look at how far a cluster is, after many holds have passed, and after much that was parked has landed."""

import os
from collections.abc import Callable
from functools import partial

from bench.context import Context
from bench.results import Row, at_most, interleaved, latencies, ratios
from bench.stack.servers import Servers, replica
from bench.timing import each_us
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn.progress import Progress, Through

NAMESPACE = f"bench{os.getpid()}marks"
BEGAN_MS = 1_700_000_000_000
AT_ONCE = 10_000
PARKED_AT_ONCE = 100
"""So many are parked each second."""
RETRIES = 2, 0
"""The topic and partition of what is parked."""
BLOCKS = 10


def measure(servers: Servers, context: Context) -> list[Row]:
    """The watermark of a cluster after many holds, and after many parked deliveries, against one without any"""
    number, calls = context.pick(100_000, 10_000), context.pick(1_000, 100) // BLOCKS
    with (
        replica(servers, NAMESPACE) as held,
        replica(servers, f"{NAMESPACE}parked") as parked,
        replica(servers, f"{NAMESPACE}none") as none,
    ):
        _hold(Progress(held.progress), number)
        context.say(f"{number:,} holds have passed")
        _park(Progress(parked.progress), number)
        context.say(f"{number:,} deliveries were parked and have landed")
        _advance(Progress(none.progress), BEGAN_MS)
        looks = {name: _looks(place, calls) for name, place in (("held", held), ("parked", parked), ("none", none))}
        interleaved(looks, BLOCKS)
        at = latencies(interleaved(looks, context.repeats * BLOCKS), BLOCKS)
    rows: list[Row] = []
    for name, what in (("held", "holds have passed"), ("parked", "parked deliveries have landed")):
        said = f"a watermark, after {number:,} {what}"
        for share, p in at.items():
            rows += [
                Row(f"{said} / without any, {share}", "x", ratios(p[name], p["none"]), at_most(1.5)),
                Row(f"{said}, {share}", "us", p[name]),
            ]
    return rows


def _hold(progress: Progress, holds: int) -> None:
    _advance(progress, BEGAN_MS)
    for start in range(BEGAN_MS, BEGAN_MS + holds, AT_ONCE):
        progress.hold_for_refills((ms, ms + 1) for ms in range(start, start + AT_ONCE))
        _advance(progress, start + AT_ONCE + 1)
    _advance(progress, BEGAN_MS + holds + 2)


def _park(progress: Progress, deliveries: int) -> None:
    """As in an outage of a region: all is parked, and lands when the region is back."""
    _advance(progress, BEGAN_MS)
    for first in range(0, deliveries, PARKED_AT_ONCE):
        now_ms = BEGAN_MS + first * 1_000 // PARKED_AT_ONCE
        progress.park([now_ms + each * 10 for each in range(PARKED_AT_ONCE)], {RETRIES: first + PARKED_AT_ONCE})
        if not first % (PARKED_AT_ONCE * 60):
            _advance(progress, now_ms)
    for end in range(AT_ONCE, deliveries + 1, AT_ONCE):
        progress.note_applied({RETRIES: end})
        _advance(progress, BEGAN_MS + deliveries * 1_000 // PARKED_AT_ONCE + end)


def _advance(progress: Progress, ms: int) -> None:
    progress.advance({Through(0, 1, 1): ms})


def _looks(place: Replica, calls: int) -> Callable[[], list[float]]:
    progress = Progress(place.progress)

    def look(_: int) -> None:
        assert progress.watermark() is not None

    return partial(each_us, look, range(calls))
