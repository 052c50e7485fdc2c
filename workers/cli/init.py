"""init: a new home."""

import os
from pathlib import Path

import click

from workers.app import home
from workers.cli import stacks
from workers.cli.output import note
from workers.cli.session import Session, pass_session

_COMMENTS_AT = 30
"""The column of comments in a new `feed.toml`."""


@click.command()
@click.option(
    "--cap", type=click.IntRange(1, 100_000), help="Entries of a feed that a reader can reach.  [default: 1000]"
)
@click.option(
    "--slack", type=click.IntRange(0, 100_000), help="Live entries that a trim keeps beyond the cap.  [default: 250]"
)
@click.option(
    "--stack",
    type=click.Choice(["local", "docker"]),
    help="Use the servers of the local stack, or of the Docker clusters, instead of files in the home.",
)
@click.option(
    "--stack-home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the stack is.  [default: .stack, or .cluster for docker]",
)
@pass_session
def init(
    session: Session, cap: int | None, slack: int | None, stack: stacks.Kind | None, stack_home: Path | None
) -> None:
    """Create a home: feed.toml and the stores.

    An existing home is not changed. Everything else is set in feed.toml, or by the environment
    (FEED_<SECTION>_<KEY>, for example FEED_LIMITS_ACTION_AGE=12h).

    \b
    Examples:
      feedctl init
      feedctl --home /srv/feed init --cap 500
      feedctl --home .real init --stack local
      feedctl --home .real init --stack docker
    """
    replaced = {} if stack is None else stacks.replacements(stack, stack_home)
    if cap is not None:
        replaced["cap = 1000".ljust(_COMMENTS_AT)] = f"cap = {cap}".ljust(_COMMENTS_AT)
    if slack is not None:
        replaced["slack = 250".ljust(_COMMENTS_AT)] = f"slack = {slack}".ljust(_COMMENTS_AT)
    config = home.create(session.home, os.environ, replaced)
    note(
        f"created {session.home}: cap {config.limits.cap}, clusters {', '.join(each.name for each in config.clusters)};"
        f" edit {session.home / 'feed.toml'} to change it"
    )
