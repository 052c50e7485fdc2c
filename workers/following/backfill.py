"""Many pins into one feed: what a follow does, and what a refill does."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from feedstore.domain import Edge, Followed, Followee, Pin, RecordedAction, RefillAsked
from feedstore.following import Limits
from feedstore.follows.port import MAX_PAGE, FollowStore, RefillTimes, covering_ts
from workers.following.covering import covering_now
from workers.following.fanout import Publish
from workers.following.messages import Block, Delivery

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

    def follow(self, actions: Sequence[Followed], read_ms: int, cluster: str | None) -> None:
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
                self._fill_standing(waiting, read_ms, cluster)
                waiting = []
        if waiting:
            self._fill_standing(waiting, read_ms, cluster)

    def _fill_standing(self, waiting: Sequence[tuple[Followed, list[Pin]]], read_ms: int, cluster: str | None) -> None:
        """Fills the feeds of those follows that are still the latest action on their edge."""
        # Looked at again after the pins were read: what an unfollow has purged since must not come back.
        standing = self._follows.edges([(action.follower, action.followee) for action, _ in waiting])
        self._fill(
            [
                _Fill(action, action.follower, [(pin, action.ts) for pin in pins], cluster)
                for action, pins in waiting
                if standing.get((action.follower, action.followee)) == action.edge()
            ],
            read_ms,
        )

    def refill(self, actions: Sequence[RefillAsked], read_ms: int, cluster: str | None) -> None:
        """Puts the newest pins of all that a user follows now into their feed, at their edges' timestamps (rule 9).

        A refill serves every request that was recorded before its first read, not only those in hand: what they wait
        for had landed by then, and its deliveries come after it. Of a user who unfollows thousands, each batch of
        markers asks; all that is asked while one request waits for its turn is done with it.
        """
        waiting: defaultdict[int, list[RefillAsked]] = defaultdict(list)
        served: dict[tuple[int, str | None], int] = {}
        by_time = sorted(actions, key=attrgetter("committed_ms"))
        latest = {(action.user, cluster or action.cluster): action for action in by_time}
        # What was sent back for a cluster lacks deliveries there, and serves no other.
        times = {} if cluster is not None else self._follows.refill_times(list(latest))
        for key, action in latest.items():
            known = times.get(key)
            if known is None or not self._is_served(action, known, read_ms):
                waiting[action.user].append(action)
                if known is not None and known.asked_ms > action.committed_ms:
                    served[key] = known.asked_ms
        fills: list[tuple[list[RefillAsked], list[Pin]]] = []
        cells = 0
        for user, asked in waiting.items():
            pins = self._newest(user)
            fills.append((asked, pins))
            cells += len(pins) * len(asked)
            if cells > CELLS_AT_ONCE:
                self._refill(fills, read_ms, cluster)
                fills, cells = [], 0
        if fills:
            self._refill(fills, read_ms, cluster)
        if served:
            # Only now that all is published: a handler that dies before this does them again.
            self._follows.mark_refills_served(served)

    def _is_served(self, action: RefillAsked, times: RefillTimes, read_ms: int) -> bool:
        # Deliveries that arrive past their age bring their request back: it must not pass for served.
        recent = read_ms - times.served_before_ms <= self._limits.delivery_age_ms // 2
        return recent and action.committed_ms < times.served_before_ms

    def _newest(self, user: int) -> list[Pin]:
        """The newest `cap` pins of all that a user follows. A page of followees at a time: memory is bounded by `cap`
        and the page, whatever their number.
        """
        cap = self._limits.cap
        newest: list[Pin] = []
        after: Followee | None = None
        while True:
            page = self._follows.following_after(user, after, MAX_PAGE)
            # What is older than the last of a full list is not among the newest.
            created_from_ms = newest[-1].created_ms if len(newest) == cap else 0
            if page:
                states = self._follows.newest_pins_merged([edge.followee for edge in page], cap, created_from_ms)
                newest = sorted({*newest, *(state.pin for state in states)}, key=_feed_order)[:cap]
            if len(page) < MAX_PAGE:
                return newest
            after = page[-1].followee

    def _refill(
        self, fills: Sequence[tuple[Sequence[RefillAsked], Sequence[Pin]]], read_ms: int, cluster: str | None
    ) -> None:
        # Looked at after the pins were read: an unfollow and a new pin may have come between the two reads, and the
        # purge does not know that pin.
        covering = covering_now(self._follows, [(asked[0].user, pins) for asked, pins in fills])
        edges: dict[tuple[int, Followee], Edge] = {}
        standing: list[_Fill] = []
        for asked, pins in fills:
            user = asked[0].user
            covered: list[tuple[Pin, int]] = []
            for pin in pins:
                ts = covering_ts(pin, covering[user])
                if ts is not None:
                    covered.append((pin, ts))
                    for followee in pin.followees():
                        if covering[user].get(followee) == ts:
                            edges[user, followee] = Edge(user, followee, ts, active=True)
            standing += [_Fill(action, user, covered, cluster or action.cluster) for action in asked]
        # The follows that deliver these pins may still wait for their own turn: without them in the index, a deletion
        # would not find these users (rule 7).
        self._follows.index(edges=list(edges.values()))
        self._fill(standing, read_ms)

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


def _feed_order(pin: Pin) -> tuple[int, int]:
    return -pin.created_ms, pin.pin
