from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from deploy.local import Stack
from feedstore.catalog.port import CatalogReader, CatalogStore, Fetched
from tests.catalog import catalog_hbase
from tests.catalog.catalog_adapters import ADAPTERS, EMBEDDED, SERVERS, Clock, Place


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feedstore.catalog.hbase.store.BEAT_S", 0.02)


@pytest.fixture(autouse=True)
def _logs_are_written() -> None:
    """Other tests of this process may have turned them off."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def hbase(stack: Stack) -> Iterator[None]:
    """A cluster of the stack."""
    with catalog_hbase.used(stack):
        yield


ON_SERVERS = [pytest.param(name, marks=[pytest.mark.stack, pytest.mark.xdist_group("catalog")]) for name in SERVERS]
"""These tests run in one of several processes, because a table takes a second to make."""


@pytest.fixture(params=[*EMBEDDED, *ON_SERVERS])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Place:
    if request.param in SERVERS:
        request.getfixturevalue("hbase")
    return ADAPTERS[request.param](tmp_path, clock)


@pytest.fixture
def store(place: Place) -> Iterator[CatalogStore]:
    opened = place.store()
    yield opened
    opened.close()


@pytest.fixture
def reader(place: Place, store: CatalogStore) -> Iterator[CatalogReader]:
    opened = place.reader()
    yield opened
    if opened is not store:
        opened.close()


@pytest.fixture
def fetch(store: CatalogStore, reader: CatalogReader, clock: Clock) -> Callable[..., Fetched]:
    """The answer of the owner 2 s later; a reader of another process must give the same."""

    def fetch(*keys: bytes) -> Fetched:
        clock.pass_s(2)
        found = store.fetch(keys)
        assert reader.fetch(keys) == found
        assert {*found.records} <= {*keys}
        return found

    return fetch
