"""Runs of a drill side by side: which figures got worse, and a summary of them all. Pure."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from deploy.drills.page import shown
from deploy.drills.report import MEANINGS, NEVER, NOT_JUDGED, Report

Change = Literal["better", "same", "worse"]

RELATIVE = 0.25
FLOOR_S = 0.5
"""Values count as the same if they differ by no more than a quarter, or half a second. Single runs differ so."""

_FLOORS = {"ms": 100.0, "messages": 50.0}
_EXACT = {"entries"}
"""Units of figures that must not grow at all."""


class Tolerance(NamedTuple):
    """relative: a share of the old value. floor_s: in seconds. The larger of the two counts. Other units have floors of
    their own, and lost entries have none.
    """

    relative: float = RELATIVE
    floor_s: float = FLOOR_S

    def change(self, figure: str, old: float, new: float) -> Change:
        """Less is better, of every figure."""
        unit = MEANINGS[figure].unit
        slack = 0.0 if unit in _EXACT else self._slack(unit, old)
        if new > old + slack:
            return "worse"
        return "better" if old > new + slack else "same"

    def _slack(self, unit: str, old: float) -> float:
        floor = self.floor_s if unit == "s" else _FLOORS.get(unit, 0.0)
        return 0.0 if math.isinf(old) else max(floor, self.relative * old)


class FigureSpread(msgspec.Struct, frozen=True):
    """One figure in several runs; infinite: it never came."""

    median: float
    worst: float


class FigureRow(msgspec.Struct, frozen=True):
    """A figure in two sets of runs. change: the worse of how the median and how the worst changed."""

    figure: str
    old: FigureSpread
    new: FigureSpread
    change: Change


class Comparison(msgspec.Struct, frozen=True):
    """Two sets of runs of one drill. old_passed, new_passed: how many runs. broken: budgets that every old run kept and
    not every new one.
    """

    drill: str
    old_runs: int
    old_passed: int
    new_runs: int
    new_passed: int
    rows: list[FigureRow]
    broken: list[str]

    @property
    def got_worse(self) -> bool:
        passed_less = self.new_passed * self.old_runs < self.old_passed * self.new_runs
        return passed_less or bool(self.broken) or any(row.change == "worse" for row in self.rows)


def spread(reports: Iterable[Report], figure: str) -> FigureSpread | None:
    """Median and worst; None if no run has the figure."""
    values = [value for each in reports if (value := _value(each, figure)) is not None]
    return FigureSpread(_median(values), max(values)) if values else None


def compared(old: Sequence[Report], new: Sequence[Report], tolerance: Tolerance) -> Comparison:
    """Compares old and new reports of one drill; neither may be empty."""
    (drill,) = {each.setting.drill for each in (*old, *new)}
    rows = []
    for figure, meaning in MEANINGS.items():
        before, after = spread(old, figure), spread(new, figure)
        if NOT_JUDGED in meaning.marks or before is None or after is None:
            continue
        changes = {
            tolerance.change(figure, before.median, after.median),
            tolerance.change(figure, before.worst, after.worst),
        }
        change: Change = "worse" if "worse" in changes else "better" if "better" in changes else "same"
        rows.append(FigureRow(figure, before, after, change))
    return Comparison(
        drill,
        len(old),
        sum(each.passed for each in old),
        len(new),
        sum(each.passed for each in new),
        rows,
        sorted(_failed(new) - _failed(old)),
    )


def by_drill(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """The reports by the name of their drill, in the order in which the names come first."""
    found: dict[str, list[Report]] = {}
    for each in reports:
        found.setdefault(each.setting.drill, []).append(each)
    return found


def text(comparison: Comparison) -> list[str]:
    """A comparison as lines for people."""
    runs = [(comparison.old_passed, comparison.old_runs), (comparison.new_passed, comparison.new_runs)]
    lines = [f"{comparison.drill}: passed {' -> '.join(f'{passed} of {all_}' for passed, all_ in runs)}"]
    lines += [
        f"  worse   {name}: not every new run is within its budget; every old one was" for name in comparison.broken
    ]
    lines.append(f"  {'':<7} {'':<22} {'old median':>11} {'worst':>10}   {'new median':>11} {'worst':>10}")
    for row in comparison.rows:
        old_median, old_worst, new_median, new_worst = (
            "never" if math.isinf(value) else shown(value, row.figure)
            for value in (row.old.median, row.old.worst, row.new.median, row.new.worst)
        )
        lines.append(
            f"  {row.change:<7} {row.figure:<22} {old_median:>11} {old_worst:>10}   {new_median:>11} {new_worst:>10}"
        )
    return lines


_COLUMNS: tuple[tuple[str, tuple[str, ...], Literal["both", "median", "worst", "sum"]], ...] = (
    ("affected regions back (read), median; worst", ("affected_read_back_s",), "both"),
    ("(written)", ("affected_write_back_s",), "both"),
    ("other regions' gap, reads", ("unaffected_read_gap_s",), "both"),
    ("writes", ("unaffected_write_gap_s",), "both"),
    ("readers' worst gap", ("page_gap_s",), "worst"),
    ("pages failed", ("pages_failed",), "sum"),
    ("missing, extra, differing", ("missing", "extra", "differing"), "sum"),
    ("detection", ("detection_s",), "median"),
    ("split", ("split_s",), "median"),
    ("hbase:meta", ("meta_open_s",), "median"),
    ("reopening", ("reopen_s",), "median"),
)
"""The columns of the table: a heading, the figures, and which of their values are shown."""


def table(reports: Iterable[Report]) -> list[str]:
    """A table in Markdown, with a summary of the runs of each drill in a line. Times are in seconds."""
    lines = [
        "| drill | passed | " + " | ".join(heading for heading, _, _ in _COLUMNS) + " |",
        "|" + "---|" * (2 + len(_COLUMNS)),
    ]
    for drill, runs in by_drill(reports).items():
        passed = f"{sum(each.passed for each in runs)} of {len(runs)}"
        cells = [_cell(runs, figures, kind) for _, figures, kind in _COLUMNS]
        lines.append(f"| `{drill}` | {passed} | {' | '.join(cells)} |")
    return lines


def _cell(runs: Sequence[Report], figures: Sequence[str], kind: str) -> str:
    said = []
    for figure in figures:
        found = spread(runs, figure)
        if found is None:
            said.append("-")
        elif kind == "sum":
            said.append(_short(sum(_value(each, figure) or 0.0 for each in runs), figure))
        elif kind == "both" and len(runs) > 1:
            said.append(f"{_short(found.median, figure)}; {_short(found.worst, figure)}")
        else:
            said.append(_short(found.worst if kind == "worst" else found.median, figure))
    return ", ".join(said)


def _short(value: float, figure: str) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:.2f}" if MEANINGS[figure].unit == "s" else f"{value:.0f}"


def _value(report: Report, figure: str) -> float | None:
    value: float | None = getattr(report.figures, figure)
    was_due = report.setting.affected or not figure.startswith("affected")
    return math.inf if value is None and was_due and NEVER in MEANINGS[figure].marks else value


def _median(values: Sequence[float]) -> float:
    """The median: of an even number of values, if one is infinite, the larger of the two in the middle."""
    return statistics.median_high(values) if math.inf in values else statistics.median(values)


def _failed(reports: Iterable[Report]) -> set[str]:
    failed = {verdict.figure for each in reports for verdict in each.verdicts if not verdict.passed}
    return failed | ({"healing"} if any(each.failure for each in reports) else set())
