"""Every test of the port runs against every adapter."""

from collections.abc import Callable, Iterator
from pathlib import Path

import hbase_adapter
import pytest
from widecolumn_adapters import ADAPTERS, EMBEDDED, SERVERS, TABLE, Adapter, Opened

from deploy.local import Stack
from feedstore.widecolumn import Table, WideColumnStore


@pytest.fixture(scope="session")
def hbase(stack: Stack) -> Iterator[None]:
    """A cluster of the stack."""
    with hbase_adapter.used(stack):
        yield


ON_SERVERS = [pytest.param(name, marks=[pytest.mark.stack, pytest.mark.xdist_group(name)]) for name in SERVERS]
"""In one process of several, because a table takes seconds to make."""


@pytest.fixture(params=[*EMBEDDED, *ON_SERVERS])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    if request.param in SERVERS:
        request.getfixturevalue("hbase")
    return ADAPTERS[request.param]


@pytest.fixture
def open_cluster(adapter: Adapter, tmp_path: Path) -> Iterator[Callable[[Table], Opened]]:
    clusters: list[Opened] = []

    def open_one(table: Table) -> Opened:
        clusters.append(adapter.open(tmp_path, table))
        return clusters[-1]

    yield open_one
    for each in clusters:
        each.close()


@pytest.fixture
def opened(open_cluster: Callable[[Table], Opened]) -> Opened:
    return open_cluster(TABLE)


@pytest.fixture
def store(opened: Opened) -> WideColumnStore:
    return opened.store
