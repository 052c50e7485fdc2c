"""reindex: replaces a lost queue by a new one."""

import sys

import click

from workers.app import reindex as reindexing
from workers.cli.output import emit_json, note, plural, say, when
from workers.cli.session import REFUSED, MisusedError, Session, json_option, pass_session


@click.command(short_help="Replace a lost queue, and restore it from the follow store.")
@json_option
@pass_session
def reindex(session: Session, *, as_json: bool) -> None:
    """Replace a lost queue by a new one, and restore its messages from the follow store.

    The outbox of the follow store keeps actions for limits.purge_window. All of these are relayed again. If an action
    had landed before, it lands once more, which changes nothing. The dead letters were in the queue too: their actions
    are tried again. If a cluster lacks actions that the outbox does not keep any more, the cluster is removed: rebuild
    it afterwards. If the command is killed, run it again.

    If the home has a queue, the command changes nothing. So if the queue is damaged, move its file away first. The exit
    status is 1 if something cannot be restored.

    \b
    Examples:
      feedctl reindex
      feedctl work --until-idle
      feedctl verify
    """
    with session.lock():
        if not reindexing.is_lost(session.config):
            note("there is a queue, so nothing was changed; to process what is in it: feedctl work")
            return
        try:
            done = reindexing.reindex(session.config)
        except (reindexing.OtherPartitionsError, reindexing.DamagedClusterError) as error:
            raise MisusedError(str(error)) from error
    if as_json:
        emit_json(done._asdict())
    else:
        say(f"created a new queue; {plural(done.again, 'action')} will be relayed again")
    for name in done.gone:
        note(
            f"cluster {name} is gone: it was missing, or lacked actions that the outbox does not keep any more:"
            f" feedctl rebuild --all --cluster {name}"
        )
    if done.unindexed_before_ms is not None:
        before = when(done.unindexed_before_ms)
        note(f"no cluster was up to date: actions recorded before {before} UTC that were not expanded are not restored")
    note("now: feedctl work")
    if done.gone or done.unindexed_before_ms is not None:
        sys.exit(REFUSED)
