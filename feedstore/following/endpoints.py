"""The endpoints of the following feed: one table, from which the routes and the OpenAPI document are made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UnsetType

from feedstore.domain import Followee, Pin, id_of
from feedstore.following import wire
from feedstore.following.service import ClusterLine, FeedService
from feedstore.following.wire import (
    EdgeBody,
    EdgeLine,
    FeedPage,
    FeedQuery,
    Followers,
    Following,
    Letters,
    LettersQuery,
    PinBody,
    PinLine,
    RelationsQuery,
    Size,
    Status,
    Why,
)
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError
from feedstore.http import problems
from feedstore.http.endpoint import Asked, Endpoint
from feedstore.http.problems import ProblemError
from feedstore.http.queues import GroupState, Letter, Queues, QueuesUnavailableError
from feedstore.http.signed_cursors import SignedCursors
from feedstore.http.wire import Nothing
from feedstore.metering.plots import Drawn, Hour, PlotsUnavailableError, Series
from feedstore.replicas.replicas import DeadlineExceededError
from feedstore.widecolumn import UnavailableError

SITE: Final = Path(__file__).with_name("site")
"""The files of the pages for browsers."""
PROBLEMS: Final[problems.Known] = {
    ActionRefusedError: problems.REFUSED,
    DeadlineExceededError: problems.DEADLINE_EXCEEDED,
    UnavailableError: problems.CLUSTERS_UNAVAILABLE,
    FollowStoreUnavailableError: problems.FOLLOWS_UNAVAILABLE,
    PlotsUnavailableError: problems.PLOTS_UNAVAILABLE,
}


class FeedApi(NamedTuple):
    """What the endpoints work on. now_ms: the clock for pins without a time. hour: plots of the last hour."""

    service: FeedService
    queues: Queues
    cursors: SignedCursors
    now_ms: Callable[[], int]
    hour: Callable[[], Hour]


# Feeds
# --------------------------------------------------------------------------------------------------------------------


def _feed(api: FeedApi, asked: Asked[FeedQuery, None]) -> FeedPage:
    user, query = asked.ids["user"], asked.query
    owner = f"feed:{user}"
    cursor = api.cursors.opened(owner, _set(query.cursor))
    if query.hydrate:
        pins = api.service.pins_page(user, query.limit, cursor, asked.deadline_s)
        lines = [wire.EntryLine(str(pin.pin), pin.created_ms, str(pin.owner), str(pin.board)) for pin in pins.pins]
        return FeedPage(str(user), lines, api.cursors.signed(owner, pins.cursor), pins.served_by, pins.behind_ms)
    page = api.service.page(user, query.limit, cursor, asked.deadline_s)
    lines = cast("list[wire.EntryLine]", wire.entry_lines(page.columns))  # encodes like one
    return FeedPage(str(user), lines, api.cursors.signed(owner, page.cursor), page.served_by, page.behind_ms)


def _size(api: FeedApi, asked: Asked[Nothing, None]) -> Size:
    user = asked.ids["user"]
    found = api.service.feed_size(user, asked.deadline_s)
    return Size(str(user), found.entries, found.served_by, found.behind_ms)


def _why(api: FeedApi, asked: Asked[Nothing, None]) -> Why:
    user, pin = asked.ids["user"], asked.ids["pin"]
    found = api.service.presence(user, pin, asked.deadline_s)
    if found is None:
        raise ProblemError(problems.NOT_FOUND, f"pin {pin} was never saved", reason="pin_unknown")
    return wire.why(user, found)


# Actions
# --------------------------------------------------------------------------------------------------------------------


def _follow(api: FeedApi, asked: Asked[Nothing, EdgeBody]) -> EdgeLine:
    body = asked.body
    return wire.line_of_action(api.service.follow(id_of("follower", body.follower), body.followee(), asked.key))


def _unfollow(api: FeedApi, asked: Asked[Nothing, EdgeBody]) -> EdgeLine:
    body = asked.body
    return wire.line_of_action(api.service.unfollow(id_of("follower", body.follower), body.followee(), asked.key))


def _save_pin(api: FeedApi, asked: Asked[Nothing, PinBody]) -> PinLine:
    body = asked.body
    pin = id_of("pin", body.pin)
    owner, board = id_of("owner", body.owner), id_of("board", body.board)
    if not isinstance(body.created_ms, UnsetType):
        return wire.line_of_pin(api.service.save_pin(Pin(pin, owner, board, body.created_ms), asked.key))
    # A key that an earlier program was given has the time that the pin got first.
    known = api.service.pin(pin)
    created_ms = api.now_ms() if known is None else known.created_ms
    return wire.line_of_pin(api.service.save_pin(Pin(pin, owner, board, created_ms), asked.key, is_dated=False))


def _delete_pin(api: FeedApi, asked: Asked[Nothing, None]) -> PinLine:
    try:
        return wire.line_of_pin(api.service.delete_pin(asked.ids["pin"], asked.key))
    except ActionRefusedError as error:
        if error.reason != "pin_unknown":
            raise
        raise ProblemError(problems.NOT_FOUND, str(error), reason=error.reason) from error


# Who follows what
# --------------------------------------------------------------------------------------------------------------------


def _following(api: FeedApi, asked: Asked[RelationsQuery, None]) -> Following:
    user = asked.ids["user"]
    owner = f"following:{user}"
    page = api.service.following(user, asked.query.limit, api.cursors.opened(owner, _set(asked.query.cursor)))
    lines = [wire.line_of_edge(edge) for edge in page.edges]
    return Following(str(user), lines, api.cursors.signed(owner, page.cursor))


def _followers(api: FeedApi, asked: Asked[RelationsQuery, None]) -> Followers:
    ids = asked.ids
    followee = Followee("board", ids["board"]) if "board" in ids else Followee("user", ids["user"])
    owner = f"followers:{followee.kind}:{followee.id}"
    page = api.service.followers(followee, asked.query.limit, api.cursors.opened(owner, _set(asked.query.cursor)))
    lines = [wire.line_of_edge(each) for each in page.followers]
    return Followers(lines, api.cursors.signed(owner, page.cursor))


def _follows(api: FeedApi, asked: Asked[Nothing, None]) -> EdgeLine:
    user, ids = asked.ids["user"], asked.ids
    followee = Followee("board", ids["board"]) if "board" in ids else Followee("user", ids["followee"])
    found = api.service.followed(user, [followee]).get(followee)
    if found is None:
        return wire.edge_line(user, followee, None, follows=False)
    return wire.line_of_edge(found)


# Operating
# --------------------------------------------------------------------------------------------------------------------


def _status(api: FeedApi, asked: Asked[Nothing, None]) -> Status:  # noqa: ARG001 - it has no parameters
    try:
        queues = api.queues.state()
    except QueuesUnavailableError:
        queues = None
    return Status(
        api.service.clusters(),
        wire.ReadsLine(*api.service.counters()),
        None if queues is None else queues.groups,
        None if queues is None else queues.dead_letters,
        api.queues.stopped(),
    )


def _work(api: FeedApi, asked: Asked[Nothing, None]) -> Hour:  # noqa: ARG001 - it has no parameters
    return api.hour()


def _letters(api: FeedApi, asked: Asked[LettersQuery, None]) -> Letters:
    limit = asked.query.limit
    found = list(api.queues.letters(asked.query.after, limit))
    return Letters(found, found[-1].id if len(found) == limit else None)


def _set(cursor: str | UnsetType) -> str | None:
    return None if isinstance(cursor, UnsetType) else cursor


_USER = {"user": "1"}
_EDGE = EdgeLine("1", follows=True, since_ms=1_341_100_972_000, user="2")
_PIN = PinLine("101", "2", "9", 1_341_100_973_000, 1_341_100_973_007, deleted=False)
_FOLLOW_BODY = {"follower": "1", "user": "2"}

ENDPOINTS: Final[tuple[Endpoint[FeedApi, Any, Any], ...]] = (
    Endpoint(
        "feed",
        "GET",
        "/v1/users/{user}/feed",
        "read",
        "A page of a feed, newest first. If `hydrate` is true, each entry has its owner and board, and deleted pins are"
        " left out",
        _feed,
        FeedPage("1", [wire.EntryLine("101", 1_341_100_973_000)], None, "a", 12),
        is_page=lambda query: not query.hydrate,
        is_bounded=True,
        examples=_USER,
    ),
    Endpoint(
        "feed_size",
        "GET",
        "/v1/users/{user}/feed/size",
        "read",
        "The number of entries in a feed. The request reads all of them",
        _size,
        Size("1", 1, "a", 12),
        examples=_USER,
    ),
    Endpoint(
        "why",
        "GET",
        "/v1/users/{user}/feed/{pin}/why",
        "read",
        "Why a pin is in a feed, or why it is not",
        _why,
        Why("1", "101", "2", "9", 1_341_100_973_000, None, [_EDGE], {"a": True, "b": True}),
        examples={**_USER, "pin": "101"},
    ),
    Endpoint(
        "follow",
        "POST",
        "/v1/follows",
        "write",
        "Follow a user or a board",
        _follow,
        _EDGE,
        body_example=_FOLLOW_BODY,
    ),
    Endpoint(
        "unfollow",
        "DELETE",
        "/v1/follows",
        "write",
        "Unfollow a user or a board",
        _unfollow,
        EdgeLine("1", follows=False, since_ms=1_341_100_974_000, user="2"),
        body_example=_FOLLOW_BODY,
    ),
    Endpoint(
        "save_pin",
        "POST",
        "/v1/pins",
        "write",
        "Save a pin on a board that belongs to its owner",
        _save_pin,
        _PIN,
        body_example={"pin": "101", "owner": "2", "board": "9"},
    ),
    Endpoint(
        "delete_pin",
        "DELETE",
        "/v1/pins/{pin}",
        "write",
        "Delete a pin, permanently",
        _delete_pin,
        msgspec.structs.replace(_PIN, deleted=True),
        examples={"pin": "101"},
    ),
    Endpoint(
        "following",
        "GET",
        "/v1/users/{user}/following",
        "read",
        "The users and boards that a user follows",
        _following,
        Following("1", [_EDGE], None),
        examples=_USER,
    ),
    Endpoint(
        "follows_user",
        "GET",
        "/v1/users/{user}/following/users/{followee}",
        "read",
        "Whether a user follows another user",
        _follows,
        _EDGE,
        examples={**_USER, "followee": "2"},
    ),
    Endpoint(
        "follows_board",
        "GET",
        "/v1/users/{user}/following/boards/{board}",
        "read",
        "Whether a user follows a board",
        _follows,
        EdgeLine("1", follows=False, since_ms=None, board="9"),
        examples={**_USER, "board": "9"},
    ),
    Endpoint(
        "user_followers",
        "GET",
        "/v1/users/{user}/followers",
        "read",
        "The followers of a user. A follow that was recorded a moment ago may be missing",
        _followers,
        Followers([_EDGE], None),
        examples={"user": "2"},
    ),
    Endpoint(
        "board_followers",
        "GET",
        "/v1/boards/{board}/followers",
        "read",
        "The followers of a board. A follow that was recorded a moment ago may be missing",
        _followers,
        Followers([EdgeLine("1", follows=True, since_ms=1_341_100_972_500, board="9")], None),
        examples={"board": "9"},
    ),
    Endpoint(
        "status",
        "GET",
        "/v1/status",
        "read",
        "The status of the clusters and the queue",
        _status,
        Status(
            [ClusterLine("a", "closed", False, 12, 1_341_100_973_000, None)],
            wire.ReadsLine(0, 0, 0, 0),
            [GroupState("relay", None, 0), GroupState("expander", "feed.actions", 0)],
            0,
        ),
        is_look=True,
    ),
    Endpoint(
        "work",
        "GET",
        "/v1/work",
        "read",
        "The data of plots that show the work of the last hour",
        _work,
        Hour(
            "own",
            10_000,
            [1_341_100_963_000, 1_341_100_973_000],
            [Drawn("lag", "Lag", "Messages that a group has left to do", "messages", [Series("relay", [None, 3.0])])],
        ),
        is_look=True,
    ),
    Endpoint(
        "dead_letters",
        "GET",
        "/v1/dead-letters",
        "operate",
        "The dead letters: messages that could not be processed",
        _letters,
        Letters([Letter(3, "feed.actions", "expander", "malformed", "Expected `object`", 1_341_100_973_000, 12)], None),
    ),
)
