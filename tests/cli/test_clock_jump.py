"""The clock of a home was 400 days ahead for one action, and is right again."""

import time

import pytest

from feedstore.domain import Pin, SavePin
from feedstore.follows.port import Request
from feedstore.serving import config as configuration
from feedstore.serving.wiring import wall_ms
from tests.cli.command import Cli
from workers import wiring

JUMP_MS = 400 * 86_400_000


@pytest.fixture
def jumped(filled: Cli) -> Cli:
    with filled.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 2, 20, 2_000)))])
    return filled


def test_rule_11_housekeeping_drops_nothing_that_somebody_has_to_read(
    jumped: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumped("save-pin", 51, "--owner", 2, "--board", 20, "--created-ms", 2_001)
    config = configuration.load(jumped.home, {})
    with jumped.ports() as ports:
        for relay in wiring.relays(ports, config):
            relay.step()
        housekeeper = wiring.housekeeper(ports, config)
        now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now_s + 1e6)
        monkeypatch.setattr(housekeeper._rounds, "_clock", time.monotonic)
        assert housekeeper.step()
    monkeypatch.undo()

    jumped.work()

    assert jumped.feed(1)[:2] == [51, 50]


def test_rule_10_what_is_not_known_is_not_said(jumped: Cli) -> None:
    jumped.work()
    # Nothing is written any more: however long this goes on, the watermark lies ahead of the clock.
    assert jumped.json("feed", 1)["behind_ms"] is None
    status = jumped.json("status", code=1)
    assert [each["behind_ms"] for each in status["clusters"].values()] == [None, None]
    assert "unknown" in jumped("status", code=1).stdout


def test_a_clock_that_is_far_ahead_is_reported(jumped: Cli) -> None:
    [ahead_ms] = jumped.json("status", code=1)["clocks_ahead_ms"].values()
    assert JUMP_MS - 600_000 < ahead_ms <= JUMP_MS
    assert "clock     shard 0 is 400" in jumped("status", code=1).stdout


def test_clocks_that_are_right_are_not_mentioned(filled: Cli) -> None:
    assert filled.json("status")["clocks_ahead_ms"] == {}
    assert "clock  " not in filled("status").stdout


@pytest.mark.processes
def test_verify_ends(jumped: Cli) -> None:
    with jumped.worker():
        for pin in range(100, 120):
            jumped("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", pin)
        assert "no difference" in jumped("verify", "--wait", 60).stderr
