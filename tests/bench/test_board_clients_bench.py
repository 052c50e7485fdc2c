"""Clients that drag pins of one board at the same time, killed in between."""

from pathlib import Path

import pytest

from bench import board_clients
from bench.board_clients import Load

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("shards", [1, 3])
def test_sixteen_clients_and_a_kill_lose_and_repeat_nothing(tmp_path: Path, shards: int):
    paths = [str(tmp_path / f"follows-{number}.db") for number in range(shards)]
    load = Load(paths, None, str(tmp_path / "log"), shards, clients=16, seconds=1.5, pins=120)
    verdict = board_clients.run(load, kills=1)
    assert verdict.faults == []
    assert verdict.reorders > 0
