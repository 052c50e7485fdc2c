"""Parking moves deliveries that a cluster cannot take now to feed.retries, so that they hold up no others.

A delivery is parked in this order: a copy is in the topic; the cluster has noted how far the topic goes, so that the
watermark waits until all of it has landed; only then does its message count as done. It lands in this order: its cells,
and all that follows from them, are durable; then the cluster notes how far its retries have applied the topic, which
ends the wait; only then does the copy count as done. A step that is repeated writes the same cells.
"""

from collections.abc import Sequence
from typing import Final

from feedstore.follows.store import FollowStore
from feedstore.widecolumn.progress import Progress
from workers.following.applied import note_parked
from workers.following.messages import Delivery, Hold, Parked, encode_parked
from workers.following.packs import Pack
from workers.following.topics import RETRIES
from workers.following.writer import Writer
from workers.queue.port import MAX_MESSAGE_BYTES, Queue, QueueUnavailableError, lags_of

MAX_PARKED: Final = 200_000
"""Nothing more is parked while this many messages wait for a cluster's retries: they would land minutes after the
cluster is back, and the topic is on the disks of the brokers."""

_COPIES_AT_ONCE: Final = 2_000
"""About this many copies are published and noted together: a pack may be parked as thousands of deliveries."""

_UNNOTED: Final = 1
"""The id of a copy without a note of its own. Earlier versions noted each copy by an id that was made of its bytes."""


class Parking:
    """Parks deliveries of one cluster, and lands them. It has no state, like the Writer.

    writer, progress: the cluster's. group: the consumer group that lands parked deliveries.
    """

    def __init__(
        self, cluster: str, writer: Writer, progress: Progress, follows: FollowStore, queue: Queue, group: str
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._progress = progress
        self._follows = follows
        self._queue = queue
        self._group = group

    def park(self, messages: Sequence[Delivery | Hold | Pack], wait_s: float) -> list[bool]:
        """Parks deliveries, and packs as a delivery for each block; returns for each message whether it is durably
        parked. It does not park deliveries that are too large to be wrapped, nor holds and messages for another
        cluster: these wait only because of the messages around them.

        Raises:
            UnavailableError: the cluster takes no notes: it is away as a whole, and its group waits for it.
            FollowStoreUnavailableError, QueueUnavailableError: these are away, and nothing would land anywhere.
                Some may be in the topic then, and will land twice.
        """
        due_ms = self._follows.about_now().latest_ms + int(wait_s * 1_000)
        # Partitions that no broker leads take nothing; what is in them is not counted.
        lags = lags_of(self._queue, RETRIES, self._group, known=True)
        if not lags:
            raise QueueUnavailableError(f"no broker leads a partition of {RETRIES}")
        # One partition for each call, so that there are few notes however many partitions there are.
        partition = sorted(lags)[due_ms % len(lags)]
        room = MAX_PARKED - sum(lags.values())
        if room <= 0:
            return [False] * len(messages)
        self._progress.refuse_unwritable()
        parked: list[bool] = []
        waiting: list[tuple[Delivery, bytes]] = []
        for message in messages:
            copies = self._copies(message, due_ms) if room > 0 else []
            room -= len(copies)
            waiting += copies
            if len(waiting) >= _COPIES_AT_ONCE:
                self._keep(waiting, partition)
                waiting = []
            parked.append(bool(copies))
        self._keep(waiting, partition)
        return parked

    def land(self, parked: Sequence[Parked]) -> None:
        """Writes deliveries that are parked for this cluster; durable when it returns. If it raises, land all again."""
        ours = [each for each in parked if each.cluster == self._cluster]
        if ours:
            self._writer.write([each.delivery for each in ours])
            self._lift(ours)

    def give_up(self, parked: Parked) -> None:
        """Lifts the note, if any, of a delivery that became a dead letter: dead letters keep no watermark back."""
        if parked.cluster == self._cluster:
            self._lift([parked])

    def _lift(self, parked: Sequence[Parked]) -> None:
        """Lifts the notes that an earlier version made, one for each message."""
        noted = [(each.delivery.action.committed_ms, each.id) for each in parked if each.id != _UNNOTED]
        if noted:
            self._progress.lift(noted, self._follows.about_now().latest_ms)

    def _keep(self, copies: Sequence[tuple[Delivery, bytes]], partition: int) -> None:
        if copies:
            self._queue.publish(RETRIES, [value for _, value in copies], partition)
            since_ms = (delivery.action.committed_ms for delivery, _ in copies)
            note_parked(self._progress, since_ms, self._queue, partition)

    def _copies(self, message: Delivery | Hold | Pack, due_ms: int) -> list[tuple[Delivery, bytes]]:
        """The deliveries of a message, each with the message that replaces it; none if the message cannot be parked."""
        if isinstance(message, Hold) or message.cluster not in (None, self._cluster):
            return []
        copies: list[tuple[Delivery, bytes]] = []
        for delivery in message.deliveries() if isinstance(message, Pack) else [message]:
            value = encode_parked(Parked(self._cluster, _UNNOTED, due_ms, delivery))
            if len(value) > MAX_MESSAGE_BYTES:
                return []
            copies.append((delivery, value))
        return copies
