"""Logs: a line of JSON for every event, whatever it contains, in writes of whole lines."""

import asyncio
import functools
import io
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from workers.app import logs


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


def test_what_a_turn_of_an_event_loop_says_is_written_together_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_of(monkeypatch)
    logs.configure("info")
    log = structlog.get_logger()

    async def turns() -> None:
        loop = asyncio.get_running_loop()
        for number in (1, 2):
            loop.call_soon(functools.partial(log.info, "http.request", number=number))
        await asyncio.sleep(0)
        assert stderr.seen == []
        await asyncio.sleep(0)
        assert len(stderr.seen) == 1
        log.info("http.request", number=3)
        other = threading.Thread(target=log.warning, args=["queue.unavailable"])
        other.start()
        other.join()

    asyncio.run(turns())
    log.info("http.request", number=5)

    first, second, last = ([json.loads(line) for line in text.splitlines()] for text in stderr.seen)
    assert [line["number"] for line in (*first, second[0], last[0])] == [1, 2, 3, 5]
    assert [line["event"] for line in second] == ["http.request", "queue.unavailable"]


def test_a_write_is_no_larger_than_a_pipe_takes_whole_but_for_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_of(monkeypatch)
    logs.configure("info")

    async def turn() -> None:
        for number, size in enumerate([100] * 60 + [9_000] + [100]):
            structlog.get_logger().info("event.name", number=number, much="\u00e9" * size)

    asyncio.run(turn())
    sizes = [len(text.encode()) for text in stderr.seen]
    assert len(sizes) < 10
    assert [size > 4_096 for size in sizes].count(True) == 1
    assert [json.loads(line)["number"] for text in stderr.seen for line in text.splitlines()] == list(range(62))


def test_a_loop_that_ended_keeps_no_line_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_of(monkeypatch)
    logs.configure("info")
    ended = asyncio.new_event_loop()
    ended.call_soon(lambda: (structlog.get_logger().info("event.name", number=1), ended.stop()))
    ended.run_forever()
    ended.close()

    async def another() -> None:
        structlog.get_logger().info("event.name", number=2)

    asyncio.run(another())
    assert [json.loads(line)["number"] for text in stderr.seen for line in text.splitlines()] == [1, 2]


def test_what_a_terminal_shows_is_taken_away_before_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_of(monkeypatch)
    logs.configure("warning", clear=lambda: stderr.seen.append("cleared"))

    structlog.get_logger().info("below.the.level")
    structlog.get_logger().warning("queue.unavailable")

    assert [text == "cleared" for text in stderr.seen] == [True, False]


def test_what_cannot_be_shown_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise AttributeError("no")

    logs.configure("info")
    structlog.get_logger().info("event.name", value=Broken())
    structlog.get_logger().info("another.event")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["event.name", "another.event"]
    assert lines[0]["unwritable"] == "AttributeError"


# A reader that is stuck
# --------------------------------------------------------------------------------------------------------------------


def ends(kind: str) -> tuple[int, int]:
    """What is read, and what is written, as descriptors."""
    if kind == "pipe":
        return os.pipe()
    mine, other = socket.socketpair()
    return mine.detach(), other.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket", "pipe of another user"])
def test_lines_that_nobody_reads_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "pipe of another user":
        monkeypatch.setattr(os, "open", refuses)
    read, written = ends(kind.partition(" ")[0])
    with os.fdopen(read, "rb", buffering=0) as reader, os.fdopen(written, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        logs.configure("info")
        log, sent = structlog.get_logger(), 5_000
        for number in range(sent):
            log.info("event.name", number=number, much="x" * 500)

        os.set_blocking(read, False)
        drain = functools.partial(reader.read, 1 << 20)
        kept = b"".join(iter(lambda: drain() or b"", b""))
        log.info("event.name", number=sent)
        log.info("event.name", number=sent + 1)
        kept += b"".join(iter(lambda: drain() or b"", b""))
        assert os.get_blocking(written), "other processes write to it too"
    lines = [json.loads(line) for line in kept.splitlines()]
    *before, dropped, first, second = lines
    assert [line["number"] for line in before] == list(range(len(before)))
    assert (dropped["event"], dropped["level"], dropped["count"]) == ("log.dropped", "warning", sent - len(before))
    assert [first["number"], second["number"]] == [sent, sent + 1]


def refuses(*_: object) -> int:
    raise PermissionError


def test_a_reader_that_has_gone_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = os.pipe()
    with os.fdopen(written, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        logs.configure("info")
        os.close(read)
        structlog.get_logger().info("event.name")


def test_what_libraries_log_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info")
    logs.adopt("some.library")
    try:
        {}["x"]
    except KeyError:
        logging.getLogger("some.library.part").exception("it %s", "failed")
    [line] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["level"], line["library"]) == ("library.logged", "error", "some.library.part")
    assert line["message"] == "it failed"
    assert "KeyError: 'x'" in line["exception"]
