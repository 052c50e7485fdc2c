"""Every test of the port runs against every adapter."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from widecolumn_adapters import ADAPTERS, TABLE, Adapter

from feedstore.widecolumn import Table, WideColumnStore


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return ADAPTERS[request.param]


@pytest.fixture
def open_store(adapter: Adapter, tmp_path: Path) -> Iterator[Callable[[Table], WideColumnStore]]:
    opened: list[WideColumnStore] = []

    def open_table(table: Table) -> WideColumnStore:
        opened.append(adapter.open(tmp_path, table))
        return opened[-1]

    yield open_table
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[Table], WideColumnStore]) -> WideColumnStore:
    return open_store(TABLE)


@pytest.fixture
def swept_store(adapter: Adapter, store: WideColumnStore) -> WideColumnStore:
    """A store whose sweeps can be looked at."""
    if not adapter.sweeps:
        pytest.skip("sweeps when it likes")
    return store
