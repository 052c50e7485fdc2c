"""When the worker builds a generation."""

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from feedstore.app import config as configuration
from feedstore.catalog.port import CatalogUnavailableError, Collected, Delta
from tests.catalog.memory_catalog import MemoryCatalog
from workers.app import catalogs
from workers.app.catalogs import COLLECT_EVERY_S, Builder
from workers.pipeline.retry import Rest, RetryPolicy

HOUR_MS = 3_600_000
REAL = subprocess.Popen
BEGAN_MS = 1_700_000_000_000
CRASHES = """
from workers.cli import main
from workers.cli.session import Session
Session.config = property(lambda _: 1 // 0)
main()
"""


class FakeProcess:
    """A build that ends with a code, once it has one."""

    def __init__(self, says: bytes) -> None:
        self.code: int | None = None
        reading, writing = os.pipe()
        os.write(writing, says)
        os.close(writing)
        self.stderr = os.fdopen(reading, "rb", buffering=0)

    def poll(self) -> int | None:
        return self.code


class Bench:
    """A builder that builds every six hours, its store, and the builds that it has begun."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[FakeProcess] = []
        self.says = b""
        monkeypatch.setattr(catalogs.subprocess, "Popen", self._begin)
        config = configuration.parse(home, configuration.DEFAULT + "[catalogs.pins]\n", {})
        self.store = MemoryCatalog()
        self.now_s = 0.0
        rest = Rest(lambda: self.now_s, RetryPolicy(10.0, 600.0), random.Random(1))
        self.late = 0.0
        self.builder = Builder(config, "pins", "a", self.store, rest, lambda: self.late)

    def _begin(self, *_: object, **__: object) -> Any:
        self.begun.append(FakeProcess(self.says))
        return self.begun[-1]

    def known(self, after_h: float) -> None:
        """Notes that every update is known until this long after the delta began."""
        self.store.note_known(BEGAN_MS + int(after_h * HOUR_MS))

    def build(self, after_h: float) -> str:
        generation = self.store.load(BEGAN_MS + int(after_h * HOUR_MS), []).id
        self.store.use(generation)
        return generation

    def begins(self) -> bool:
        before = len(self.begun)
        self.builder.step()
        return len(self.begun) > before


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    for each in bench.begun:
        each.stderr.close()


def test_a_generation_is_built_if_there_is_none_or_the_current_one_is_old(bench: Bench):
    assert not bench.begins(), "a delta must begin before"
    bench.known(0)
    assert bench.begins()
    bench.build(0)
    bench.begun[-1].code = 0
    bench.known(6)
    assert not bench.begins(), "it has ended"
    assert not bench.begins(), "it is not older than six hours"
    bench.known(6.01)
    assert bench.begins()


def test_of_two_workers_that_write_a_cluster_one_builds_and_the_other_sees_it(bench: Bench):
    bench.late = 0.5
    bench.known(0)
    assert bench.begins()
    bench.build(0)
    bench.begun[-1].code = 0
    assert not bench.begins()
    bench.known(6.05)
    assert not bench.begins(), "it waits for a hundredth of the interval"
    bench.build(6.04)
    bench.known(6.07)
    assert not bench.begins(), "another worker has built"
    bench.known(12.11)
    assert bench.begins()


def test_a_gap_in_the_updates_is_mended_by_a_build(bench: Bench):
    bench.known(0)
    bench.build(0)
    bench.known(1)
    assert not bench.begins()
    bench.store.note_gap(BEGAN_MS + HOUR_MS)
    assert bench.begins()


def test_a_rollback_is_not_undone_by_the_next_build_before_its_time(bench: Bench):
    bench.known(0)
    good = bench.build(0)
    bench.known(7)
    bench.build(7)
    bench.store.use(good)
    bench.known(12.9)
    assert not bench.begins(), "what was wrong with the later one may still be"
    bench.known(13.1)
    assert bench.begins()


def test_a_rollback_to_a_generation_that_lacks_updates_stays_as_well(bench: Bench):
    """As after a gap: the generation from before it is never complete, and yet an operator prefers it."""
    bench.known(0)
    good = bench.build(0)
    bench.store.note_gap(BEGAN_MS + HOUR_MS)
    bench.known(1)
    bench.build(1)
    bench.store.use(good)
    assert not bench.begins()
    bench.known(7.1)
    assert bench.begins()


def test_a_build_that_failed_after_a_gap_is_tried_again(bench: Bench):
    bench.known(0)
    good = bench.build(0)
    bench.store.note_gap(BEGAN_MS + HOUR_MS)
    bench.known(1)
    assert bench.begins()
    bench.build(1)
    bench.store.use(good)
    bench.begun[-1].code = 3
    assert not bench.begins(), "it has failed"
    bench.now_s += 10
    assert bench.begins()


@pytest.mark.parametrize("is_first", [False, True])
def test_a_build_that_was_refused_waits_until_the_next_is_due_and_says_why(bench: Bench, is_first: bool):
    """As if its generation is suspicious: at each try the whole follow store would be read."""
    bench.known(0)
    if not is_first:
        bench.build(0)
        bench.known(7)
    bench.says = b"x" * 3_000 + b"\nError: a: not built: suspicious\n"
    assert bench.begins()
    bench.begun[-1].code = 1
    with capture_logs() as logs:
        bench.builder.step()
    [line] = logs
    assert (line["event"], line["code"], line["wait_s"]) == ("catalog.not_built", 1, 6 * 3_600)
    assert line["error"].endswith("x Error: a: not built: suspicious")
    assert len(line["error"]) < 2_001
    bench.now_s += 6 * 3_600 - 1
    assert not bench.begins()
    bench.now_s += 1
    assert bench.begins()


@pytest.mark.processes
def test_a_build_that_crashes_is_not_one_that_was_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real command, with a bug in it. Python itself would end with the status of what was refused."""
    builds: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], **settings: Any) -> Any:
        builds.append(REAL([command[0], "-c", CRASHES, *command[4:]], **settings))
        return builds[0]

    monkeypatch.setattr(catalogs.subprocess, "Popen", begin)
    bench.known(0)
    bench.builder.step()
    builds[0].wait()
    with capture_logs() as logs:
        bench.builder.step()
    [line] = logs
    assert "ZeroDivisionError" in line["error"]
    assert line["wait_s"] < 60


def test_a_generation_that_comes_into_use_ends_the_rest_of_a_refused_build(bench: Bench) -> None:
    bench.known(0)
    bench.build(0)
    bench.known(7)
    assert bench.begins()
    bench.begun[-1].code = 1
    assert not bench.begins(), "it was refused"
    bench.build(7)
    assert not bench.begins(), "an operator has built"
    bench.store.note_gap(BEGAN_MS + 8 * HOUR_MS)
    bench.known(8.1)
    assert bench.begins()


def test_a_rollback_does_not_end_the_rest_of_a_refused_build(bench: Bench) -> None:
    bench.known(0)
    good = bench.build(0)
    bench.known(1)
    bench.build(1)
    bench.known(8)
    assert bench.begins()
    bench.begun[-1].code = 1
    assert not bench.begins(), "it was refused"
    bench.store.use(good)
    assert not bench.begins()
    bench.now_s += 6 * 3_600
    assert bench.begins()


def test_a_rollback_while_a_refused_build_rests_stays(bench: Bench):
    bench.known(0)
    good = bench.build(0)
    bench.known(7)
    assert bench.begins()
    bench.begun[-1].code = 1
    assert not bench.begins(), "it was refused"
    bench.build(7)
    assert not bench.begins(), "an operator has built"
    bench.store.use(good)
    bench.now_s += 6 * 3_600
    bench.known(12.9)
    assert not bench.begins()


def test_a_build_that_failed_is_tried_again(bench: Bench):
    bench.known(0)
    good = bench.build(0)
    bench.known(7)
    assert bench.begins()
    bench.build(7)
    bench.store.use(good)
    bench.begun[-1].code = 3
    assert not bench.begins(), "it has failed"
    assert not bench.begins(), "it is left alone"
    bench.now_s += 10
    assert bench.begins()
    good = bench.build(7.1)
    bench.begun[-1].code = 0
    bench.builder.step()
    bench.known(15)
    bench.build(14)
    bench.store.use(good)
    assert not bench.begins(), "and a rollback after that is a rollback"


def test_a_build_that_had_no_turn_undoes_no_rollback(bench: Bench):
    """Another worker builds meanwhile. Its generation is rolled back later, and the rollback stays."""
    bench.known(0)
    good = bench.build(0)
    bench.known(7)
    assert bench.begins()
    bench.begun[-1].code = 3
    bench.build(7)
    assert not bench.begins()
    bench.now_s += 10
    assert not bench.begins(), "it is built"
    bench.store.use(good)
    bench.known(12)
    assert not bench.begins()
    bench.known(13.2)
    assert bench.begins()


def test_a_build_that_cannot_be_started_is_a_build_that_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The machine has no process left for a moment: the worker goes its way."""

    def full(*_: object, **__: object) -> Any:
        raise BlockingIOError("Resource temporarily unavailable")

    bench.known(0)
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(catalogs.subprocess, "Popen", full)
        assert not bench.begins()
    assert [(each["event"], each["error"]) for each in logs] == [
        ("catalog.not_built", "Resource temporarily unavailable")
    ]
    assert not bench.begins(), "it is left alone"
    bench.now_s += 10
    assert bench.begins()


def test_a_cluster_that_is_away_is_logged_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    def away() -> Delta:
        raise CatalogUnavailableError("away")

    for _ in range(2):
        with capture_logs() as logs, monkeypatch.context() as patch:
            patch.setattr(bench.store, "delta", away)
            assert not any(bench.begins() for _ in range(3))
        assert [each["event"] for each in logs] == ["catalog.unavailable"]
        assert not bench.begins(), "it answers, and there is nothing to build yet"


@pytest.mark.processes
def test_a_build_ends_with_its_worker_though_it_ignores_a_signal_to_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does if it is begun by a writer's process, which ignores the signals that its parent decides about."""
    builds: list[subprocess.Popen[bytes]] = []

    def begin(*_: object, **settings: Any) -> Any:
        command = ["sh", "-c", "trap '' TERM; echo begun; exec sleep 30"]
        builds.append(REAL(command, stdout=subprocess.PIPE, **settings))
        return builds[0]

    monkeypatch.setattr(catalogs.subprocess, "Popen", begin)
    bench.known(0)
    bench.builder.step()
    (build,) = builds
    with build:
        assert build.stdout is not None
        build.stdout.readline()
        bench.builder.close()
        assert build.returncode == -signal.SIGKILL


# Collections
# ----------------------------------------------------------------------------------------------------------------------


class Failing(MemoryCatalog):
    """The next collections fail."""

    fails = 0

    def collect(self, keep: int) -> Collected:
        if self.fails:
            self.fails -= 1
            raise CatalogUnavailableError("away")
        return super().collect(keep)


def test_what_no_fetch_needs_is_removed_every_so_often_also_after_a_failure():
    now_s, store = 100.0, Failing()
    collector = catalogs.collector("collector", store, 1, lambda: now_s)
    for as_of_ms in (10, 20):
        store.use(store.load(as_of_ms, []).id)

    def kept() -> int:
        collector.step()
        return len(store.generations())

    assert kept() == 2
    now_s += COLLECT_EVERY_S
    store.fails = 1
    assert (kept(), store.fails, kept()) == (2, 0, 2), "it waits for the next round"
    now_s += COLLECT_EVERY_S
    assert kept() == 1
