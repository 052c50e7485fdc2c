"""Users, boards, pins, followees, edges, actions and feed entries: values that refuse bad input when they are made."""

from feedstore.domain.actions import (
    MAX_SKEW_MS,
    Action,
    DeletePin,
    Follow,
    Followed,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    RespaceAsked,
    SavePin,
    Unfollow,
    Unfollowed,
    refuse_reserved,
)
from feedstore.domain.values import (
    ID_PATTERN,
    MAX_ID,
    RESERVED_FROM,
    Edge,
    Entry,
    Followee,
    FolloweeKind,
    InvalidValueError,
    Pin,
    board,
    check_id,
    check_ms,
    id_of,
    user,
)
