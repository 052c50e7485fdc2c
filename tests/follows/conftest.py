"""The adapters that the contract runs against: each with one shard and with three."""

from collections.abc import Iterator
from pathlib import Path

import mysql_places
import pytest
from follow_places import ADAPTERS, FIXTURES, FakeClock, Place

from deploy.local import Stack
from feedstore.follows.store import FollowStore


def _places(names: list[str]) -> list[object]:
    return [
        pytest.param((name, shards), id=f"{name}-{shards}", marks=[pytest.mark.stack] if name in FIXTURES else [])
        for name in names
        for shards in (1, 3)
    ]


def _place(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    name, shards = request.param
    if name in FIXTURES:
        request.getfixturevalue(FIXTURES[name])
    make, shared = ADAPTERS[name]
    place = Place(shards, shared, make(folder, shards))
    yield place
    for store in place.opened:
        store.close()


@pytest.fixture(params=_places(list(ADAPTERS)))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from _place(request, tmp_path)


@pytest.fixture(params=_places([name for name, (_, shared) in ADAPTERS.items() if shared]))
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place that several stores can open at once."""
    yield from _place(request, tmp_path)


@pytest.fixture
def clock(place: Place) -> FakeClock:
    return place.clock


@pytest.fixture
def store(place: Place) -> FollowStore:
    return place.open()


@pytest.fixture(scope="session")
def mariadb(stack: Stack) -> Iterator[None]:
    """The database server that tests use; no database of ours is left in it."""
    mysql_places.use(stack)
    yield
    mysql_places.use(stack)
    mysql_places.drop_all()
