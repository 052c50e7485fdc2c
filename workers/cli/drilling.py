"""drill: faults on purpose, on the Docker clusters."""

import signal
import sys
from pathlib import Path

import click
import msgspec

from feedstore.serving.config import ConfigError
from workers.cli.output import note
from workers.cli.session import RefusedError, Session, pass_session
from workers.drills import report as reporting
from workers.drills.catalogue import DRILLS


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
        click.echo(f"{each.name:<22} {each.what}")


@drill.command("run")
@click.argument("name", type=click.Choice(list(DRILLS)))
@click.option("--cluster", default="a", show_default=True, help="The cluster that is broken.")
@click.option("--target", help="The host; the seed chooses one where none is named.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="So many runs.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first run; each adds one.")
@click.option("--hold", "hold_s", type=click.FloatRange(1, 600), default=20, show_default=True, help="Seconds away.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the reports go.  [default: drills/ in the home]",
)
@pass_session
def drill_run(
    session: Session,
    name: str,
    cluster: str,
    target: str | None,
    repeat: int,
    seed: int,
    hold_s: float,
    out: Path | None,
) -> None:
    """Breaks something while pages are read and actions recorded, heals it, and says what that cost.

    It refuses a system whose containers do not carry the mark, and one that is not well. The target is brought back
    whatever happens. The report of a run is a JSON file and a Markdown page. The exit status is 1 where a figure is
    over its budget.

    \b
    Examples:
      feedctl drill run kill-host
      feedctl drill run kill-host-with-meta --cluster b --repeat 5
      feedctl drill run kill-host --target a-host-2 --hold 60
    """
    config = session.config
    try:
        from workers.drills import hosts, running  # noqa: PLC0415 - they need an extra

        docker = hosts.DockerHosts.connect()
    except ImportError as error:
        raise ConfigError(f"to run drills, install feedstore[drills]: {error}") from error
    folder = out or session.home / "drills"
    folder.mkdir(parents=True, exist_ok=True)
    over = 0
    _unwind_when_ended()
    for number in range(repeat):
        plan = running.Plan(DRILLS[name], cluster, target, seed + number, hold_s)
        report = running.run(config, docker, plan, note)
        stem = f"{name}-{report.setting.started_at.replace(':', '').replace('+0000', 'Z')}-{plan.seed}"
        (folder / f"{stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
        (folder / f"{stem}.md").write_text(reporting.markdown(report), encoding="utf-8")
        for verdict in report.verdicts:
            found = "-" if verdict.found is None else f"{verdict.found:.2f}"
            click.echo(f"{'ok  ' if verdict.passed else 'OVER'} {verdict.figure:<24} {found:>8} of {verdict.at_most:g}")
        note(f"{folder / stem}.md")
        if report.failure:
            raise RefusedError(f"{report.failure}; bring it back by hand: make cluster-up")
        over += not report.passed
    if over:
        raise RefusedError(f"{over} of {repeat} runs went over a budget")


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
