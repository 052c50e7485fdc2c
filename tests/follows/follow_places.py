"""Where follow stores are made for the tests, one adapter and one number of shards each; and what tests ask of them."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import mysql_places

from feedstore.domain import Action, Followee, Pin, RecordedAction
from feedstore.follows import sqlite
from feedstore.follows.port import ActionRefusedError, PinState, Request
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import open_in_memory

NOW = 1_700_000_000_000


@dataclass
class FakeClock:
    """The store's clock, moved by the test. It does not move unless it is told to."""

    ms: int = NOW

    def __call__(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms


@dataclass
class Place:
    """Where a store's data is. `open` opens it: again and again, where others can see it too."""

    shards: int
    shared: bool
    opener: Callable[[Callable[[], int]], FollowStore]
    clock: FakeClock = field(default_factory=FakeClock)
    opened: list[FollowStore] = field(default_factory=list)

    def open(self, clock: Callable[[], int] | None = None) -> FollowStore:
        store = self.opener(clock or self.clock)
        self.opened.append(store)
        return store


def record(store: FollowStore, *actions: Action) -> list[RecordedAction]:
    answers = store.record([Request(action) for action in actions])
    recorded = [answer for answer in answers if not isinstance(answer, ActionRefusedError)]
    assert len(recorded) == len(answers), answers
    return recorded


def pin(pin_id: int, owner: int = 7, on: int = 70, created_ms: int = 1_000) -> Pin:
    return Pin(pin_id, owner, on, created_ms)


def walked(page: "partial[list[Any]]", place: Callable[[Any], object]) -> list[Any]:
    """All rows of a read that has a limit, page by page. place: where a row is, for the next page to begin after it."""
    rows: list[Any] = []
    while True:
        some = page(after=place(rows[-1]) if rows else None)
        assert len(some) <= page.keywords["limit"]
        rows += some
        if len(some) < page.keywords["limit"]:
            return rows


def saved_at(row: tuple[Followee, PinState]) -> tuple[Followee, int, int]:
    """The place of a row of `pins_saved_since`."""
    followee, state = row
    return followee, state.saved_ms, state.pin.pin


def _memory(_: Path, shards: int) -> Callable[[Callable[[], int]], FollowStore]:
    return lambda clock: open_in_memory(clock, shards)


@cache
def _created_files(shards: int) -> list[bytes]:
    """Creating a file takes many times as long as copying one."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(shards)]
        sqlite.create(paths)
        return [path.read_bytes() for path in paths]


def _files(folder: Path, shards: int) -> Callable[[Callable[[], int]], FollowStore]:
    paths = [folder / f"follows-{number}.db" for number in range(shards)]
    for path, image in zip(paths, _created_files(shards), strict=True):
        path.write_bytes(image)
    return lambda clock: sqlite.open_store(paths, clock)


ADAPTERS = {"memory": (_memory, False), "sqlite": (_files, True), "mysql": (mysql_places.opener, True)}
"""Another adapter joins here: how a store is made in a fresh place, and whether it can be opened twice."""

FIXTURES = {"mysql": "mariadb"}
"""The fixtures that start what an adapter needs; with it, its tests need the local stack."""
