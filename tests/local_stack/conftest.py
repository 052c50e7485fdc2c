from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_servers import FakeServer, StackOf

from deploy.local.home import Home
from deploy.local.stack import Stack


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "stack")
    made.create()
    return made


@pytest.fixture
def stack_of(home: Home) -> Iterator[StackOf]:
    """Makes a stack of fake servers; what they left running ends with the test."""
    stacks: list[Stack] = []

    def make(*servers: FakeServer, said: list[str] | None = None) -> Stack:
        stack = Stack(home.root, [].append if said is None else said.append)
        stack._servers = {server.name: server.server() for server in servers}
        stacks.append(stack)
        return stack

    yield make
    for stack in stacks:
        stack.kill(*stack._servers)
