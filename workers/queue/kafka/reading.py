"""Reading a topic with kafka-python's consumer, in a group or without one."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import kafka
from kafka.errors import LeaderNotAvailableError, LogTruncationError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata, TopicPartition

from workers.queue.kafka import coordinators, topic_ids
from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.damage import UnreadableBatchError, name_unreadable
from workers.queue.kafka.errors import translated
from workers.queue.kafka.prefetch import PrefetchBuffer
from workers.queue.port import Message, PositionLostError, QueueError, QueueUnavailableError, check_limit

METADATA_MS: Final = 10_000
"""How soon a reader notices partitions that were added. Until its group has noticed them, no watermark moves."""

MAX_AHEAD_BYTES: Final = 1_000_000
"""While this many bytes of messages wait here, no more are fetched."""
FETCH_BYTES: Final = 1_048_576
PARTITION_FETCH_BYTES: Final = 1_048_576

MAX_RECORDS: Final = 1_000_000_000
"""The client hands over whatever has arrived (FETCH_BYTES from each broker at most). It must never keep a part of a
fetch: if a partition is paused then, it is sometimes not read again after it is resumed (seen in kafka-python 3.0.12).
"""

SLICE_S: Final = 0.25
"""How soon a waiting poll notices that its queue was closed. Messages end the wait at once. It is not shorter because
each look at the client costs a few hand-overs between threads, which an idle worker would pay for nothing.
"""
REQUEST_S: Final = 10.0
"""How long one call for positions or offsets may take before it counts as unavailable."""
CLOSE_S: Final = 5.0

DAMAGED_REST_S: Final = 10.0
"""How long a partition rests whose next batch cannot be read: each attempt costs a poll of all partitions."""


def client(address: KafkaAddress, **options: object) -> kafka.KafkaConsumer:
    """Opens a client that never moves a position by itself; raises kafka-python's errors. options: further ones, and
    others in place of these.
    """
    usual: dict[str, object] = {
        "enable_auto_commit": False,
        # If the messages at a position are gone, the client must not silently choose another position (rule 8).
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "metadata_max_age_ms": METADATA_MS,
        "fetch_max_bytes": FETCH_BYTES,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
        "bootstrap_timeout_ms": int(REQUEST_S * 1_000),
        "metrics_enabled": False,
    }
    made = kafka.KafkaConsumer(**usual | options | address.options())
    coordinators.calm(made._coordinator)  # noqa: SLF001 - it has no settings for it
    name_unreadable(made._fetcher)  # noqa: SLF001 - as above
    return made


def ends_of(client: kafka.KafkaConsumer, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of the next message of each partition. Raises kafka-python's errors."""
    return _led(client.end_offsets, places)


def beginnings_of(client: kafka.KafkaConsumer, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of the first message that is kept in each partition. Raises kafka-python's errors."""
    return _led(client.beginning_offsets, places)


def _led(ask: Callable[..., dict[TopicPartition, int]], places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        return ask(list(places), timeout_ms=REQUEST_S * 1_000)
    except KeyError as error:  # so the client says it (seen in kafka-python 3.0.12)
        place: TopicPartition = error.args[0]
        raise LeaderNotAvailableError(unled(f"{place.topic}/{place.partition}")) from error


def unled(what: str) -> str:
    """What is said of partitions without a leader."""
    return f"no broker leads {what}: all that have a copy of it are away"


class Reader:
    """Reads a topic: what a member of a group and a tail have in common. who: the name of the reader in error messages.
    closed: whether the queue was closed. options: further options of the client.
    """

    def __init__(
        self, address: KafkaAddress, topic: str, who: str, closed: Callable[[], bool], **options: object
    ) -> None:
        self._place = f"{address}: {topic}"
        self._topic = topic
        self._name = address.named(topic)
        self._who = who
        self._queue_closed = closed
        self._closed = False
        self._ahead = PrefetchBuffer()
        self._lost: dict[int, str] = {}
        """The error of each partition whose position is lost."""
        self._damaged_s: dict[int, float] = {}
        """When the next batch of a partition could not be read."""
        self._client = client(address, **options)
        try:
            self._begin_reading()
            self._id = self._topic_id()
        except BaseException:
            self._client.close(autocommit=False, timeout_ms=0)
            raise

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The port's. With a timeout of 0 it returns what has arrived: the first messages take a few polls."""
        check_limit(limit)
        deadline = time.monotonic() + timeout_s
        while True:
            self._refuse_closed()
            wait_s = 0.0 if self._ahead.count else min(SLICE_S, max(0.0, deadline - time.monotonic()))
            self._ask(limit, wait_s)
            if self._lost:
                raise PositionLostError(next(iter(self._lost.values())))
            taken = self._ahead.take(limit)
            if taken or time.monotonic() >= deadline:
                return taken

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Leaving a group is a courtesy: one that is not told notices when the session of the member has ended.
        with contextlib.suppress(QueueError), translated(self._place):
            self._client.close(autocommit=False, timeout_ms=CLOSE_S * 1_000)

    def _refuse_closed(self) -> None:
        if self._closed or self._queue_closed():
            raise QueueError(f"{self._place}: {self._who} was used after it was closed")

    def _topic_id(self) -> uuid.UUID | None:
        """The id of the topic by the client's metadata, which are never older than METADATA_MS, and are asked for again
        after an error of a fetch.
        """
        return topic_ids.of(self._client._cluster, self._name)  # noqa: SLF001 - there is no other way

    def _refuse_another_topic(self) -> None:
        """Raises PositionLostError if the topic was made again since this reader began: what it had not read of the
        earlier one is gone, and no offset means what it meant; QueueUnavailableError while there is no topic.
        """
        now = self._topic_id()
        if topic_ids.differ(self._id, now):
            raise PositionLostError(f"{self._topic}: {self._who} reads a topic that was removed and made again")
        if self._id is None or now is not None:
            return
        if self._name in self._client._cluster.unauthorized_topics:  # noqa: SLF001 - as above
            raise QueueUnavailableError(
                f"{self._place}: this user may not see topic {self._name}: give it the rights Describe and Read"
            )
        raise QueueUnavailableError(
            f"{self._place}: the brokers know no topic {self._name} now: if it was removed, what was not read is lost,"
            " and feedctl topics apply makes it again"
        )

    def _begin_reading(self) -> None:
        """Says what the client reads. Raises the errors of kafka-python."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Is called before the client works."""
        raise NotImplementedError

    def _ask(self, limit: int, wait_s: float) -> None:
        """Lets the client work, and takes the messages that it has fetched. limit: if this many messages of a partition
        wait here, no more of that partition are fetched.
        """
        with translated(self._place):
            self._prepare()
            self._choose(limit)
            try:
                fetched = self._fetch(wait_s)
            except OffsetOutOfRangeError as error:
                self._note_lost(error.args[0])
                return
            except LogTruncationError as error:
                self._note_cut(error.divergent_offsets)
                return
            except UnreadableBatchError as error:
                self._damaged_s[error.place.partition] = time.monotonic()
                raise
        for place, records in fetched.items():
            messages = [Message(place.partition, record.offset, record.value or b"") for record in records]
            self._ahead.add(place.partition, messages)
        # Only now: if the topic is the same after all, the client will not fetch these again.
        self._refuse_another_topic()

    def _fetch(self, wait_s: float) -> Mapping[TopicPartition, list[Any]]:
        fetched: Mapping[TopicPartition, list[Any]] = self._client.poll(
            timeout_ms=int(wait_s * 1_000), max_records=MAX_RECORDS
        )
        return fetched

    def _choose(self, limit: int) -> None:
        """Pauses the partitions of which enough messages wait here, and those that were damaged a moment ago: they
        would block the others; resumes the rest.
        """
        full = self._ahead.size >= MAX_AHEAD_BYTES
        damaged_since_s = time.monotonic() - DAMAGED_REST_S
        self._damaged_s = {each: at_s for each, at_s in self._damaged_s.items() if at_s > damaged_since_s}
        paused = self._client.paused()
        for place in self._client.assignment():
            rests = full or self._ahead.of(place.partition) >= limit or place.partition in self._damaged_s
            if rests and place not in paused:
                self._client.pause(place)
            elif not rests and place in paused:
                self._client.resume(place)

    def _note_lost(self, positions: Mapping[TopicPartition, int]) -> None:
        """Notes positions at which there is no message any more."""
        earliest, ends = beginnings_of(self._client, positions), ends_of(self._client, positions)
        for place, position in positions.items():
            if position < earliest[place]:
                kept = f"the earliest that is kept is {earliest[place]}"
            else:
                end = ends[place]
                kept = f"the log ends at {end}: the brokers lost what was there, or the topic was created again"
            number = place.partition
            self._lost[number] = f"{self._topic}/{number}: {self._who} wants offset {position}, {kept}"

    def _note_cut(self, cuts: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Notes positions behind the place where a log was cut. The client says this once, and then reads what came
        there since: so no broker is asked here, because it might not answer. cuts: the place of each; None: it is not
        known.
        """
        for place, cut in cuts.items():
            where = "the end of the log" if cut is None else f"offset {cut.offset}"
            self._lost[place.partition] = (
                f"{self._topic}/{place.partition}: {self._who} has read past {where}: the brokers lost what was there"
            )
