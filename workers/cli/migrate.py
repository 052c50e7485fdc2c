"""migrate: brings a home of an earlier program up to date."""

import click

from workers.app import migrate as migration
from workers.cli.output import answer, note, plural
from workers.cli.session import Session, json_option, pass_session


@click.command(short_help="Bring a home of an earlier version up to date.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@json_option
@pass_session
def migrate(session: Session, *, dry_run: bool, as_json: bool) -> None:
    """Bring a home of an earlier version up to date: its follow store, its queue, its file permissions.

    Stop the worker first. The command prints each step before it does the step. If it is killed, run it again. Earlier
    versions cannot open the home afterwards. The command changes nothing on servers: feedctl schema apply does that.

    \b
    Examples:
      feedctl migrate --dry-run
      feedctl migrate
    """

    def told(step: migration.MigrationStep) -> None:
        answer({"step": step.what, "dry_run": dry_run}, step.what, as_json=as_json)

    with session.lock():
        if dry_run:
            steps = migration.plan(session.config)
            for step in steps:
                told(step)
            note(f"{plural(len(steps), 'step')} to do; nothing was changed" if steps else "the home is up to date")
            return
        done = migration.migrate(session.config, told)
    note(f"{plural(done, 'step')} done; the home is up to date" if done else "the home is up to date")
