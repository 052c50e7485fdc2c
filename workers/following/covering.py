"""What a follower follows now, as far as some pins ask for it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from feedstore.domain import Followee, Pin
from feedstore.follows.port import FollowStore, covering_ts


def covering_now(
    follows: FollowStore, pins: Iterable[tuple[int, Iterable[Pin]]]
) -> defaultdict[int, dict[Followee, int]]:
    """The active edges of each follower that cover any of these pins: their timestamps by followee, by follower. Edges
    are looked up by key, so that the cost is that of the pins, whatever else is followed.

    pins: (follower, pins).
    """
    keys = {(follower, followee): None for follower, some in pins for pin in some for followee in pin.followees()}
    covering: defaultdict[int, dict[Followee, int]] = defaultdict(dict)
    if keys:
        for edge in follows.edges(list(keys)).values():
            if edge.active:
                covering[edge.follower][edge.followee] = edge.ts
    return covering


def uncovered(
    pins: Iterable[Pin], unfollowed: Mapping[Followee, int], covering: Mapping[Followee, int]
) -> dict[int, list[Pin]]:
    """Of the pins that a row holds, those that an unfollowed followee covers and nothing active does, by the timestamp
    of the unfollow. Pure.

    unfollowed: timestamps by followee; of two that cover a pin the later counts. covering: see `covering_now`.
    """
    found: defaultdict[int, list[Pin]] = defaultdict(list)
    for pin in pins:
        ts = covering_ts(pin, unfollowed)
        if ts is not None and covering_ts(pin, covering) is None:
            found[ts].append(pin)
    return found
