"""The queue port: partitioned logs read by consumer groups, as Kafka has them.

Delivery is at least once and in no order that anybody may rely on across partitions. A group's committed position is
its progress; it is committed only after the effect is durable (rule 11). `tests/queue` runs this contract against
every adapter.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

ACTIONS: Final = "feed.actions"
"""Tasks: recorded actions, for the expander."""
DELIVERIES: Final = "feed.deliveries"
"""Deliveries: cells for the writers, one consumer group a cluster."""
RETRIES: Final = "feed.retries"
"""Deliveries that a writer has parked, each for one cluster: one consumer group a cluster."""

Topic = Literal["feed.actions", "feed.deliveries", "feed.retries"]
TOPICS: tuple[Topic, ...] = (ACTIONS, DELIVERIES, RETRIES)

MAX_MESSAGE_BYTES = 1_000_000
"""The largest message that a queue takes (Kafka's default limit)."""
MAX_POLL_BYTES = 500_000
"""The most bytes of messages that one poll returns: what is made of them takes twenty times as much memory."""


class QueueError(Exception):
    """A queue did not do what it was asked to. Subclasses say what the caller should do."""


class QueueUnavailableError(QueueError):
    """Not now: repeat the call later. A publish that raised this may have been stored or not."""


class MessageRefusedError(QueueError):
    """Never: a message over MAX_MESSAGE_BYTES. Nothing of the call was stored."""


class PositionLostError(QueueError):
    """Messages that this group has not read are gone (retention passed them by). Never skip: stop, rebuild, then
    `reset`. The message names topic, partition and group.
    """


class UnsafeTopicsError(QueueError):
    """Topics are set so that what they acknowledged could be lost. No worker starts on them; the message names each
    setting.
    """


class GroupBusyError(QueueError):
    """Not while another consumer of the group is live: an embedded queue has one for each topic and group."""


class Message(NamedTuple):
    """partition and offset name its place in a topic; `value` is what was published."""

    partition: int
    offset: int
    value: bytes


class Consumer(Protocol):
    """One member of a consumer group on one topic. Used by one thread at a time.

    A new consumer starts each partition at the group's committed position. The first consumer that a group ever has
    starts at the earliest message, and commits that it does: what retention takes from the group after that is never
    skipped unseen. What was polled and not committed is delivered again to whoever reads the partition next.

    Where a group may have several members, each reads some of the partitions, and which ones may change inside any
    call. A partition that goes to another member begins there at the committed position, and so it does when it comes
    back: what this member has polled of it and not committed is done twice, by whoever it may be.
    """

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """Up to `limit` next messages (1 or more), waiting up to `timeout_s` for the first; empty when there are none.

        Within a partition messages come in offset order, each once for as long as this member reads it. Together they
        hold at most MAX_POLL_BYTES; a single larger one comes alone. It may return less than there is. With a timeout
        of 0 it never waits for messages; a member that must join its group first, or give partitions up, takes a few
        seconds more.

        Raises:
            PositionLostError: a partition's position points at messages that are gone.
            QueueUnavailableError: later; nothing was skipped.
        """
        ...

    def commit(self, positions: Mapping[int, int]) -> None:
        """Stores, for each partition, the offset of the *next* message that the group wants; it outlives this process.

        Where the machine dies, the latest positions may be forgotten: the messages come again.
        Positions are the caller's promise that every effect before them is durable. A committed position never goes
        back: one at or below it changes nothing. Partitions that are not named stay where they are. Those that this
        member does not read now stay too, and nothing is raised: the messages come again to whoever reads them.

        Raises:
            ValueError: the topic has no such partition, or the position is past its end; nothing was stored.
            QueueUnavailableError: later; some may have been stored.
        """
        ...

    def keep_alive(self) -> None:
        """Tells the group that this member works, while it has no room for more messages and polls none. Cheap, and
        meant for every round without a poll: a member that does neither for minutes counts as hung, and its
        partitions go to others.

        Raises:
            QueueUnavailableError: later; nothing was skipped.
        """
        ...

    def close(self) -> None:
        """Commits nothing. Doing it twice is fine; any other use afterwards raises QueueError."""
        ...


class Queue(Protocol):
    """All topics. Thread-safe."""

    def partitions(self, topic: Topic) -> int:
        """How many partitions a topic has now, numbered from 0. At least as many as anybody has published to before
        the call; partitions may be added at any time, and are never taken away.

        Raises:
            QueueUnavailableError: later.
        """
        ...

    def publish(self, topic: Topic, values: Sequence[bytes], partition: int | None = None) -> None:
        """Appends messages to a topic; durable when it returns. An empty sequence does nothing.

        Durable means that no process that dies can take them along. Where the machine itself dies, `feed.actions` and
        `feed.retries` keep all of them; an adapter may lose the latest deliveries, but only together with the
        positions of the tasks that they came from. Without a partition the queue chooses one for each call or message.
        Messages of one call that share a partition keep their order.

        Raises:
            ValueError: the topic has no such partition; nothing was stored.
            MessageRefusedError: a value is too large; nothing was stored.
            QueueUnavailableError: some may have been stored; publish all again (what reads them is idempotent).
        """
        ...

    def consumer(self, topic: Topic, group: str) -> Consumer:
        """A new member of a group, which its caller closes.

        Raises:
            GroupBusyError: the group has a live consumer, and this queue has one at a time.
            QueueUnavailableError: later.
        """
        ...

    def lag(self, topic: Topic, group: str) -> int:
        """How many messages of a topic the group has not committed yet, over all partitions.

        Those that are gone count for a group that lost them; for a group that was never there, those that are kept.
        """
        ...

    def lost(self, topic: Topic, group: str) -> int:
        """How many messages are gone that the group has not read, over all partitions: its consumers raise
        PositionLostError. Safe beside a live consumer, in any process.
        """
        ...

    def reset(self, topic: Topic, group: str) -> int:
        """Moves a group to the earliest message that is kept, in each partition where its position was lost (the
        others stay); returns how many messages it passes over. Whoever calls it has rebuilt what they were for.

        Raises:
            GroupBusyError: the group has a live consumer.
            QueueUnavailableError: later.
        """
        ...

    def rewind(self, topic: Topic, group: str, to_ms: int) -> int:
        """Moves a group back to the first message that was published at or after a time, in each partition where its
        position is behind that (the others stay); returns how many messages come again. It is for effects that were
        lost after they were committed. What is not kept any more does not come again, and a group that was never there
        has nothing to go back from.

        to_ms: ms since 1970, by the clock that publish times are stamped with.

        Raises:
            GroupBusyError: the group has a live consumer.
            QueueUnavailableError: later; some partitions may have moved. Doing it again is fine.
        """
        ...

    def positions(self, topic: Topic, group: str) -> dict[int, int]:
        """The committed position of a group in each partition in which it has one: the offset of the next message that
        it wants. Safe beside a live consumer, in any process.

        Raises:
            QueueUnavailableError: later.
        """
        ...

    def earliest(self, topic: Topic) -> dict[int, int]:
        """The offset of the first message that is kept in each partition; in an empty one, of the next message.

        Raises:
            QueueUnavailableError: later.
        """
        ...

    def go_back(self, topic: Topic, group: str, positions: Mapping[int, int]) -> int:
        """Moves a group back to given positions, in each partition where it is past them (the others stay); returns how
        many messages come again. It is for effects that were lost after they were committed. If a message at a
        position is gone, the position moves all the same, and is lost: the group's consumers raise PositionLostError.

        Raises:
            ValueError: the topic has no such partition; nothing was moved.
            GroupBusyError: the group has a live consumer; nothing was moved.
            QueueUnavailableError: later; some partitions may have moved. Doing it again is fine.
        """
        ...

    def expire(self, kept_ms: int, readers: Mapping[Topic, Collection[str]]) -> int:
        """Drops messages that were published longer ago than `kept_ms`, from the front of each partition up to the
        first that was not; returns how many. Kafka does this by itself, by its own settings.

        Ages are by the queue's own clock, which dated the messages. A date ahead of it was wrong, and counts as old.

        readers: the groups that every message of a topic is for. What one of them has not committed stays, however
            old; an adapter may keep what was published together with it. A group that was never there keeps nothing.
        """
        ...

    def close(self) -> None:
        """Doing it twice is fine; any other use afterwards, of its consumers too, raises QueueError."""
        ...


class DeadLetter(NamedTuple):
    """A message that could not be done.

    id: names it within this store. group: who gave up on it. reason: a stable word, such as `malformed`. detail: the
    error in full.
    """

    id: int
    topic: Topic
    group: str
    reason: str
    detail: str
    died_ms: int
    value: bytes


class DeadLetters(Protocol):
    """What could not be done, kept until somebody retries or drops it (rule 12). Thread-safe.

    Ids ascend from 1 and are never used again. Every method may raise QueueUnavailableError.
    """

    def bury(self, topic: Topic, group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        """Keeps a message; durable when it returns. Burying the same (topic, group, value) twice keeps the first
        letter.
        """
        ...

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        """Up to `limit` letters with ids larger than `after`, ascending."""
        ...

    def letter(self, letter_id: int) -> DeadLetter | None: ...

    def count(self) -> int: ...

    def drop(self, letter_id: int) -> bool:
        """Forgets a letter; False where there is none."""
        ...
