"""Sixteen clients on one board in MySQL, killed in between."""

from pathlib import Path

import mysql_places
import pytest

from bench import board_clients
from bench.board_clients import Load
from bench.mysql_follows import dropped


@pytest.mark.stack
@pytest.mark.usefixtures("mariadb")
@pytest.mark.parametrize("shards", [1, 3])
def test_sixteen_clients_and_a_kill_lose_and_repeat_nothing(tmp_path: Path, shards: int):
    url = mysql_places.url()
    load = Load([], url, str(tmp_path / "log"), shards, clients=16, seconds=4, pins=120)
    try:
        verdict = board_clients.run(load, kills=1)
    finally:
        dropped(board_clients.databases(url, shards))
    print(f"{verdict.per_s:,.0f} drops/s, {verdict.refused} refused, {verdict.crowded} crowded")
    assert verdict.faults == []
    assert verdict.reorders > 0
