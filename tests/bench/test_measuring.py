"""A measurement that cannot be taken says so; it neither waits for ever nor counts what was not done."""

import argparse
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import command, mysql_follows
from bench import hbase as hbase_bench
from bench.context import Context
from bench.redis_server import MissingServerError, redis_server
from bench.results import Row
from bench.stack import arriving


class BrokenError(Exception):
    """The server has gone."""


def broken(_: object) -> None:
    raise BrokenError


def test_a_stream_of_writes_that_fails_is_no_rate() -> None:
    store: Any = SimpleNamespace(apply=broken)
    with pytest.raises(BrokenError):
        hbase_bench.written(store, [hbase_bench.backfill(number) for number in range(4)], streams=2)


def test_a_thread_of_recordings_that_fails_is_no_rate() -> None:
    store: Any = SimpleNamespace(record=broken)
    with pytest.raises(BrokenError):
        mysql_follows._recording(store, iter(range(1, 100)), size=1, batches=2, threads=2)()


@pytest.mark.processes
def test_a_replay_that_takes_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(arriving, "feedctl", lambda *_: deaf)
    config: Any = SimpleNamespace(home=tmp_path)
    with arriving.arriving(config, tmp_path / "log", per_s=1.0):
        pass


def test_a_measurement_that_needs_no_redis_is_taken_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    # They are for a whole process, which this one is not.
    monkeypatch.setattr(command.structlog, "configure", lambda **_: None)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)

    def compared(_: Context) -> list[Row]:
        with redis_server(tmp_path / "redis"):
            raise AssertionError

    def alone(_: Context) -> list[Row]:
        return [Row("what", "s", (1.0,))]

    def run(options: argparse.Namespace, out: Path, scratch: Path) -> int:
        return command.measure(
            options, command.context(options, out, scratch), out, {"compared": (None, compared), "alone": (None, alone)}
        )

    parsed = command.parser("bench", None, ["compared", "alone"], str(tmp_path / "out"))
    monkeypatch.setattr(sys, "argv", ["bench", "--size", "10", "--out", str(tmp_path / "out")])
    assert command.main(command.options(parsed, ["compared", "alone"]), run) == 1
    said = capsys.readouterr()
    assert MissingServerError.__name__ in said.out
    assert "could not be measured: compared\n" in said.err
