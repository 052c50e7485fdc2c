"""The stages of the pipeline, one after the other: each as the process that a deployment runs, and how long it takes
for all the actions.
"""

import time
from collections.abc import Callable, Sequence

from bench.children import child, run
from bench.context import Context
from bench.ours import feedctl, ports
from feedstore.app.config import Config
from workers.following.groups import EXPANDER, writer_group
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of

STAGE_S = 3_600.0
LOOK_S = 0.05


def record(context: Context, config: Config) -> float:
    """Seconds of `feedctl replay`, its start included."""
    log = context.folder("replay") / "log"
    return run(feedctl(config.home, "replay", str(context.actions_file)), log, STAGE_S).seconds or 0.0


def relay(context: Context, config: Config) -> float:
    """Seconds until everything recorded is in the queue."""
    return _until(context, config, ["relay"], lambda opened: opened.follows.backlog().rows)


def expand(context: Context, config: Config) -> float:
    """Seconds until everything in the queue is expanded."""
    return _until(context, config, ["expand"], lambda opened: lag_of(opened.queue, ACTIONS, EXPANDER))


def write(context: Context, config: Config, cluster: str) -> float:
    """Seconds until all deliveries are in one cluster."""
    group = writer_group(cluster)
    return _until(
        context, config, ["write", "--cluster", cluster], lambda opened: lag_of(opened.queue, DELIVERIES, group)
    )


def _until(context: Context, config: Config, words: Sequence[str], left: Callable[[Ports], int]) -> float:
    """Runs a part of the worker until nothing is left for it, its start included."""
    log = context.folder(words[0]) / "log"
    with ports(config) as opened, child(feedctl(config.home, *words), log, watched=False) as running:
        began = time.perf_counter()
        while left(opened):
            running.refuse_ended()
            if time.perf_counter() - began > STAGE_S:
                raise TimeoutError(f"{words[-1]}: not done after {STAGE_S:.0f} s")
            time.sleep(LOOK_S)
        return time.perf_counter() - began
