"""The report of a drill as a Markdown page: for the people who read it."""

from collections.abc import Sequence

import msgspec

from deploy.drills.recovery_log import Step, in_time
from deploy.drills.report import MEANINGS, DrillSetting, Report, Verdict

_NAMED_MAX = 2


def markdown(report: Report, picture: str = "") -> str:
    """A page for people: the verdict first. picture: the name of a file next to it; empty: there is none."""
    setting = report.setting
    over = [each for each in report.verdicts if not each.passed]
    lines = [
        f"# {setting.drill} on {where(setting)}: {'passed' if report.passed else 'FAILED'}",
        "",
        *([f"**{report.failure}**", ""] if report.failure else []),
        *(f"- {said}" for said in _told(report, over)),
        "",
        "## What was done",
        *([f"{setting.what[0].upper()}{setting.what[1:]}.", ""] if setting.what else []),
        _done(setting),
        "",
        "## Budgets",
        "| | at most | found | | |",
        "|---|---|---|---|---|",
        *(
            f"| {'ok' if each.passed else '**over**'} | {each.at_most:g} | {shown(each.found, each.figure)} "
            f"| `{each.figure}` | {MEANINGS[each.figure].what} |"
            for each in report.verdicts
        ),
        "",
        *([f"![latency and errors over time]({picture})", ""] if picture else []),
        "## Recovery, as the servers' logs have it",
        *_recovery(report.steps),
        "",
        "## Figures",
        "| figure | | |",
        "|---|---|---|",
        *(
            f"| `{name}` | {shown(value, name)} | {MEANINGS[name].what} |"
            for name, value in msgspec.structs.asdict(report.figures).items()
        ),
        "",
        "## What the drill did and saw",
        "| s from the fault | |",
        "|---|---|",
        *(f"| {at:.1f} | {_cell(what)} |" for at, what in report.timeline),
        "",
    ]
    return "\n".join(lines)


def where(setting: DrillSetting) -> str:
    """The hosts that were broken, or their cluster, in a few words."""
    few = setting.target and len(setting.target.split(", ")) <= _NAMED_MAX
    return setting.target if few else f"cluster {setting.cluster}"


def _told(report: Report, over: Sequence[Verdict]) -> list[str]:
    """The outcome in a few sentences."""
    figures = report.figures
    lost = (figures.missing, figures.extra, figures.differing)
    if None in lost:
        losses = "What was lost could not be counted."
    elif any(lost):
        losses = f"**{figures.missing} entries missing, {figures.extra} extra, {figures.differing} differing.**"
    else:
        losses = "Nothing was lost."
    said = [f"Over its budget: {', '.join(f'`{each.figure}`' for each in over)}."] if over else ["Within every budget."]
    waited = shown(figures.page_gap_s, "page_gap_s")
    said.append(
        f"{figures.pages_failed} of {figures.pages} pages failed; no reader waited longer than {waited} for one. "
        f"{losses}"
    )
    if report.setting.affected:
        read = shown(figures.affected_read_back_s, "affected_read_back_s")
        written = shown(figures.affected_write_back_s, "affected_write_back_s")
        said.append(
            f"The affected regions were read again {read} and written {written} after the {report.setting.back_from}."
        )
        if figures.processors_recovering is not None:
            said.append(
                f"Until then {shown(figures.processors_recovering, 'processors_recovering')} of this machine's "
                f"processors were in use, and {shown(figures.processors_before, 'processors_before')} before the fault."
            )
    return said


def _done(setting: DrillSetting) -> str:
    held = ", and hbase:meta" if setting.holds_meta else ""
    master = " It ran the active master too, which makes two faults of one." if setting.runs_master else ""
    return (
        f"{setting.target or 'No host'} of cluster {setting.cluster}, for {setting.hold_s:g} s: {setting.affected} of "
        f"{setting.regions} regions of the feeds{held} are affected.{master} {setting.started_at}, seed {setting.seed}."
    )


def _recovery(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["The logs were not read, or say nothing."]
    lines = [
        "The numbers are those of the picture. Seconds from the fault, and since the step before.",
        "",
        "| | s | + s | | where | the line |",
        "|---|---|---|---|---|---|",
    ]
    for number, (at_s, step) in enumerate(in_time(steps), 1):
        note = f" ({_cell(step.note)})" if step.note else ""
        line = step.line.replace("`", "'").replace("|", "\\|")
        lines.append(
            f"| {number} | {at_s:.2f} | {step.took_s:.2f} | {_cell(step.name)}{note} | {step.host} | `{line}` |"
        )
    unseen = [f"{step.name}{f' ({step.note})' if step.note else ''}" for step in steps if step.at_s is None]
    return [*lines, *(["", f"Not seen: {'; '.join(unseen)}."] if unseen else [])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def shown(value: float | None, figure: str) -> str:
    """A figure for people, with its unit where it does not count something."""
    if value is None:
        return "-"
    unit = MEANINGS[figure].unit
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value:,.0f} {unit}" if unit in {"ms", "%"} else f"{value:,.0f}"
