"""A small round of faults: found exactly while actions are recorded, mended though the repair is killed.
`python -m bench.faults` is the whole one.
"""

import math
from pathlib import Path

import pytest

from bench.faults import MAKE, made, rounds


@pytest.mark.processes
def test_faults_of_every_kind_are_found_exactly_and_mended(tmp_path: Path):
    home = made(tmp_path / "home")
    outcome = rounds(home, each=6, users=30, rate=100, seconds=math.inf, kills=1, seed=5, kinds=tuple(MAKE))
    assert outcome.wrong == [], outcome.lines
