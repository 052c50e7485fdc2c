"""reindex: a new queue in place of one that was lost."""

import sys

import click

from workers import reindex as reindexing
from workers.cli.output import emit_json, note, plural, say, when
from workers.cli.session import REFUSED, MisusedError, Session, json_option, pass_session


@click.command()
@json_option
@pass_session
def reindex(session: Session, *, as_json: bool) -> None:
    """Makes a new queue in place of one that was lost, and brings back what it held, from the follow store.

    Whatever the outbox of the follow store keeps (limits.purge_window) is relayed again; what had landed lands once
    more and changes nothing. The dead letters were in the queue too: what they come from is tried again. A cluster that
    was behind by more than the outbox keeps is removed: rebuild it afterwards. It may be killed and called again.

    If there is a queue, nothing is changed. Move a damaged one away first. The exit status is 1 if something cannot be
    brought back.

    \b
    Examples:
      feedctl reindex
      feedctl work --until-idle
      feedctl verify
    """
    with session.lock():
        if not reindexing.is_lost(session.config):
            note("there is a queue, so nothing was changed; what it has not done yet is done by: feedctl work")
            return
        try:
            done = reindexing.reindex(session.config)
        except reindexing.OtherPartitionsError as error:
            raise MisusedError(str(error)) from error
    if as_json:
        emit_json(done._asdict())
    else:
        say(f"made a new queue; {plural(done.again, 'action')} will be relayed again")
    for name in done.gone:
        note(f"cluster {name} lacked more than the outbox keeps: feedctl rebuild --all --cluster {name}")
    if done.unindexed_before_ms is not None:
        before = when(done.unindexed_before_ms)
        note(f"no cluster was up to date: what was recorded before {before} UTC and not expanded is not brought back")
    note("now: feedctl work")
    if done.gone or done.unindexed_before_ms is not None:
        sys.exit(REFUSED)


COMMANDS = (reindex,)
