"""Many pins into one feed: what a follow does, and what a refill does."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from feedstore.domain import Edge, Followed, Pin, RecordedAction, RefillAsked
from feedstore.feeds import Limits
from feedstore.follows.port import FollowStore, covering_ts
from workers.handlers.fanout import Publish
from workers.messages import Block, Delivery

FOLLOWEES_AT_ONCE = 32
"""How many followees' newest pins are read together, up to `cap` pins each."""

CELLS_AT_ONCE = 10_000
"""After how many cells deliveries go out: they are held in memory until then."""


class _Fill(NamedTuple):
    """Pins for the feed of one user, each at the timestamp of the edge that delivers it; for one cluster, or for
    all.
    """

    action: RecordedAction
    user: int
    pins: list[tuple[Pin, int]]
    cluster: str | None


class Backfill:
    """Handles follows and refills."""

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def follow(self, actions: Sequence[Followed], read_ms: int) -> None:
        """Puts the newest pins of each followee into the follower's feed. The edges are in the index."""
        by_followee: defaultdict[object, list[Followed]] = defaultdict(list)
        for action in actions:
            by_followee[action.followee].append(action)
        followees = list({action.followee: None for action in actions})
        waiting: list[tuple[Followed, list[Pin]]] = []
        for start in range(0, len(followees), FOLLOWEES_AT_ONCE):
            newest = self._follows.newest_pins(followees[start : start + FOLLOWEES_AT_ONCE], self._limits.cap)
            for followee, states in newest.items():
                if states:
                    pins = [state.pin for state in states]
                    waiting += [(action, pins) for action in by_followee[followee]]
            if sum(len(pins) for _, pins in waiting) > CELLS_AT_ONCE:
                self._fill_standing(waiting, read_ms)
                waiting = []
        if waiting:
            self._fill_standing(waiting, read_ms)

    def _fill_standing(self, waiting: Sequence[tuple[Followed, list[Pin]]], read_ms: int) -> None:
        """Fills the feeds of those follows that are still the latest action on their edge."""
        # Looked at again after the pins were read: what an unfollow has purged since must not come back.
        standing = self._follows.edges([(action.follower, action.followee) for action, _ in waiting])
        self._fill(
            [
                _Fill(action, action.follower, [(pin, action.ts) for pin in pins], None)
                for action, pins in waiting
                if standing.get((action.follower, action.followee)) == action.edge()
            ],
            read_ms,
        )

    def refill(self, actions: Sequence[RefillAsked], read_ms: int) -> None:
        """Puts the newest pins of all that a user follows now into their feed, at their edges' timestamps (rule
        9).
        """
        by_user: defaultdict[int, list[RefillAsked]] = defaultdict(list)
        for action in actions:
            by_user[action.user].append(action)
        fills: list[_Fill] = []
        delivering: list[Edge] = []
        for user, asked in by_user.items():
            active = self._follows.following(user)
            covering = {edge.followee: edge.ts for edge in active}
            states = self._follows.newest_pins_merged(list(covering), self._limits.cap)
            pins = [(state.pin, ts) for state in states if (ts := covering_ts(state.pin, covering)) is not None]
            times = {ts for _, ts in pins}
            delivering += [edge for edge in active if edge.ts in times]
            by_cluster = {action.cluster: action for action in asked}
            fills += [_Fill(action, user, pins, cluster) for cluster, action in by_cluster.items()]
            if sum(len(fill.pins) for fill in fills) > CELLS_AT_ONCE:
                self._refill(fills, delivering, read_ms)
                fills, delivering = [], []
        if fills:
            self._refill(fills, delivering, read_ms)

    def _refill(self, fills: Sequence[_Fill], delivering: Sequence[Edge], read_ms: int) -> None:
        # The follows that deliver these pins may still wait for their own turn: without them in the index, a deletion
        # would not find these users (rule 7).
        self._follows.index(edges=delivering)
        self._fill(fills, read_ms)

    def _fill(self, fills: Sequence[_Fill], read_ms: int) -> None:
        # Looked at after the edges are in the index and before anything is out: a pin that is deleted from now on finds
        # these followers (rule 7). Nothing is left to do after the publishing, so a handler may die there.
        deleted = self._follows.deletions([pin.pin for fill in fills for pin, _ in fill.pins])
        self._publish(
            Delivery(fill.action, read_ms, puts=[block], cluster=fill.cluster)
            for fill in fills
            for block in self._blocks(fill.user, [(pin, ts) for pin, ts in fill.pins if pin.pin not in deleted])
        )

    def _blocks(self, user: int, pins: Sequence[tuple[Pin, int]]) -> Iterator[Block]:
        """One block for each timestamp and chunk of pins."""
        by_ts: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for pin, ts in pins:
            by_ts[ts].append((pin.pin, pin.created_ms))
        for ts, entries in by_ts.items():
            for start in range(0, len(entries), self._limits.chunk):
                yield Block([(user, ts)], entries[start : start + self._limits.chunk])
