"""A pin with a million followers into two HBase clusters: how long, and what memory the worker needs."""

from bench import ours
from bench.children import MIB, run
from bench.context import Context
from bench.measurements.fanout import FIRST_FOLLOWER, FLAT, check, index_followers
from bench.results import Row, at_most, ratios
from bench.stack.servers import Servers, home
from feedstore.app.wiring import wall_ms
from feedstore.domain import Pin, SavePin
from feedstore.follows.port import Request

NAME = "fanout"
WORK_S = 600.0


def measure(servers: Servers, context: Context) -> list[Row]:
    """A pin with 1,000,000 followers into both clusters, and the worker's memory from 1,000 followers on"""
    sizes = (1_000, 100_000, 1_000_000) if not context.quick else (100, 1_000, 10_000)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    peaks: dict[int, list[float]] = {size: [] for size in sizes}
    with home(servers, context) as config:
        with ours.ports(config) as opened:
            for owner, size in enumerate(sizes, start=1):
                index_followers(opened.follows, owner, size)
                context.say(f"{NAME}: {size:,} followers")
        pin = 0
        for _ in range(context.repeats):
            for owner, size in enumerate(sizes, start=1):
                pin += 1
                saved = Pin(pin, owner, owner, wall_ms())
                with ours.ports(config) as opened:
                    opened.follows.record([Request(SavePin(saved))])
                # A process of its own each time: its peak is that of this pin alone.
                log = context.folder("fanout") / "log"
                worker = run(ours.feedctl(config.home, "work", "--until-idle"), log, WORK_S)
                assert worker.seconds
                seconds[size].append(worker.seconds)
                peaks[size].append(worker.peak_bytes / MIB)
                context.say(f"{NAME}: {size:,}: {worker.seconds:.1f} s, {worker.peak_bytes / MIB:.0f} MiB")
                check(config, saved, FIRST_FOLLOWER + size - 1)
    least, most = sizes[0], sizes[-1]
    return [
        Row(
            NAME,
            f"a pin with {most:,} followers, into both clusters, start of the worker included",
            "s",
            seconds[most],
            at_most(60),
        ),
        Row(NAME, f"worker's peak memory, {most:,} followers", "MiB", peaks[most], at_most(200)),
        Row(
            NAME,
            f"worker's peak memory, {most:,} followers / {least:,} followers",
            "x",
            ratios(peaks[most], peaks[least]),
            at_most(FLAT),
        ),
        *(Row(NAME, f"a pin with {size:,} followers, into both clusters", "s", seconds[size]) for size in sizes[:-1]),
        *(Row(NAME, f"worker's peak memory, {size:,} followers", "MiB", peaks[size]) for size in sizes[:-1]),
    ]
