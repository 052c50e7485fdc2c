"""Processes that are named for a Prometheus of their machine."""

import json
import stat
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from feedstore.app.config import DEFAULT, parse
from feedstore.errors import ConfigError
from workers.app import targets


def named(folder: Path | None, address: str, home: str = "/srv/feed") -> AbstractContextManager[None]:
    environ = {} if folder is None else {"FEED_METRICS_TARGETS": str(folder)}
    return targets.named(parse(Path(home), DEFAULT, environ), "relay", address)


def test_a_process_is_named_while_it_runs(tmp_path: Path) -> None:
    with named(tmp_path, "http://127.0.0.1:9464"):
        (path,) = tmp_path.iterdir()
        assert json.loads(path.read_text()) == [
            {"targets": ["127.0.0.1:9464"], "labels": {"home": "/srv/feed", "program": "relay"}}
        ]
    assert list(tmp_path.iterdir()) == []


def test_a_prometheus_of_another_user_may_read_it(tmp_path: Path) -> None:
    with named(tmp_path, "http://127.0.0.1:9464"):
        (path,) = tmp_path.iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_one_that_was_killed_is_named_until_its_successor_begins(tmp_path: Path) -> None:
    with named(tmp_path, "http://127.0.0.1:1"):
        (path,) = tmp_path.iterdir()
        killed = path.with_name(path.name.replace(path.stem.rpartition("-")[2], "999999999"))
        killed.write_text(path.read_text())
    with named(tmp_path, "http://127.0.0.1:2", "/srv/other"):
        assert killed.exists(), "another home's"
    with named(tmp_path, "http://127.0.0.1:3"):
        assert not killed.exists()


def test_without_a_folder_nothing_is_told_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    with named(None, "http://127.0.0.1:1"):
        pass
    with (
        pytest.raises(ConfigError, match=r"metrics\.targets"),
        named(tmp_path / "none", "http://127.0.0.1:1"),
    ):
        pass
