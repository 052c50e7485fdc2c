"""A few rounds of processes whose clocks are off; `python -m tests.clocks --rounds 100` does many."""

import random
from pathlib import Path

import pytest

from tests.clocks.rounds import DAY_MS, MINUTE_MS, Rounds, library

pytestmark = [
    pytest.mark.processes,
    pytest.mark.long,
    pytest.mark.skipif(library() is None, reason="libfaketime is missing: tests/clocks/install installs it"),
]


@pytest.mark.parametrize(
    ("process", "offset_ms"),
    [("worker", 400 * DAY_MS), ("replay", -MINUTE_MS), ("server", -DAY_MS)],
)
def test_a_process_whose_clock_is_off_is_named_and_harms_nothing(tmp_path: Path, process: str, offset_ms: int) -> None:
    Rounds(tmp_path / "home", random.Random(7), print).run(0, process, offset_ms)
