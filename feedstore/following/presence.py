"""Why a pin is in a feed, or is not."""

import msgspec

from feedstore.domain import Edge, Pin, check_id
from feedstore.following import FEEDS, columns, row_key
from feedstore.follows.store import FollowStore
from feedstore.replicas.replicas import Replicas


class Presence(msgspec.Struct, frozen=True):
    """Why a pin is in a feed, or is not, according to the follow store and to each cluster.

    deleted_ms: None if the pin is not deleted. edges: the user's edges to the pin's owner and to its board, if there
    are any. An active edge delivers the pin; if both are active, the later one does (rule 3). clusters: whether each
    cluster has the entry, even beyond the cap; None if a cluster does not answer.
    """

    pin: Pin
    deleted_ms: int | None
    edges: list[Edge]
    clusters: dict[str, bool | None]


def presence(follows: FollowStore, replicas: Replicas, user: int, pin: int, deadline_s: float) -> Presence | None:
    """Looks up why a pin is in a feed, or is not; None if the pin was never saved.

    Raises FollowStoreUnavailableError; InvalidValueError: `user` or `pin` is no id.
    """
    check_id("user", user)
    check_id("pin", pin)
    state = follows.pins([pin]).get(pin)
    if state is None:
        return None
    edges = follows.edges([(user, followee) for followee in state.pin.followees()])
    [column] = columns([(pin, state.pin.created_ms)])
    clusters = replicas.which_hold(FEEDS, row_key(user), column, deadline_s)
    return Presence(state.pin, state.deleted_ms, list(edges.values()), clusters)
