"""What a process does that drags and deletes pins of one board and makes room there, until it is done or killed.

Before each action it tells a file what it is about to do, and afterwards that it is done.
"""

import json
import os
import random
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedstore.boards import Boards, Move
from feedstore.domain import DeletePin, PinDeleted, RespaceAsked
from feedstore.follows import sqlite, sqlite_boards
from feedstore.follows.port import Request, actions_in

BOARD = 9
POINTS = (
    "pins:before",
    "pins:after",
    "arrange:before",
    "arrange:written",
    "arrange:after",
    "respace:before",
    "respace:written",
    "respace:after",
    "mark_relayed:before",
    "mark_relayed:after",
    "index:before",
    "index:dropped",
    "index:after",
)


@dataclass(frozen=True)
class Spec:
    """told: the file of what was told. point: where to die, at its `nth` passage."""

    store: str
    told: str
    seed: int
    actions: int
    point: str | None = None
    nth: int = 1


def run(spec: Spec) -> None:
    left = spec.nth
    job = False

    def at(point: str) -> None:
        nonlocal left
        if point == spec.point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            step = "respace" if job and name == "arrange" else name
            at(f"{step}:before")
            result = call(*args, **named)
            at(f"{step}:after")
            return result

        return called

    real_write, real_drop = sqlite_boards.write, sqlite_boards.drop

    def write(*args: Any) -> None:
        real_write(*args)
        at("respace:written" if job else "arrange:written")

    def drop(*args: Any) -> None:
        real_drop(*args)
        if args[1]:
            at("index:dropped")

    sqlite_boards.write, sqlite_boards.drop = write, drop
    file = os.open(spec.told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    begun = [json.loads(line) for line in Path(spec.told).read_text().splitlines()]
    with closing(sqlite.open_store([Path(spec.store)], lambda: 1_700_000_000_000 + len(begun))) as store:
        for name in ("pins", "arrange", "mark_relayed", "index"):
            setattr(store, name, around(name, getattr(store, name)))
        boards = Boards(store)

        def do(action: dict[str, Any]) -> None:
            nonlocal job
            match action:
                case {"move": [int(pin), int(before)]}:
                    boards.reorder(Move(BOARD, pin, before=before))
                case {"delete": int(pin)}:
                    (deleted,) = store.record([Request(DeletePin(pin))])
                    assert isinstance(deleted, PinDeleted)
                    store.index(deletions=[deleted])
                case _:
                    job = True
                    rows = store.unrelayed(1)
                    for asked in actions_in(rows):
                        if isinstance(asked, RespaceAsked):
                            step = boards.respace(asked, 1)
                            while not step.done:
                                step = boards.respace(asked, 1, step.going)
                    store.mark_relayed(rows)
                    job = False

        done = sum("done" in each for each in begun)
        again = [each for each in begun if "done" not in each][done:]
        rng = random.Random(spec.seed * 1_000 + done)
        for number in range(done, spec.actions):
            if again:
                action = again.pop()  # the one that no answer came to, as a client repeats it
            else:
                action = chosen(rng, [pin.pin for pin in boards.page(BOARD, 100, None).pins])
                os.write(file, json.dumps(action).encode() + b"\n")
            do(action)
            os.write(file, b'{"done": %d}\n' % number)
    os.close(file)


def chosen(rng: random.Random, order: list[int]) -> dict[str, Any]:
    choice = rng.random()
    if choice < 0.08 and len(order) > 8:
        return {"delete": rng.choice(order[2:])}
    if choice < 0.3:
        return {"work": 1}
    return {"move": [rng.choice(order[3:]), order[1]]}  # always at one spot, so that room is short
