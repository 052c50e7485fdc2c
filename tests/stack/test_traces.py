"""What a trace is turned into; no server is needed for that."""

import gzip
import json
from pathlib import Path

import pytest

from tests.stack import traces

ACTIVITIES = b"""\
7 8 100 RT
7 8 101 MT
7 8 102 RE
9 9 103 RT
7 8 104 RT
7 8 105 RT
7 8 106 RT
7 8 107 RT
"""


def follow(seconds: int, kind: str = "follow") -> dict[str, object]:
    return {"type": kind, "ts": seconds * 1_000, "follower": 7, "user": 8}


def pin(number: int, seconds: int, owner: int, board: int) -> dict[str, object]:
    return {"type": "save_pin", "ts": seconds * 1_000, "pin": number, "owner": owner, "board": board}


ACTIONS = [
    follow(100),
    pin(1, 100, 7, 28),
    pin(2, 101, 7, 29),
    pin(3, 102, 7, 30),
    pin(4, 103, 9, 36),
    pin(5, 104, 7, 28),
    pin(6, 105, 7, 28),
    follow(106, "unfollow"),
    pin(7, 106, 7, 28),
    follow(107),
    pin(8, 107, 7, 28),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_activities_become_actions(packed: bool, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(gzip.compress(ACTIVITIES) if packed else ACTIVITIES)
    found = traces.trace({traces.VARIABLE: str(file)})
    assert [json.loads(line) for line in found] == ACTIONS


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_actions_stay_as_they_are(packed: bool, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    lines = b"".join(json.dumps(action).encode() + b"\n" for action in ACTIONS)
    file.write_bytes(gzip.compress(lines) if packed else lines)
    assert traces.trace({traces.VARIABLE: str(file)}) == lines.splitlines()


def test_only_the_first_lines_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LINES", 3)
    file = tmp_path / "trace"
    file.write_bytes(ACTIVITIES)
    assert [json.loads(line) for line in traces.read(file)] == ACTIONS[:4]


def test_without_a_name_the_trace_beside_the_checkout_is_used_or_a_made_up_graph(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    assert traces.trace({}, default=file) == traces.made_up()
    file.write_bytes(ACTIVITIES)
    assert [json.loads(line) for line in traces.trace({}, default=file)] == ACTIONS
