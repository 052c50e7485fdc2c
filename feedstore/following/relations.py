"""Who follows what: pages of edges and of followers, and the cursors between them."""

import struct

import msgspec

from feedstore.domain import Edge, Followee, InvalidValueError, check_id
from feedstore.domain.cursors import MalformedCursorError, sealed, unsealed
from feedstore.follows.port import Follower
from feedstore.follows.store import FollowStore

MAX_RELATIONS = 500
"""The most lines of a page."""

_OWNER = struct.Struct(">cQ").pack
_PLACE = struct.Struct(">cQ")
_USER, _BOARD = b"u", b"b"


class FollowingPage(msgspec.Struct, frozen=True):
    """A part of what a user follows: boards before users, each by ascending id. cursor: where the next page begins,
    None if there is no more.
    """

    edges: list[Edge]
    cursor: str | None


class FollowersPage(msgspec.Struct, frozen=True):
    """Some of the followers of a user or a board, by ascending id. cursor: as in a FollowingPage."""

    followers: list[Follower]
    cursor: str | None


def following(follows: FollowStore, user: int, limit: int, cursor: str | None) -> FollowingPage:
    check_id("user", user)
    _check_limit(limit)
    owner = _OWNER(b"f", user)
    after = None if cursor is None else _followee(unsealed(owner, cursor, _PLACE.size))
    # One more edge than wanted shows whether there is a next page.
    found = follows.following_after(user, after, limit + 1)
    edges, more = found[:limit], len(found) > limit
    return FollowingPage(edges, sealed(owner, _place(edges[-1].followee)) if more else None)


def followers(follows: FollowStore, followee: Followee, limit: int, cursor: str | None) -> FollowersPage:
    _check_limit(limit)
    owner = _place(followee)
    place = None if cursor is None else (followee, int.from_bytes(unsealed(owner, cursor, 8), "big"))
    found = follows.followers([followee], place, limit + 1, tombstones=False)
    page, more = found[:limit], len(found) > limit
    return FollowersPage(page, sealed(owner, page[-1].follower.to_bytes(8, "big")) if more else None)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_RELATIONS:
        raise InvalidValueError("limit", limit, f"1 to {MAX_RELATIONS}")


def _place(followee: Followee) -> bytes:
    return _PLACE.pack(_USER if followee.kind == "user" else _BOARD, followee.id)


def _followee(place: bytes) -> Followee:
    kind, followee = _PLACE.unpack(place)
    try:
        return Followee("user" if kind == _USER else "board", followee)
    except InvalidValueError as error:
        raise MalformedCursorError(str(error)) from error
