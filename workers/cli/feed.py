"""feed: a page, as readers get it."""

import click

from feedstore.app.services import open_service
from feedstore.app.wiring import reading
from feedstore.following import MAX_PAGE, Page
from feedstore.following.pages import FeedPages
from feedstore.follows.port import FollowStoreUnavailableError
from workers.cli.output import ago, emit_json, note, plural, say, when
from workers.cli.session import ID, Session, json_option, pass_session


@click.command()
@click.argument("user", type=ID)
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=25, help="How many entries to show at most.  [default: 25]"
)
@click.option("--cursor", help="The cursor that the page before has printed.")
@json_option
@pass_session
def feed(session: Session, user: int, limit: int, cursor: str | None, *, as_json: bool) -> None:
    """Show a page of the feed of USER, newest first.

    The page comes from the preferred cluster. If that cluster does not answer or is far behind, the page comes from
    another one.

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
        note(f"more: feedctl feed {user} --limit {limit} --cursor {page.cursor}")


def read_page(session: Session, user: int, limit: int, cursor: str | None) -> Page:
    """Reads a page; a worker may run meanwhile. It also works without a follow store."""
    config = session.config
    try:
        service = open_service(config)
    except FollowStoreUnavailableError as error:
        note(f"no follow store, so a feed that ends early is not refilled: {error}")
        with reading(config) as replicas:
            return FeedPages(replicas, config.limits.cap).page(user, limit, cursor)
    with service:
        return service.page(user, limit, cursor)
