import io
import json
import sys
from collections.abc import Iterator

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
def _restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


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
