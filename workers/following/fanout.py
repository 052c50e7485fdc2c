"""Fanout: saving or deleting a pin changes many feeds.

A followee may have so many followers that later actions in the queue would wait for minutes. So one call does a bounded
share for each followee, and returns the ranges of followers that are left: other calls do these, at any time and in any
expander.
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
"""Publishes deliveries, a bounded number at a time; all are durable when it returns."""

CELLS: Final = 100_000
"""About this many cells (0.3 s) of followees with many followers are published per call; the rest of these is left."""
_SHARES: Final = 10
"""Each followee of a whole fanout gets at least CELLS divided by this. Nearly all fanouts are smaller than that."""
_WIDER: Final = 64
_RANGES: Final = 64
"""The rest of a whole fanout is divided into ranges, each _WIDER times as wide as the one before; the rest of a range
is divided into _RANGES ranges at most.
"""

PinAction = PinSaved | PinDeleted


class Remainder(NamedTuple):
    """The rest of the fanouts of some actions, which all have the same ranges of followers left."""

    actions: Sequence[PinAction]
    ranges: Sequence[Range]


class Visited(NamedTuple):
    """What a call has done. cells: how many it has published. left: what remains to be done."""

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

        within: only for these followers. cells: after about this many, the rest of large fanouts is returned. The
        caller must make that rest durable before the actions count as done.
        """
        by_pin = {action.pin.pin: action for action in actions}
        visit = self._visit([action.pin for action in actions], within, cells)
        for followers in visit.pages(tombstones=False):
            # Checked after the followers were read and before anything is published: a deletion from now on finds these
            # followers by their edges (rule 7). Nothing is left to do after the publishing, so a handler may die there.
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
        """Removes each pin from every feed that holds it or may yet receive it. The deletions are in the index.

        within: only for these followers. cells: after about this many, the rest of large fanouts is returned.
        """
        by_pin = {action.pin.pin: action for action in actions}
        visit = self._visit([action.pin for action in actions], within, cells)
        # Ended edges are included: a backfill for an edge that has ended by now may still be in flight.
        for followers in visit.pages(tombstones=True):
            self._publish(
                Delivery(deletion, read_ms, markers=[_markers(deletion.committed_ms, rows, pin)], cluster=cluster)
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
    """Pages through the followers of followees, each followee until it has had its share.

    reached: the pins that each followee brings to its followers. within: only these followers, of the only followee.
    share: the number of cells after which a followee's rest is left; it gets at least a page.
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
        """Yields for each page its pins, each with its rows (follower, timestamp of the edge) in the page."""
        within = self._within
        after = None if within is None else (within.followee, within.after)
        followees = list(self._reached)
        current: Followee | None = None  # the last followee of the previous page
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
        """What was done, after the last page. actions: by pin."""
        left = [Remainder([actions[pin.pin] for pin in pins], ranges) for pins, ranges in self._left]
        return Visited(self._cells, left)


def ranges_left(within: Range | None, followee: Followee, first: int, last: int) -> list[Range]:
    """Divides the followers behind `last`, up to the end of `within`, into ranges. Pure.

    first, last: the first and the last id that were done. Nothing is known of the ids behind `last`: they may lie close
    together or far apart. So each range of a whole fanout is _WIDER times as wide as the one before, and a range that
    turns out to have many followers is divided evenly.
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


def _markers(deleted_ms: int, rows: Sequence[tuple[int, int]], pin: Pin) -> Block:
    """Markers at the later of the two times, deletion or edge: a put has its edge's timestamp and must be masked."""
    return Block([(user, max(deleted_ms, ts)) for user, ts in rows], [(pin.pin, pin.created_ms)])
