"""Which owners and boards of some pins a follower follows now."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from feedstore.domain import Edge, Followee, Pin, board, user
from feedstore.follows.store import FollowStore

KEYS_AT_ONCE: Final = 10_000
"""About the most edges that are looked up together, unless one follower needs more: each pin may be on another board.
"""


class Covering:
    """Edges of one follower: their timestamps, by owner and by board."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        self._boards: dict[int, int] = {}

    def add(self, followee: Followee, ts: int) -> None:
        """Adds an edge; of two timestamps of a followee the later counts."""
        of_kind = self._users if followee.kind == "user" else self._boards
        of_kind[followee.id] = max(ts, of_kind.get(followee.id, 0))

    def ts(self, pin: Pin) -> int | None:
        """The timestamp with which the follower gets a pin: of the latest edge that covers it (rule 3), or None."""
        by_owner, by_board = self._users.get(pin.owner), self._boards.get(pin.board)
        if by_owner is None or by_board is None:
            return by_owner if by_board is None else by_board
        return max(by_owner, by_board)

    def edges(self, follower: int) -> list[Edge]:
        """These followees as active edges of the follower."""
        return [
            *(Edge(follower, user(owner), ts, active=True) for owner, ts in self._users.items()),
            *(Edge(follower, board(board_id), ts, active=True) for board_id, ts in self._boards.items()),
        ]


def covering_now(follows: FollowStore, pins: Iterable[tuple[int, Collection[Pin]]]) -> defaultdict[int, Covering]:
    """The active edges of each follower that cover any of these pins, by follower. Edges are looked up by key: the cost
    depends on the pins, not on how much is followed.

    pins: (follower, pins).
    """
    covering: defaultdict[int, Covering] = defaultdict(Covering)
    keys: dict[tuple[int, Followee], None] = {}

    def look_up() -> None:
        for edge in follows.edges(list(keys)).values():
            if edge.active:
                covering[edge.follower].add(edge.followee, edge.ts)
        keys.clear()

    for follower, some in pins:
        # Many pins share an owner or a board.
        keys.update(((follower, user(owner)), None) for owner in {pin.owner for pin in some})
        keys.update(((follower, board(board_id)), None) for board_id in {pin.board for pin in some})
        if len(keys) > KEYS_AT_ONCE:
            look_up()
    if keys:
        look_up()
    return covering


def uncovered(pins: Iterable[Pin], unfollowed: Covering, covering: Covering) -> dict[int, list[Pin]]:
    """The pins of a row that an unfollowed followee covers and no active edge does, by the timestamp of the unfollow.
    If two unfollows cover a pin, the later counts. Pure.
    """
    found: defaultdict[int, list[Pin]] = defaultdict(list)
    for pin in pins:
        ts = unfollowed.ts(pin)
        if ts is not None and covering.ts(pin) is None:
            found[ts].append(pin)
    return found
