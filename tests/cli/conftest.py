"""Homes to call feedctl on."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import Cli


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FEED_"):
            monkeypatch.delenv(name)


@pytest.fixture
def empty(tmp_path: Path) -> Cli:
    """A home that is not made yet."""
    return Cli(tmp_path / "home")


@pytest.fixture
def cli(empty: Cli) -> Cli:
    """A home whose watermarks move quickly."""
    empty("init")
    empty.set("tick", '"50ms"')
    return empty


@pytest.fixture
def filled(cli: Cli) -> Cli:
    """User 1 follows user 2 and board 31 of user 3; everything has landed."""
    actions = [
        {"type": "follow", "ts": 1, "follower": 1, "user": 2},
        {"type": "follow", "ts": 2, "follower": 1, "board": 31},
        *({"type": "save_pin", "ts": 1_000 + n, "pin": n, "owner": 2, "board": 20} for n in range(1, 6)),
        {"type": "save_pin", "ts": 1_010, "pin": 6, "owner": 3, "board": 31},
        {"type": "save_pin", "ts": 1_020, "pin": 7, "owner": 3, "board": 30},
    ]
    cli("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))
    cli.work()
    return cli
