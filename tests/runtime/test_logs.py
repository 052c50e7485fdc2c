"""Logs: a line of JSON for every event, whatever stands in it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from workers import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_an_event_is_a_line_whatever_stands_in_it(capsys: pytest.CaptureFixture[str]):
    logs.configure("info")
    values = ["plain", "line\nbreak", "\udcff", 2**70, Path("x"), {1: 2}, ValueError("no")]
    for value in values:
        structlog.get_logger().info("event.name", value=value)
    structlog.get_logger().debug("event.unseen")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["event.name"] * len(values)
    assert [line["value"] for line in lines[:4]] == values[:4]
    assert {"level", "timestamp"} <= lines[0].keys()
