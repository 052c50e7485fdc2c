"""All actions through the whole system on real servers: end to end, and one stage after the other."""

import time

from bench.children import MIB, child, run
from bench.context import Context
from bench.ours import feedctl, ports, wait_idle
from bench.results import Row
from bench.stack import stages
from bench.stack.servers import Servers, home

NAME = "trace"
TRACE_S = 7_200.0
RUNS = 1
"""Minutes each: the samples are one a run, and the rows of the stages say where the time goes."""


def measure(servers: Servers, context: Context) -> list[Row]:
    """All actions end to end, and the time of each stage alone"""
    seconds: list[float] = []
    peaks: list[float] = []
    by_stage: dict[str, list[float]] = {"replay": [], "relay": [], "expand": [], "write a": [], "write b": []}
    for _ in range(RUNS):
        with home(servers, context) as config:
            replay_log, work_log = context.folder("trace") / "log", context.folder("trace") / "log"
            began = time.perf_counter()
            with (
                ports(config) as opened,
                child(feedctl(config.home, "work"), work_log) as worker,
                child(feedctl(config.home, "replay", str(context.actions_file)), replay_log, watched=False) as replay,
            ):
                replay.wait(TRACE_S)
                wait_idle(opened, TRACE_S)
                seconds.append(time.perf_counter() - began)
                peaks.append(worker.peak_bytes / MIB)
            run(feedctl(config.home, "verify"), context.folder("verify") / "log", TRACE_S)
        with home(servers, context) as config:
            by_stage["replay"].append(stages.record(context, config))
            by_stage["relay"].append(stages.relay(context, config))
            by_stage["expand"].append(stages.expand(context, config))
            by_stage["write a"].append(stages.write(context, config, "a"))
            by_stage["write b"].append(stages.write(context, config, "b"))
    count = context.actions_count
    deliveries = len(context.deliveries)
    return [
        Row(NAME, "all actions, from the start of the replay until both clusters hold them", "s", seconds),
        Row(NAME, "end to end", "actions/s", [count / each for each in seconds]),
        Row(NAME, "end to end, into each of two clusters", "deliveries/s", [deliveries / each for each in seconds]),
        Row(NAME, "worker's peak memory, all its processes", "MiB", peaks),
        *(Row(NAME, f"{stage} alone, its start included", "s", taken) for stage, taken in by_stage.items()),
    ]
