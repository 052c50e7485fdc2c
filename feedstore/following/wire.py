"""Bodies, queries and answers of the following feed, as they travel."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.domain import (
    Edge,
    Followed,
    Followee,
    InvalidValueError,
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
    """A follow or an unfollow. follower: the user who follows. Give either `user` or `board`: the user or the board
    that is followed.
    """

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
    """The pin to save. owner: the user who saves it. created_ms: the pin's own time in ms since 1970; if it is absent,
    the pin gets the time at which it is first saved.
    """

    pin: GivenId
    owner: GivenId
    board: GivenId
    created_ms: Ms | UnsetType = UNSET


# Answers
# --------------------------------------------------------------------------------------------------------------------


class EntryLine(msgspec.Struct, frozen=True, gc=False):
    """An entry of a feed. owner, board: only if the request had `hydrate=true`."""

    pin: Id
    created_ms: int
    owner: Id | UnsetType = UNSET
    board: Id | UnsetType = UNSET


class FeedPage(msgspec.Struct, frozen=True):
    """A page of a feed. entries: the newest first. cursor: the next page begins there; null if this is the last page. A
    page that has fewer entries than `limit` is not the last page if it has a cursor. served_by: the cluster that the
    page came from. behind_ms: every action that was committed more than this many ms ago has landed in that cluster;
    null if this is unknown.
    """

    user: Id
    entries: list[EntryLine]
    cursor: Cursor | None
    served_by: str
    behind_ms: int | None


class Size(msgspec.Struct, frozen=True):
    """How many entries all pages of the feed have together. served_by, behind_ms: as on a page of a feed."""

    user: Id
    entries: Count
    served_by: str
    behind_ms: int | None


class EdgeLine(msgspec.Struct, frozen=True):
    """The latest follow or unfollow of a user or a board by a follower. follows: true after a follow, false after an
    unfollow, or if there was neither. since_ms: the time of that action, by the follower's clock, in ms since 1970;
    null if there was none.
    """

    follower: Id
    follows: bool
    since_ms: int | None
    user: Id | UnsetType = UNSET
    board: Id | UnsetType = UNSET


class Following(msgspec.Struct, frozen=True):
    """A page of what a user follows: first the boards, then the users, each by ascending id. cursor: as on a page of a
    feed.
    """

    user: Id
    following: list[EdgeLine]
    cursor: Cursor | None


class Followers(msgspec.Struct, frozen=True):
    """A page of followers, by ascending id. cursor: as on a page of a feed."""

    followers: list[EdgeLine]
    cursor: Cursor | None


class PinLine(msgspec.Struct, frozen=True):
    """A pin as it is recorded. created_ms: the pin's own time. committed_ms: when the follow store committed this
    action, by its own clock. deleted: whether the pin is deleted.
    """

    pin: Id
    owner: Id
    board: Id
    created_ms: int
    committed_ms: int
    deleted: bool


class Why(msgspec.Struct, frozen=True):
    """Why a pin is in a feed, or is not.

    edges: the latest follow or unfollow by this user of the pin's owner, and of its board. An edge whose `follows` is
    true delivers the pin. deleted_ms: when the pin was deleted; null if it is not deleted. clusters: for each cluster,
    whether the user's row has the entry now; an entry beyond the cap counts, too. Null if the cluster does not answer.
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
    """What the reads of this server asked of the clusters. reads: reads that could be asked of more than one cluster.
    hedges: reads that were asked of another cluster, too, because the first one was slow. failovers: reads that were
    asked of another cluster because one failed. probes: reads that tested whether a cluster is back.
    """

    reads: Count
    hedges: Count
    failovers: Count
    probes: Count


class Status(msgspec.Struct, frozen=True):
    """The status of the system, as this server sees it. clusters: in the order in which readers prefer them. groups:
    how much each consumer group has left to do; null if the queue does not answer, and without the relay while a shard
    of the follow store is away. dead_letters: how many messages could not be processed; null if the queue does not
    answer. worker_stopped: if the worker of this process has stopped by itself, or if a home in files has no worker, a
    sentence that says so; otherwise null.
    """

    clusters: list[ClusterLine]
    reads: ReadsLine
    groups: list[GroupState] | None
    dead_letters: Count | None
    worker_stopped: str | None = None


class Letters(msgspec.Struct, frozen=True):
    """Dead letters, by ascending id. after: send it as the parameter `after` to get the next ones; null if there are no
    more.
    """

    letters: list[Letter]
    after: int | None


@lru_cache(maxsize=MAX_PAGE + 1)
def _lines_format(count: int) -> bytes:
    """The format of an encoded list of `EntryLine`s."""
    return b"[%b]" % b",".join([b'{"pin":"%d","created_ms":%d}'] * count)


def entry_lines(columns: Sequence[bytes]) -> msgspec.Raw:
    """The encoded list of `EntryLine`s of a page's columns. This is the slowest part of a page in our own code, and
    making the lines before encoding them would take a third longer.
    """
    return msgspec.Raw(_lines_format(len(columns)) % tuple(pins_and_times(columns)))


def edge_line(follower: int, followee: Followee, since_ms: int | None, *, follows: bool) -> EdgeLine:
    user = str(followee.id) if followee.kind == "user" else UNSET
    board = str(followee.id) if followee.kind == "board" else UNSET
    return EdgeLine(str(follower), follows, since_ms, user, board)


def line_of_edge(edge: Edge | Follower) -> EdgeLine:
    return edge_line(edge.follower, edge.followee, edge.ts, follows=edge.active)


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
