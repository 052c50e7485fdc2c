"""drill: faults on purpose, on the Docker clusters."""

import signal
import sys
from pathlib import Path

import click
import msgspec

from feedstore.follows.port import FollowStoreError
from feedstore.serving.config import ConfigError
from feedstore.widecolumn import StoreError
from workers.cli.output import note
from workers.cli.session import RefusedError, Session, pass_session
from workers.drills import report as reporting
from workers.drills.catalogue import DRILLS
from workers.queue.port import QueueError

_ALL = "all"


@click.group()
def drill() -> None:
    """Faults on purpose, on a system that is marked for it: the Docker clusters.

    \b
    Examples:
      feedctl drill list
      feedctl drill run kill-host --cluster b
    """


@drill.command("list")
def drill_list() -> None:
    """Names the drills, and what each does.

    \b
    Examples:
      feedctl drill list
    """
    for each in DRILLS.values():
        click.echo(f"{each.name:<27} {each.what}")


@drill.command("run")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice([*DRILLS, _ALL]))
@click.option("--cluster", default="a", show_default=True, help="The cluster that is broken.")
@click.option("--target", help="The host; the seed chooses one of those that fit where none is named.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="So many runs of each.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first run; each adds one.")
@click.option(
    "--hold", "hold_s", type=click.FloatRange(1, 600), help="Seconds away.  [default: the drill's own, mostly 20]"
)
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
    out: Path | None,
) -> None:
    """Breaks something while pages are read and actions recorded, heals it, and says what that cost.

    It refuses a system whose containers do not carry the mark, and waits some minutes for one that is not well. The
    target is brought back whatever happens. The report of a run is a JSON file and a Markdown page. Several drills run
    one after another, `all` is every one of them; a figure over its budget stops none, and the exit status is 1 then.

    \b
    Examples:
      feedctl drill run kill-host
      feedctl drill run kill-host-with-meta --cluster b --repeat 5
      feedctl drill run kill-host --target a-host-2 --hold 60
      feedctl drill run all
    """
    config = session.config
    try:
        from workers.drills import course, hosts, running  # noqa: PLC0415 - they need an extra

        docker = hosts.DockerHosts.connect()
    except ImportError as error:
        raise ConfigError(f"to run drills, install feedstore[drills]: {error}") from error
    folder = out or session.home / "drills"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(DRILLS) if _ALL in names else list(dict.fromkeys(names))
    plans = [
        course.Plan(DRILLS[name], cluster, target, seed + number, hold_s or DRILLS[name].hold_s)
        for name in chosen
        for number in range(repeat)
    ]
    _unwind_when_ended()
    failed = []
    for number, plan in enumerate(plans, 1):
        if len(plans) > 1:
            note(f"{number} of {len(plans)}: {plan.drill.name}, seed {plan.seed}")
        try:
            report = running.run(config, docker, plan, note)
        except (hosts.NotDrillableError, hosts.HostError, StoreError, FollowStoreError, QueueError) as error:
            if len(plans) == 1:
                raise
            # The next one may find the system well again.
            note(f"{plan.drill.name}: not run: {error}")
            failed.append(f"{plan.drill.name} (seed {plan.seed}: not run)")
            continue
        _write(folder, report)
        if report.failure:
            raise RefusedError(f"{report.failure}; bring it back by hand: make cluster-up")
        if not report.passed:
            failed.append(f"{plan.drill.name} (seed {plan.seed})")
    if failed:
        raise RefusedError(f"{len(failed)} of {len(plans)} runs went over a budget: {', '.join(failed)}")
    if len(plans) > 1:
        click.echo(f"all {len(plans)} runs kept their budgets")


def _write(folder: Path, report: reporting.Report) -> None:
    setting = report.setting
    stem = f"{setting.drill}-{setting.started_at.replace(':', '').replace('+0000', 'Z')}-{setting.seed}"
    (folder / f"{stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (folder / f"{stem}.md").write_text(reporting.markdown(report), encoding="utf-8")
    for verdict in report.verdicts:
        found = "-" if verdict.found is None else f"{verdict.found:.2f}"
        click.echo(f"{'ok  ' if verdict.passed else 'OVER'} {verdict.figure:<24} {found:>8} of {verdict.at_most:g}")
    note(f"{folder / stem}.md")


def _unwind_when_ended() -> None:
    """From here on SIGTERM and SIGHUP unwind as Ctrl-C does, so that what is broken is brought back."""
    ending = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in ending}
    click.get_current_context().call_on_close(
        lambda: [signal.signal(number, handler) for number, handler in before.items()]
    )

    def handle(number: int, _frame: object) -> None:
        # A second one must not cut short what the first has begun.
        for each in ending:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in ending:
        signal.signal(number, handle)


COMMANDS = (drill,)
