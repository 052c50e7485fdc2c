"""export: every feed of a cluster."""

from contextlib import closing

import click
import msgspec

from feedstore.app.wiring import open_cluster
from feedstore.following import FEEDS, entries_of, feeds_ascending
from workers.cli.output import ProgressLine, emit_lines
from workers.cli.session import Session, naming_damage, pass_session

_LINES_AT_ONCE = 200


@click.command(short_help="Print every feed of a cluster as JSON lines.")
@click.option("--cluster", metavar="NAME", required=True, help="The name of the cluster.")
@pass_session
def export(session: Session, cluster: str) -> None:
    """Print every feed of a cluster: one JSON line for each user who has a feed, by ascending id of the user.

    \b
      {"user":1,"entries":[[pin,created_ms],...]}

    Entries are newest first, up to the cap.

    \b
    Examples:
      feedctl export --cluster a > feeds.jsonl
    """
    cap = session.config.limits.cap
    progress = ProgressLine("export")
    encoder = msgspec.json.Encoder()
    lines: list[dict[str, object]] = []
    users = 0
    with naming_damage(cluster), closing(open_cluster(session.config, cluster, "read")) as opened:
        for user, columns in feeds_ascending(opened.table(FEEDS), cap):
            lines.append({"user": user, "entries": entries_of(columns)})
            users += 1
            if len(lines) == _LINES_AT_ONCE:
                emit_lines(encoder.encode_lines(lines))
                lines.clear()
                progress.count(users, "user")
        emit_lines(encoder.encode_lines(lines))
