"""kill -9 at every step of a reorder, of making room and of a deletion, then a restart: what was acknowledged is
there, what was not is done or not, and its repetition changes nothing else.
"""

import json
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from feedstore.boards import Boards
from feedstore.domain import Pin, PinSaved, RespaceAsked, SavePin
from feedstore.follows import sqlite
from feedstore.follows.port import Request, actions_in
from tests.crash import board_victim
from tests.crash.board_victim import BOARD, POINTS, Spec
from tests.crash.harness import FORKED
from tests.effort import FULL
from workers.boards import Respacing

pytestmark = pytest.mark.processes

NOW = 1_700_000_000_000
PINS = 24
ACTIONS = 150


def victim(spec: Spec) -> int | None:
    """How a process of its own ended."""
    process = FORKED.Process(target=board_victim.run, args=(spec,))
    process.start()
    process.join(120)
    return process.exitcode


def model(told: Path) -> tuple[list[int], list[int]]:
    """The order after what was acknowledged, and after what was begun as well."""
    order = list(range(PINS, 0, -1))
    before = list(order)
    for line in map(json.loads, told.read_text().splitlines()):
        match line:
            case {"move": [pin, neighbour]}:
                order.remove(pin)
                order.insert(order.index(neighbour) + 1, pin)
            case {"delete": pin}:
                order.remove(pin)
            case {"done": _}:
                before = list(order)
            case _:
                pass
    return before, order


def shown(store: Path) -> list[int]:
    with closing(sqlite.open_store([store], lambda: NOW)) as opened:
        boards = Boards(opened)
        assert boards.check(BOARD, None).dead == []
        return [pin.pin for pin in boards.page(BOARD, 100, None).pins]


@pytest.mark.parametrize("nth", [1, 7] if FULL else [7])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_changes_nothing_that_was_acknowledged(tmp_path: Path, point: str, nth: int):
    path, told = tmp_path / "follows.db", tmp_path / "told"
    sqlite.create([path])
    with closing(sqlite.open_store([path], lambda: NOW)) as store:
        answers = store.record([Request(SavePin(Pin(pin, 7, BOARD, NOW - PINS + pin))) for pin in range(1, PINS + 1)])
        store.index(pins=[answer for answer in answers if isinstance(answer, PinSaved)])
        store.mark_relayed(store.unrelayed(100))
    told.touch()
    spec = Spec(str(path), str(told), POINTS.index(point), ACTIONS, point, 1 if point.startswith("index") else nth)

    assert victim(spec) == -signal.SIGKILL, "it never came to that step"
    acknowledged, begun = model(told)
    assert shown(path) in (acknowledged, begun)

    assert victim(replace(spec, point=None)) == 0
    assert shown(path) == model(told)[1]
    with closing(sqlite.open_store([path], lambda: NOW)) as store:
        boards = Boards(store)
        while rows := store.unrelayed(100):
            Respacing(boards, lambda: 0.0).respace(
                [each for each in actions_in(rows) if isinstance(each, RespaceAsked)]
            )
            store.mark_relayed(rows)
        assert boards.check(BOARD, None).narrow == []
