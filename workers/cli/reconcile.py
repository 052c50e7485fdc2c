"""reconcile: makes rows of the follow store agree that say the same thing twice."""

import operator
import sys

import click

from feedstore.follows.port import FollowStoreUnavailableError, Reconciled
from feedstore.follows.store import FollowStore
from workers.cli.output import ProgressLine, emit_json, note, plural, say
from workers.cli.session import REFUSED, Session, json_option, pass_session


@click.command(short_help="Make the rows of a restored follow store agree.")
@click.option("--dry-run", is_flag=True, help="Count what would be written, and write nothing.")
@json_option
@pass_session
def reconcile(session: Session, *, dry_run: bool, as_json: bool) -> None:
    """Make the rows of the follow store agree, after a shard or the whole store was brought back from a copy.

    The follow store keeps the same fact in several rows, on different shards: an edge with its follower and in the
    index of its followee; a pin by itself and in the indexes of its owner and its board. After a copy was brought back,
    these rows differ, and stay different: pins of followees are not delivered, or go to users who do not follow. If two
    rows differ, the later one is right. So most of what one shard lost comes back from the others. What was on its way
    when the copy was taken is entered into the indexes.

    The command also counts rows of actions that a worker has not expanded yet. Writing these rows early changes
    nothing. If the command is killed, run it again. The exit status is 1 if --dry-run finds something, or if a board
    has two owners.

    \b
    Examples:
      feedctl reconcile --dry-run
      feedctl reconcile
      feedctl repair              # afterwards: the feeds follow the store
    """
    progress = ProgressLine("reconcile")
    total = Reconciled(0)
    with session.follows() as follows:
        rows = _rows(follows)
        for part in follows.reconcile(write=not dry_run):
            total = Reconciled(*map(operator.add, total, part))
            if progress.due():
                progress.show(plural(total.rows, "row"), None if rows is None else min(1.0, total.rows / rows))
    if as_json:
        emit_json({**total._asdict(), "written": not dry_run})
    else:
        _tell(total, dry_run=dry_run)
    changes = _changes(total)
    if changes and not dry_run:
        note("now: feedctl verify, and feedctl repair if it finds something")
    if total.disputed or (changes and dry_run):
        sys.exit(REFUSED)


def _rows(follows: FollowStore) -> int | None:
    """About how many rows are compared; None if a shard has too many to count them while one waits."""
    try:
        counts = follows.counts()
    except FollowStoreUnavailableError:  # if a shard is away, the comparison says so
        return None
    return max(1, 2 * (counts.edges_active + counts.edges_tombstoned) + 3 * counts.pins)


def _changes(total: Reconciled) -> int:
    return total.edges + total.pins + total.boards + total.index_rows


def _tell(total: Reconciled, *, dry_run: bool) -> None:
    for board, owner, other in sorted(set(total.disputed)):
        say(f"board {board} belongs to user {owner}, and user {other} has saved on it: not changed")
    compared = f"{plural(total.rows, 'row')} compared"
    if not _changes(total):
        say(f"{compared}: no difference")
    elif dry_run:
        # Rows that an index brings back are compared with the other indexes only after they are written.
        say(f"{compared}: {_changes(total):,} or more would be written")
    else:
        say(
            f"{compared}: {plural(total.edges, 'edge')}, {plural(total.pins, 'pin')} and"
            f" {plural(total.boards, 'board')} brought back, {plural(total.index_rows, 'row')} of indexes written"
        )
