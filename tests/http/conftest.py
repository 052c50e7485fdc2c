"""One real server for all tests of a module that ask and do not break it; others where a test says so."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_servers import Shelf, shelf
from http_servers import Client, InProcess, client_of, feedctl_serve, in_process

from tests.cli.command import Cli


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`feedctl serve` on a home in files, which lets this machine in without tokens. A module has its own: one that
    lived until the last test would take as much time in half a minute of idling as another one takes to start.
    """
    cli = Cli(tmp_path_factory.mktemp("served") / "home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith("FEED_")]:
            patch.delenv(name)
        cli("init")
        cli.set("tick", '"250ms"')  # soon enough for a test, and cheap
        with feedctl_serve(cli) as (_, served):
            yield served


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A home in files."""
    made = Cli(tmp_path / "home")
    made("init")
    return made


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with client_of(address) as client:
        yield client


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[InProcess]:
    with in_process(tmp_path / "home") as inside:
        yield inside


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Shelf]:
    with shelf(tmp_path / "home") as made:
        yield made


@pytest.fixture
def web(on: Shelf) -> Iterator[Client]:
    with client_of(on.address) as client:
        yield client
