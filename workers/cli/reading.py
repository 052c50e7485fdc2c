"""feed, export: what readers get."""

import click
import msgspec

from feedstore.feeds import FEEDS, MAX_PAGE, Page, entries_of, feeds_ascending
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.serving.pages import FeedPages
from feedstore.serving.wiring import open_cluster, open_service, reading
from workers.cli.output import Progress, ago, emit_json, emit_lines, note, plural, say, when
from workers.cli.session import ID, Session, json_option, pass_session


@click.command()
@click.argument("user", type=ID)
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=25, help="The most entries.  [default: 25]")
@click.option("--cursor", help="Where the page before this one ended.")
@json_option
@pass_session
def feed(session: Session, user: int, limit: int, cursor: str | None, *, as_json: bool) -> None:
    """Shows a page of the feed of USER, newest first.

    It is read from the cluster that is preferred, or from another where that one is away or far behind.

    \b
    Examples:
      feedctl feed 12
      feedctl feed 12 --limit 100 --json
    """
    page = read_page(session, user, limit, cursor)
    if as_json:
        emit_json(
            {
                "user": user,
                "entries": page.entries,
                "cursor": page.cursor,
                "returned": page.returned,
                "served_by": page.served_by,
                "behind_ms": page.behind_ms,
            }
        )
        return
    for entry in page.entries:
        say(f"{when(entry.created_ms)}  pin {entry.pin}")
    behind = "an unknown time" if page.behind_ms is None else f"at most {ago(page.behind_ms)}"
    note(
        f"feed of user {user}: {plural(len(page.entries), 'entry', 'entries')}, from {page.served_by}, {behind} behind"
    )
    if page.cursor is not None:
        note(f"more: feedctl feed {user} --cursor {page.cursor}")


def read_page(session: Session, user: int, limit: int, cursor: str | None) -> Page:
    """A page, read beside a worker where one runs. Without a follow store there are pages as well."""
    config = session.config
    try:
        service = open_service(config)
    except FollowStoreUnavailableError as error:
        note(f"no follow store, so a feed that ends early is not refilled: {error}")
        with reading(config) as replicas:
            return FeedPages(replicas, config.limits.cap).page(user, limit, cursor)
    with service:
        return service.page(user, limit, cursor)


_LINES_AT_ONCE = 200


@click.command()
@click.option("--cluster", required=True, help="The name of the cluster.")
@pass_session
def export(session: Session, cluster: str) -> None:
    """Writes every feed of a cluster: a line of JSON for each user who has one, users ascending.

    \b
      {"user":1,"entries":[[pin,created_ms],...]}

    Entries stand newest first, up to the cap.

    \b
    Examples:
      feedctl export --cluster a > feeds.jsonl
    """
    cap = session.config.limits.cap
    opened = open_cluster(session.config, cluster, "beside")
    progress = Progress("export")
    encoder = msgspec.json.Encoder()
    lines: list[dict[str, object]] = []
    users = 0
    try:
        for user, columns in feeds_ascending(opened.table(FEEDS), cap):
            lines.append({"user": user, "entries": entries_of(columns)})
            users += 1
            if len(lines) == _LINES_AT_ONCE:
                emit_lines(encoder.encode_lines(lines))
                lines.clear()
                if progress.due():
                    progress.show(f"{users:,} users")
        emit_lines(encoder.encode_lines(lines))
    finally:
        progress.clear()
        opened.close()


COMMANDS = (feed, export)
