"""Logs: a line of JSON for every event, whatever stands in it, in writes of whole lines."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from workers import logs
from workers.logs import TOGETHER_S, WAITING_MAX, WRITE_CHARS_MAX, Lines


class Writes(io.StringIO):
    """Keeps what each call of `write` was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def write(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


def stderr_of(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """To be called by the test itself: pytest sets its own stderr when a test begins."""
    stderr = Writes()
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr


class Time:
    """A clock, and what is to be called later."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.calls: list[Callable[[], None]] = []

    def later(self, after_s: float, call: Callable[[], None]) -> None:
        assert after_s == TOGETHER_S
        self.calls.append(call)

    def goes_on(self, by_s: float) -> None:
        self.now_s += by_s
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lines(time: Time) -> Lines:
    return Lines(lambda event: str(event["event"]), lambda: None, lambda: time.now_s, time.later)


def test_an_event_is_a_line_whatever_stands_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    writer = logs.configure("info")
    values = ["plain", "line\nbreak", "\udcff", 2**70, Path("x"), {1: 2}, ValueError("no")]
    for value in values:
        structlog.get_logger().info("event.name", value=value)
    structlog.get_logger().debug("event.unseen")
    writer.flush()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["event.name"] * len(values)
    assert [line["value"] for line in lines[:4]] == values[:4]
    for line in lines:
        assert line["level"] == "info"
        assert line["timestamp"].endswith("Z")
        assert datetime.fromisoformat(line["timestamp"]).utcoffset() is not None


def test_an_exception_stands_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    try:
        {}["x"]
    except KeyError:
        structlog.get_logger().exception("http.failed")
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["event"]) == ("error", "http.failed")
    assert "KeyError: 'x'" in line["exception"]


def test_an_event_is_one_write_with_its_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that share a stderr would put their lines into each other's otherwise."""
    stderr = stderr_of(monkeypatch)
    logs.configure("info")

    structlog.get_logger().info("loop.started", loop="relay")

    [line] = stderr.seen
    assert line.endswith("}\n")
    assert json.loads(line)["loop"] == "relay"


def test_what_a_terminal_shows_is_taken_away_before_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_of(monkeypatch)
    logs.configure("warning", clear=lambda: stderr.seen.append("cleared"))

    structlog.get_logger().info("below.the.level")
    structlog.get_logger().warning("queue.unavailable")

    assert [text == "cleared" for text in stderr.seen] == [True, False]


def test_lines_that_follow_on_each_other_are_written_together(
    monkeypatch: pytest.MonkeyPatch, time: Time, lines: Lines
) -> None:
    stderr = stderr_of(monkeypatch)
    for line in "abc":
        lines.info({"event": line})
    assert stderr.seen == ["a\n"]
    time.goes_on(TOGETHER_S)
    assert stderr.seen == ["a\n", "b\nc\n"]
    time.goes_on(TOGETHER_S)
    lines.info({"event": "d"})
    assert stderr.seen == ["a\n", "b\nc\n", "d\n"]
    assert time.calls == []


def test_a_warning_waits_for_nobody_and_comes_after_what_waits(
    monkeypatch: pytest.MonkeyPatch, time: Time, lines: Lines
) -> None:
    stderr = stderr_of(monkeypatch)
    lines.info({"event": "a"})
    lines.info({"event": "b"})
    lines.warning({"event": "c"})
    lines.error({"event": "d"})
    assert stderr.seen == ["a\n", "b\nc\n", "d\n"]
    time.goes_on(TOGETHER_S)
    assert len(stderr.seen) == 3


def test_a_write_is_of_whole_lines_that_a_pipe_takes_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, time: Time, lines: Lines
) -> None:
    stderr = stderr_of(monkeypatch)
    written = [f"{number:0200}" for number in range(100)]
    for line in written:
        lines.info({"event": line})
    assert len(time.calls) == 1  # one look for all of them
    time.goes_on(TOGETHER_S)
    assert "".join(stderr.seen).splitlines() == written
    assert all(text.endswith("\n") and len(text) <= WRITE_CHARS_MAX for text in stderr.seen)
    assert len(stderr.seen) <= 7


def test_no_more_lines_wait_than_that(monkeypatch: pytest.MonkeyPatch, time: Time, lines: Lines) -> None:
    stderr = stderr_of(monkeypatch)
    for _ in range(WAITING_MAX):
        lines.info({"event": "a"})
    assert "".join(stderr.seen) == "a\n"
    lines.info({"event": "a"})
    assert "".join(stderr.seen) == "a\n" * (WAITING_MAX + 1)


def test_what_waits_is_written_at_the_end_of_the_process() -> None:
    program = """
import structlog
from workers import logs
logs.configure("info")
for number in range(50):
    structlog.get_logger().info("event.name", number=number)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [json.loads(line)["number"] for line in done.stderr.splitlines()] == list(range(50))
