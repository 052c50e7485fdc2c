"""One pin into many feeds: what saving and deleting a pin does.

A followee may have so many followers that the actions behind it in the queue would wait for minutes. One call does so
much for each followee, and says which ranges of followers are left: other calls do these, at any time, anywhere.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from feedstore.domain import MAX_ID, Followee, Pin, PinDeleted, PinSaved
from feedstore.following import Limits
from feedstore.follows.port import Follower
from feedstore.follows.store import FollowStore
from workers.following.messages import Block, Delivery, Range

Publish = Callable[[Iterable[Delivery]], None]
"""Puts deliveries on the queue, a bounded number at a time; all are durable when it returns."""

CELLS: Final = 100_000
"""About how many cells a call publishes of followees with many followers, before it leaves the rest of these: 0.3 s."""
_SHARES: Final = 10
"""Of a whole fanout, each followee has at least this part of them. Nearly all fanouts are smaller."""
_WIDER: Final = 64
_RANGES: Final = 64
"""What is left of a whole fanout is divided into ranges each of which is so many times as wide as the one before. What
is left of a range is divided into so many, at most.
"""

PinAction = PinSaved | PinDeleted


class Remainder(NamedTuple):
    """What is left of the fanouts of some actions: the same ranges of followers of each."""

    actions: Sequence[PinAction]
    ranges: Sequence[Range]


class Visited(NamedTuple):
    """What a call has done: how many cells it has published, and what it left."""

    cells: int
    left: list[Remainder]


class Fanout:
    """Handles saved and deleted pins. Memory is bounded by one page of followers, whatever their number."""

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def save(
        self, actions: Sequence[PinSaved], read_ms: int, cluster: str | None, within: Range | None, cells: int
    ) -> Visited:
        """Puts each pin into the feeds of the followers of its owner and of its board. The pins are in the index.

        within: only for these followers. cells: after so many, what is left of large fanouts is left to the caller. It
        must be durable before the actions count as done.
        """
        by_pin = {action.pin.pin: action for action in actions}
        visit = self._visit([action.pin for action in actions], within, cells)
        for followers in visit.pages(tombstones=False):
            # Looked at after the followers were read and before anything is out: a deletion from now on finds them
            # under these edges (rule 7). Nothing is left to do after the publishing, so a handler may die there.
            deleted = self._follows.deletions([pin.pin for pin, _ in followers])
            # If both edges are active, both put the pin, and the later timestamp is the visible one (rule 5).
            self._publish(
                Delivery(by_pin[pin.pin], read_ms, puts=[Block(rows, [(pin.pin, pin.created_ms)])], cluster=cluster)
                for pin, rows in followers
                if pin.pin not in deleted
            )
        return visit.done(by_pin)

    def delete(
        self, actions: Sequence[PinDeleted], read_ms: int, cluster: str | None, within: Range | None, cells: int
    ) -> Visited:
        """Removes each pin from every feed that holds it or may yet receive it. The deletions are in the index. within,
        cells: as of `save`.
        """
        by_pin = {action.pin.pin: action for action in actions}
        visit = self._visit([action.pin for action in actions], within, cells)
        # Tombstones included: a backfill under an edge that ended since may still be in flight.
        for followers in visit.pages(tombstones=True):
            self._publish(
                Delivery(deletion, read_ms, markers=[_no_earlier(deletion.committed_ms, rows, pin)], cluster=cluster)
                for pin, rows in followers
                for deletion in [by_pin[pin.pin]]
            )
        return visit.done(by_pin)

    def _visit(self, pins: Sequence[Pin], within: Range | None, cells: int) -> "_Visit":
        reached: defaultdict[Followee, list[Pin]] = defaultdict(list)
        for pin in pins:
            for followee in pin.followees() if within is None else [within.followee]:
                reached[followee].append(pin)
        share = cells // min(_SHARES, max(1, len(reached)))
        return _Visit(self._follows, reached, within, self._limits.chunk, share)


class _Visit:
    """Pages through the followers of followees, each until it has had its share.

    reached: the pins that each followee brings to its followers. within: as of `Fanout.save`; then of one followee.
    share: how many cells are enough for one followee; it has at least a page.
    """

    def __init__(
        self,
        follows: FollowStore,
        reached: Mapping[Followee, list[Pin]],
        within: Range | None,
        page: int,
        share: int,
    ) -> None:
        self._follows = follows
        self._reached = reached
        self._within = within
        self._page = page
        self._share = share
        self._cells = 0
        self._left: list[tuple[list[Pin], list[Range]]] = []

    def pages(self, *, tombstones: bool) -> Iterator[list[tuple[Pin, list[tuple[int, int]]]]]:
        """For each page the pins, each with the rows (follower, timestamp of the edge) that the page holds for it."""
        within = self._within
        after = None if within is None else (within.followee, within.after)
        followees = list(self._reached)
        current: Followee | None = None  # that the page before ended with
        first = cells = 0  # its first follower, and how many cells its followers got
        while followees:
            page = self._follows.followers(followees, after, self._page, tombstones=tombstones)
            if within is not None:
                page = page[: bisect_right(page, within.until, key=attrgetter("follower"))]
            groups = list(_rows(page))
            for followee, rows in groups:
                if followee != current:
                    current, first, cells = followee, rows[0][0], 0
                cells += len(rows) * len(self._reached[followee])
                self._cells += len(rows) * len(self._reached[followee])
            if groups:
                yield [(pin, rows) for followee, rows in groups for pin in self._reached[followee]]
            if len(page) < self._page:
                return
            followee, rows = groups[-1]
            last = rows[-1][0]
            after = followee, last
            if cells >= self._share:
                if ranges := ranges_left(within, followee, first, last):
                    self._left.append((self._reached[followee], ranges))
                if len(followees) == 1:
                    return
                after = followee, MAX_ID

    def done(self, actions: Mapping[int, PinAction]) -> Visited:
        """What the pages came to. actions: by pin."""
        left = [Remainder([actions[pin.pin] for pin in pins], ranges) for pins, ranges in self._left]
        return Visited(self._cells, left)


def ranges_left(within: Range | None, followee: Followee, first: int, last: int) -> list[Range]:
    """The ranges of followers behind `last`, which together end where `within` does. Pure.

    first, last: the first and the last id that were done. What lies behind `last` is unknown, ids may lie close
    together or far apart. So each range of a fanout that was whole is _WIDER times as wide as the one before, and one
    that turns out to have many followers is divided evenly.
    """
    width = last - first + 1
    until = MAX_ID if within is None else within.until
    step = width * _WIDER if within is None else max(width, -(-(until - last) // _RANGES))
    ranges: list[Range] = []
    while last < until:
        end = min(until, last + step)
        ranges.append(Range(followee, last, end))
        last = end
        if within is None:
            step *= _WIDER
    return ranges


def _rows(page: Sequence[Follower]) -> Iterator[tuple[Followee, list[tuple[int, int]]]]:
    for followee, lines in groupby(page, key=itemgetter(0)):
        yield followee, [line[1:3] for line in lines]


def _no_earlier(deleted_ms: int, rows: Sequence[tuple[int, int]], pin: Pin) -> Block:
    """Markers at the deletion or at the edge, whichever is later: a put has its edge's timestamp and must be
    masked.
    """
    return Block([(user, max(deleted_ms, ts)) for user, ts in rows], [(pin.pin, pin.created_ms)])
