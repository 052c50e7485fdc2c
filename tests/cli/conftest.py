"""Homes to call feedctl on."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.command import Cli
from tests.cli.writer_thread import threads
from workers.app import writer_process


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_environment(monkeypatch)


@pytest.fixture(autouse=True)
def _writers_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that works until all has landed, and that a test runs in its own process, forks none."""
    monkeypatch.setattr(writer_process, "forked", threads)


def _without_environment(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FEED_"):
            patch.delenv(name)
    patch.delenv("NO_COLOR", raising=False)
    patch.setenv("TERM", "xterm")


@pytest.fixture
def empty(tmp_path: Path) -> Cli:
    """A home that is not made yet."""
    return Cli(tmp_path / "home")


@pytest.fixture
def cli(made: Path, empty: Cli) -> Cli:
    """A home whose watermarks move quickly."""
    shutil.copytree(made, empty.home)
    return empty


@pytest.fixture
def filled(worked: Path, empty: Cli) -> Cli:
    """User 1 follows user 2 and board 31 of user 3; everything has landed."""
    shutil.copytree(worked, empty.home)
    return empty


# Homes take processes and seconds to fill, so each is made once and copied.


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of `cli`. Only copied."""
    made = Cli(tmp_path_factory.mktemp("made") / "home")
    with pytest.MonkeyPatch.context() as patch:
        _without_environment(patch)
        made("init")
        made.set("tick", '"50ms"')
    return made.home


@pytest.fixture(scope="session")
def worked(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of `filled`. Only copied."""
    worked = Cli(tmp_path_factory.mktemp("worked") / "home")
    shutil.copytree(made, worked.home)
    actions = [
        {"type": "follow", "ts": 1, "follower": 1, "user": 2},
        {"type": "follow", "ts": 2, "follower": 1, "board": 31},
        *({"type": "save_pin", "ts": 1_000 + n, "pin": n, "owner": 2, "board": 20} for n in range(1, 6)),
        {"type": "save_pin", "ts": 1_010, "pin": 6, "owner": 3, "board": 31},
        {"type": "save_pin", "ts": 1_020, "pin": 7, "owner": 3, "board": 30},
    ]
    with pytest.MonkeyPatch.context() as patch:
        _without_environment(patch)
        worked("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))
        worked.work()
    return worked.home
