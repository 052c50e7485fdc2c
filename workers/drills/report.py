"""The report of a drill: what was measured, held against the budgets; as JSON and as a Markdown page."""

import tomllib
from importlib import resources
from typing import Literal

import msgspec

from workers.drills.load import READERS
from workers.drills.samples import Kind, Loss, Sample, all_served_s, longest_quiet_s, quantile_ms, worst_gap_s

ANY = "any"
"""In budgets.toml, of a figure that may be what it is."""


class Setting(msgspec.Struct, frozen=True):
    """What was done to what. started_at: UTC. target: the names of the hosts, with commas. regions: of the drilled
    cluster; affected: those of them that could not be expected to serve. back_from: what `back` is counted from, the
    fault or, where nothing can serve before it, the healing.
    """

    drill: str
    cluster: str
    target: str
    seed: int
    started_at: str
    hold_s: float
    holds_meta: bool
    regions: int
    affected: int
    back_from: Literal["fault", "healing"] = "fault"


class Moments(msgspec.Struct, frozen=True):
    """Of `time.monotonic`, in s. fault: it began; gone: all of it had been done. healed: that was undone, or could not
    be.
    """

    warm: float
    fault: float
    gone: float
    healed: float
    ended: float


class Figures(msgspec.Struct, frozen=True):
    """Seconds (back: from what `Setting.back_from` says; landed: from the end of the load), gaps in seconds,
    milliseconds, counts. None: there was nothing to measure, or it never came.

    hedged_pages: of which another cluster was asked as well. expired_servers: region servers that the master took for
    dead. page_gap_s: the longest of each reader's own. quiet_at_end_s: how long before the end of the load the last
    call was done of the caller who fell silent first.
    """

    pages: int
    pages_failed: int
    page_gap_s: float | None
    page_p50_ms: float | None
    page_p99_ms: float | None
    page_slowest_ms: float | None
    pages_from_other: int
    hedged_pages: int
    actions: int
    actions_failed: int
    action_gap_s: float | None
    affected_read_gap_s: float | None
    affected_write_gap_s: float | None
    affected_read_back_s: float | None
    affected_write_back_s: float | None
    unaffected_read_gap_s: float | None
    unaffected_write_gap_s: float | None
    landed_s: float | None
    quiet_at_end_s: float | None
    missing: int | None
    extra: int | None
    differing: int | None
    expired_servers: int | None


class Verdict(msgspec.Struct, frozen=True):
    """One budget. found: None where it was not measured, which does not pass."""

    figure: str
    at_most: float
    found: float | None
    passed: bool


class Report(msgspec.Struct, frozen=True):
    """A whole run. timeline: (seconds from the fault, what happened). failure: why the target could not be brought
    back; empty where it was.
    """

    setting: Setting
    figures: Figures
    verdicts: list[Verdict]
    timeline: list[tuple[float, str]]
    failure: str = ""
    version: int = 1

    @property
    def passed(self) -> bool:
        return not self.failure and all(each.passed for each in self.verdicts)


def budgets(section: str) -> dict[str, float]:
    """By the name of a figure, the most that it may be in drills of this section."""
    found = tomllib.loads(resources.files("workers.drills").joinpath("budgets.toml").read_text("utf-8"))
    limits = {**found["every"], **found[section]}
    return {name: float(value) for name, value in limits.items() if value != ANY}


def figures(
    samples: list[Sample],
    moments: Moments,
    affected: list[int],
    unaffected: list[int],
    loss: Loss | None,
    landed_s: float | None,
    *,
    back_from: Literal["fault", "healing"] = "fault",
    hedged_pages: int = 0,
    expired_servers: int | None = None,
) -> Figures:
    """From the last moment before the fault in which all was well to the end of the load. loss, expired_servers: None
    where nobody could count them.
    """
    back = (moments.fault, moments.gone) if back_from == "fault" else (moments.healed, moments.healed)
    pages = [each for each in samples if each.kind == "page"]
    actions = [each for each in samples if each.kind == "action"]
    preferred = next((each.detail for each in pages if each.is_done), "")

    readers = list(range(READERS))
    callers: list[tuple[Kind, int]] = [("action", 0), *(("page", reader) for reader in readers)]
    for region in (*affected, *unaffected):
        callers += [("read", region), ("write", region)]

    def gap(kind: Kind, callers: list[int]) -> float | None:
        return worst_gap_s(samples, kind, callers, moments.warm, moments.ended)

    return Figures(
        pages=len(pages),
        pages_failed=sum(not each.is_done for each in pages),
        page_gap_s=gap("page", readers),
        page_p50_ms=quantile_ms(pages, 0.5),
        page_p99_ms=quantile_ms(pages, 0.99),
        page_slowest_ms=quantile_ms(pages, 1.0),
        pages_from_other=sum(each.is_done and each.detail != preferred for each in pages),
        hedged_pages=hedged_pages,
        actions=len(actions),
        actions_failed=sum(not each.is_done for each in actions),
        action_gap_s=gap("action", [0]),
        affected_read_gap_s=gap("read", affected),
        affected_write_gap_s=gap("write", affected),
        affected_read_back_s=all_served_s(samples, "read", affected, *back),
        affected_write_back_s=all_served_s(samples, "write", affected, *back),
        unaffected_read_gap_s=gap("read", unaffected),
        unaffected_write_gap_s=gap("write", unaffected),
        landed_s=landed_s,
        quiet_at_end_s=longest_quiet_s(samples, callers, moments.ended),
        missing=None if loss is None else loss.missing,
        extra=None if loss is None else loss.extra,
        differing=None if loss is None else loss.differing,
        expired_servers=expired_servers,
    )


def verdicts(found: Figures, limits: dict[str, float]) -> list[Verdict]:
    made = []
    for name, at_most in limits.items():
        value = getattr(found, name)
        made.append(Verdict(name, at_most, value, value is not None and value <= at_most))
    return made


def markdown(report: Report) -> str:
    """A page for people."""
    setting = report.setting
    held = ", and hbase:meta" if setting.holds_meta else ""
    what = (
        f"{setting.target or 'no host'} of cluster {setting.cluster} for {setting.hold_s:g} s: {setting.affected} of "
        f"{setting.regions} regions of the feeds{held} are affected. {setting.started_at}, seed {setting.seed}."
    )
    lines = [
        f"# {setting.drill}: {'passed' if report.passed else 'FAILED'}",
        "",
        what,
        *(["", f"**{report.failure}**"] if report.failure else []),
        "",
        "| budget | at most | found | |",
        "|---|---|---|---|",
        *(
            f"| {each.figure} | {each.at_most:g} | {_shown(each.found)} | {'ok' if each.passed else '**over**'} |"
            for each in report.verdicts
        ),
        "",
        "| figure | |",
        "|---|---|",
        *(f"| {name} | {_shown(value)} |" for name, value in msgspec.structs.asdict(report.figures).items()),
        "",
        "| s from the fault | |",
        "|---|---|",
        *(f"| {at:.1f} | {what} |" for at, what in report.timeline),
        "",
    ]
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
