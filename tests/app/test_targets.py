"""Processes that are named for a Prometheus of their machine."""

import json
import stat
from pathlib import Path

import pytest

from feedstore.errors import ConfigError
from workers.app import targets


def test_a_process_is_named_while_it_runs(tmp_path: Path) -> None:
    with targets.named(tmp_path, Path("/srv/feed"), "relay", "http://127.0.0.1:9464"):
        (path,) = tmp_path.iterdir()
        assert json.loads(path.read_text()) == [
            {"targets": ["127.0.0.1:9464"], "labels": {"home": "/srv/feed", "program": "relay"}}
        ]
    assert list(tmp_path.iterdir()) == []


def test_a_prometheus_of_another_user_may_read_it(tmp_path: Path) -> None:
    with targets.named(tmp_path, Path("/srv/feed"), "relay", "http://127.0.0.1:9464"):
        (path,) = tmp_path.iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_one_that_was_killed_is_named_until_its_successor_begins(tmp_path: Path) -> None:
    with targets.named(tmp_path, Path("/srv/feed"), "relay", "http://127.0.0.1:1"):
        (path,) = tmp_path.iterdir()
        killed = path.with_name(path.name.replace(path.stem.rpartition("-")[2], "999999999"))
        killed.write_text(path.read_text())
    with targets.named(tmp_path, Path("/srv/other"), "relay", "http://127.0.0.1:2"):
        assert killed.exists(), "another home's"
    with targets.named(tmp_path, Path("/srv/feed"), "relay", "http://127.0.0.1:3"):
        assert not killed.exists()


def test_without_a_folder_nothing_is_told_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    with targets.named(None, tmp_path, "relay", "http://127.0.0.1:1"):
        pass
    with (
        pytest.raises(ConfigError, match=r"metrics\.targets"),
        targets.named(tmp_path / "none", tmp_path, "relay", "http://127.0.0.1:1"),
    ):
        pass
