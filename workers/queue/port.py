"""The queue port: partitioned logs read by consumer groups, as Kafka has them.

Delivery is at least once; across partitions there is no order to rely on. A group's committed position is its
progress; it is committed only after the effect is durable (rule 11). `tests/queue` runs this contract on every adapter.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from feedstore import validation
from feedstore.domain import InvalidValueError
from feedstore.errors import MisconfiguredError, NeverError, NotNowError, PortError

MAX_MESSAGE_BYTES = 1_000_000
"""The largest message that a queue takes (Kafka's default limit)."""
MAX_POLL_BYTES = 500_000
"""The most bytes of messages that one poll returns: decoded, messages take twenty times as much memory."""
MAX_PARTITIONS = 1_024

VERSION: Final = 1
"""The version of a message, unless its product says otherwise."""
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""The errors that a decoder raises for bytes that it cannot read."""

Body = TypeVar("Body")
Body_co = TypeVar("Body_co", covariant=True)
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Topic(Generic[Body_co]):
    """One log of messages, declared by the product that it belongs to; a queue keeps nothing of it but its name.

    durable: whether its messages survive the death of the machine. If not, an adapter may lose the latest messages, but
        only together with the positions of the messages that they were made from.
    decode: returns the bodies of a message, in order: each is something to do, and is done or given up by itself. A
        body that cannot be decoded is a `Malformed`; if none can be, it raises MalformedError. Readers call `bodies`
        instead.
    """

    name: str
    durable: bool
    decode: Callable[[bytes], Sequence[Body_co]]

    def bodies(self, value: bytes) -> "Sequence[Body_co | Malformed]":
        """The bodies of a message. If the message cannot be decoded at all, it is one malformed body."""
        try:
            return self.decode(value)
        except MalformedError as error:
            return (Malformed(value, error.reason, str(error)),)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # a fault of ours: one message must not stop its readers for good
            return (Malformed(value, "malformed", f"its decoder failed: {error!r}"),)

    def __str__(self) -> str:
        return self.name


def single(decode: Callable[[bytes], Body]) -> Callable[[bytes], tuple[Body]]:
    """Makes the decoder of a topic whose messages hold one body each from the decoder of that body."""
    return lambda value: (decode(value),)


class MalformedError(ValueError):
    """The bytes are no message that this version can read. `reason` is a stable word for the dead letters: `oversized`,
    `not_json`, `unknown_version`, `malformed`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Malformed(NamedTuple):
    """A body that cannot be decoded. value: a message of this body alone, for the dead letters. reason: the stable word
    of a MalformedError. detail: its message.
    """

    value: bytes
    reason: str
    detail: str


class QueueError(PortError):
    """A queue failed. Subclasses say what the caller should do."""


class QueueUnavailableError(QueueError, NotNowError):
    """Not now: repeat the call later. A publish that raised this may have been stored or not."""


class PartitionsAwayError(QueueUnavailableError):
    """Not now: some partitions of a topic are away. The message names them. others: the answer for the others."""

    def __init__(self, message: str, others: Mapping[int, int]) -> None:
        super().__init__(message)
        self.others = others


class MessageRefusedError(QueueError, NeverError):
    """Never: a message over MAX_MESSAGE_BYTES. Nothing of the call was stored."""


class PositionLostError(QueueError):
    """Messages that this group has not read are gone: retention dropped them, or the topic was removed and made again.
    Never skip: stop, rebuild, then `reset`. The message names topic, partition and group.

    Raised by a tail: messages that it has not read are gone, and it reads no more. What they said must be learned
    elsewhere, after a new tail has begun.
    """


class DamagedQueueError(QueueError, MisconfiguredError):
    """The next message of a reader is damaged, and will be so at every later call. Nothing was skipped. The message
    names the file, and says what to do.
    """


class UnsafeTopicsError(QueueUnavailableError, MisconfiguredError):
    """Settings of topics could lose acknowledged messages, or make them unreadable. No worker starts on them; the
    message names each setting.
    """


class GroupBusyError(QueueError, NotNowError):
    """Not now: another consumer of the group is live. An embedded queue allows one for each topic and group."""


class Message(NamedTuple):
    """partition, offset: its place in a topic. value: the published bytes."""

    partition: int
    offset: int
    value: bytes


class Consumer(Protocol):
    """One member of a consumer group on one topic. Used by one thread at a time.

    A new consumer starts each partition at the group's committed position. The first consumer of a group starts at the
    earliest message and commits that position, so that the group notices if retention drops messages before it reads
    them. Messages that were polled and not committed are delivered again to the next reader of the partition.

    If a group has several members, each reads some of the partitions; which ones may change inside any call. A
    partition that moves to another member starts there at the committed position, and so it does if it comes back:
    messages that this member has polled and not committed are done twice.
    """

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The next messages, at most `limit` (1 or more). Waits up to `timeout_s` for the first; empty if none comes.

        Within a partition messages come in offset order, each once while this member reads the partition. Together
        they have at most MAX_POLL_BYTES; a larger message comes alone. It may return fewer than there are. With a
        timeout of 0 it never waits for messages; joining the group, or giving partitions up, takes a few seconds more.

        Raises:
            PositionLostError: the messages at a partition's position are gone, or the topic was made again since this
                consumer was made.
            DamagedQueueError: stop; an operator must replace the queue.
            QueueUnavailableError: later; nothing was skipped.
        """

    def commit(self, positions: Mapping[int, int]) -> None:
        """Stores, for each partition, the offset of the *next* message that the group wants; it outlives this process.

        With a position the caller promises that every effect before it is durable. If the machine dies, the latest
        positions may be lost: the messages come again. A committed position never goes back: one at or below it changes
        nothing. Partitions that are not named do not change. Those that this member does not read now do not change
        either, and that is no error: their messages come again to the member that reads them.

        Raises:
            ValueError: the topic has no such partition, or the position is past its end; nothing was stored.
            PositionLostError: the topic was made again since this consumer was made; nothing was stored.
            QueueUnavailableError: later; some may have been stored.
        """

    def held(self) -> frozenset[int]:
        """The partitions that this member reads now; none until it has joined its group. It asks and raises nothing."""

    def keep_alive(self) -> None:
        """Tells the group that this member is alive while it has no room for messages and does not poll. Cheap: call it
        in every round without a poll. If neither `poll` nor `keep_alive` is called for `max_poll_interval_ms`, the
        group evicts this member and gives its partitions to others.

        Raises QueueUnavailableError: later; nothing was skipped.
        """

    def close(self) -> None:
        """Leaves the group and commits nothing. Closing twice is fine; any other use afterwards raises QueueError."""


class Tail(Protocol):
    """Reads a topic from its end, for no group. Used by one thread at a time.

    It begins at the end of every partition at the time of the call of `Queue.tail`: it returns nothing that was
    published before that call, and misses nothing that is published after it. It reads partitions that are added later
    from their first message, once it has noticed them. It commits nothing, and keeps nothing from expiring. Any number
    of tails may read a topic.
    """

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The next messages; limit, order, bytes and waiting as for `Consumer.poll`.

        Raises:
            PositionLostError: messages expired before this tail had read them; every later poll raises it again.
            DamagedQueueError: an operator must replace the queue.
            QueueUnavailableError: later; nothing was skipped.
        """

    def close(self) -> None:
        """Doing it twice is fine; any other use afterwards raises QueueError."""


class Queue(Protocol):
    """All topics. Thread-safe. Every method may raise QueueUnavailableError: later."""

    def partitions(self, topic: Topic[object]) -> int:
        """How many partitions a topic has now, numbered from 0. All that were published to before the call are counted;
        partitions may be added at any time, and are never removed.
        """

    def topic_id(self, topic: Topic[object]) -> bytes | None:
        """16 bytes that no other topic has: one that is removed and made again under its name has others. None: this
        queue has no such ids.
        """

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        """Appends messages to a topic; durable when it returns. An empty sequence does nothing.

        Durable means that the messages survive the death of any process; those of a durable topic also survive the
        death of the machine. If no partition is given, the queue chooses one for each call or message. Messages of one
        call in one partition keep their order.

        Raises:
            ValueError: the topic has no such partition; nothing was stored.
            MessageRefusedError: a value is too large; nothing was stored.
            QueueUnavailableError: some may have been stored; publish all again (their readers are idempotent).
        """

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        """Appends messages to several partitions, as `publish` does, in about the time of one. Raises its errors."""

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        """Appends messages to one partition after the other, so that several readers share them, in about the time of
        one. As `publish` without a partition: the queue leaves out those that take nothing now. Raises its errors.
        """

    def sync(self, topic: Topic[object]) -> None:
        """Returns once all that was published to a topic survives the death of the machine, even if the topic is not
        durable. Raises QueueUnavailableError.
        """

    def consumer(self, topic: Topic[object], group: str) -> Consumer:
        """A new member of a group; the caller closes it.

        Raises GroupBusyError: the group has a live consumer, and this queue has one at a time.
        """

    def tail(self, topic: Topic[object]) -> Tail:
        """A reader of all that is published from now on; the caller closes it."""

    def members(self, topic: Topic[object], group: str) -> int | None:
        """How many consumers of the group are live, in any process. A consumer whose process was killed or suspended
        counts for some seconds more, and one whose thread hangs for minutes more. None: this queue does not know the
        consumers of other processes.
        """

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        """The committed position of a group in each partition in which it has one: the offset of the next message that
        it wants. Safe while a consumer is live, in any process.
        """

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        """The offset of the first message that is kept in each partition; in an empty one, of the next message. Raises
        PartitionsAwayError.
        """

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        """The offset of the next message that each partition will get: a group with this position has read it all.
        Raises PartitionsAwayError.
        """

    def since(self, topic: Topic[object], from_ms: int) -> dict[int, int]:
        """The offset of the first message that was published at or after a time and is kept, in each partition that has
        one. from_ms: ms since 1970, by the clock that publish times are stamped with. Raises PartitionsAwayError.
        """

    def move(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        """Moves a group to other positions, forth or back. positions: of partitions in which it has one; if it has none
        there, some queues give it one. If the message at a position is gone, the position is lost: the group's
        consumers raise PositionLostError.

        Raises:
            ValueError: the topic has no such partition; nothing was moved.
            GroupBusyError: the group has a live consumer, even if no position is given; nothing was moved.
            QueueUnavailableError: later; some partitions may have moved. Doing it again is fine.
        """

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:
        """Drops messages that are older than `kept_ms`, from the front of each partition up to the first that is not;
        returns how many. Kafka does this by itself, by its own settings.

        Ages are by the queue's own clock, which dated the messages. A date in this clock's future is wrong and counts
        as old.

        readers: the groups that read each topic. Messages that one of them has not committed stay, at any age; an
            adapter may also keep messages that were published together with these. An unknown group keeps nothing.
        """

    def close(self) -> None:
        """Doing it twice is fine; any other use afterwards, of its consumers and tails too, raises QueueError."""


class DeadLetter(NamedTuple):
    """A message that could not be processed.

    id: its number in this store. topic: the name of the topic. group: the consumer group that gave it up. reason: a
    stable word, such as `malformed`. detail: the error in full.
    """

    id: int
    topic: str
    group: str
    reason: str
    detail: str
    died_ms: int
    value: bytes


class DeadLetters(Protocol):
    """Messages that could not be processed, kept until they are retried or dropped (rule 12). Thread-safe.

    Ids ascend from 1 and are never used again. Every method may raise QueueUnavailableError.
    """

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        """Keeps a message; durable when it returns. Burying the same (topic, group, value) twice keeps the first
        letter. Of a message over MAX_MESSAGE_BYTES a store may keep the beginning only; the detail then says so.
        """

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        """Up to `limit` letters with ids larger than `after`, ascending."""

    def letter(self, letter_id: int) -> DeadLetter | None: ...

    def count(self) -> int: ...

    def drop(self, letter_id: int) -> bool:
        """Removes a letter; False if there is none."""


# What a group has left to read, for any adapter: safe while a consumer is live, in any process
# --------------------------------------------------------------------------------------------------------------------


def lags_of(queue: Queue, topic: Topic[object], group: str, *, known: bool = False) -> dict[int, int]:
    """How many messages of each partition a group has not committed yet. Lost messages count too. If it has no position
    in a partition, all messages that are kept count. known: leaves out partitions that are away. Raises
    QueueUnavailableError.
    """
    # Positions are read first: a commit between the calls makes a lag too large, never too small.
    positions = queue.positions(topic, group)
    ends = answers(queue.ends, topic, known=known)
    if ends.keys() - positions.keys():
        positions = {**answers(queue.earliest, topic, known=known), **positions}
    return {partition: max(0, end - positions.get(partition, end)) for partition, end in ends.items()}


def lag_of(queue: Queue, topic: Topic[object], group: str) -> int:
    """How many messages a group has not committed yet, over all partitions."""
    return sum(lags_of(queue, topic, group).values())


def lost_of(queue: Queue, topic: Topic[object], group: str, *, known: bool = False) -> int:
    """How many messages that a group has not read are gone, over all partitions. If there are any, the group's
    consumers raise PositionLostError. In a partition without a position they begin behind what is gone. known: leaves
    out partitions that are away. Raises QueueUnavailableError.
    """
    return sum(lost for lost, _ in _lost(queue, topic, group, known=known).values())


def _lost(queue: Queue, topic: Topic[object], group: str, *, known: bool = False) -> dict[int, tuple[int, int]]:
    """How many messages are gone, and the earliest that is kept, in each partition where a group's position is lost."""
    # The order matters: messages that are read, or published, between the calls never count as gone.
    earliest = answers(queue.earliest, topic, known=known)
    positions = queue.positions(topic, group)
    ends = answers(queue.ends, topic, known=known)
    found: dict[int, tuple[int, int]] = {}
    for partition in positions.keys() & ends.keys():
        position = positions[partition]
        first = earliest.get(partition, position)
        # If the position is past the end, a broker lost messages, or the topic was created again.
        if lost := max(0, first - position, position - ends[partition]):
            found[partition] = lost, first
    # A partition that was added is read from its first message. If that is gone, the group has not read it.
    for partition in (ends.keys() - positions.keys()) & earliest.keys() if positions else ():
        if first := earliest[partition]:
            found[partition] = first, first
    return found


def answers(
    ask: Callable[[Topic[object]], Mapping[int, int]], topic: Topic[object], *, known: bool
) -> Mapping[int, int]:
    """What a queue answers for each partition of a topic. known: leaves out partitions that are away. Raises
    QueueUnavailableError.
    """
    try:
        return ask(topic)
    except PartitionsAwayError as error:
        if not known:
            raise
        return error.others


# Messages in versioned JSON: objects that have their version as `v`
# --------------------------------------------------------------------------------------------------------------------


class _Version(msgspec.Struct, frozen=True):
    v: int


_version = msgspec.json.Decoder(_Version)


def decoded(decoder: "msgspec.json.Decoder[Thing]", value: bytes, newest: int = VERSION) -> Thing:
    """Decodes a message. newest: the newest version of such a message. If the decoder's type has the version as a plain
    number, the caller checks it with `refuse_version`. Raises MalformedError.
    """
    if len(value) > MAX_MESSAGE_BYTES:
        raise MalformedError("oversized", f"{len(value)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    try:
        return decoder.decode(value)
    except (msgspec.ValidationError, InvalidValueError) as error:
        try:
            version = _version.decode(value).v
        except UNREADABLE:
            version = newest
        refuse_version(version, newest)  # the better reason to give
        raise malformed(error, value, decoder.type) from error
    except UNREADABLE as error:
        raise MalformedError("not_json", validation.malformed(error, value)) from error


def malformed(error: Exception, value: bytes, into: object) -> MalformedError:
    """The error about a value that is no `into`."""
    if isinstance(error, msgspec.ValidationError):
        return MalformedError("malformed", str(validation.of_json(error, value, into)))
    return MalformedError("malformed", validation.malformed(error, value))


def refuse_version(version: int, newest: int = VERSION) -> None:
    if not VERSION <= version <= newest:
        known = VERSION if newest == VERSION else f"{VERSION} to {newest}"
        raise MalformedError("unknown_version", f"version {version}, this worker knows {known}")


# Moves of a group, for any adapter. Each raises as `Queue.move` does
# --------------------------------------------------------------------------------------------------------------------


def reset(queue: Queue, topic: Topic[object], group: str) -> int:
    """Moves a group to the earliest message that is kept, in each partition whose position is lost (others do not
    move). Returns how many messages it skips: the caller has rebuilt their effects.
    """
    lost = _lost(queue, topic, group)
    queue.move(topic, group, {partition: earliest for partition, (_, earliest) in lost.items()})
    return sum(gone for gone, _ in lost.values())


def refuse_live(queue: Queue, groups: Iterable[tuple[Topic[object], str]]) -> None:
    """Raises GroupBusyError if one of these groups has a live consumer. Nothing is moved."""
    for topic, group in groups:
        queue.move(topic, group, {})


def go_back(queue: Queue, topic: Topic[object], group: str, positions: Mapping[int, int]) -> int:
    """Moves a group back to given positions, in each partition where it is past them (others do not move). Returns how
    many messages come again. It is for effects that were lost after their commit. An unknown group does not move.
    """
    there = queue.positions(topic, group)
    back = {partition: to for partition, to in positions.items() if to < there.get(partition, 0)}
    queue.move(topic, group, back)
    return sum(there[partition] - to for partition, to in back.items())


def rewind(queue: Queue, topic: Topic[object], group: str, to_ms: int) -> int:
    """Moves a group back to the first message that was published at or after a time, as `go_back` does. Messages that
    are no longer kept do not come again.
    """
    return go_back(queue, topic, group, queue.since(topic, to_ms))


# Rules that all adapters share: what they refuse, in the same words, and how much one poll may return
# --------------------------------------------------------------------------------------------------------------------


def check_partitions(partitions: Mapping[Topic[object], int]) -> None:
    """Raises ValueError unless there are topics and each is given 1..MAX_PARTITIONS partitions."""
    if not partitions:
        raise ValueError("partitions: expected a number for each topic, got none")
    for topic, count in partitions.items():
        if not 1 <= count <= MAX_PARTITIONS:
            raise ValueError(f"partitions of {topic}: expected 1 to {MAX_PARTITIONS}, got {count}")


def in_turns(values: Sequence[bytes], partitions: int, first: int) -> dict[int, Sequence[bytes]]:
    """Deals messages out to the partitions in turn, as `Queue.spread` does. first: the turn to begin with. Pure."""
    return {(first + turn) % partitions: values[turn::partitions] for turn in range(min(partitions, len(values)))}


def check_partition(topic: str, partition: int, partitions: int) -> None:
    """Raises ValueError if a topic has no such partition."""
    if not 0 <= partition < partitions:
        raise ValueError(f"partition of {topic}: expected 0 to {partitions - 1}, got {partition}")


def check_position(topic: str, partition: int, position: int, end: int) -> None:
    """Raises ValueError if a group would commit messages that were never published."""
    if not 0 <= position <= end:
        raise ValueError(f"position of {topic}/{partition}: expected 0 to {end}, got {position}")


def check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")


def refuse_oversized(topic: str, values: Sequence[bytes]) -> None:
    """Raises MessageRefusedError if a message is over MAX_MESSAGE_BYTES."""
    largest = max(map(len, values), default=0)
    if largest > MAX_MESSAGE_BYTES:
        raise MessageRefusedError(f"{topic}: a message of {largest} bytes, at most {MAX_MESSAGE_BYTES} are taken")


class PollBudget:
    """The room of a poll: `limit` messages of MAX_POLL_BYTES together, or a single one that is larger."""

    def __init__(self, limit: int) -> None:
        self._messages = limit
        self._bytes = MAX_POLL_BYTES
        self._is_whole = True

    @property
    def is_full(self) -> bool:
        """Whether no further message can be let in."""
        return self._messages <= 0

    def let_in(self, values: Iterable[bytes]) -> int:
        """Takes room for as many of the next messages as fit, from the first on; returns how many."""
        count = 0
        for value in values:
            if len(value) > self._bytes and not self._is_whole:
                self._messages = 0
            if self._messages <= 0:
                break
            count += 1
            self._messages -= 1
            self._bytes -= len(value)
            self._is_whole = False
        return count
