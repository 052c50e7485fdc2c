"""All actions through the whole system on real servers: end to end, and one stage after the other."""

import time
from collections.abc import Mapping

import psutil

from bench.children import MIB, Child, child, processor_s, run
from bench.context import Context
from bench.ours import feedctl, ports, wait_idle
from bench.results import Row
from bench.stack import stages
from bench.stack.servers import Servers, home

TRACE_S = 7_200.0


def measure(servers: Servers, context: Context) -> list[Row]:
    """All actions end to end: the time, what it takes of processors, and the worker's memory"""
    with home(servers, context) as config:
        replay_log, work_log = context.folder("trace") / "log", context.folder("trace") / "log"
        before = servers.processor_seconds()
        began = time.perf_counter()
        with (
            ports(config) as opened,
            child(feedctl(config.home, "work"), work_log) as worker,
            child(feedctl(config.home, "replay", str(context.actions_file)), replay_log, watched=False) as replay,
        ):
            replay_s = _processor_s_to_the_end(replay)
            wait_idle(opened, TRACE_S)
            seconds = time.perf_counter() - began
            processor = {
                "replay": replay_s,
                "work": processor_s(psutil.Process(worker.process.pid)),
                **_servers_s(servers, before),
            }
            # While the worker runs: of one that was ended, ticks may be left in the queue, and look like work.
            run(feedctl(config.home, "verify"), context.folder("verify") / "log", TRACE_S)
    return [
        Row("all actions, from the start of the replay until both clusters hold them", "s", [seconds]),
        Row("end to end", "actions/s", [context.actions_count / seconds]),
        Row("end to end, into each of two clusters", "deliveries/s", [len(context.deliveries) / seconds]),
        Row("worker's peak memory, all its processes", "MiB", [worker.peak_bytes / MIB]),
        Row("processor time of ours, replay and work", "s", [processor["replay"] + processor["work"]]),
        *(Row(f"processor time of {name}", "s", [taken]) for name, taken in processor.items()),
    ]


def measure_stages(servers: Servers, context: Context) -> list[Row]:
    """The time of each stage alone, for all actions"""
    with home(servers, context) as config:
        alone = {
            "replay": stages.record(context, config),
            "relay": stages.relay(context, config),
            "expand": stages.expand(context, config),
            "write a": stages.write(context, config, "a"),
            "write b": stages.write(context, config, "b"),
        }
    return [Row(f"{stage} alone, its start included", "s", [taken]) for stage, taken in alone.items()]


def _processor_s_to_the_end(running: Child) -> float:
    """Waits until a process has ended; its processor time, as far as it was looked at."""
    process = psutil.Process(running.process.pid)
    taken, deadline = 0.0, time.monotonic() + TRACE_S
    while running.process.poll() is None and time.monotonic() < deadline:
        try:
            taken = processor_s(process)
        except psutil.Error:
            break
        time.sleep(0.1)
    running.wait(1.0)
    return taken


def _servers_s(servers: Servers, before: Mapping[str, float]) -> Mapping[str, float]:
    after = servers.processor_seconds()
    return {
        kind: sum(taken - before[name] for name, taken in after.items() if name.startswith(kind))
        for kind in ("hbase", "thrift2", "kafka", "mariadb")
    }
