"""drill: what there is, what is refused, and what a run leaves behind. With a made-up system."""

import json
import os
import signal
from typing import Any

import msgspec
import pytest

from tests.cli.command import Cli
from workers.drills import report as reporting
from workers.drills import running
from workers.drills.catalogue import DRILLS
from workers.drills.course import Plan
from workers.drills.hosts import DockerHosts, Host, NotDrillableError
from workers.drills.report import Figures, Report, Setting

FIGURES: dict[str, Any] = dict.fromkeys(Figures.__struct_fields__, 0)


class Unmarked:
    """An engine without a marked container."""

    def all(self) -> list[Host]:
        return []


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was run; each second run goes over a budget."""
    plans: list[Plan] = []

    def run(config: Any, hosts: Any, plan: Plan, say: Any) -> Report:
        plans.append(plan)
        figures = Figures(**{**FIGURES, "missing": len(plans) - 1})
        started_at = f"2026-01-01T00:00:0{len(plans)}+00:00"
        setting = Setting(plan.drill.name, "a", "a-host-1", plan.seed, started_at, plan.hold_s, False, 16, 5)
        return Report(setting, figures, reporting.verdicts(figures, reporting.budgets("host")), [])

    monkeypatch.setattr(DockerHosts, "connect", classmethod(lambda _: Unmarked()))
    monkeypatch.setattr(running, "run", run)
    return plans


def test_the_drills_are_listed(empty: Cli) -> None:
    lines = empty("drill", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(DRILLS)


def test_a_system_that_is_not_marked_is_left_alone(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    empty("init")
    monkeypatch.setattr(DockerHosts, "connect", classmethod(lambda _: Unmarked()))
    assert "marked as drillable" in empty("drill", "run", "kill-host", code=3).stderr


def test_without_an_engine_it_says_how_to_get_one(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    empty("init")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert "make docker-ready cluster-up" in empty("drill", "run", "kill-host", code=3).stderr
    with pytest.raises(NotDrillableError):
        DockerHosts.connect()


def test_a_run_leaves_a_file_for_programs_and_a_page_for_people(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    result = empty("drill", "run", "kill-host", "--seed", 7, "--hold", 3)
    assert "ok   missing" in result.stdout
    (made,) = (empty.home / "drills").glob("*.json")
    report = msgspec.json.decode(made.read_bytes(), type=Report)
    assert report.setting.seed == json.loads(made.read_bytes())["setting"]["seed"] == 7
    assert made.with_suffix(".md").read_text().startswith("# kill-host: passed")
    assert planned == [Plan(DRILLS["kill-host"], "a", None, 7, 3)]


def test_a_target_that_stays_away_ends_the_runs_after_its_report(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty("init")
    run = running.run
    monkeypatch.setattr(running, "run", lambda *words: msgspec.structs.replace(run(*words), failure="it stays away"))
    assert "it stays away" in empty("drill", "run", "kill-host", "--repeat", 3, code=1).stderr
    assert len(planned) == len(list((empty.home / "drills").glob("*.md"))) == 1


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_broken_is_brought_back_when_the_run_is_ended(
    empty: Cli, planned: list[Plan], monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    empty("init")
    brought_back = []

    def run(*_: Any) -> Report:
        try:
            os.kill(os.getpid(), ending)
            raise AssertionError("it went on")
        finally:
            os.kill(os.getpid(), ending)  # somebody impatient
            brought_back.append(True)

    before = signal.getsignal(ending)
    monkeypatch.setattr(running, "run", run)
    empty("drill", "run", "kill-host", code=128 + ending)
    assert brought_back == [True]
    assert signal.getsignal(ending) == before


def test_a_run_over_a_budget_ends_with_status_1_when_all_are_done(empty: Cli, planned: list[Plan]) -> None:
    empty("init")
    result = empty("drill", "run", "kill-host", "--repeat", 3, code=1)
    assert "OVER missing" in result.stdout
    assert "2 of 3 runs went over a budget" in result.stderr
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

    def refusing(config: Any, hosts: Any, plan: Plan, say: Any) -> Report:
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
    setting = Setting("kill-host", "a", "a-host-1", 0, "2026-01-01T00:00:00+00:00", 20, False, 16, 5)
    report = Report(setting, Figures(**FIGURES), [], [])
    monkeypatch.setattr(DockerHosts, "connect", classmethod(lambda _: Unmarked()))
    monkeypatch.setattr(running, "run", lambda *_: report)
    assert "all 2 runs kept their budgets" in empty("drill", "run", "kill-host", "--repeat", 2).stdout
