"""A whole drill on a made-up system: what is broken, seen, healed and counted."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from feedstore.domain import Followee, Pin
from feedstore.feeds import feed_table, row_key
from feedstore.feeds.mutations import put, remove
from feedstore.serving import config as configuration
from feedstore.serving import wiring as serving_wiring
from feedstore.serving.config import Config
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.memory import MemoryStore
from feedstore.widecolumn.port import Mutation
from workers.drills import running
from workers.drills.catalogue import DRILLS
from workers.drills.hosts import Host, NotDrillableError
from workers.drills.regions import Region
from workers.drills.report import Report
from workers.drills.running import Plan

URL = "hbase://127.0.0.1:1/?thrift1=127.0.0.1:2"
TARGET = "a-host-1"


class BreakableStore(MemoryStore):
    """The feeds of cluster a: rows of the target's region cannot be reached while the target is away."""

    def __init__(self, system: "System") -> None:
        super().__init__(feed_table(1_000, 250, 1 << 40))
        self._system = system

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._system.refuse(row for mutation in batch for row, _ in mutation.rows)
        super().apply(batch)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        self._system.refuse([row])
        return super().read(row, after, limit, deadline_s)


class System:
    """Hosts, a service that fans out by itself, and two clusters. loses: one entry of cluster b, later. starts_fail:
    so often the target cannot be started.
    """

    def __init__(self) -> None:
        edges = [b"", b"\x40", b"\x80", b"\xc0", b""]
        servers = [TARGET, "a-host-2", "a-host-3", "a-host-2"]
        self.regions = [Region(*ends, server) for ends, server in zip(pairwise(edges), servers, strict=True)]
        self.events: list[str] = []
        self.is_away = False
        self.loses = False
        self.starts_fail = 0
        self.preferred: str | None = None
        self.stores = {"a": BreakableStore(self), "b": MemoryStore(feed_table(1_000, 250, 1 << 40))}
        self._followers: list[int] = []

    def refuse(self, rows: Any) -> None:
        if self.is_away and any(row < b"\x40" for row in rows):
            raise UnavailableError("the region is away")

    # The hosts
    def all(self) -> list[Host]:
        gateways = [Host(f"{name}-gateway-1", name, False, True, frozenset({1, 2})) for name in self.stores]
        return [*gateways, *(Host(f"a-host-{n}", "a", True, not self.is_away, frozenset()) for n in (1, 2, 3))]

    def kill(self, name: str) -> None:
        self.events.append(f"kill {name}")
        self.is_away = True

    def start(self, name: str) -> None:
        self.events.append(f"start {name}")
        if self.starts_fail:
            self.starts_fail -= 1
            raise OSError("the engine does not answer")
        self.is_away = False

    # The service
    def follow(self, follower: int, followee: Followee) -> None:
        self._followers.append(follower)

    def save_pin(self, pin: Pin) -> None:
        batch = [put([(user, 1) for user in self._followers], [(pin.pin, pin.created_ms)])]
        self.stores["b"].apply(batch)
        MemoryStore.apply(self.stores["a"], batch)  # as if it had waited in the queue
        if self.loses and self.is_away:
            self.loses = False
            self.stores["b"].apply([remove([(self._followers[0], 1)], [(pin.pin, pin.created_ms)])])

    def page(self, user: int) -> Any:
        name = "b" if self.is_away else "a"
        self.stores[name].read(row_key(user), None, 25)
        return SimpleNamespace(served_by=name)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    made = System()

    @contextmanager
    def opened(value: Any) -> Iterator[Any]:
        yield value

    monkeypatch.setattr(running, "WARM_S", 0.5)
    monkeypatch.setattr(running, "SETTLE_S", 0.6)
    monkeypatch.setattr(running, "LANDED_S", 1.0)
    monkeypatch.setattr(running, "START_AGAIN_S", 0.0)
    monkeypatch.setattr(running, "regions", lambda url: made.regions)
    monkeypatch.setattr(running, "server_of_meta", lambda url: "a-host-3")
    monkeypatch.setattr(running, "_opened", lambda config: opened(made.stores))
    monkeypatch.setattr(running, "_probing", lambda config, url: opened(made.stores["a"]))

    def open_service(config: Config) -> Any:
        made.preferred = config.prefer
        return opened(made)

    monkeypatch.setattr(serving_wiring, "open_service", open_service)
    return made


def drilled(system: System, said: list[str] | None = None) -> Report:
    text = configuration.DEFAULT.replace("rocksdb:data/a", URL).replace("rocksdb:data/b", URL)
    plan = Plan(DRILLS["kill-host"], "a", TARGET, seed=1, hold_s=1.0)
    say = [].append if said is None else said.append
    return running.run(configuration.parse(Path(), text, {}), system, plan, say).report


def test_a_host_is_broken_and_healed_and_nothing_is_lost(system: System) -> None:
    report = drilled(system)
    assert system.events == [f"kill {TARGET}", f"start {TARGET}"]
    # Readers of whom nothing would be seen otherwise.
    assert system.preferred == "a"
    figures = report.figures
    assert (figures.pages_failed, figures.missing, figures.extra, figures.differing) == (0, 0, 0, 0)
    assert figures.pages_from_other > 0
    assert figures.actions > 0
    assert figures.landed_s is not None
    assert (report.setting.regions, report.setting.affected, report.setting.holds_meta) == (4, 1, False)
    # The affected region is back only after the host is; calls on the others never failed.
    assert figures.affected_read_back_s is not None
    assert figures.affected_read_back_s >= report.setting.hold_s
    assert figures.unaffected_read_gap_s is not None
    counted = {"pages_failed", "missing", "extra", "differing"}
    assert [each.passed for each in report.verdicts if each.figure in counted] == [True] * 4


def test_one_lost_entry_fails_the_drill(system: System) -> None:
    system.loses = True
    report = drilled(system)
    assert (report.figures.missing, report.figures.differing, report.figures.landed_s) == (1, 1, None)
    assert not report.passed


def test_the_host_is_brought_back_when_the_drill_is_interrupted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(before: Any, url: str, target: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_moved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drilled(system)
    assert system.events == [f"kill {TARGET}", f"start {TARGET}"]
    assert not [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]


def test_a_call_that_fails_as_nobody_expected_counts_and_the_load_goes_on(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, failures = system.page, [ZeroDivisionError("unheard of")]

    def failing_once(user: int) -> Any:
        if system.is_away and failures:
            raise failures.pop()
        return page(user)

    monkeypatch.setattr(system, "page", failing_once)
    report = drilled(system)
    assert report.figures.pages_failed == 1
    assert report.figures.quiet_at_end_s is not None
    assert not report.passed


def test_a_cluster_that_stays_unreachable_is_reported(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = running._feeds

    def unreachable(stores: Any, users: Any) -> Any:
        if system.events:
            raise UnavailableError("no gateway answers")
        return feeds(stores, users)

    monkeypatch.setattr(running, "_feeds", unreachable)
    report = drilled(system)
    assert report.figures.landed_s is report.figures.missing is report.figures.differing is None
    assert {each.figure: each.passed for each in report.verdicts}["missing"] is False
    assert any("no gateway answers" in what for _, what in report.timeline)


def test_a_host_that_cannot_be_started_at_once_is_started_again(system: System) -> None:
    system.starts_fail = 2
    report = drilled(system)
    assert system.events == [f"kill {TARGET}", *[f"start {TARGET}"] * 3]
    assert report.failure == ""
    assert sum("the engine does not answer" in what for _, what in report.timeline) == 2


def test_a_host_that_stays_away_is_reported(system: System) -> None:
    system.starts_fail = 100
    report = drilled(system)
    assert "the engine does not answer" in report.failure
    assert not report.passed


def test_the_host_is_brought_back_when_that_itself_is_interrupted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, ended = system.start, [KeyboardInterrupt()]

    def interrupted(name: str) -> None:
        if ended:
            raise ended.pop()
        start(name)

    monkeypatch.setattr(system, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drilled(system)
    assert not system.is_away


def test_nothing_is_broken_where_calls_fail_already(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(user: int) -> Any:
        raise UnavailableError("no cluster answered")

    monkeypatch.setattr(system, "page", page)
    with pytest.raises(NotDrillableError, match="no cluster answered"):
        drilled(system)
    assert system.events == []


def test_each_region_is_called_through_the_clusters_own_gateways() -> None:
    text = configuration.DEFAULT.replace("rocksdb:data/a", URL)
    # Opened, and not asked: nobody listens there.
    with running._probing(configuration.parse(Path(), text, {}), URL) as store:
        assert store is not None
