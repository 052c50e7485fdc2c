"""What is kept of a run, and what runs come to side by side."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.drills import compare, history, plot
from deploy.drills.compare import FigureSpread, Tolerance
from deploy.drills.history import HistoryError
from deploy.drills.report import MEANINGS, DrillRun, DrillSetting, Figures, Report, verdicts
from deploy.drills.samples import CallSample

NONE: dict[str, Any] = dict.fromkeys(Figures.__struct_fields__, 0)
SETTING = DrillSetting("kill-host", "b", "b-host-2", 3, "2026-01-01T00:00:00+00:00", 20, False, 16, 5)


def report(**figures: float | None) -> Report:
    found = Figures(**{**NONE, **figures})
    return Report(SETTING, found, verdicts(found, {"affected_read_back_s": 10.0}), [])


def no_complaint(text: str) -> None:
    raise AssertionError(text)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    samples = [
        CallSample("page", 1, -2.0, 0.0041, is_done=True, detail="b"),
        CallSample("write", 7, 0.5, 1.5, is_done=False, detail='UnavailableError: "no"'),
    ]
    made = report(page_gap_s=0.5)
    path = history.keep(tmp_path / "new", DrillRun(made, samples), no_complaint)
    (kept,) = history.load(tmp_path / "new", no_complaint)
    assert kept.report == made
    assert history.samples_of(kept) == samples
    assert {each.suffix for each in path.parent.iterdir()} == {".json", ".md", ".png", ".gz"}


def test_runs_come_in_the_order_of_time_and_what_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "draw", lambda *_: None)  # a picture takes a second
    for moment in ("2026-01-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00"):
        made = msgspec.structs.replace(report(), setting=msgspec.structs.replace(SETTING, started_at=moment))
        history.keep(tmp_path, DrillRun(made, []), no_complaint)
    (tmp_path / "a.json").write_text("{}")
    said: list[str] = []
    assert [kept.report.setting.started_at[:10] for kept in history.load(tmp_path, said.append)] == [
        "2026-01-01",
        "2026-01-02",
    ]
    assert [line.partition(":")[0] for line in said] == [str(tmp_path / "a.json")]
    with pytest.raises(HistoryError, match="no report"):
        history.load(tmp_path / "a.json", no_complaint)
    with pytest.raises(HistoryError, match="No such file"):
        history.load(tmp_path / "nothing", no_complaint)


def test_of_too_many_samples_none_that_failed_is_left_out() -> None:
    samples = [CallSample("read", 0, number, 0.0, is_done=number % 10 != 0) for number in range(1_000)]
    kept = history.thinned(samples, 400)
    assert [each for each in kept if not each.is_done] == [each for each in samples if not each.is_done]
    assert 300 < len(kept) <= 400
    assert kept == sorted(kept, key=lambda each: each.began_s)
    assert history.thinned(samples, 1_000) == samples
    assert len(history.thinned(samples, 50)) == 101


@pytest.mark.parametrize(
    ("figure", "old", "new", "change"),
    [
        ("page_gap_s", 0.3, 0.75, "same"),  # half a second is nothing
        ("page_gap_s", 0.3, 0.85, "worse"),
        ("affected_read_back_s", 8.0, 9.9, "same"),  # a quarter is nothing
        ("affected_read_back_s", 8.0, 10.1, "worse"),
        ("affected_read_back_s", 10.1, 8.0, "same"),
        ("affected_read_back_s", 10.7, 8.0, "better"),
        ("affected_read_back_s", 8.0, None, "worse"),
        ("affected_read_back_s", None, 8.0, "better"),
        ("affected_read_back_s", None, None, "same"),
        ("page_p99_ms", 20, 110, "same"),
        ("page_p99_ms", 20, 130, "worse"),
        ("pages_failed", 0, 1, "worse"),
        ("actions_failed", 80, 90, "same"),
        ("missing", 80, 81, "worse"),
        ("missing", 0, None, "worse"),
        ("differing", 1, 0, "better"),
    ],
)
def test_what_differs_by_less_than_the_tolerance_is_the_same(
    figure: str, old: float | None, new: float | None, change: str
) -> None:
    made = compare.compared([report(**{figure: old})], [report(**{figure: new})], Tolerance())
    (row,) = [row for row in made.rows if row.figure == figure]
    assert row.change == change
    if change != "same" or old is not None:
        assert made.got_worse == (change == "worse")


def test_the_median_and_the_worst_must_both_hold() -> None:
    def runs(*values: float) -> list[Report]:
        return [report(affected_read_back_s=value) for value in values]

    def row(old: list[Report], new: list[Report]) -> compare.FigureRow:
        rows = compare.compared(old, new, Tolerance()).rows
        return next(row for row in rows if row.figure == "affected_read_back_s")

    old = runs(3, 4, 5)
    assert row(old, runs(3, 4, 9)) == compare.FigureRow(
        "affected_read_back_s", FigureSpread(4, 5), FigureSpread(4, 9), "worse"
    )
    assert row(old, runs(5, 6, 6)) == compare.FigureRow(
        "affected_read_back_s", FigureSpread(4, 5), FigureSpread(6, 6), "worse"
    )
    assert row(old, runs(2, 2, 5)).change == "better"
    assert row(old, runs(4)).change == "same"


def test_a_budget_that_is_no_longer_kept_is_worse_within_the_tolerance() -> None:
    made = compare.compared([report(affected_read_back_s=9.9)], [report(affected_read_back_s=10.1)], Tolerance())
    assert made.broken == ["affected_read_back_s"]
    assert (made.old_passed, made.new_passed) == (1, 0)
    assert made.got_worse
    assert any(line.startswith("  worse   affected_read_back_s: not every") for line in compare.text(made))


def test_what_has_no_direction_or_no_value_is_not_judged() -> None:
    made = compare.compared([report(pages=10, meta_open_s=None)], [report(pages=900, meta_open_s=3)], Tolerance())
    assert {"pages", "hedged_pages", "meta_open_s"} & {row.figure for row in made.rows} == set()
    assert not made.got_worse


def test_where_no_region_is_affected_none_can_be_late() -> None:
    setting = msgspec.structs.replace(SETTING, affected=0)
    gateway = msgspec.structs.replace(report(affected_read_back_s=None), setting=setting)
    assert compare.spread([gateway], "affected_read_back_s") is None
    assert "never" not in "".join(compare.table([gateway]))


def test_the_table_has_a_line_a_drill_with_median_and_worst() -> None:
    runs = [report(affected_read_back_s=back, page_gap_s=gap) for back, gap in ((3, 0.2), (4, 0.9), (None, 0.1))]
    head, _, line = compare.table(runs)
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert cells["passed"] == "2 of 3"
    assert cells["affected regions back (read), median; worst"] == "4.00; never"
    assert cells["readers' worst gap"] == "0.90"
    assert cells["missing, extra, differing"] == "0, 0, 0"


def test_every_figure_that_is_named_is_one() -> None:
    columns = {figure for _, figures, _ in compare._COLUMNS for figure in figures}
    assert columns <= set(MEANINGS)
