"""Bodies, queries and answers of the following feed, as they travel."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.domain import (
    Edge,
    Followed,
    Followee,
    InvalidValueError,
    Pin,
    PinDeleted,
    PinSaved,
    Unfollowed,
    id_of,
)
from feedstore.following import MAX_PAGE, pins_and_times
from feedstore.following.presence import Presence
from feedstore.following.relations import MAX_RELATIONS
from feedstore.following.service import ClusterLine
from feedstore.follows.port import Follower
from feedstore.http.queues import GroupState, Letter
from feedstore.http.wire import MAX_EXACT, Count, Cursor, GivenId, Id, Ms

LETTERS_MAX = 100


# Queries
# --------------------------------------------------------------------------------------------------------------------


class FeedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 25
    cursor: Cursor | UnsetType = UNSET
    hydrate: bool = False


class RelationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_RELATIONS)] = 100
    cursor: Cursor | UnsetType = UNSET


class LettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=LETTERS_MAX)] = LETTERS_MAX
    after: Annotated[int, Meta(ge=0, le=MAX_EXACT)] = 0


# Bodies
# --------------------------------------------------------------------------------------------------------------------


class EdgeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A follow or an unfollow: of either `user` or `board`."""

    follower: GivenId
    user: GivenId | UnsetType = UNSET
    board: GivenId | UnsetType = UNSET

    def followee(self) -> Followee:
        """Raises InvalidValueError."""
        if isinstance(self.board, UnsetType) and not isinstance(self.user, UnsetType):
            return Followee("user", id_of("user", self.user))
        if isinstance(self.user, UnsetType) and not isinstance(self.board, UnsetType):
            return Followee("board", id_of("board", self.board))
        found = "both" if isinstance(self.user, str | int) else "neither"
        raise InvalidValueError("user or board", found, "exactly one of the two")


class PinBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pin to be saved. created_ms: its own time; without it, the time at which it was first saved."""

    pin: GivenId
    owner: GivenId
    board: GivenId
    created_ms: Ms | UnsetType = UNSET


# Answers
# --------------------------------------------------------------------------------------------------------------------


class EntryLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a feed. owner, board: if the pins themselves were asked for."""

    pin: Id
    created_ms: int
    owner: Id | UnsetType = UNSET
    board: Id | UnsetType = UNSET


class FeedPage(msgspec.Struct, frozen=True):
    """Newest first. cursor: where the next page begins, null at the end; a short page is not an end. served_by: the
    cluster that answered; behind_ms: everything committed longer ago than this has landed there, null where that is
    unknown.
    """

    user: Id
    entries: list[EntryLine]
    cursor: Cursor | None
    served_by: str
    behind_ms: int | None


class Size(msgspec.Struct, frozen=True):
    """How many entries a walk through the feed would show."""

    user: Id
    entries: Count
    served_by: str
    behind_ms: int | None


class EdgeLine(msgspec.Struct, frozen=True):
    """The latest action of a follower on a user or a board. since_ms: when, by the follower's clock."""

    follower: Id
    follows: bool
    since_ms: int | None
    user: Id | UnsetType = UNSET
    board: Id | UnsetType = UNSET


class Following(msgspec.Struct, frozen=True):
    """Boards, then users, each by ascending id. cursor: as on a page of a feed."""

    user: Id
    following: list[EdgeLine]
    cursor: Cursor | None


class Followers(msgspec.Struct, frozen=True):
    """By ascending id of the follower. cursor: as on a page of a feed."""

    followers: list[EdgeLine]
    cursor: Cursor | None


class PinLine(msgspec.Struct, frozen=True):
    """A pin as it was recorded. committed_ms: when, by the store's clock."""

    pin: Id
    owner: Id
    board: Id
    created_ms: int
    committed_ms: int
    deleted: bool


class Why(msgspec.Struct, frozen=True):
    """Why a pin is in a feed, or is not.

    edges: what the user last did to the pin's owner and to its board; one with `follows` delivers it. deleted_ms: null
    while the pin lives. clusters: where its entry is now, beyond the cap too; null if a cluster does not answer.
    """

    user: Id
    pin: Id
    owner: Id
    board: Id
    created_ms: int
    deleted_ms: int | None
    edges: list[EdgeLine]
    clusters: dict[str, bool | None]


class ReadsLine(msgspec.Struct, frozen=True):
    """Reads that may need more than one cluster, and what they asked beyond one each."""

    reads: Count
    hedges: Count
    failovers: Count
    probes: Count


class Status(msgspec.Struct, frozen=True):
    """clusters: in the order of preference. groups: how much is left to do. dead_letters: messages that could not be
    done. Both are null where the queue does not answer. worker_stopped: why the worker of the process that answers has
    stopped by itself, or that a home in files has none; null if one works.
    """

    clusters: list[ClusterLine]
    reads: ReadsLine
    groups: list[GroupState] | None
    dead_letters: Count | None
    worker_stopped: str | None = None


class Letters(msgspec.Struct, frozen=True):
    """By ascending id. after: give it to get the next ones, null where there are no more."""

    letters: list[Letter]
    after: int | None


_ENTRY_LINE = b'{"pin":"%d","created_ms":%d}'


def entry_lines(columns: Sequence[bytes]) -> msgspec.Raw:
    """The encoded list of `EntryLine`s of a page's columns. This is the slowest part of a page in our own code, and
    making the lines before encoding them would take a third longer.
    """
    lines = b",".join([_ENTRY_LINE] * len(columns)) % tuple(pins_and_times(columns))
    return msgspec.Raw(b"[%b]" % lines)


def pin_lines(pins: list[Pin]) -> list[EntryLine]:
    return [EntryLine(str(pin.pin), pin.created_ms, str(pin.owner), str(pin.board)) for pin in pins]


def edge_line(follower: int, followee: Followee, since_ms: int | None, *, follows: bool) -> EdgeLine:
    user = str(followee.id) if followee.kind == "user" else UNSET
    board = str(followee.id) if followee.kind == "board" else UNSET
    return EdgeLine(str(follower), follows, since_ms, user, board)


def line_of_edge(edge: Edge) -> EdgeLine:
    return edge_line(edge.follower, edge.followee, edge.ts, follows=edge.active)


def line_of_follower(follower: Follower) -> EdgeLine:
    return edge_line(follower.follower, follower.followee, follower.ts, follows=follower.active)


def line_of_action(done: Followed | Unfollowed) -> EdgeLine:
    return line_of_edge(done.edge())


def line_of_pin(done: PinSaved | PinDeleted) -> PinLine:
    pin = done.pin
    return PinLine(
        str(pin.pin),
        str(pin.owner),
        str(pin.board),
        pin.created_ms,
        done.committed_ms,
        deleted=isinstance(done, PinDeleted),
    )


def why(user: int, found: Presence) -> Why:
    pin = found.pin
    return Why(
        str(user),
        str(pin.pin),
        str(pin.owner),
        str(pin.board),
        pin.created_ms,
        found.deleted_ms,
        [line_of_edge(edge) for edge in found.edges],
        found.clusters,
    )
