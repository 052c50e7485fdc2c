"""A home that holds all the actions, loaded as a user loads it: `feedctl init`, `replay`, `work --until-idle`."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from bench import ours
from bench.children import child, run
from bench.context import Context

LOAD_S = 3_600.0


@dataclass(frozen=True)
class Run:
    """seconds: from the start of the replay until nothing is on its way. replay_seconds: of which recording took."""

    home: Path
    seconds: float
    replay_seconds: float
    worker_peak_bytes: int


_latest: list[Run] = []


def home(context: Context) -> Path:
    """The latest loaded home, or one that is loaded now."""
    return (_latest[-1] if _latest else load(context)).home


def load(context: Context) -> Run:
    """Loads a new home and forgets the one before.

    The worker runs in a process next to the replay, as in a deployment. Should it find nothing to do before the replay
    has ended, it is started again.
    """
    if _latest:
        shutil.rmtree(_latest.pop().home, ignore_errors=True)
    place = context.folder("home")
    ours.make_home(place)
    peak = 0
    began = time.perf_counter()
    with child(ours.feedctl(place, "replay", str(context.actions_file)), context.scratch / "replay.log") as replay:
        ended = False
        while not ended:
            ended = replay.process.poll() is not None
            worker = run(ours.feedctl(place, "work", "--until-idle"), context.scratch / "work.log", LOAD_S)
            peak = max(peak, worker.peak_bytes)
        seconds = time.perf_counter() - began
        replay.wait(LOAD_S)
    assert replay.seconds
    _latest.append(Run(place, seconds, replay.seconds, peak))
    return _latest[-1]
