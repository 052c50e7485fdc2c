"""Logs: a line of JSON for every event, whatever stands in it."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from workers import logs


class Writes(io.StringIO):
    """Keeps what each call of `write` was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def write(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_an_event_is_a_line_whatever_stands_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    values = ["plain", "line\nbreak", "\udcff", 2**70, Path("x"), {1: 2}, ValueError("no")]
    for value in values:
        structlog.get_logger().info("event.name", value=value)
    structlog.get_logger().debug("event.unseen")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["event.name"] * len(values)
    assert [line["value"] for line in lines[:4]] == values[:4]
    assert {"level", "timestamp"} <= lines[0].keys()


def test_an_event_is_one_write_with_its_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that share a stderr would put their lines into each other's otherwise."""
    stderr = Writes()
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure("info")

    structlog.get_logger().info("loop.started", loop="relay")

    [line] = stderr.seen
    assert line.endswith("}\n")
    assert json.loads(line)["loop"] == "relay"


def test_what_a_terminal_shows_is_taken_away_before_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Writes()
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.configure("warning", clear=lambda: stderr.seen.append("cleared"))

    structlog.get_logger().info("below.the.level")
    structlog.get_logger().warning("queue.unavailable")

    assert [text == "cleared" for text in stderr.seen] == [True, False]
