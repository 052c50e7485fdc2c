"""The four actions, in two forms: as they are asked for, and as the follow store recorded them.

An action that is asked for has no time, except that a pin has its own: the follow store stamps the action when it
commits. A recorded action has the store's `committed_ms`, from which ages are counted (rule 8).
"""

from typing import assert_never

import msgspec

from feedstore.domain.values import (
    RESERVED_FROM,
    Edge,
    Followee,
    InvalidValueError,
    Pin,
    check_edge,
    check_id,
    check_stamp,
    refuse_self_follow,
)

MAX_SKEW_MS = 120_000
"""How far ahead of the store's clock a pin may be dated. Dated further ahead, it would stay on top of every feed."""


class Follow(msgspec.Struct, frozen=True, tag_field="type", tag="follow"):
    follower: int
    followee: Followee

    def __post_init__(self) -> None:
        check_id("follower", self.follower)
        refuse_self_follow(self.follower, self.followee)


class Unfollow(msgspec.Struct, frozen=True, tag_field="type", tag="unfollow"):
    follower: int
    followee: Followee

    def __post_init__(self) -> None:
        check_id("follower", self.follower)
        refuse_self_follow(self.follower, self.followee)


class SavePin(msgspec.Struct, frozen=True, tag_field="type", tag="save_pin"):
    pin: Pin


class DeletePin(msgspec.Struct, frozen=True, tag_field="type", tag="delete_pin"):
    pin: int

    def __post_init__(self) -> None:
        check_id("pin", self.pin)


Action = Follow | Unfollow | SavePin | DeletePin


def refuse_reserved(action: Action) -> None:
    """Raises InvalidValueError if an action names an id of the canaries. Every entrance of real actions calls it: a
    user with such an id would share a feed with a canary, and if a canary's pin were deleted, all canaries would end.
    """
    ids: tuple[tuple[str, int], ...]
    match action:
        case Follow(follower, followee) | Unfollow(follower, followee):
            ids = (("follower", follower), (followee.kind, followee.id))
        case SavePin(pin):
            ids = (("pin", pin.pin), ("owner", pin.owner), ("board", pin.board))
        case DeletePin(deleted):
            ids = (("pin", deleted),)
        case _:
            assert_never(action)
    for field, value in ids:
        if value >= RESERVED_FROM:
            raise InvalidValueError(field, value, f"an id below {RESERVED_FROM}: from there on they are the canaries'")


class Followed(msgspec.Struct, frozen=True, tag_field="type", tag="follow"):
    """`follower` has followed `followee` since `ts`, a time of the follower's clock."""

    follower: int
    followee: Followee
    ts: int
    committed_ms: int

    def __post_init__(self) -> None:
        check_edge(self.follower, self.followee, self.ts)
        check_stamp("committed_ms", self.committed_ms)

    def edge(self) -> Edge:
        return Edge(self.follower, self.followee, self.ts, active=True)


class Unfollowed(msgspec.Struct, frozen=True, tag_field="type", tag="unfollow"):
    """`follower` unfollowed `followee` at `ts`, a time of the follower's clock."""

    follower: int
    followee: Followee
    ts: int
    committed_ms: int

    def __post_init__(self) -> None:
        check_edge(self.follower, self.followee, self.ts)
        check_stamp("committed_ms", self.committed_ms)

    def edge(self) -> Edge:
        return Edge(self.follower, self.followee, self.ts, active=False)


class PinSaved(msgspec.Struct, frozen=True, tag_field="type", tag="save_pin"):
    """A pin was saved. `committed_ms` is its `saved_at`: the time from which windows are counted (rule 6)."""

    pin: Pin
    committed_ms: int

    def __post_init__(self) -> None:
        check_stamp("committed_ms", self.committed_ms)


class PinDeleted(msgspec.Struct, frozen=True, tag_field="type", tag="delete_pin", omit_defaults=True):
    """A pin was deleted. `committed_ms` is the time of the deletion, by the follow store's clock (rule 7). `saved_ms`:
    when the pin was saved, if that is later, because the clock has been set back since; otherwise 0.
    """

    pin: Pin
    committed_ms: int
    saved_ms: int = 0

    def __post_init__(self) -> None:
        check_stamp("committed_ms", self.committed_ms)


class RefillAsked(msgspec.Struct, frozen=True, tag_field="type", tag="refill"):
    """A refill was requested: the newest pins are to be written into the row of `user` again. It is for one cluster,
    or, if `cluster` is None, for all clusters.
    """

    user: int
    cluster: str | None
    committed_ms: int

    def __post_init__(self) -> None:
        check_id("user", self.user)
        check_stamp("committed_ms", self.committed_ms)
        if self.cluster == "":
            raise InvalidValueError("cluster", self.cluster, "a cluster's name, or null for all")


class RespaceAsked(msgspec.Struct, frozen=True, tag_field="type", tag="respace"):
    """Re-spacing was requested: near `pin`, the gaps in the order of `board` have little room left, and room is to be
    made before pins are dropped there.
    """

    board: int
    pin: int
    committed_ms: int

    def __post_init__(self) -> None:
        check_id("board", self.board)
        check_id("pin", self.pin)
        check_stamp("committed_ms", self.committed_ms)


RecordedAction = Followed | Unfollowed | PinSaved | PinDeleted | RefillAsked | RespaceAsked
