"""trim: trims feeds to cap and slack."""

import click

from feedstore.following import FEEDS
from feedstore.widecolumn import Sweep, UnavailableError
from workers.app import wiring
from workers.app.home import HomeBusyError
from workers.cli.output import emit_json, note, plural, say
from workers.cli.session import Session, json_option, naming_damage, pass_session


@click.command(short_help="Trim every feed, and drop what is masked or expired.")
@json_option
@pass_session
def trim(session: Session, *, as_json: bool) -> None:
    """Trim every feed to cap + slack entries, and drop masked cells and expired delete markers.

    A worker does this regularly (feed.toml: worker.housekeeping): stop the worker first. HBase trims inside its
    compactions: this command leaves a cluster in HBase alone.

    \b
    Examples:
      feedctl trim
      feedctl table major-compact following_feed --cluster a --wait      # trims in HBase now
    """
    away: list[UnavailableError] = []
    try:
        with session.lock(), session.ports("write") as ports:
            for name in ports.replicas:
                try:
                    with naming_damage(name):
                        _tell(name, wiring.sweeping(ports, session.config, name)(), as_json=as_json)
                except UnavailableError as error:
                    away.append(error)
    except HomeBusyError as error:
        raise HomeBusyError(
            f"{error}. A worker trims regularly by itself (feed.toml: worker.housekeeping)", error.pid
        ) from error
    for each in away[1:]:
        note(f"Error: {each}")
    if away:
        raise away[0]


def _tell(name: str, swept: Sweep | None, *, as_json: bool) -> None:
    if swept is None:
        now = f"feedctl table major-compact {FEEDS} --cluster {name} --wait"
        note(f"{name}: HBase trims by itself, when it compacts; to trim now: {now}")
    elif as_json:
        emit_json({"cluster": name, **vars(swept)})
    else:
        say(
            f"{name}: {plural(swept.rows, 'row')}, dropped {swept.trimmed:,} beyond the cap,"
            f" {swept.masked:,} masked, {plural(swept.markers, 'expired delete marker')}"
        )
