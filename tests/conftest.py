"""What tests of several packages share: the real servers."""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from deploy.docker.clusters import Clusters
from deploy.local import Stack
from tests.effort import NAMES, part

RUNNING = "FEED_TEST_STACK"
"""Names the home of a stack to use; it is left running, so that tests can be repeated without waiting for its start."""
RUNNING_CLUSTERS = "FEED_TEST_CLUSTER"
"""The same for the clusters in Docker."""

# How long examples take says how busy the machine is, and nothing about the code.
settings.register_profile(
    "here", max_examples=part(settings().max_examples), suppress_health_check=[HealthCheck.too_slow], deadline=None
)
settings.load_profile("here")


BARE = Path(__file__).parent / "bare"


@pytest.fixture(scope="session", autouse=True)
def bare_processes() -> Iterator[None]:
    """The processes that tests start see no `rich`, as where `feedctl` is installed: structlog loads it where it is
    there, and it takes a third of the time in which `feedctl` starts.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(BARE), prepend=os.pathsep)
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield mount
    subprocess.run(["umount", mount], check=True)


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
    stack.stop()


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """The clusters in Docker, all of them ready. A test that breaks something brings it back."""
    running = os.environ.get(RUNNING_CLUSTERS)
    if running:
        yield Clusters(Path(running), print)
        return
    made = Clusters(tmp_path_factory.mktemp("cluster"), print)
    try:
        made.up()
        yield made
    finally:
        made.down()


def pytest_sessionstart() -> None:
    """A polite kill unwinds as Ctrl-C does, and so does the end of a terminal: what tests have started is stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does it
            signal.signal(number, lambda ended_by, _: pytest.exit("terminated", 128 + ended_by))


APART = ("processes", "long", "stack", "browser", "docker", "xdist_group")
"""Markers of tests that take seconds each, or that have a group of their own."""
WHERE = {"browser": "browser", "promtool": "monitoring"}
"""The directories in which alone the Makefile looks for tests with these markers."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that try more if they are told to (tests/effort.py). Gives the tests of a module to one process:
    what they share is made once, and pytest-xdist has hundreds of groups to hand out instead of thousands.
    """
    assert isinstance(item, pytest.Function)
    marked = {mark.name for mark in item.iter_markers()}  # asked once: there are thousands of tests in each process
    for marker in marked & WHERE.keys():
        assert item.path.parent.name == WHERE[marker], f"make does not find {item.nodeid}: see WHERE in {__file__}"
    if marked.isdisjoint(APART):
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if "stack" in marked and "timeout" not in marked:
        item.add_marker(pytest.mark.timeout(900))  # the first that needs a server waits for its start and its jars
    if "described" in item.fixturenames:
        return  # schemathesis', from the fixture of this name (tests/http): always the same examples
    if is_hypothesis_test(item.obj) or not NAMES.isdisjoint(vars(item.module)):
        item.add_marker(pytest.mark.deep)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected, half a million objects, lives until the end: Python's collector does not walk it while it
    grows, nor again and again while tests run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses a pytest-xdist that does not keep the tests of a group together with this pytest."""
    grouped = next((item for item in items if item.get_closest_marker("xdist_group")), None)
    if getattr(config.option, "loadgroup", False) and grouped and "@" not in grouped.nodeid:
        # They would run everywhere, with everything that they share made once more in each process.
        raise pytest.UsageError("this pytest-xdist does not keep the tests of a group together with this pytest")
