"""A whole drill on a made-up system: what is broken, seen, healed and counted."""

import gc
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.drills import course, running
from deploy.drills import health as wellness
from deploy.drills import load as loading
from deploy.drills.catalogue import DRILLS
from deploy.drills.course import Plan
from deploy.drills.hosts import HostError, LogLine, NotDrillableError
from deploy.drills.load import Load
from deploy.drills.page import markdown
from deploy.drills.regions import Region
from deploy.drills.report import Report, budgets
from feedstore.app import config as configuration
from feedstore.app import services
from feedstore.app.config import Config
from feedstore.domain import Followee, Pin
from feedstore.following import feed_table, row_key
from feedstore.following.mutations import put, remove
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.port import Mutation
from tests.drills.fake_hosts import FakeHosts, marked
from tests.mutations import rows_of
from tests.widecolumn.memory_store import MemoryStore

URL = "hbase://127.0.0.1:1/"
TARGET = "a-host-1"


class BreakableStore(MemoryStore):
    """The feeds of cluster a: rows of the target's region cannot be reached while the target is away."""

    def __init__(self, system: "System") -> None:
        super().__init__(feed_table(1_000, 250, 1 << 40))
        self._system = system

    def apply(self, batch: Sequence[Mutation]) -> None:
        self._system.refuse(rows_of(batch))
        super().apply(batch)

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        self._system.refuse([row])
        return super().read(row, after, limit, deadline_s)


class System(FakeHosts):
    """Hosts, a service that fans out by itself, and two clusters. loses: one entry of cluster b, later. starts_fail:
    so often a host cannot be started.
    """

    def __init__(self, home: Path) -> None:
        hosts = [replace(each, ports=frozenset({1, 2}) if each.role == "gateway" else each.ports) for each in marked()]
        super().__init__({each.name: each for each in hosts})
        edges = [b"", b"\x40", b"\x80", b"\xc0", b""]
        servers = [TARGET, "a-host-2", "a-host-3", "a-host-2"]
        self.regions = [Region(*ends, server) for ends, server in zip(pairwise(edges), servers, strict=True)]
        self.home = home
        self.loses = False
        self.cap = 1_000
        self.starts_fail = 0
        self.preferred: str | None = None
        self.stores = {"a": BreakableStore(self), "b": MemoryStore(feed_table(1_000, 250, 1 << 40))}
        self._followers: list[int] = []

    @property
    def is_away(self) -> bool:
        """Whether the target serves no request."""
        return (
            not self.hosts[TARGET].is_running
            or (TARGET, "regionserver") in self.suspended
            or bool(self.networks.get(TARGET))
        )

    def refuse(self, rows: Any) -> None:
        if self.is_away and any(row < b"\x40" for row in rows):
            raise UnavailableError("the region is away")
        if all(self.networks.get(f"a-gateway-{number}") for number in (1, 2)):
            raise UnavailableError("no gateway answers")

    def start(self, name: str) -> None:
        if self.starts_fail:
            self.starts_fail -= 1
            self.events.append(f"start {name}")
            raise HostError("the engine does not answer")
        super().start(name)

    def counters(self) -> Any:
        return SimpleNamespace(hedges=0)

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
        name = "b" if self.is_away or self.networks else "a"
        self.stores[name].read(row_key(user), None, 25)
        return SimpleNamespace(served_by=name)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    made = System(tmp_path)

    @contextmanager
    def opened(value: Any) -> Iterator[Any]:
        yield value

    monkeypatch.setattr(course, "WARM_S", 0.4)
    monkeypatch.setattr(course, "SETTLE_S", 0.3)
    monkeypatch.setattr(course, "_ASK_S", 0.05)
    monkeypatch.setattr(course, "SETTLE_S_MAX", 2.0)
    monkeypatch.setattr(course, "START_AGAIN_S", 0.0)
    monkeypatch.setattr(course, "BETWEEN_HOSTS_S", 0.1)
    monkeypatch.setattr(wellness, "PATIENCE_S", 0.0)
    monkeypatch.setattr(wellness, "_ASK_S", 0.0)
    monkeypatch.setattr(running, "LANDED_S", 0.6)
    monkeypatch.setattr(running, "regions", lambda url: made.regions)
    monkeypatch.setattr(running, "server_of_meta", lambda url: "a-host-3")
    monkeypatch.setattr(running, "_lag", lambda config, cluster: opened(lambda: 7))
    monkeypatch.setattr(running, "_opened", lambda config: opened(made.stores))
    monkeypatch.setattr(running, "_probing", lambda config, url: opened(made.stores["a"]))

    def open_service(config: Config) -> Any:
        made.preferred = config.serving.prefer
        return opened(made)

    monkeypatch.setattr(services, "open_service", open_service)
    return made


def drilled(
    system: System, name: str = "kill-host", target: str | None = TARGET, hold_s: float = 0.6, **urls: str
) -> Report:
    """urls: instead of those of the default home, by their names there."""
    other = f"{URL}other"
    text = configuration.DEFAULT.replace("rocksdb:data/a", URL).replace("rocksdb:data/b", other)
    text = text.replace("cap = 1000", f"cap = {system.cap}")
    for scheme, url in urls.items():
        text = re.sub(rf"{scheme}:[^\"]+", url, text)
    plan = Plan(DRILLS[name], "a", target, seed=1, hold_s=hold_s, budgets=DRILLS[name].budgets)
    return running.run(configuration.parse(system.home, text, {}), system, plan, lambda _: None).report


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


@pytest.mark.parametrize(("master", "runs_it"), [(TARGET, True), ("a-control", False)])
def test_a_report_says_that_the_host_ran_the_active_master_too(
    system: System, monkeypatch: pytest.MonkeyPatch, master: str, runs_it: bool
) -> None:
    monkeypatch.setattr(running, "active_master", lambda *_: master)
    report = drilled(system)
    assert report.setting.runs_master == runs_it
    assert ("active master" in markdown(report, "picture.png")) == runs_it


@pytest.mark.parametrize(("servers", "affected"), [((TARGET, TARGET), [0, 1]), (("a-host-2", TARGET), [1])])
def test_regions_that_move_before_the_fault_count_where_they_are_then(
    system: System, monkeypatch: pytest.MonkeyPatch, servers: tuple[str, str], affected: list[int]
) -> None:
    save = system.save_pin

    def moved(pin: Pin) -> None:
        system.regions[:2] = [
            replace(each, server=server) for each, server in zip(system.regions[:2], servers, strict=True)
        ]
        save(pin)

    monkeypatch.setattr(system, "save_pin", moved)
    report = drilled(system)
    assert (report.affected_regions, report.setting.affected) == (affected, len(affected))


def test_a_target_whose_regions_have_moved_is_not_broken(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    save = system.save_pin

    def moved(pin: Pin) -> None:
        system.regions[0] = replace(system.regions[0], server="a-host-2")
        save(pin)

    monkeypatch.setattr(system, "save_pin", moved)
    with pytest.raises(NotDrillableError, match="no region of the feeds is on a-host-1"):
        drilled(system)
    assert system.events == []


@pytest.mark.parametrize(("before", "after"), [("a-host-3", TARGET), (TARGET, "a-host-3")])
def test_a_target_that_meta_came_to_or_left_is_not_broken(
    system: System, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    save, held = system.save_pin, [before]

    def moved(pin: Pin) -> None:
        held[0] = after
        save(pin)

    monkeypatch.setattr(running, "server_of_meta", lambda url: held[0])
    monkeypatch.setattr(system, "save_pin", moved)
    with pytest.raises(NotDrillableError, match=f"hbase:meta has moved from {before} to {after}"):
        drilled(system)
    assert system.events == []


def test_one_lost_entry_fails_the_drill(system: System) -> None:
    system.loses = True
    report = drilled(system)
    assert (report.figures.missing, report.figures.differing, report.figures.landed_s) == (1, 1, None)
    assert not report.passed


def test_what_a_trim_has_taken_is_not_lost(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drill may last so long that more is saved than readers can reach. One cluster trims before the other one."""
    system.cap, save = 1, system.save_pin
    trimmed = system.stores["b"] = MemoryStore(feed_table(system.cap, 0, 1 << 40))

    def saved(pin: Pin) -> None:
        save(pin)
        trimmed.sweep(0)

    monkeypatch.setattr(system, "save_pin", saved)
    figures = drilled(system).figures
    assert figures.actions > system.cap
    assert (figures.missing, figures.extra, figures.differing) == (0, 0, 0)
    assert figures.landed_s is not None


def test_the_host_is_brought_back_when_the_drill_is_interrupted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_moved", lambda *_: interrupted)
    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        drilled(system)
    assert system.events == [f"kill {TARGET}", f"start {TARGET}"]
    assert not [each for each in threading.enumerate() if each not in before and not each.daemon]


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


def test_nothing_is_broken_where_a_caller_hangs_already(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Load] = []
    saved: list[Pin] = []
    save = system.save_pin

    def load(*words: Any) -> Load:
        loads.append(Load(*words))
        return loads[0]

    def hanging(pin: Pin) -> None:
        if saved:  # the first one is saved before the load begins
            loads[0]._stop.wait(30)
        saved.append(pin)
        save(pin)

    monkeypatch.setattr(running, "Load", load)
    monkeypatch.setattr(system, "save_pin", hanging)
    monkeypatch.setattr(course, "WARM_S_MAX", 1.0)
    with pytest.raises(NotDrillableError, match="a caller was not served"):
        drilled(system)
    assert system.events == []


@pytest.mark.parametrize("name", ["suspend-host", "blackhole-host", "slow-network", "slow-disk"])
def test_whatever_is_done_to_a_host_is_undone(system: System, name: str) -> None:
    report = drilled(system, name)
    assert system.is_whole()
    assert (report.setting.drill, report.setting.target, report.setting.affected) == (name, TARGET, 1)
    assert not report.failure


def test_a_fault_that_cannot_be_done_is_undone_and_nothing_is_reported(system: System) -> None:
    system.fails = [HostError("iptables: no")]
    with pytest.raises(HostError, match="iptables: no"):
        drilled(system, "blackhole-host")
    assert system.is_whole()


BROKER = {"embedded": "kafka://127.0.0.1:{port}"}
DATABASE = {"sqlite": "mysql://feed@127.0.0.1:{port}/follows_0?password_file=/a/file"}


@pytest.mark.parametrize(
    ("name", "target", "urls"), [("kill-broker", "kafka", BROKER), ("kill-database", "mariadb", DATABASE)]
)
def test_what_this_home_does_not_use_is_not_broken(
    system: System, name: str, target: str, urls: dict[str, str]
) -> None:
    system.hosts[target] = replace(system.hosts[target], ports=frozenset({7_000}))
    elsewhere = {scheme: url.format(port=7_001) for scheme, url in urls.items()}
    for others in ({}, elsewhere):
        with pytest.raises(NotDrillableError, match=f"does not use {target}"):
            drilled(system, name, None, **others)
    assert system.events == []
    drilled(system, name, None, **{scheme: url.format(port=7_000) for scheme, url in urls.items()})
    assert system.events == [f"kill {target}", f"start {target}"]


def test_a_zone_that_is_cut_off_is_counted_from_its_healing(system: System) -> None:
    report = drilled(system, "cut-zone", None)
    assert system.is_whole()
    assert (report.setting.target, report.setting.back_from) == ("a-gateway-1, a-gateway-2", "healing")
    assert (report.setting.affected, report.figures.pages_failed) == (4, 0)
    assert report.figures.affected_read_back_s is not None
    assert report.figures.affected_read_back_s < report.setting.hold_s
    assert report.figures.affected_read_gap_s is not None
    assert report.figures.affected_read_gap_s >= report.setting.hold_s
    assert report.figures.unaffected_read_gap_s is None


def test_another_host_dies_first_and_is_not_measured(system: System) -> None:
    report = drilled(system, "kill-second-host", TARGET)
    killed = [event for event in system.events if event.startswith("kill")]
    assert len(killed) == 2
    assert killed[0] != killed[1] == f"kill {TARGET}"
    assert system.is_whole()
    assert report.setting.target == TARGET
    assert killed[0].split()[1] not in str(report.timeline)


def test_a_first_host_that_does_not_come_back_ends_the_drill(system: System) -> None:
    system.starts_fail = 3
    with pytest.raises(NotDrillableError, match="the engine does not answer"):
        drilled(system, "kill-second-host")
    assert sum(event.startswith("kill") for event in system.events) == 1


def test_hosts_are_restarted_one_after_another(system: System) -> None:
    report = drilled(system, "rolling-restart", None, hold_s=0.0)
    its = [host.name for host in system.all() if host.cluster == "a"]
    assert sorted(system.events) == sorted([*(f"stop {name}" for name in its), *(f"start {name}" for name in its)])
    # Never two at once.
    assert all(down.split()[1] == up.split()[1] for down, up in zip(*[iter(system.events)] * 2, strict=True))
    assert report.failure == ""


def test_a_host_that_does_not_get_well_ends_a_rolling_restart(system: System) -> None:
    stop = system.stop

    def broken(name: str) -> float:
        system.lacking[name] = "regionserver: no connection"
        return stop(name)

    system.stop = broken  # type: ignore[method-assign]
    report = drilled(system, "rolling-restart", None, hold_s=0.0)
    assert "a-host-1 did not get well" in report.failure
    assert system.events == ["stop a-host-1", "start a-host-1"]


def test_region_servers_that_were_taken_for_dead_are_counted(system: System) -> None:
    said = "INFO [x] master.ServerManager: Processing expiration of a-host-2,16020,17 on a-control,16000,1"
    soon_s = time.time() + 60
    system.printed = [LogLine(host, soon_s, said) for host in ("a-control", "a-host-1", "b-control")]
    report = drilled(system, "kill-gateway", None)
    assert report.figures.expired_servers == 1
    assert [(step.name, step.host) for step in report.steps] == [("a-host-2 is taken for dead", "a-control")]


def test_logs_that_cannot_be_read_are_no_zero(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def logs(*_: Any) -> Any:
        raise HostError("the engine does not answer")

    monkeypatch.setattr(system, "logs", logs)
    report = drilled(system, "kill-gateway", None)
    assert report.figures.expired_servers is None
    assert not report.passed


def test_a_clock_that_is_set_during_a_drill_makes_its_logs_unreadable(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Put forward, it would begin the span of the logs after what they say of the fault: none would be taken for dead.
    class Clock:
        monotonic, sleep = staticmethod(time.monotonic), staticmethod(time.sleep)

        def time(self) -> float:
            return time.time() + (100.0 if system.events else 0.0)

    monkeypatch.setattr(running, "time", Clock())
    report = drilled(system, "kill-gateway", None)
    assert report.figures.expired_servers is None
    assert not report.passed
    assert any("clock" in what for _, what in report.timeline)


class Bulk:
    """A bulk load that is over at once, and what was asked of it."""

    cells, why = 2_000, ""

    def __init__(self, *_: Any) -> None:
        asked.append("made")

    def start(self) -> None:
        asked.append("start")

    def is_running(self) -> bool:
        return False

    def failure(self) -> str:
        return self.why

    def stop(self) -> int:
        asked.append("stop")
        return self.cells

    def remove(self) -> None:
        asked.append("remove")


asked: list[str] = []


def test_what_a_bulk_load_wrote_is_removed_and_nothing_is_broken(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.clear()
    monkeypatch.setattr(running, "BulkLoad", Bulk)
    report = drilled(system, "bulk-load", None)
    assert asked == ["made", "start", "stop", "remove"]
    assert system.events == []
    assert (report.setting.target, report.figures.expired_servers) == ("", 0)
    assert any("2,000 cells" in what for _, what in report.timeline)


@pytest.mark.parametrize(
    ("cells", "why", "said"),
    [
        (0, "", "wrote nothing"),
        (2_000, "a process of the bulk load ended with status 1", "ended with status 1"),
    ],
)
def test_a_bulk_load_that_was_none_fails_the_drill(
    system: System, monkeypatch: pytest.MonkeyPatch, cells: int, why: str, said: str
) -> None:
    monkeypatch.setattr(running, "BulkLoad", Bulk)
    monkeypatch.setattr(Bulk, "cells", cells)
    monkeypatch.setattr(Bulk, "why", why)
    report = drilled(system, "bulk-load", None)
    assert said in report.failure
    assert not report.passed


def test_the_lag_is_asked_for_and_a_queue_that_fails_costs_only_that(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int | Exception] = [7, ConnectionError("the broker is away"), 3]
    seen: list[Any] = []

    def lag() -> int:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextmanager
    def opened(config: Any, cluster: str) -> Iterator[Any]:
        yield lag

    def load(*words: Any) -> Any:
        seen.append(Load(*words))
        return seen[-1]

    monkeypatch.setattr(running, "_lag", opened)
    monkeypatch.setattr(loading, "BACKLOG_EVERY_S", 0.05)
    monkeypatch.setattr(running, "Load", load)
    drilled(system)
    assert [messages for _, messages in seen[0].backlog][:2] == [7, 3]


def test_what_a_prober_rests_is_a_small_part_of_what_a_gap_may_be() -> None:
    limits = budgets("host")
    assert limits["unaffected_read_gap_s"] / 5 >= loading.READS_EVERY_S
    assert limits["unaffected_write_gap_s"] / 5 >= loading.WRITES_EVERY_S


def test_python_collects_no_garbage_while_a_region_is_read(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []
    read = Load._read

    def watched(load: Load, region: int, row: bytes) -> None:
        collects.append(gc.isenabled())
        read(load, region, row)

    monkeypatch.setattr(Load, "_read", watched)
    drilled(system)
    assert collects == [False] * len(system.regions)
    assert gc.isenabled()


@pytest.mark.parametrize("url", [URL, f"{URL}?reads=gateways"])
def test_each_region_is_called_through_the_clusters_own_gateways(url: str) -> None:
    text = configuration.DEFAULT.replace("rocksdb:data/a", url)
    # Opened, and not asked: no server listens there.
    with running._probing(configuration.parse(Path(), text, {}), url) as store:
        assert store is not None
