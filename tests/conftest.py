"""What tests of several packages share: the real servers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import Stack

RUNNING = "FEED_TEST_STACK"
"""Names the home of a stack to use; it is left running, so that tests can be repeated without waiting for its start."""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The real servers, none of them started: a test says `stack.up("kafka")` for what it needs, which costs nothing
    where it runs. A test that breaks a server brings it back.
    """
    running = os.environ.get(RUNNING)
    if running:
        stack = Stack(Path(running), print)
        if outdated := stack.outdated():
            pytest.fail(f"{', '.join(outdated)} of {running}: started with other jars or options: stop and start it")
        yield stack
        return
    stack = Stack(tmp_path_factory.mktemp("stack"), print)
    yield stack
    stack.down()


def pytest_sessionstart() -> None:
    """A polite kill unwinds as Ctrl-C does: what tests have started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", 128 + signal.SIGTERM))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a server first waits for its start, and may wait for its jars."""
    for item in items:
        if item.get_closest_marker("stack") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
