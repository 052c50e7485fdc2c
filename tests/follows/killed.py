"""Processes that record until they are killed, and what must be in the store then."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from operator import attrgetter

from follow_places import walked

from feedstore.domain import Follow, board
from feedstore.follows.port import Request, actions_in
from feedstore.follows.store import FollowStore

_PROGRAM = """
import os, sys
from pathlib import Path
from feedstore.domain import Follow, Pin, SavePin, board
from feedstore.follows import {adapter}
from feedstore.follows.port import Request

child, places = int(sys.argv[1]), sys.argv[3:]
store = {opened}
for number in range(int(sys.argv[2])):
    base = child * 1_000_000 + number * 100
    store.record(
        [Request(Follow(base + each, board(99)), f"{{base + each}}") for each in range(1, 9)]
        + [Request(SavePin(Pin(base + each, child, child * 10, 1_000))) for each in range(1, 9)]
    )
    print(base, flush=True)
"""


class Recording:
    """How a process records. adapter: a module. opened: what opens a store of it, from the texts `places`."""

    def __init__(self, adapter: str, opened: str, places: Iterable[object], **environ: str) -> None:
        self._program = _PROGRAM.format(adapter=adapter, opened=opened)
        self._places = [*map(str, places)]
        self._environ = environ

    def started(self, child: int, rounds: int = 10_000) -> subprocess.Popen[str]:
        """Begins the process of that number. It prints a line for each of its calls that was acknowledged."""
        command = [sys.executable, "-c", self._program, str(child), str(rounds), *self._places]
        return subprocess.Popen(command, env=os.environ | self._environ, stdout=subprocess.PIPE, text=True)

    def killed(self) -> set[int]:
        """Begins three processes, one after the other, and kills each; returns the followers of the calls that were
        acknowledged. Those of the pins have the same numbers.
        """
        acknowledged: list[int] = []
        for child in (1, 2, 3):
            process = self.started(child)
            assert process.stdout is not None
            acknowledged += [int(process.stdout.readline()) for _ in range(5 * child)]
            process.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in process.stdout.read().split()]
            process.stdout.close()
            process.wait()
        return {base + each for base in acknowledged for each in range(1, 9)}


def check_both_or_neither(store: FollowStore, acknowledged: set[int]) -> None:
    """Edges, pins, boards, keys and outbox rows are there together, and all that were acknowledged."""
    recorded = actions_in(store.unrelayed(1_000_000))
    followed = sorted(action.follower for action in recorded if hasattr(action, "follower"))
    saved = sorted(action.pin.pin for action in recorded if hasattr(action, "pin"))
    edges = walked(partial(store.all_edges_after, limit=1_000), attrgetter("follower", "followee"))
    assert followed == [edge.follower for edge in edges]
    assert sorted(store.pins(saved)) == saved
    assert len(saved) == store.counts().pins
    assert acknowledged <= {*followed}
    assert acknowledged <= {*saved}
    assert store.board_owners([10, 20, 30]) == {10: 1, 20: 2, 30: 3}
    # Asked again by their keys, they are answered and do nothing twice.
    store.record([Request(Follow(each, board(99)), str(each)) for each in followed])
    assert store.backlog().actions == len(recorded)
