"""What a drill makes of what its load saw."""

import msgspec
import pytest

from deploy.drills import page
from deploy.drills import report as reporting
from deploy.drills.catalogue import DRILLS, Drill
from deploy.drills.recovery_log import Step
from deploy.drills.report import MEANINGS, DrillSetting, Figures, Moments, Observed, Report
from deploy.drills.samples import (
    CallSample,
    Kind,
    Loss,
    all_served_s,
    longest_gap_s,
    longest_quiet_s,
    loss,
    quantile_ms,
    worst_gap_s,
)

SETTING = DrillSetting("kill-host", "a", "a-host-2", 3, "2026-01-01T00:00:00+00:00", 20, False, 2, 1)


def calls(kind: Kind, region: int, *moments: float, is_done: bool = True) -> list[CallSample]:
    return [CallSample(kind, region, moment, 0.0, is_done, "a") for moment in moments]


def test_a_gap_is_between_calls_that_were_done() -> None:
    samples = calls("read", 0, 1, 2, 6, 7) + calls("read", 0, 3, 4, 5, is_done=False)
    assert longest_gap_s(samples, 0, 8, 8) == 4


def test_a_gap_reaches_to_the_ends_of_the_span() -> None:
    assert longest_gap_s(calls("read", 0, 1, 2), 0, 9, 9) == 7
    assert longest_gap_s([], 0, 9, 9) == 9


def test_a_gap_that_begins_in_the_span_counts_whole() -> None:
    # Silent from 2 to 8: in two spans that meet at 5 it would be two gaps of 3.
    samples = calls("read", 0, 1, 2, 8, 9)
    assert longest_gap_s(samples, 0, 5, 10) == 6
    assert longest_gap_s(samples, 8, 10, 10) == 1


def test_the_worst_of_several_regions_counts_and_callers_do_not_help_each_other() -> None:
    # One region answers while the other does not: together they would seem to have no gap.
    samples = calls("write", 0, *range(10)) + calls("write", 1, 0, 9)
    assert worst_gap_s(samples, "write", [0, 1], 0, 9, 9) == 9
    assert worst_gap_s(samples, "write", [], 0, 9, 9) is None


def test_a_region_is_back_with_a_call_that_began_after_the_fault() -> None:
    before = CallSample("read", 0, 9.9, 0.3, is_done=True)
    # Between the order to kill and its end, the target may answer once more.
    meanwhile = CallSample("read", 0, 10.2, 0.1, is_done=True)
    samples = [before, meanwhile, *calls("read", 0, 14), *calls("read", 1, 12)]
    assert all_served_s(samples, "read", [0, 1], 10, 10.5) == 4
    assert all_served_s(samples, "read", [0, 2], 10, 10.5) is None


def test_a_caller_that_fell_silent_or_did_nothing_is_seen() -> None:
    samples = [*calls("action", 0, 1, 7), *calls("page", 0, 2, 9), *calls("page", 1, 3, is_done=False)]
    assert longest_quiet_s(samples, [("action", 0), ("page", 0)], 10) == 3
    assert longest_quiet_s(samples, [("action", 0), ("page", 1)], 10) is None
    assert longest_quiet_s(samples, [("action", 0), ("read", 0)], 10) is None
    assert longest_quiet_s(samples, [], 10) is None


def test_quantiles_are_of_what_was_done() -> None:
    samples = [CallSample("page", 0, 0, took, is_done=True) for took in (0.001, 0.002, 0.003, 0.004)]
    assert quantile_ms([*samples, CallSample("page", 0, 0, 9, is_done=False)], 0.5) == 3
    assert quantile_ms(samples, 1.0) == 4
    assert quantile_ms([], 0.5) is None


def test_losses_phantoms_and_differences_are_counted_apart() -> None:
    whole = {1: frozenset({10, 11}), 2: frozenset({10, 11})}
    users, acknowledged, asked = [1, 2], frozenset({10, 11}), frozenset({10, 11, 12})
    assert loss({"a": whole, "b": whole}, users, acknowledged, asked) == Loss(0, 0, 0)
    # One entry removed by hand: the checker says so.
    without = {**whole, 2: frozenset({10})}
    assert loss({"a": whole, "b": without}, users, acknowledged, asked) == Loss(1, 0, 1)
    phantom = {**whole, 1: frozenset({10, 11, 99})}
    assert loss({"a": phantom, "b": whole}, users, acknowledged, asked) == Loss(0, 1, 1)
    # Another pin in the place of one.
    exchanged = {**whole, 2: frozenset({10, 99})}
    assert loss({"a": whole, "b": exchanged}, users, acknowledged, asked) == Loss(1, 1, 2)
    # The same in both: no difference shows it.
    assert loss({"a": without, "b": without}, users, acknowledged, asked) == Loss(2, 0, 0)
    # Saved without an answer: it may be there, but then in both.
    unsure = {**whole, 1: frozenset({10, 11, 12})}
    assert loss({"a": unsure, "b": unsure}, users, acknowledged, asked) == Loss(0, 0, 0)


@pytest.fixture
def figures() -> Figures:
    moments = Moments(warm=0, fault=10, gone=10.5, healed=15, ended=20)
    samples = [
        *calls("page", 0, *range(21)),
        *calls("page", 1, *range(0, 21, 2)),
        *calls("action", 0, *range(21)),
        *calls("read", 0, *range(10), 14, *range(15, 21)),
        *calls("write", 0, *range(10), 16, *range(17, 21)),
        *calls("read", 1, *range(21)),
        *calls("write", 1, *range(21)),
    ]
    return reporting.figures(SETTING, Observed(moments, samples, [0], [1], Loss(0, 0, 0), 2.5))


def test_affected_and_unaffected_regions_are_told_apart(figures: Figures) -> None:
    assert (figures.affected_read_back_s, figures.affected_write_back_s) == (4, 6)
    assert (figures.affected_read_gap_s, figures.unaffected_read_gap_s) == (5, 1)
    assert (figures.pages, figures.pages_failed) == (32, 0)
    # Of each reader's own: together they would seem to have none above 1.
    assert figures.page_gap_s == 2


def test_a_figure_over_its_budget_or_without_a_value_fails(figures: Figures) -> None:
    limits = {"affected_read_back_s": 5.0, "affected_write_back_s": 5.0, "landed_s": 3.0}
    assert [each.passed for each in reporting.verdicts(figures, limits)] == [True, False, True]
    nothing = msgspec.structs.replace(figures, landed_s=None)
    assert [each.passed for each in reporting.verdicts(nothing, {"landed_s": 3.0})] == [False]


def test_a_region_that_answers_once_and_is_away_again_is_not_back() -> None:
    moments = Moments(warm=0, fault=10, gone=10.5, healed=35, ended=40)
    once = [*range(10), 13, *range(29, 41)]
    found = reporting.figures(SETTING, Observed(moments, [*calls("read", 0, *once), *calls("write", 0, *once)], [0]))
    assert (found.affected_read_back_s, found.affected_write_back_s) == (3, 3)
    failed = {each.figure for each in reporting.verdicts(found, reporting.budgets("host")) if not each.passed}
    assert failed >= {"affected_read_gap_s", "affected_write_gap_s"}


def test_a_load_that_ended_early_or_recorded_nothing_fails(figures: Figures) -> None:
    limits = {"quiet_at_end_s": reporting.budgets("host")["quiet_at_end_s"]}
    assert figures.quiet_at_end_s == 0
    assert reporting.verdicts(figures, limits)[0].passed
    moments = Moments(warm=0, fault=10, gone=10.5, healed=15, ended=20)
    silent = [*calls("action", 0, *range(10)), *calls("page", 0, *range(21)), *calls("page", 1, *range(21))]
    for samples in (silent, silent[10:]):
        found = reporting.figures(SETTING, Observed(moments, samples, lost=Loss(0, 0, 0), landed_s=2.5))
        assert not reporting.verdicts(found, limits)[0].passed


def test_losses_that_nobody_could_count_fail(figures: Figures) -> None:
    moments = Moments(warm=0, fault=10, gone=10.5, healed=15, ended=20)
    found = reporting.figures(SETTING, Observed(moments, []))
    assert (found.missing, found.extra, found.differing) == (None, None, None)
    assert [each.passed for each in reporting.verdicts(found, {"missing": 0, "extra": 0, "differing": 0})] == [
        False
    ] * 3


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda drill: drill.name)
def test_every_budget_is_of_a_figure_and_none_may_be_lost(figures: Figures, drill: Drill) -> None:
    limits = reporting.budgets(drill.budgets)
    assert set(limits) <= set(msgspec.structs.asdict(figures))
    assert limits["missing"] == limits["extra"] == limits["differing"] == limits["pages_failed"] == 0
    assert limits["page_gap_s"] == 1.0
    # What a drill does not affect, or affects whole, has no such figure, and would never pass.
    assert drill.affected != "none" or not [name for name in limits if name.startswith("affected_")]
    assert drill.affected != "all" or not [name for name in limits if name.startswith("unaffected_")]


def test_actions_may_fail_only_where_their_database_is_away() -> None:
    may = {drill.name for drill in DRILLS.values() if "actions_failed" not in reporting.budgets(drill.budgets)}
    assert may == {"kill-database"}


def test_back_is_counted_from_the_healing_where_nothing_can_serve_before() -> None:
    moments = Moments(warm=0, fault=10, gone=10.5, healed=15, ended=20)
    samples = [*calls("read", 0, 9, 16, 18), *calls("write", 0, 9, 17)]
    setting = msgspec.structs.replace(SETTING, back_from="healing")
    found = reporting.figures(setting, Observed(moments, samples, affected=[0], hedged_pages=4))
    assert (found.affected_read_back_s, found.affected_write_back_s, found.hedged_pages) == (1, 2, 4)


def test_the_page_says_what_failed(figures: Figures) -> None:
    verdicts = reporting.verdicts(figures, {"affected_write_back_s": 5.0})
    made = Report(SETTING, figures, verdicts, [(0.0, "SIGKILL: a-host-2")])
    text = page.markdown(made, "made.png")
    assert not msgspec.structs.replace(made, verdicts=[], failure="it stays away").passed
    assert "**it stays away**" in page.markdown(msgspec.structs.replace(made, failure="it stays away"))
    assert text.startswith("# kill-host on a-host-2: FAILED\n\n- Over its budget: `affected_write_back_s`.\n")
    assert "| **over** | 5 | 6.00 s | `affected_write_back_s` | until every affected region" in text
    assert "read again 4.00 s and written 6.00 s after the fault" in text
    assert "| 0.0 | SIGKILL: a-host-2 |" in text
    assert "(made.png)" in text
    assert "![" not in page.markdown(made)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_the_page_shows_each_step_with_its_line_and_what_was_not_seen(figures: Figures) -> None:
    seen = [Step("one", 2.5, 2.5, "", "x-control", "a | b"), Step("two", None, note="1 of 2 regions seen")]
    text = page.markdown(Report(SETTING, figures, [], [], steps=seen))
    assert "| 1 | 2.50 | 2.50 | one | x-control | `a \\| b` |" in text
    assert "Not seen: two (1 of 2 regions seen)." in text


def test_every_figure_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Figures.__struct_fields__)


def test_a_backlog_is_drained_when_no_more_waits_than_before() -> None:
    moments = Moments(warm=0, fault=10, gone=10, healed=15, ended=20)
    before = [(8.0, 4), (9.0, 2)]

    def of(backlog: list[tuple[float, int]]) -> tuple[int | None, float | None]:
        found = reporting.figures(SETTING, Observed(moments, [], backlog=backlog))
        return found.backlog_most, found.backlog_drain_s

    assert of([*before, (11.0, 3), (12.0, 40), (13.0, 90), (14.0, 5), (15.0, 4), (16.0, 6)]) == (90, 2.0)
    assert of([*before, (11.0, 3)]) == (3, 0.0)
    assert of([*before, (11.0, 90), (12.0, 20)]) == (90, None)
    assert of(before) == (None, None)


def test_what_is_kept_counts_from_the_fault(figures: Figures) -> None:
    moments = Moments(warm=7, fault=10, gone=10.5, healed=15, ended=20)
    run = reporting.assemble(SETTING, figures, {}, Observed(moments, calls("page", 0, 12), backlog=[(11, 3)]))
    assert run.report.moments == Moments(-3, 0, 0.5, 5, 10)
    assert run.report.backlog == [(1, 3)]
    assert [each.began_s for each in run.samples] == [2]
