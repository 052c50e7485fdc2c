"""The shards that a task needs, and the regions that a delivery needs: from these a stage knows which messages must
wait if one is away.

The slots of the follow store are its shards. The slots of a cluster are the 256 possible first bytes of its row keys: a
region holds a range of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from feedstore.domain import Unfollowed
from feedstore.following import bucket
from feedstore.follows.store import FollowStore
from workers.following.messages import Block, Delivery, Hold, Parked, RangeTask, Task
from workers.following.packs import Pack

BUCKETS: Final = 256
NOTES: Final = BUCKETS
"""The slot of the table of progress: a delivery may need to note a hold there, or that a part of a purge has landed."""
FOLLOW_STORE: Final = BUCKETS + 1
"""The slot of the follow store: a purge asks it for a refill."""


class TaskSlots:
    """The slots that messages of feed.actions need: the shards."""

    def __init__(self, follows: FollowStore) -> None:
        self.count = follows.shards()
        self._follows = follows

    def needed(self, body: Task | RangeTask) -> frozenset[int]:
        if isinstance(body, RangeTask):
            return frozenset().union(*map(self._follows.shards_of, body.actions))
        return self._follows.shards_of(body.action)

    def divided(self, body: Task | RangeTask, slots: frozenset[int]) -> tuple[RangeTask, RangeTask] | None:
        """Divides a range's pins into those that need the given shards and the others. One action is not divided."""
        if not isinstance(body, RangeTask):
            return None
        needs = [not slots.isdisjoint(self._follows.shards_of(action)) for action in body.actions]
        inside, outside = ([n for n, is_so in enumerate(needs) if is_so is wanted] for wanted in (True, False))
        return (body.only(inside), body.only(outside)) if inside and outside else None

    def halved(self, body: Task | RangeTask) -> tuple[RangeTask, RangeTask] | None:
        return body.halves() if isinstance(body, RangeTask) else None


class DeliverySlots:
    """The slots that messages of feed.deliveries need.

    cluster: the cluster that is written. late_before_ms: returns its writer's time before which a delivery is late. It
        must not raise; a value that was right a while ago will do.
    """

    count = BUCKETS

    def __init__(self, cluster: str, late_before_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._late_before_ms = late_before_ms

    def needed(self, body: Delivery | Hold | Pack) -> frozenset[int]:
        if isinstance(body, Hold):
            return frozenset((NOTES,))
        if body.cluster not in (None, self._cluster):
            return frozenset()
        if self._late(body):
            return frozenset((NOTES,))  # it is late: it is sent back, not written
        if isinstance(body, Pack):
            return body.buckets
        found = {bucket(user) for block in (*body.puts, *body.markers) for user, _ in block.rows}
        found |= {stray.row[0] for stray in body.strays}
        if body.purge is not None:
            found |= {NOTES, FOLLOW_STORE}
            if isinstance(body.action, Unfollowed):
                found.add(bucket(body.action.follower))  # a purge reads this row, even without markers for it
        return frozenset(found)

    def divided(
        self, body: Delivery | Hold | Pack, slots: frozenset[int]
    ) -> tuple[Delivery | Pack, Delivery | Pack] | None:
        """Divides cells by their rows. A purge is not divided: it is for one row, and its refill must come after all of
        its markers.
        """
        if isinstance(body, Hold) or self._late(body):
            return None
        if isinstance(body, Pack):
            return body.divided(slots)
        if body.purge is not None:
            return None
        return _with(body, slots, inside=True), _with(body, slots, inside=False)

    def halved(self, body: Delivery | Hold | Pack) -> tuple[Delivery | Pack, Delivery | Pack] | None:
        return body.halves() if isinstance(body, Pack) else None

    def _late(self, body: Delivery | Pack) -> bool:
        return body.read_ms < self._late_before_ms()


class ParkedSlots:
    """The slots that messages of feed.retries need. They are not divided: a note ends once all of it has landed."""

    count = BUCKETS

    def __init__(self, cluster: str, late_before_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._deliveries = DeliverySlots(cluster, late_before_ms)

    def needed(self, body: Parked) -> frozenset[int]:
        if body.cluster != self._cluster:
            return frozenset()
        return self._deliveries.needed(body.delivery) | {NOTES}

    def divided(self, body: Parked, slots: frozenset[int]) -> None:  # noqa: ARG002 - the port's
        return None

    def halved(self, body: Parked) -> None:  # noqa: ARG002 - the same
        return None


def _with(delivery: Delivery, slots: frozenset[int], *, inside: bool) -> Delivery:
    return Delivery(
        delivery.action,
        delivery.read_ms,
        puts=list(_blocks(delivery.puts, slots, inside=inside)),
        markers=list(_blocks(delivery.markers, slots, inside=inside)),
        cluster=delivery.cluster,
        strays=[stray for stray in delivery.strays if (stray.row[0] in slots) is inside],
    )


def _blocks(blocks: Sequence[Block], slots: frozenset[int], *, inside: bool) -> Iterator[Block]:
    for block in blocks:
        if rows := [row for row in block.rows if (bucket(row[0]) in slots) is inside]:
            yield Block(rows, block.pins)
