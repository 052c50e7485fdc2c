"""drill: faults on purpose, on the Docker clusters."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from deploy.drills import compare, history, page
from deploy.drills.catalogue import DRILLS
from deploy.drills.history import HistoryError
from deploy.drills.hosts import HostError, Hosts, NotDrillableError, NotHealedError
from deploy.drills.report import DrillRun, Report, sections
from deploy.local.signals import unwinding
from feedstore.errors import needing_extra
from feedstore.follows.port import FollowStoreError
from feedstore.widecolumn import StoreError
from workers.cli.output import answer, emit_json, note, say
from workers.cli.session import CommandRefusedError, MisusedError, Session, TryLaterError, json_option, pass_session
from workers.queue.port import QueueError

if TYPE_CHECKING:
    from deploy.drills.course import Plan

_ALL = "all"


class _Drills(click.Group):
    """Turns the errors of drills into those of feedctl."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (NotDrillableError, HostError) as error:
            raise TryLaterError(str(error)) from error
        except HistoryError as error:
            raise MisusedError(str(error)) from error
        except NotHealedError as error:
            raise CommandRefusedError(str(error)) from error


@click.group(cls=_Drills, short_help="Cause faults on purpose on the Docker clusters.")
def drill() -> None:
    """Cause faults on purpose, on a system that is labelled for it: the Docker clusters.

    \b
    Examples:
      feedctl drill list
      feedctl drill run kill-host --cluster b
      feedctl drill history
    """


@drill.command("list")
def drill_list() -> None:
    """List the drills, and what each does.

    \b
    Examples:
      feedctl drill list
    """
    for each in DRILLS.values():
        say(f"{each.name:<27} {each.what}")


@drill.command("run", short_help="Break something under load, repair it, and report what that cost.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice([*DRILLS, _ALL]))
@click.option("--cluster", default="a", show_default=True, help="The cluster that is broken.")
@click.option("--target", help="The host.  [default: one that fits, chosen by the seed]")
@click.option(
    "--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="The number of runs of each drill."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The seed of the first run; each further run adds one.",
)
@click.option(
    "--hold",
    "hold_s",
    type=click.FloatRange(1, 600),
    help="How many seconds the fault lasts.  [default: the drill's own, mostly 20]",
)
@click.option("--budgets", type=click.Choice(sections()), help="The budgets to keep.  [default: the drill's own]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the reports go.  [default: drills/ in the home]",
)
@pass_session
def drill_run(
    session: Session,
    names: tuple[str, ...],
    cluster: str,
    target: str | None,
    repeat: int,
    seed: int,
    hold_s: float | None,
    budgets: str | None,
    out: Path | None,
) -> None:
    """Break something while pages are read and actions recorded, heal it, and say what that cost.

    It refuses a system whose containers do not carry the label, and waits some minutes for one that is not well. The
    target is brought back whatever happens. The report of a run is a JSON file, a Markdown page and a picture. Several
    drills run one after another; `all` runs every drill. If a figure is over its budget, the next drill runs all the
    same, and the exit status is 1.

    \b
    Examples:
      feedctl drill run kill-host
      feedctl drill run kill-host-with-meta --cluster b --repeat 5
      feedctl drill run kill-host --target a-host-2 --hold 60
      feedctl drill run all
    """
    config = session.config
    with needing_extra("to run drills", "drills"):
        from deploy.drills import course, running  # noqa: PLC0415 - they need extras

        docker = Hosts.connect()
    folder = out or session.home / "drills"
    history.prepare(folder)  # before anything is broken
    chosen = list(DRILLS) if _ALL in names else list(dict.fromkeys(names))
    plans = [
        course.Plan(
            DRILLS[name], cluster, target, seed + number, hold_s or DRILLS[name].hold_s, budgets or DRILLS[name].budgets
        )
        for name in chosen
        for number in range(repeat)
    ]
    # The broken hosts are brought back, whatever ends this.
    click.get_current_context().with_resource(unwinding())
    failed = _run(plans, lambda plan: running.run(config, docker, plan, note), folder)
    if failed:
        raise CommandRefusedError(f"{len(failed)} of {len(plans)} runs did not pass: {', '.join(failed)}")
    if len(plans) > 1:
        say(f"all {len(plans)} runs kept their budgets")


def _run(plans: Sequence["Plan"], run: Callable[["Plan"], DrillRun], folder: Path) -> list[str]:
    """One after the other; returns which did not pass. Raises the errors that a single one raises."""
    failed = []
    for number, plan in enumerate(plans, 1):
        if len(plans) > 1:
            note(f"{number} of {len(plans)}: {plan.drill.name}, seed {plan.seed}")
        try:
            made = run(plan)
        except (NotDrillableError, HostError, StoreError, FollowStoreError, QueueError) as error:
            if len(plans) == 1:
                raise
            # The next one may find the system well again.
            note(f"{plan.drill.name}: not run: {error}")
            failed.append(f"{plan.drill.name} (seed {plan.seed}: not run)")
            continue
        _keep(folder, made)
        if made.report.failure:
            raise CommandRefusedError(made.report.failure)
        if not made.report.passed:
            failed.append(f"{plan.drill.name} (seed {plan.seed})")
    return failed


def _keep(folder: Path, run: DrillRun) -> None:
    for verdict in run.report.verdicts:
        found = "-" if verdict.found is None else f"{verdict.found:.2f}"
        say(f"{'ok  ' if verdict.passed else 'OVER'} {verdict.figure:<24} {found:>8} of {verdict.at_most:g}")
    note(str(history.keep(folder, run, note)))


_folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the reports are.  [default: drills/ in the home]",
)


@drill.command("compare", short_help="Say what got better or worse between two runs.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--tolerance",
    "percent",
    type=click.FloatRange(0, 1_000),
    default=compare.RELATIVE * 100,
    show_default=True,
    help="The percentage that a figure may get worse by and count as unchanged.",
)
@click.option(
    "--floor",
    "floor_s",
    type=click.FloatRange(0, 600),
    default=compare.FLOOR_S,
    show_default=True,
    help="The same in seconds; the larger of the two counts.",
)
@json_option
def drill_compare(old: Path, new: Path, percent: float, floor_s: float, *, as_json: bool) -> None:
    """Say what got better or worse between two runs of a drill, or between two folders of them.

    OLD and NEW are reports (JSON) or folders of them; of a folder, the median and the worst of each drill are
    compared, and both must hold. The floor of figures in milliseconds is 100, and of messages 50; lost entries have no
    tolerance. The exit status is 1 if a figure got worse, or if a new run exceeds a budget that every old run kept.

    \b
    Examples:
      feedctl drill compare before/ .feed/drills/
      feedctl drill compare old.json new.json --tolerance 10 --floor 0.2
    """
    sets = [compare.by_drill(kept.report for kept in history.load(path, note)) for path in (old, new)]
    shared = [name for name in sets[0] if name in sets[1]]
    if not shared:
        raise MisusedError(f"{old} and {new} have no drill in common: {_names(sets[0])}; {_names(sets[1])}")
    for path, mine, theirs in ((old, sets[0], sets[1]), (new, sets[1], sets[0])):
        if alone := [name for name in mine if name not in theirs]:
            note(f"only in {path}: {', '.join(alone)}")
    tolerance = compare.Tolerance(percent / 100, floor_s)
    worse = 0
    for name in shared:
        comparison = compare.compared(sets[0][name], sets[1][name], tolerance)
        worse += comparison.got_worse
        value = {"got_worse": comparison.got_worse, **msgspec.structs.asdict(comparison)}
        answer(value, "\n".join(compare.text(comparison)), as_json=as_json)
    if worse:
        raise CommandRefusedError(f"{worse} of {len(shared)} drills got worse")


@drill.command("history", short_help="List the runs that were kept, the newest last.")
@click.argument("name", required=False)
@_folder_option
@click.option("--table", "as_table", is_flag=True, help="Print a summary of each drill's runs, as Markdown.")
@json_option
@pass_session
def drill_history(session: Session, name: str | None, folder: Path | None, *, as_table: bool, as_json: bool) -> None:
    """List the runs that were kept, the newest last; with a name, those of one drill.

    \b
    Examples:
      feedctl drill history
      feedctl drill history kill-host --json | jq .figures.page_gap_s
      feedctl drill history --table
    """
    own = session.home / "drills"  # the first run makes it
    found = [] if folder is None and not own.exists() else history.load(folder or own, note)
    kept = [each for each in found if name in {None, each.report.setting.drill}]
    if as_table:
        say("\n".join(compare.table(each.report for each in kept)))
        return
    for path, report in kept:
        if as_json:
            emit_json(
                {"file": str(path), "passed": report.passed, "setting": report.setting, "figures": report.figures}
            )
            continue
        setting = report.setting
        said = [f"{figure} {page.shown(getattr(report.figures, figure), figure)}" for figure in _MAIN]
        verdict = "passed" if report.passed else "FAILED"
        say(f"{setting.started_at[:19]}  {verdict}  {setting.drill:<26} {page.where(setting):<11} {', '.join(said)}")
    if not kept:
        note("no run is kept there")


@drill.command("plot")
@click.argument("report", type=click.Path(path_type=Path, dir_okay=False))
def drill_plot(report: Path) -> None:
    """Draw the picture of a run again, from its files.

    \b
    Examples:
      feedctl drill plot .feed/drills/kill-host-2026-01-31T120000Z-0.json
    """
    (kept,) = history.load(report, note)
    drawn = history.draw(kept, history.samples_of(kept), note)
    if not drawn:
        raise CommandRefusedError(f"{report}: the picture could not be drawn")
    say(str(report.with_name(drawn)))


_MAIN = ("pages_failed", "page_gap_s", "affected_read_back_s", "affected_write_back_s", "missing")


def _names(runs: dict[str, list[Report]]) -> str:
    return ", ".join(runs) or "none"
