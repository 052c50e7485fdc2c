"""Faults in HBase: found exactly while a worker runs and actions come in, and mended though the repair is killed."""

import math
from pathlib import Path

import pytest

from bench.faults import ON_SERVERS, rounds
from deploy.local import Stack
from tests.stack.own_home import own_home

pytestmark = pytest.mark.stack


def test_faults_in_hbase_are_found_exactly_and_mended(stack: Stack, tmp_path: Path):
    with own_home(stack, tmp_path / "home") as cli:
        outcome = rounds(cli.home, each=10, users=40, rate=50, seconds=math.inf, kills=1, seed=6, kinds=ON_SERVERS)
    assert outcome.wrong == [], outcome.lines
