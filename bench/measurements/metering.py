"""What counting costs: the same recorded actions through all stages, with meters and without."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

from bench import ours
from bench.children import run
from bench.context import Context
from bench.results import Row, at_most, interleaved, ratios
from feedstore.app import config as configuration
from feedstore.app.config import FILE_NAME
from feedstore.metering import UNCOUNTED
from workers.app import until, wiring

RECORD_S = 1_200.0


def measure(context: Context) -> list[Row]:
    """Processor time of a worker that counts, against one that does not"""
    recorded = context.folder("recorded")
    ours.make_home(recorded)
    some = context.folder("some") / "actions.jsonl"
    with context.actions_file.open("rb") as lines, some.open("wb") as file:
        file.writelines(islice(lines, context.pick(100_000, 1_000)))
    run(ours.feedctl(recorded, "replay", str(some)), context.scratch / "replay.log", RECORD_S)

    def side(wired: Callable[[], Any]) -> Callable[[], float]:
        def work() -> float:
            home = context.folder("worked")
            shutil.copytree(recorded, home, dirs_exist_ok=True)
            with wired():
                seconds = _worked_s(home)
            shutil.rmtree(home)
            context.say(f"{seconds:.2f} s of processor time")
            return seconds

        return work

    samples = interleaved({"counted": side(_as_it_is), "uncounted": side(_uncounted)}, context.repeats)
    return [
        Row(
            "all stages in one process, with meters / without, processor time",
            "x",
            ratios(samples["counted"], samples["uncounted"]),
            at_most(1.02),
        ),
        Row("all stages in one process, with meters, processor time", "s", samples["counted"]),
    ]


def _worked_s(home: Path) -> float:
    """The processor time in which everything that was recorded lands in both clusters."""
    config = configuration.load(home, {})
    with closing(wiring.open_ports(config, "write", alone=True)) as ports:
        landed = until.Idle(ports, config, lambda: ports.replicas)
        began = time.process_time()
        wiring.worker(ports, config).run(landed)
        taken = time.process_time() - began
    assert landed.yes, f"{home / FILE_NAME}: not everything has landed"
    return taken


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _uncounted() -> Iterator[None]:
    """As a home would be wired without metrics: nothing counts, and nothing is between a stage and its ports."""
    with (
        mock.patch.object(wiring, "Counting", return_value=UNCOUNTED),
        mock.patch.object(wiring, "MeteredQueue", lambda queue, *_: queue),
        mock.patch.object(wiring, "Metered", lambda table, *_: table),
    ):
        yield
