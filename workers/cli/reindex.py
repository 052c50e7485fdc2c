"""reindex: restores what the queue has lost."""

import sys
from contextlib import nullcontext

import click

from workers.app import reindex as reindexing
from workers.app import wiring
from workers.cli.output import answer, emit_json, note, plural, when
from workers.cli.session import REFUSED, Session, TryLaterError, json_option, pass_session
from workers.following import landed, lost_actions
from workers.queue.embedded import refuse_damaged
from workers.queue.port import GroupBusyError


@click.command(short_help="Restore what the queue has lost from the follow store.")
@click.option("--all", "everything", is_flag=True, help="Relay again all that the outbox keeps.")
@json_option
@pass_session
def reindex(session: Session, *, everything: bool, as_json: bool) -> None:
    """Restore what the queue has lost from the follow store, and replace a queue in a file that is gone.

    The outbox of the follow store keeps actions for limits.purge_window, and they are relayed again. If an action had
    landed before, it lands once more, which changes nothing. The watermarks wait until all have landed.

    A queue in a file: the command makes a new one, and relays all again. The dead letters were in the lost queue too:
    their actions are tried again. If a cluster lacks actions that the outbox does not keep any more, the cluster is
    removed: rebuild it afterwards. If the queue is damaged, move its file away first.

    Kafka: use the command if actions were lost before they were expanded, because messages expired, or because the
    topic was removed and made again. End all expanders before that; a feedctl work whose expander has ended by itself
    may continue, and expands again some seconds later. The command relays again what was recorded since the latest
    watermark, or since the earliest action that was sent back for one cluster; if a cluster does not answer, all that
    the outbox keeps. If the dead letters are lost too, use --all: their actions are older.

    If nothing is lost, the command changes nothing. If it is killed, run it again. The exit status is 1 if something
    cannot be restored.

    \b
    Examples:
      feedctl reindex
      feedctl reindex --all
      feedctl work --until-idle
      feedctl verify
    """
    path = session.config.queue_file
    # Of a queue on servers, a worker that has no expander any more may continue: it waits for this command.
    with session.lock() if path is not None else nullcontext():
        new = path is not None and reindexing.is_lost(path)
        done = reindexing.reindex(session.config) if new else _lost_actions(session, everything=everything)
    if done is None:
        if as_json:
            emit_json(reindexing.Reindexed(0, (), None)._asdict())
        return
    text = f"{'created a new queue; ' if new else ''}{plural(done.again, 'action')} will be relayed again"
    answer(done._asdict(), text, as_json=as_json)
    for name in done.gone:
        note(
            f"cluster {name} is gone: it was missing, or lacked actions that the outbox does not keep any more:"
            f" feedctl rebuild --all --cluster {name}"
        )
    if done.unindexed_before_ms is not None:
        before = when(done.unindexed_before_ms)
        note(
            f"no cluster was up to date: actions recorded before {before} UTC that were not expanded are not restored:"
            " once the others have landed, feedctl reconcile, then feedctl repair"
        )
    for name in done.lacking:
        note(
            f"cluster {name} may lack actions that had come too late for it, and that the outbox does not keep any"
            f" more: once the others have landed, feedctl repair --cluster {name}"
        )
    note("now: feedctl work")
    if done.gone or done.lacking or done.unindexed_before_ms is not None:
        sys.exit(REFUSED)


def _lost_actions(session: Session, *, everything: bool) -> reindexing.Reindexed | None:
    """None if none was lost. Raises DamagedQueueError: the queue must be replaced before that."""
    path = session.config.queue_file
    with session.ports("read", feeds=False) as ports:
        if path is not None:
            refuse_damaged(path, landed.groups(ports))
        wiring.refuse_older_queue(ports, session.config)
        if not lost_actions.are_lost(ports):
            note(
                "there is a queue, and no action was lost on its way to the expander, so nothing was changed; to"
                " process what is in the queue: feedctl work"
            )
            return None
        try:
            back = lost_actions.bring_back(ports, session.config.limits.purge_window_ms, everything=everything)
        except GroupBusyError as error:
            raise TryLaterError(f"{error}: end all expanders first (feedctl expand, feedctl work)") from error
        return reindexing.Reindexed(back.actions, (), back.missing_before_ms, back.lacking)
