"""The picture of a run: how long calls took and which failed, over time, with the fault and each step of the recovery.

Needs matplotlib, of the extra `drills`; colours are those of Okabe and Ito, which colour-blind people tell apart.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from deploy.drills.page import where
from deploy.drills.recovery_log import Step, in_time
from deploy.drills.report import Report
from deploy.drills.samples import CallSample

_BLUE, _SKY, _ORANGE, _GREEN, _RED, _GREY = "#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "#555555"
_STEPS_MAX = 26
_WIDTH_IN, _LEGEND_SHARE = 16.0, 0.28
_NUMBER_IN, _LEVEL_IN = 0.26, 0.2
"""The room that the number of a step needs; if steps follow closely, their numbers are above each other."""

_TOOK_MS_MIN = 0.1
_NAME_MAX = 48
_FAILED_AT = 1.04
"""Where failures are drawn: above the axes, as a share of their height."""


def draw(report: Report, samples: Sequence[CallSample], path: Path) -> None:
    """Writes a PNG. samples: their times are from the fault, as those of the report."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and of an extra

    affected = set(report.affected_regions)
    preferred = report.setting.cluster
    moments = report.moments
    from_s = min((each.began_s for each in samples), default=-1.0)
    until_s = max(moments.ended, *(each.ended_s for each in samples), 1.0)
    shown = in_time(report.steps)[:_STEPS_MAX]
    levels = _levels(
        [at_s for at_s, _ in shown], _NUMBER_IN * (until_s - from_s) / (_WIDTH_IN * (0.95 - _LEGEND_SHARE))
    )
    below = [
        (title, measured)
        for title, measured in (
            ("messages that wait for the drilled cluster's writer", report.backlog),
            (
                "this machine's processors that are in use, %",
                [(at_s, share * 100) for at_s, share in report.processors],
            ),
        )
        if measured
    ]
    heights_in = [_LEVEL_IN * (max(levels, default=0) + 2), 3.0, 2.4, 2.4, *([1.2] * len(below))]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights_in) + 2), layout="constrained")
    grid = figure.add_gridspec(
        len(heights_in), 2, height_ratios=heights_in, width_ratios=[1 - _LEGEND_SHARE, _LEGEND_SHARE]
    )
    rows = [figure.add_subplot(grid[0, 0])]
    rows += [figure.add_subplot(grid[row, 0], sharex=rows[0]) for row in range(1, len(heights_in))]
    lane, pages, touched, others, *small = rows
    _calls(
        pages,
        "pages",
        [
            (f"from cluster {preferred}", _BLUE, _of(samples, "page", lambda each: each.detail == preferred)),
            ("from another cluster", _ORANGE, _of(samples, "page", lambda each: each.detail != preferred)),
        ],
    )
    for axes, title, chosen in (
        (touched, f"affected regions ({len(affected)})", lambda each: each.caller in affected),
        (others, f"other regions ({report.setting.regions - len(affected)})", lambda each: each.caller not in affected),
    ):
        calls = [
            ("reads", _SKY, _of(samples, "read", chosen)),
            ("writes", _GREEN, _of(samples, "write", chosen)),
        ]
        _calls(axes, title, calls)
    for axes, (title, measured) in zip(small, below, strict=True):
        axes.step(*zip(*measured, strict=True), where="post", color=_GREY, linewidth=1.2)
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=9)
    _mark(rows, [at_s for at_s, _ in shown], moments.healed)
    _number(lane, [at_s for at_s, _ in shown], levels, moments.healed)
    lane.set_xlim(from_s, until_s)
    took_ms = [each.took_s * 1_000 for each in samples if each.is_done] or [1.0]
    for axes in (pages, touched, others):
        axes.set_ylim(max(_TOOK_MS_MIN, min(took_ms) / 1.5), max(took_ms) * 1.5)
    for axes in rows[1:-1]:
        axes.tick_params(labelbottom=False)
    rows[-1].set_xlabel("seconds from the fault")
    verdict = "passed" if report.passed else "FAILED"
    setting = report.setting
    figure.suptitle(
        f"{setting.drill} on {where(setting)}: {verdict}    {setting.started_at}, seed {setting.seed}",
        fontsize=12,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    _legend(figure.add_subplot(grid[:, 1]), shown, len(in_time(report.steps)))
    figure.savefig(path, dpi=110)


def _of(samples: Iterable[CallSample], kind: str, chosen: Callable[[CallSample], bool]) -> list[CallSample]:
    """The samples of a kind that are chosen, and every page that failed, since no cluster is known for it."""
    return [each for each in samples if each.kind == kind and (chosen(each) or (kind == "page" and not each.is_done))]


def _calls(axes: Any, title: str, series: Sequence[tuple[str, str, list[CallSample]]]) -> None:
    """A dot where each call that was done ended; above the axes a cross for each that failed."""
    failed: dict[float, None] = {}
    for name, colour, samples in series:
        done = [each for each in samples if each.is_done]
        axes.plot(
            [each.ended_s for each in done],
            [max(_TOOK_MS_MIN, each.took_s * 1_000) for each in done],
            linestyle="none",
            marker=".",
            markersize=3.0,
            color=colour,
            alpha=0.6,
            label=f"{name}: {len(done):,}",
        )
        failed |= dict.fromkeys(each.ended_s for each in samples if not each.is_done)
    (crosses,) = axes.plot(
        list(failed),
        [_FAILED_AT] * len(failed),
        linestyle="none",
        marker="x",
        markersize=5,
        color=_RED,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        label=f"failed: {len(failed):,}",
    )
    crosses.set_in_layout(False)  # where there are none, they would be nowhere
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda ms, _: f"{ms:g}")
    axes.set_ylabel("ms")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=9, pad=12)
    legend = axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.04), ncols=3, fontsize=8, frameon=False)
    for handle in legend.legend_handles:
        handle.set_alpha(1)
        handle.set_markersize(6)


def _mark(rows: Sequence[Any], steps_s: Sequence[float], healed_s: float) -> None:
    """The fault, the healing and every step, through all rows."""
    for axes in rows:
        axes.axvline(0.0, color=_RED, linewidth=1.6)
        axes.axvline(healed_s, color=_GREEN, linewidth=1.6)
        for at_s in steps_s:
            axes.axvline(at_s, color=_GREY, linewidth=0.6, alpha=0.6, linestyle=(0, (4, 3)))
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def _levels(steps_s: Iterable[float], room_s: float) -> list[int]:
    """For each step, how high its number is drawn: no other of the same level is nearer than `room_s`."""
    levels: list[int] = []
    free_s: list[float] = []
    for at_s in steps_s:
        level = next((number for number, free in enumerate(free_s) if free <= at_s), len(free_s))
        free_s[level : level + 1] = [at_s + room_s]
        levels.append(level)
    return levels


def _number(lane: Any, steps_s: Sequence[float], levels: Sequence[int], healed_s: float) -> None:
    top = max(levels, default=0) + 1
    lane.axis("off")
    lane.set_ylim(-0.5, top + 0.5)

    def put(text: str, at_s: float, level: int, colour: str, align: str) -> None:
        box = {"boxstyle": "round,pad=0.2", "facecolor": colour, "edgecolor": "white", "linewidth": 0.5}
        lane.text(at_s, level, text, color="white", fontsize=8, ha=align, va="center", bbox=box)

    for number, (at_s, level) in enumerate(zip(steps_s, levels, strict=True), 1):
        put(str(number), at_s, level, _GREY, "center")
    put("fault", 0.0, top, _RED, "left")
    put("healed", healed_s, top, _GREEN, "left")


def _legend(axes: Any, shown: Sequence[tuple[float, Step]], of: int) -> None:
    lines = [
        f"{number:>2}  {at_s:7.2f} s  {textwrap.shorten(step.name, _NAME_MAX, placeholder='…')}"
        for number, (at_s, step) in enumerate(shown, 1)
    ]
    if not lines:
        lines = ["the servers' logs say nothing"]
    if of > len(shown):
        lines.append(f"    and {of - len(shown)} more, in the page")
    axes.axis("off")
    text = axes.text(0.0, 1.0, "\n".join(lines), family="monospace", fontsize=8, va="top", linespacing=1.6)
    text.set_in_layout(False)
