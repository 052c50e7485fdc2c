"""What a drill's picture must be able to show."""

from itertools import combinations, product
from pathlib import Path

import pytest

from deploy.drills import plot
from deploy.drills.recovery_log import Step
from deploy.drills.report import DrillSetting, Figures, Moments, Report
from deploy.drills.samples import CallSample
from tests.effort import FULL

FIGURES = Figures(**dict.fromkeys(Figures.__struct_fields__, 0))
SETTING = DrillSetting("kill-host", "b", "b-host-2", 3, "2026-01-01T00:00:00+00:00", 20, False, 16, 5)
SAMPLES = [
    CallSample("page", 0, 1.0, 0.002, is_done=True, detail="b"),
    CallSample("page", 1, 1.1, 0.5, is_done=False, detail="TryLaterError: no"),
    CallSample("read", 3, 1.0, 0.0, is_done=True),
    CallSample("write", 4, 1.0, 2.0, is_done=False, detail="UnavailableError: away"),
]
STEPS = [Step(f"step {number}, named as long as a process that ends", number * 0.01) for number in range(40)]
MEASURED = [([], []), ([(0.0, 3), (1.0, 0)], []), ([(0.0, 3)], [(0.0, 0.7), (0.25, 1.0)])]
LACKING = list(product(MEASURED, ([], SAMPLES), ([], [*STEPS, Step("not seen", None)])))
"""A picture takes a second. One in five of these has each value once."""


def test_numbers_of_steps_never_stand_on_each_other() -> None:
    steps_s = [0.0, 0.1, 0.1, 0.3, 1.0, 1.05, 5.0]
    levels = plot._levels(steps_s, 0.5)
    for (one_s, one), (other_s, other) in combinations(zip(steps_s, levels, strict=True), 2):
        assert one != other or abs(one_s - other_s) >= 0.5
    assert levels == [0, 1, 2, 3, 0, 1, 0]


@pytest.mark.parametrize(("measured", "samples", "steps"), LACKING[:: 1 if FULL else 5])
def test_whatever_a_run_lacks_it_can_be_drawn(
    tmp_path: Path,
    measured: tuple[list[tuple[float, int]], list[tuple[float, float]]],
    samples: list[CallSample],
    steps: list[Step],
) -> None:
    backlog, processors = measured
    drawn = tmp_path / "drawn.png"
    moments = Moments(-2, 0, 1, 20, 30)
    report = Report(SETTING, FIGURES, [], [], steps=steps, moments=moments, backlog=backlog, processors=processors)
    plot.draw(report, samples, drawn)
    assert drawn.read_bytes().startswith(b"\x89PNG")
