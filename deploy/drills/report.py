"""The report of a drill: its figures, compared with the budgets. It is kept as JSON (`history`)."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Literal, NamedTuple, get_type_hints

import msgspec

from deploy.drills.load import READERS, callers
from deploy.drills.processors import Busy, mean_share
from deploy.drills.recovery_log import Step, spans
from deploy.drills.samples import CallSample, Kind, Loss, all_served_s, longest_quiet_s, quantile_ms, worst_gap_s

VERSION = 2

ANY = "any"
"""In budgets.toml, the budget of a figure that may have any value."""

_EVERY = "every"


class DrillSetting(msgspec.Struct, frozen=True):
    """The fault of a run, and its target. started_at: UTC. target: the names of the hosts, with commas. regions: of the
    drilled cluster; affected: those of them that could not be expected to serve. back_from: the moment from which
    `back` is counted: the fault, or the healing if nothing can serve before it. what: the fault in a sentence.
    runs_master: a host of regions ran the active master too, which makes two faults of one.
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
    what: str = ""
    runs_master: bool = False


class Moments(msgspec.Struct, frozen=True):
    """Moments of `time.monotonic`, in s; in a report, from the fault. fault: it began; gone: all of it had been done;
    healed: it was undone, or could not be.
    """

    warm: float
    fault: float
    gone: float
    healed: float
    ended: float


class Meaning(NamedTuple):
    """unit: s, ms, %, or the things that are counted. what: for people. marks: NOT_JUDGED, NEVER."""

    unit: str
    what: str
    marks: frozenset[str]


NOT_JUDGED = "not judged"
"""More of the figure is neither better nor worse. Of all others less is better."""

NEVER = "never"
"""A missing value means that it never came, or could not be counted: worse than any value."""

_Pages = Annotated[int, "pages"]
_Actions = Annotated[int, "actions"]
_Seconds = Annotated[float | None, "s"]
_Milliseconds = Annotated[float | None, "ms"]
_Entries = Annotated[int | None, "entries"]
_Percent = Annotated[float | None, "%"]


class Figures(msgspec.Struct, frozen=True):
    """Each with its meaning. None: there was nothing to measure, or it never came."""

    pages: Annotated[_Pages, "read by the system's readers, who prefer the drilled cluster", NOT_JUDGED]
    pages_failed: Annotated[_Pages, "that failed, whatever the reader tried"]
    pages_from_other: Annotated[_Pages, "that another cluster than the drilled one served", NOT_JUDGED]
    hedged_pages: Annotated[
        int | None, "pages", "that another cluster was asked for too, because the first one said nothing", NOT_JUDGED
    ]
    page_gap_s: Annotated[_Seconds, "the longest that a reader was without a page; each reader's own", NEVER]
    page_p50_ms: Annotated[_Milliseconds, "half of the pages took no longer, before, during and after the fault"]
    page_p99_ms: Annotated[_Milliseconds, "99 of 100 pages took no longer"]
    page_slowest_ms: Annotated[_Milliseconds, "the slowest page that was served"]
    actions: Annotated[_Actions, "recorded in the follow store, or tried to be", NOT_JUDGED]
    actions_failed: Annotated[_Actions, "that were refused or got no answer"]
    action_gap_s: Annotated[_Seconds, "the longest time without an action that was recorded"]
    affected_read_back_s: Annotated[
        _Seconds, "until every affected region had been read again, from the fault or the healing", NEVER
    ]
    affected_write_back_s: Annotated[
        _Seconds, "until every affected region had been written again, from the same moment", NEVER
    ]
    affected_read_gap_s: Annotated[_Seconds, "the longest that an affected region was not read"]
    affected_write_gap_s: Annotated[_Seconds, "the longest that an affected region was not written"]
    unaffected_read_gap_s: Annotated[
        _Seconds, "the longest that any other region of the drilled cluster was not read, until the healing"
    ]
    unaffected_write_gap_s: Annotated[_Seconds, "the longest that any of these was not written, until the healing"]
    return_read_gap_s: Annotated[
        _Seconds, "the longest that any region was not read since the healing; the balancer moves some of them back"
    ]
    return_write_gap_s: Annotated[_Seconds, "the longest that any region was not written since the healing"]
    detection_s: Annotated[_Seconds, "from the fault until the master knew that the server was gone"]
    split_s: Annotated[_Seconds, "to split its logs, that of hbase:meta included"]
    meta_open_s: Annotated[_Seconds, "from the split of its log until hbase:meta was open, where it held that"]
    reopen_s: Annotated[_Seconds, "from the first of its regions that was assigned to the last that was open"]
    expired_servers: Annotated[
        int | None, "servers", "that the master took for dead since the fault, the target included"
    ]
    backlog_most: Annotated[int | None, "messages", "the most that waited for the drilled cluster's writer"]
    backlog_drain_s: Annotated[_Seconds, "from that most until no more waited than before the fault", NEVER]
    landed_s: Annotated[
        _Seconds, "from the end of the load until all that was acknowledged stood in both clusters", NEVER
    ]
    quiet_at_end_s: Annotated[
        _Seconds, "before the end of the load the last call was done of the caller who fell silent first", NOT_JUDGED
    ]
    missing: Annotated[_Entries, "acknowledged, and not in a cluster", NEVER]
    extra: Annotated[_Entries, "in a cluster, and never asked for", NEVER]
    differing: Annotated[_Entries, "in one cluster only", NEVER]
    processors_before: Annotated[
        _Percent, "of this machine's processors that the system and the load used before the fault", NOT_JUDGED
    ] = None
    processors_recovering: Annotated[
        _Percent,
        "of them that were used from the fault, or the healing, until the affected regions were read again",
        NOT_JUDGED,
    ] = None


MEANINGS = {
    name: Meaning(unit, what, frozenset(marks))
    for name, hint in get_type_hints(Figures, include_extras=True).items()
    for unit, what, *marks in [hint.__metadata__]
}


class Verdict(msgspec.Struct, frozen=True):
    """One budget. found: None if it was not measured, which does not pass."""

    figure: str
    at_most: float
    found: float | None
    passed: bool


class Report(msgspec.Struct, frozen=True):
    """A whole run. Times are in seconds from the fault.

    timeline: the events of the drill. failure: why the target could not be brought back, or why there was no bulk load;
    empty if neither.
    affected_regions: by number, in the order of their rows. backlog: the messages that waited for the drilled cluster's
    writer. processors: the share of them that was used, 0 to 1.
    """

    setting: DrillSetting
    figures: Figures
    verdicts: list[Verdict]
    timeline: list[tuple[float, str]]
    failure: str = ""
    steps: list[Step] = []
    moments: Moments = Moments(0, 0, 0, 0, 0)
    affected_regions: list[int] = []
    backlog: list[tuple[float, int]] = []
    processors: list[tuple[float, float]] = []
    version: int = VERSION

    @property
    def passed(self) -> bool:
        return not self.failure and all(each.passed for each in self.verdicts)


class DrillRun(NamedTuple):
    """The result of a drill. samples: their times too are from the fault."""

    report: Report
    samples: list[CallSample]


def budgets(section: str) -> dict[str, float]:
    """The largest value that each figure may have in drills of this section, by its name."""
    found = _budgets()
    limits = {**found[_EVERY], **found[section]}
    return {name: float(value) for name, value in limits.items() if value != ANY}


def sections() -> list[str]:
    """The names of the sections of budgets.toml that can be asked for."""
    return [name for name in _budgets() if name != _EVERY]


def _budgets() -> dict[str, dict[str, float | str]]:
    return tomllib.loads(resources.files("deploy.drills").joinpath("budgets.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Observed:
    """What a run saw, from the last moment before the fault in which all was well to the end of the load. Times are of
    `time.monotonic`, but for those of the timeline, which are from the fault.

    started_at: UTC. affected, unaffected: the regions of the drilled cluster. lost, hedged_pages, expired_servers: None
    if nothing could count them. landed_s: None if not all has landed. timeline, failure, backlog: as a report has them.
    """

    moments: Moments
    samples: list[CallSample]
    affected: Sequence[int] = ()
    unaffected: Sequence[int] = ()
    lost: Loss | None = None
    landed_s: float | None = None
    hedged_pages: int | None = None
    expired_servers: int | None = None
    steps: Sequence[Step] = ()
    backlog: Sequence[tuple[float, int]] = ()
    processors: Sequence[Busy] = ()
    timeline: Sequence[tuple[float, str]] = ()
    failure: str = ""
    started_at: str = ""


def assemble(setting: DrillSetting, found: Figures, limits: dict[str, float], seen: Observed) -> DrillRun:
    """limits: the drill's budgets."""
    fault = seen.moments.fault
    report = Report(
        setting,
        found,
        verdicts(found, limits),
        list(seen.timeline),
        seen.failure,
        list(seen.steps),
        Moments(**{name: at - fault for name, at in msgspec.structs.asdict(seen.moments).items()}),
        list(seen.affected),
        [(at - fault, messages) for at, messages in seen.backlog],
        [(each.at_s - fault, round(each.share, 3)) for each in seen.processors],
    )
    return DrillRun(report, [each._replace(began_s=each.began_s - fault) for each in seen.samples])


def figures(setting: DrillSetting, seen: Observed) -> Figures:
    """The figures of a run."""
    moments, samples = seen.moments, seen.samples
    back = (moments.fault, moments.gone) if setting.back_from == "fault" else (moments.healed, moments.healed)
    pages = [each for each in samples if each.kind == "page"]
    actions = [each for each in samples if each.kind == "action"]
    every = [*seen.affected, *seen.unaffected]

    def gap(
        kind: Kind, callers: Sequence[int], from_s: float = moments.warm, until_s: float = moments.ended
    ) -> float | None:
        return worst_gap_s(samples, kind, callers, from_s, until_s, moments.ended)

    took = spans(seen.steps)
    read_back_s = all_served_s(samples, "read", seen.affected, *back)
    busy = mean_share(seen.processors, back[0], back[0] + read_back_s) if read_back_s else None
    busy_before = mean_share(seen.processors, moments.warm, moments.fault)
    most, drain_s = _drained(seen.backlog, moments.fault)
    lost = seen.lost
    return Figures(
        pages=len(pages),
        pages_failed=sum(not each.is_done for each in pages),
        pages_from_other=sum(each.is_done and each.detail != setting.cluster for each in pages),
        hedged_pages=seen.hedged_pages,
        page_gap_s=gap("page", range(READERS)),
        page_p50_ms=quantile_ms(pages, 0.5),
        page_p99_ms=quantile_ms(pages, 0.99),
        page_slowest_ms=quantile_ms(pages, 1.0),
        actions=len(actions),
        actions_failed=sum(not each.is_done for each in actions),
        action_gap_s=gap("action", [0]),
        affected_read_back_s=read_back_s,
        affected_write_back_s=all_served_s(samples, "write", seen.affected, *back),
        affected_read_gap_s=gap("read", seen.affected),
        affected_write_gap_s=gap("write", seen.affected),
        unaffected_read_gap_s=gap("read", seen.unaffected, until_s=moments.healed),
        unaffected_write_gap_s=gap("write", seen.unaffected, until_s=moments.healed),
        return_read_gap_s=gap("read", every, from_s=moments.healed),
        return_write_gap_s=gap("write", every, from_s=moments.healed),
        detection_s=took.detection,
        split_s=took.split,
        meta_open_s=took.meta_open,
        reopen_s=took.reopen,
        expired_servers=seen.expired_servers,
        backlog_most=most,
        backlog_drain_s=drain_s,
        landed_s=seen.landed_s,
        quiet_at_end_s=longest_quiet_s(samples, callers(every), moments.ended),
        missing=None if lost is None else lost.missing,
        extra=None if lost is None else lost.extra,
        differing=None if lost is None else lost.differing,
        processors_before=None if busy_before is None else busy_before * 100,
        processors_recovering=None if busy is None else busy * 100,
    )


def _drained(backlog: Sequence[tuple[float, int]], fault_s: float) -> tuple[int | None, float | None]:
    """The largest backlog since the fault, and how long after it the backlog was as small as before the fault."""
    since = [(at, messages) for at, messages in backlog if at >= fault_s]
    if not since:
        return None, None
    before = max((messages for at, messages in backlog if at < fault_s), default=0)
    most_at, most = max(since, key=lambda each: each[1])
    back = next((at for at, messages in since if at >= most_at and messages <= before), None)
    return most, None if back is None else back - most_at


def verdicts(found: Figures, limits: dict[str, float]) -> list[Verdict]:
    made = []
    for name, at_most in limits.items():
        value = getattr(found, name)
        made.append(Verdict(name, at_most, value, value is not None and value <= at_most))
    return made
