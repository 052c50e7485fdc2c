"""Backfill: a follow or a refill puts many pins into one feed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from feedstore.domain import Followed, Followee, Pin, RefillAsked
from feedstore.following import Limits
from feedstore.follows.port import MAX_PAGE, Merged, PinState, RefillTimes
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from workers.following.covering import covering_now
from workers.following.fanout import Publish
from workers.following.messages import Block, Delivery

FOLLOWEES_AT_ONCE = 32
"""How many followees' newest pins are read together, up to `cap` pins each."""

FEW, WITH_FEW_AT_ONCE = 50, 256
"""WITH_FEW_AT_ONCE followees are first asked for FEW pins each. Most have fewer, and are done with that: across a
network a query takes equally long for many followees.
"""

PINS_AT_ONCE = 20_000
"""About this many pins are kept for users whose refills share their reads, `cap` for each. Twice as many are read."""

CELLS_AT_ONCE = 10_000
"""Deliveries are published after this many cells: they are held in memory until then."""


class Backfill:
    """Handles follows and refills."""

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def follow(self, actions: Sequence[Followed], read_ms: int, cluster: str | None) -> None:
        """Puts the newest pins of each followee into the follower's feed. The edges are in the index."""
        by_followee: defaultdict[Followee, list[Followed]] = defaultdict(list)
        for action in actions:
            by_followee[action.followee].append(action)
        waiting: dict[Followee, list[Pin]] = {}
        cells = 0
        for newest in self._newest_of_each(list(by_followee)):
            for followee, states in newest.items():
                if states:
                    waiting[followee] = [state.pin for state in states]
                    cells += len(states) * len(by_followee[followee])
            if cells > CELLS_AT_ONCE:
                self._fill_current(waiting, by_followee, read_ms, cluster)
                waiting, cells = {}, 0
        if waiting:
            self._fill_current(waiting, by_followee, read_ms, cluster)

    def _newest_of_each(self, followees: Sequence[Followee]) -> Iterator[Mapping[Followee, Sequence[PinState]]]:
        """Yields the newest `cap` pins of each followee, some followees at a time."""
        cap = self._limits.cap
        few = min(FEW, cap)
        for some in chunks(followees, WITH_FEW_AT_ONCE):
            found = self._follows.newest_pins(some, few)
            yield {followee: states for followee, states in found.items() if few == cap or len(states) < few}
            many = [followee for followee, states in found.items() if few < cap and len(states) == few]
            del found
            for each in chunks(many, FOLLOWEES_AT_ONCE):
                yield self._follows.newest_pins(each, cap)

    def _fill_current(
        self,
        waiting: Mapping[Followee, Sequence[Pin]],
        by_followee: Mapping[Followee, Sequence[Followed]],
        read_ms: int,
        cluster: str | None,
    ) -> None:
        """Fills the feeds for those follows that are still the latest action on their edge."""
        # Edges are checked again after the pins were read: pins that an unfollow has purged since must not come back.
        edges = self._follows.edges(
            [(action.follower, followee) for followee in waiting for action in by_followee[followee]]
        )
        standing = {
            followee: [
                action
                for action in by_followee[followee]
                if edges.get((action.follower, action.followee)) == action.edge()
            ]
            for followee in waiting
        }
        deleted = self._deleted(waiting.values())
        self._publish(
            Delivery(action, read_ms, puts=[Block([(action.follower, action.ts)], entries)], cluster=cluster)
            for followee, pins in waiting.items()
            for entries in self._chunks(pins, deleted)
            for action in standing[followee]
        )

    def refill(self, actions: Sequence[RefillAsked], read_ms: int, cluster: str | None) -> None:
        """Puts the newest pins of all that a user follows now into their feed, at their edges' timestamps (rule 9).

        A refill serves every request that was recorded before its first read, not only those in hand: the markers that
        these wait for had landed by then, and its deliveries come after them. If a user unfollows thousands, each batch
        of markers makes a request; one refill then serves all that were made while the first one waited for its turn.
        """
        waiting: defaultdict[int, list[RefillAsked]] = defaultdict(list)
        served: dict[tuple[int, str | None], int] = {}
        by_time = sorted(actions, key=attrgetter("committed_ms"))
        latest = {(action.user, cluster or action.cluster): action for action in by_time}
        # A request that was sent back for one cluster is done for that cluster, and serves no other request.
        times = {} if cluster is not None else self._follows.refill_times(list(latest))
        for key, action in latest.items():
            known = times.get(key)
            if known is None or not self._is_served(action, known, read_ms):
                waiting[action.user].append(action)
                if known is not None and known.asked_ms > action.committed_ms:
                    served[key] = known.asked_ms
        fills: list[tuple[list[RefillAsked], list[Pin]]] = []
        cells = 0
        together = max(1, min(MAX_PAGE, PINS_AT_ONCE // self._limits.cap))
        for users in chunks(list(waiting), together):
            for user, pins in self._newest(users).items():
                fills.append((waiting[user], pins))
                cells += len(pins) * len(waiting[user])
            if cells > CELLS_AT_ONCE:
                self._refill(fills, read_ms, cluster)
                fills, cells = [], 0
        if fills:
            self._refill(fills, read_ms, cluster)
        if served:
            # Marked last, after all is published: if a handler dies before this, the refills are done again.
            self._follows.mark_refills_served(served)

    def _is_served(self, action: RefillAsked, times: RefillTimes, read_ms: int) -> bool:
        # If deliveries arrive too late, their request is sent back: it must not count as served then.
        recent = read_ms - times.served_before_ms <= self._limits.delivery_age_ms // 2
        return recent and action.committed_ms < times.served_before_ms

    def _newest(self, users: Sequence[int]) -> dict[int, list[Pin]]:
        """The newest `cap` pins of all that each of these users follows. Followees are read page by page: memory is
        bounded by `cap` for each user and one page, however much they follow.
        """
        cap = self._limits.cap
        newest: dict[int, list[Pin]] = {user: [] for user in users}
        after: tuple[int, Followee] | None = None
        while True:
            page = self._follows.following_of(users, after, MAX_PAGE)
            followees = {
                user: [edge.followee for edge in edges] for user, edges in groupby(page, attrgetter("follower"))
            }
            # Pins that are older than the last of a full list are not among the newest.
            wanted = [
                Merged(some, newest[user][-1].created_ms if len(newest[user]) == cap else 0)
                for user, some in followees.items()
            ]
            for user, states in zip(followees, self._follows.newest_pins_merged(wanted, cap), strict=True):
                pins = [state.pin for state in states]
                known = newest[user]
                newest[user] = sorted({*known, *pins}, key=_feed_order)[:cap] if known else pins
            if len(page) < MAX_PAGE:
                return newest
            after = (page[-1].follower, page[-1].followee)

    def _refill(
        self, fills: Sequence[tuple[Sequence[RefillAsked], Sequence[Pin]]], read_ms: int, cluster: str | None
    ) -> None:
        # Edges are checked after the pins were read: an unfollow and a new pin may have come between the two reads, and
        # the purge does not know that pin.
        covering = covering_now(self._follows, [(asked[0].user, pins) for asked, pins in fills])
        standing: list[tuple[Sequence[RefillAsked], dict[int, list[Pin]]]] = []
        for asked, pins in fills:
            mine = covering[asked[0].user]
            by_ts: defaultdict[int, list[Pin]] = defaultdict(list)
            for pin in pins:
                ts = mine.ts(pin)
                if ts is not None:
                    by_ts[ts].append(pin)
            standing.append((asked, by_ts))
        # The follows that deliver these pins may still wait for their own turn: without them in the index, a deletion
        # would not find these users (rule 7).
        self._follows.index(edges=[edge for user, mine in covering.items() for edge in mine.edges(user)])
        deleted = self._deleted(pins for _, pins in fills)
        self._publish(
            Delivery(action, read_ms, puts=[Block([(action.user, ts)], entries)], cluster=cluster or action.cluster)
            for asked, by_ts in standing
            for ts, pins in by_ts.items()
            for entries in self._chunks(pins, deleted)
            for action in asked
        )

    def _deleted(self, pins: Iterable[Sequence[Pin]]) -> Collection[int]:
        """Which of these pins were deleted. Call it after the edges are in the index and before anything is published:
        a deletion from now on finds these followers (rule 7). Nothing is left to do after the publishing, so a handler
        may die there.
        """
        return self._follows.deletions([pin.pin for some in pins for pin in some])

    def _chunks(self, pins: Sequence[Pin], deleted: Collection[int]) -> Iterator[list[tuple[int, int]]]:
        """The pins that are not deleted, in chunks for blocks."""
        entries = [(pin.pin, pin.created_ms) for pin in pins if pin.pin not in deleted]
        return chunks(entries, self._limits.chunk)


def _feed_order(pin: Pin) -> tuple[int, int]:
    return -pin.created_ms, pin.pin
