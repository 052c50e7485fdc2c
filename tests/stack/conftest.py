"""What the traces share: their actions, and the export of an embedded home that replayed them."""

from pathlib import Path

import pytest

from tests.cli.command import Cli
from tests.stack import homes, traces


@pytest.fixture(scope="session")
def trace() -> list[bytes]:
    return traces.trace()


@pytest.fixture(scope="session")
def embedded(trace: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What both clusters of an embedded home hold after the trace."""
    cli = Cli(tmp_path_factory.mktemp("embedded") / "home")
    cli("init")
    homes.replay(cli, trace)
    cli.work()
    exports = [homes.exported(cli, cluster) for cluster in homes.CLUSTERS]
    assert exports[0] == exports[1]
    return exports[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a home can be made."""
    return tmp_path / "home"
