"""drill: what there is, what is refused, and what a run leaves behind. With a made-up system."""

import json
import os
import signal
from typing import Any

import msgspec
import pytest

from deploy.drills import plot, running
from deploy.drills import report as reporting
from deploy.drills.catalogue import DRILLS
from deploy.drills.course import Plan
from deploy.drills.hosts import Host, Hosts, NotDrillableError
from deploy.drills.report import DrillRun, DrillSetting, Figures, Moments, Observed, Report
from tests.cli.command import Cli

FIGURES: dict[str, Any] = dict.fromkeys(Figures.__struct_fields__, 0)
DRAW = plot.draw


class Unmarked:
    """An engine without a marked container."""

    def all(self) -> list[Host]:
        return []


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was run; each second run goes over a budget."""
    plans: list[Plan] = []

    def run(config: Any, hosts: Any, plan: Plan, say: Any) -> DrillRun:
        plans.append(plan)
        figures = Figures(**{**FIGURES, "missing": len(plans) - 1})
        started_at = f"2026-01-01T00:00:0{len(plans)}+00:00"
        setting = DrillSetting(plan.drill.name, "a", "a-host-1", plan.seed, started_at, plan.hold_s, False, 16, 5)
        return reporting.assemble(setting, figures, reporting.budgets("host"), Observed(Moments(1, 2, 3, 4, 5), []))

    monkeypatch.setattr(Hosts, "connect", classmethod(lambda _: Unmarked()))
    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(plot, "draw", lambda _report, _samples, path: path.write_bytes(b""))
    return plans


@pytest.fixture
def drawn(planned: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn, which takes a second each."""
    monkeypatch.setattr(plot, "draw", DRAW)


def test_the_drills_are_listed(empty: Cli) -> None:
    lines = empty("drill", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(DRILLS)


def test_a_system_that_is_not_marked_is_left_alone(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    empty("init")
    monkeypatch.setattr(Hosts, "connect", classmethod(lambda _: Unmarked()))
    assert "marked as drillable" in empty("drill", "run", "kill-host", code=3).stderr


def test_without_an_engine_it_says_how_to_get_one(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    empty("init")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert "make docker-ready cluster-up" in empty("drill", "run", "kill-host", code=3).stderr
    with pytest.raises(NotDrillableError):
        Hosts.connect()


@pytest.mark.usefixtures("drawn")
def test_a_run_leaves_a_file_for_programs_and_a_page_for_people(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    result = empty("drill", "run", "kill-host", "--seed", 7, "--hold", 3)
    assert "ok   missing" in result.stdout
    (made,) = (empty.home / "drills").glob("*.json")
    report = msgspec.json.decode(made.read_bytes(), type=Report)
    assert report.setting.seed == json.loads(made.read_bytes())["setting"]["seed"] == 7
    text = made.with_suffix(".md").read_text()
    assert text.startswith("# kill-host on a-host-1: passed")
    assert made.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert made.with_suffix(".png").name in text
    assert planned == [Plan(DRILLS["kill-host"], "a", None, 7, 3, "host")]


def test_a_target_that_stays_away_ends_the_runs_after_its_report(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty("init")
    run = running.run

    def unhealed(*words: Any) -> DrillRun:
        made = run(*words)
        return made._replace(report=msgspec.structs.replace(made.report, failure="it stays away"))

    monkeypatch.setattr(running, "run", unhealed)
    assert "it stays away" in empty("drill", "run", "kill-host", "--repeat", 3, code=1).stderr
    assert len(planned) == len(list((empty.home / "drills").glob("*.md"))) == 1


def test_nothing_is_broken_if_reports_cannot_be_kept(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    for folder in ("/proc/drills", "/proc"):
        assert folder in empty("drill", "run", "kill-host", "--out", folder, code=None).stderr
    assert planned == []


def test_the_verdicts_are_said_although_the_report_cannot_be_kept(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty("init")
    run = running.run

    def removed(*words: Any) -> DrillRun:
        (empty.home / "drills").rmdir()
        (empty.home / "drills").write_bytes(b"")  # as if the disk had gone meanwhile
        return run(*words)

    monkeypatch.setattr(running, "run", removed)
    assert "ok   missing" in empty("drill", "run", "kill-host", code=3).stdout


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_broken_is_brought_back_when_the_run_is_ended(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    empty("init")
    brought_back = []

    def run(*_: Any) -> DrillRun:
        try:
            os.kill(os.getpid(), ending)
            raise AssertionError("it went on")
        finally:
            os.kill(os.getpid(), ending)  # somebody impatient
            brought_back.append(True)

    monkeypatch.setattr(running, "run", run)
    before = signal.signal(ending, signal.SIG_DFL)  # what starts the tests may ignore it, as nohup does
    try:
        empty("drill", "run", "kill-host", code=128 + ending)
        assert brought_back == [True]
        assert signal.getsignal(ending) == signal.SIG_DFL
    finally:
        signal.signal(ending, before)


def test_a_run_over_a_budget_ends_with_status_1_when_all_are_done(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    result = empty("drill", "run", "kill-host", "--repeat", 3, code=1)
    assert "OVER missing" in result.stdout
    assert "2 of 3 runs did not pass" in result.stderr
    assert [plan.seed for plan in planned] == [0, 1, 2]
    assert len(list((empty.home / "drills").glob("*.md"))) == 3


def test_every_drill_runs_one_after_another_with_its_own_hold(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    result = empty("drill", "run", "all", code=1)
    assert [plan.drill.name for plan in planned] == list(DRILLS)
    assert [plan.hold_s for plan in planned] == [drill.hold_s for drill in DRILLS.values()]
    assert f"{len(DRILLS)} of {len(DRILLS)}: bulk-load" in result.stderr
    assert f"{len(DRILLS) - 1} of {len(DRILLS)} runs" in result.stderr
    assert "kill-regionserver-with-meta (seed 0)" in result.stderr


def test_a_drill_that_could_not_begin_does_not_stop_those_after_it(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty("init")
    run = running.run

    def refusing(config: Any, hosts: Any, plan: Plan, say: Any) -> DrillRun:
        if plan.drill.name == "kill-broker":
            raise NotDrillableError("kafka is away")
        return run(config, hosts, plan, say)

    monkeypatch.setattr(running, "run", refusing)
    result = empty("drill", "run", "kill-broker", "kill-host", code=1)
    assert "kill-broker: not run: kafka is away" in result.stderr
    assert [plan.drill.name for plan in planned] == ["kill-host"]
    assert "1 of 2 runs" in result.stderr
    assert "kafka is away" in empty("drill", "run", "kill-broker", code=3).stderr


def test_several_runs_that_keep_their_budgets_say_so(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    empty("init")
    setting = DrillSetting("kill-host", "a", "a-host-1", 0, "2026-01-01T00:00:00+00:00", 20, False, 16, 5)
    run = DrillRun(Report(setting, Figures(**FIGURES), [], []), [])
    monkeypatch.setattr(Hosts, "connect", classmethod(lambda _: Unmarked()))
    monkeypatch.setattr(running, "run", lambda *_: run)
    monkeypatch.setattr(plot, "draw", lambda *_: None)
    assert "all 2 runs kept their budgets" in empty("drill", "run", "kill-host", "--repeat", 2).stdout


def test_a_picture_that_cannot_be_drawn_costs_no_report(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty("init")
    monkeypatch.setattr(plot, "draw", lambda *_: 1 / 0)
    result = empty("drill", "run", "kill-host")
    assert "no picture" in result.stderr
    (text,) = (empty.home / "drills").glob("*.md")
    assert "latency" not in text.read_text()


def test_runs_are_listed_the_newest_last(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    assert "no run is kept there" in empty("drill", "history").stderr
    assert "No such file" in empty("drill", "history", "--folder", empty.home / "nowhere.json", code=2).stderr
    empty("drill", "run", "kill-host", "--repeat", 2, code=1)
    empty("drill", "run", "kill-host-with-meta", code=1)
    (empty.home / "drills" / "older.json").write_text('{"version": 1}')
    listed = empty("drill", "history")
    assert [line.split()[1:3] for line in listed.stdout.splitlines()] == [
        ["passed", "kill-host"],
        ["FAILED", "kill-host"],
        ["FAILED", "kill-host-with-meta"],
    ]
    assert "version 1" in listed.stderr
    assert len(empty("drill", "history", "kill-host").stdout.splitlines()) == 2
    assert empty.json("drill", "history")["setting"]["drill"] == "kill-host-with-meta"
    table = empty("drill", "history", "--table").stdout.splitlines()
    assert [line.split(" | ")[:2] for line in table[2:]] == [
        ["| `kill-host`", "1 of 2"],
        ["| `kill-host-with-meta`", "0 of 1"],
    ]


@pytest.mark.usefixtures("drawn")
def test_a_picture_is_drawn_anew_from_what_was_kept(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    empty("drill", "run", "kill-host")
    (made,) = (empty.home / "drills").glob("*.json")
    picture = made.with_suffix(".png")
    picture.unlink()
    assert empty("drill", "plot", made).stdout.strip() == str(picture)
    assert picture.exists()
    made.with_suffix(".samples.jsonl.gz").write_bytes(b"x")
    assert "samples" in empty("drill", "plot", made, code=2).stderr


def test_what_got_worse_ends_with_status_1(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    empty("drill", "run", "kill-host", "--out", empty.home / "old")
    empty("drill", "run", "kill-host", "--out", empty.home / "new", code=1)
    (old,) = (empty.home / "old").glob("*.json")
    assert "worse" not in empty("drill", "compare", old, empty.home / "old").stdout
    worse = empty("drill", "compare", old, empty.home / "new", code=1)
    assert "passed 1 of 1 -> 0 of 1" in worse.stdout
    assert "  worse   missing" in worse.stdout
    same = empty.json("drill", "compare", empty.home / "old", old)
    assert same["got_worse"] is False
    assert {
        "figure": "missing",
        "old": {"median": 0, "worst": 0},
        "new": {"median": 0, "worst": 0},
        "change": "same",
    } in (same["rows"])
    assert "No such file" in empty("drill", "compare", old, empty.home / "nothing", code=2).stderr
    empty("drill", "run", "kill-host-with-meta", "--out", empty.home / "other", code=1)
    assert "no drill in common" in empty("drill", "compare", old, empty.home / "other", code=2).stderr
