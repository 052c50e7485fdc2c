"""One pin into many feeds: what saving and deleting a pin does."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from feedstore.domain import Followee, Pin, PinDeleted, PinSaved
from feedstore.following import Limits
from feedstore.follows.port import Follower, FollowStore
from workers.following.messages import Block, Delivery

Publish = Callable[[Iterable[Delivery]], None]
"""Puts deliveries on the queue, a bounded number at a time; all are durable when it returns."""


class Fanout:
    """Handles saved and deleted pins. Memory is bounded by one page of followers, whatever their number."""

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def save(self, actions: Sequence[PinSaved], read_ms: int, cluster: str | None) -> None:
        """Puts each pin into the feeds of the followers of its owner and of its board. The pins are in the index."""
        by_pin = {action.pin.pin: action for action in actions}
        for followers in self._pages([action.pin for action in actions], tombstones=False):
            # Looked at after the followers were read and before anything is out: a deletion from now on finds them
            # under these edges (rule 7). Nothing is left to do after the publishing, so a handler may die there.
            deleted = self._follows.deletions([pin.pin for pin, _ in followers])
            # If both edges are active, both put the pin, and the later timestamp is the visible one (rule 5).
            self._publish(
                Delivery(by_pin[pin.pin], read_ms, puts=[Block(rows, [(pin.pin, pin.created_ms)])], cluster=cluster)
                for pin, rows in followers
                if pin.pin not in deleted
            )

    def delete(self, actions: Sequence[PinDeleted], read_ms: int, cluster: str | None) -> None:
        """Removes each pin from every feed that holds it or may yet receive it. The deletions are in the index."""
        by_pin = {action.pin.pin: action for action in actions}
        # Tombstones included: a backfill under an edge that ended since may still be in flight.
        for followers in self._pages([action.pin for action in actions], tombstones=True):
            self._publish(
                Delivery(deletion, read_ms, markers=[_no_earlier(deletion.committed_ms, rows, pin)], cluster=cluster)
                for pin, rows in followers
                for deletion in [by_pin[pin.pin]]
            )

    def _pages(self, pins: Sequence[Pin], *, tombstones: bool) -> Iterator[list[tuple[Pin, list[tuple[int, int]]]]]:
        """Pages through the followers of the owners and boards of all these pins: for each page the pins, each with
        the rows (follower, timestamp of the edge) that the page holds for it.
        """
        reached: defaultdict[Followee, list[Pin]] = defaultdict(list)
        for pin in pins:
            for followee in pin.followees():
                reached[followee].append(pin)
        if not reached:
            return
        followees = list(reached)
        after: tuple[Followee, int] | None = None
        while True:
            page = self._follows.followers(followees, after, self._limits.chunk, tombstones=tombstones)
            if page:
                yield [(pin, rows) for followee, rows in _rows(page) for pin in reached[followee]]
            if len(page) < self._limits.chunk:
                return
            after = (page[-1].followee, page[-1].follower)


def _rows(page: Sequence[Follower]) -> Iterator[tuple[Followee, list[tuple[int, int]]]]:
    for followee, lines in groupby(page, key=itemgetter(0)):
        yield followee, [line[1:3] for line in lines]


def _no_earlier(deleted_ms: int, rows: Sequence[tuple[int, int]], pin: Pin) -> Block:
    """Markers at the deletion or at the edge, whichever is later: a put has its edge's timestamp and must be
    masked.
    """
    return Block([(user, max(deleted_ms, ts)) for user, ts in rows], [(pin.pin, pin.created_ms)])
