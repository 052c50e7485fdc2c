"""The topics on Kafka: what is published to them, and the groups' positions."""

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import kafka
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.errors import (
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoError,
    RebalanceInProgressError,
    RetriableError,
    UnknownBrokerIdError,
    UnknownMemberIdError,
    for_code,
)
from kafka.structs import TopicPartition

from feedstore.lazy import closed_on_error
from workers.queue.kafka import topic_ids
from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.consumer import KafkaConsumer
from workers.queue.kafka.errors import describe, translated
from workers.queue.kafka.positions import is_of, stored
from workers.queue.kafka.producers import BATCH_BYTES, DELIVERY_MS, FLUSH_S, REQUEST_MS, Producers
from workers.queue.kafka.reading import unled
from workers.queue.kafka.tail import KafkaTail
from workers.queue.port import (
    GroupBusyError,
    PartitionsAwayError,
    QueueError,
    QueueUnavailableError,
    Topic,
    answers,
    check_partition,
    refuse_oversized,
)

T = TypeVar("T")

RETRY_S: Final = 0.1

MAX_IN_FLIGHT: Final = 1_000
"""How many calls may wait for one broker: more than threads share a queue. A client refuses any further call as if the
broker were away, and its own limit is five (seen in kafka-python 3.0.12: 362 of 480 calls of 32 threads).
"""

AWAY_S: Final = 7 * DELIVERY_MS / 1_000
"""How long a partition that took nothing is left out, unless it has taken a message since. So attempts that fail take
an eighth of the time at most.
"""

_DEAD: Final = "Dead"
"""The brokers' word for the state of an unknown group."""
_LIVE = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)


class _Known(NamedTuple):
    """What was seen of a topic. topic_id: None if it is not known."""

    topic_id: uuid.UUID | None
    partitions: int


class KafkaQueue:
    """All topics. Several queues may be open on one cluster, in one process or in many."""

    def __init__(
        self, address: KafkaAddress, admin: kafka.KafkaAdminClient, partitions: Mapping[Topic[object], int]
    ) -> None:
        """For `open`. partitions: how many partitions each topic is known to have."""
        self._address = address
        self._admin = admin
        self._known = {topic: _Known(None, count) for topic, count in partitions.items()}
        self._turns = itertools.count()
        self._lock = threading.Lock()
        # A flush waits for all messages of its producer: those for a partition that takes nothing must not delay calls
        # that may choose another one.
        self._choosing, self._directed = Producers(address), Producers(address)
        self._away_until_s: dict[tuple[Topic[object], int], float] = {}
        self._closed = False

    @classmethod
    def open(cls, address: KafkaAddress, topics: Iterable[Topic[object]]) -> "KafkaQueue":
        """Opens the queue at an address, with these topics.

        Raises QueueUnavailableError: no broker answers, or a topic is missing.
        """
        opened = cls(address, connect(address), dict.fromkeys(topics, 0))
        with closed_on_error(opened), translated(str(address)):
            for topic in opened._known:
                opened._note_described(topic, opened._described(topic))
        return opened

    def partitions(self, topic: Topic[object]) -> int:
        """The port's: it asks the brokers. One broker may hear of a new partition a few milliseconds after another, so
        a number that was seen once here never becomes smaller, unless the topic was made again.
        """
        with self._calling(topic):
            return self._note_described(topic, self._described(topic))

    def topic_id(self, topic: Topic[object]) -> bytes | None:
        with self._calling(topic):
            found = topic_ids.described(self._described(topic))
        return None if found is None else found.bytes

    def publish(self, topic: Topic[object], values: Sequence[bytes], partition: int | None = None) -> None:
        """The port's: when it returns, all in-sync replicas have acknowledged every message."""
        if partition is not None:
            self.publish_each(topic, {partition: values})
        else:
            self._send(self._choosing, topic, values, partial(self._in_batches, topic, values))

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        self._refuse_closed()
        last = max(values, default=0)
        if not 0 <= min(values, default=0) <= last < self._known[topic].partitions:
            known = self.partitions(topic)
            for partition in values:
                check_partition(topic.name, partition, known)

        def placed(count: int) -> Iterator[tuple[int, bytes]]:
            if last >= count:
                # The next producer that is opened asks the brokers for their version.
                raise QueueUnavailableError(f"the producer has not heard of partition {last} yet")
            return ((partition, value) for partition, some in values.items() for value in some)

        self._send(self._directed, topic, list(itertools.chain.from_iterable(values.values())), placed)

    def spread(self, topic: Topic[object], values: Sequence[bytes]) -> None:
        self._send(self._choosing, topic, values, partial(self._in_turns, topic, values))

    def sync(self, topic: Topic[object]) -> None:
        """The port's: all in-sync replicas have what was published."""

    def _send(
        self,
        producers: Producers,
        topic: Topic[object],
        values: Sequence[bytes],
        placed: Callable[[int], Iterable[tuple[int, bytes]]],
    ) -> None:
        """Sends values. placed: gives each with its partition, for a number of partitions."""
        self._refuse_closed()
        if not values:
            return
        refuse_oversized(topic.name, values)
        name = self._address.named(topic.name)
        with producers.current() as producer, translated(f"{self._address}: {topic}"):
            try:
                count = len(producer.partitions_for(name))
            except KafkaTimeoutError:
                self.partitions(topic)  # it says so if there is no such topic
                raise
            self._note_heard(topic, topic_ids.of(producer._metadata, name), count)  # noqa: SLF001 - there is no other way
            sent = [(target, producer.send(name, value=value, partition=target)) for target, value in placed(count)]
            with contextlib.suppress(KafkaTimeoutError):  # each message says for itself whether it is there
                producer.flush(timeout=FLUSH_S)
            self._refuse_unsent(topic, sent)

    def _refuse_unsent(self, topic: Topic[object], sent: Sequence[tuple[int, Any]]) -> None:
        """Raises what a message was refused with, if any was. sent: the partition and the future of each."""
        failed: dict[int, KafkaError] = {}
        for target, future in sent:
            try:
                future.get(timeout=0)
            except KafkaError as error:
                failed[target] = error
        with self._lock:
            for target, _ in sent:
                self._away_until_s.pop((topic, target), None)
            for target in failed:
                self._away_until_s[topic, target] = time.monotonic() + AWAY_S
        if failed:
            raise next(iter(failed.values()))

    def consumer(self, topic: Topic[object], group: str) -> KafkaConsumer:
        with self._calling(topic):
            self._register(topic, group)
            return KafkaConsumer(self._address, topic.name, group, lambda: self.partitions(topic), lambda: self._closed)

    def tail(self, topic: Topic[object]) -> KafkaTail:
        with self._calling(topic):
            return KafkaTail(self._address, topic.name, self.partitions(topic), lambda: self._closed)

    def members(self, topic: Topic[object], group: str) -> int:
        named = self._address.group(topic.name, group)

        def describe() -> int:
            found = self._admin.describe_groups([named])[named]
            # An unknown group has an error too, since Kafka 4.
            if found["error"] is not None and found["group_state"] != _DEAD:
                raise CoordinatorNotAvailableError(found["error"])
            return len(found["members"])

        with self._calling(topic):
            return self._of_group(describe)

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        """The port's. A position of an earlier topic of this name is none of this one."""
        named = self._address.group(topic.name, group)
        with self._calling(topic):
            described = self._described(topic)
            places = self._places(topic, self._note_described(topic, described))
            found = self._of_group(lambda: self._admin.list_group_offsets({named: places}))[named]
        topic_id = topic_ids.described(described)
        return {
            place.partition: at.offset
            for place in places
            if (at := found.get(place)) and at.offset >= 0 and is_of(at, topic_id)
        }

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.EARLIEST)

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.LATEST)

    def since(self, topic: Topic[object], from_ms: int) -> dict[int, int]:
        found = self._offsets(topic, OffsetTimestamp(from_ms))
        # If no message of a partition is that young, there is no such offset.
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def move(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        """The port's; refused while the group has any live member."""
        with self._calling(topic):
            count = self.partitions(topic)
            for partition in positions:
                check_partition(topic.name, partition, count)
            if self.members(topic, group):
                raise self._busy(topic, group)
            if positions:
                self._alter(topic, group, positions)

    def expire(self, kept_ms: int, readers: Mapping[Topic[object], Collection[str]]) -> int:  # noqa: ARG002 - the port's
        """Does nothing: the brokers drop messages that are past the topic's retention."""
        self._refuse_closed()
        return 0

    def close(self) -> None:
        """Closes the queue: its consumers raise QueueError from now on, and must still be closed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._choosing.close()
        self._directed.close()
        self._admin.close()

    @contextlib.contextmanager
    def _calling(self, topic: Topic[object]) -> Iterator[None]:
        self._refuse_closed()
        with translated(f"{self._address}: {topic}"):
            yield

    def _refuse_closed(self) -> None:
        if self._closed:
            raise QueueError(f"{self._address}: used after it was closed")

    def _in_batches(self, topic: Topic[object], values: Sequence[bytes], count: int) -> Iterator[tuple[int, bytes]]:
        """Fills one of `count` partitions after the other."""
        healthy = self._healthy(topic, count)
        target, room = healthy[next(self._turns) % len(healthy)], BATCH_BYTES
        for value in values:
            if room <= 0:
                target, room = healthy[next(self._turns) % len(healthy)], BATCH_BYTES
            room -= len(value)
            yield target, value

    def _in_turns(self, topic: Topic[object], values: Sequence[bytes], count: int) -> Iterator[tuple[int, bytes]]:
        """Deals messages out to `count` partitions in turn."""
        healthy = self._healthy(topic, count)
        return ((healthy[turn % len(healthy)], value) for turn, value in enumerate(values, next(self._turns)))

    def _healthy(self, topic: Topic[object], count: int) -> list[int]:
        """The first `count` partitions without those that took nothing lately, unless that is all of them."""
        now_s = time.monotonic()
        healthy = [each for each in range(count) if self._away_until_s.get((topic, each), now_s) <= now_s]
        return healthy or [*range(count)]

    def _described(self, topic: Topic[object]) -> Mapping[str, Any]:
        """What the brokers say of a topic. Raises QueueUnavailableError if there is no such topic."""
        name = self._address.named(topic.name)
        found: Mapping[str, Any]
        (found,) = self._admin.describe_topics([name])
        if found["error_code"]:
            error = for_code(found["error_code"])()
            raise QueueUnavailableError(
                f"{self._address}: no topic {name}; make it first (feedctl topics apply): {describe(error)}"
            )
        return found

    def _note_described(self, topic: Topic[object], described: Mapping[str, Any]) -> int:
        """Notes what the brokers say of a topic; returns the most partitions that were ever seen of it. Those of an
        earlier topic of its name do not count.
        """
        topic_id, count = topic_ids.described(described), len(described["partitions"])
        with self._lock:
            before = self._known[topic]
            if not topic_ids.differ(before.topic_id, topic_id):
                topic_id, count = topic_id or before.topic_id, max(count, before.partitions)
            self._known[topic] = _Known(topic_id, count)
        return count

    def _note_heard(self, topic: Topic[object], topic_id: uuid.UUID | None, count: int) -> None:
        """Notes what a producer has heard of a topic. It may hear of a partition before the brokers that describe it;
        and it may believe for minutes in a topic that was made again.
        """
        with self._lock:
            known = self._known[topic]
            if not topic_ids.differ(known.topic_id, topic_id):
                self._known[topic] = known._replace(partitions=max(count, known.partitions))

    def _places(self, topic: Topic[object], count: int) -> list[TopicPartition]:
        name = self._address.named(topic.name)
        return [TopicPartition(name, partition) for partition in range(count)]

    def _offsets(self, topic: Topic[object], which: OffsetSpec | OffsetTimestamp) -> dict[int, int]:
        with self._calling(topic):
            described = self._described(topic)
            count = self._note_described(topic, described)
            away = {each["partition_index"] for each in described["partitions"] if each["leader_id"] < 0}
            places = {place: which for place in self._places(topic, count) if place.partition not in away}
            try:
                found = _patiently(lambda: self._admin.list_partition_offsets(places)) if places else {}
            except UnknownBrokerIdError as error:  # so the client says it (seen in kafka-python 3.0.12)
                raise LeaderNotAvailableError(unled("one of its partitions")) from error
        offsets = {place.partition: at.offset for place, at in found.items()}
        if away:
            named = ", ".join(f"{self._address.named(topic.name)}/{each}" for each in sorted(away))
            raise PartitionsAwayError(f"{self._address}: {unled(named)}", offsets)
        return offsets

    def _register(self, topic: Topic[object], group: str) -> None:
        """Stores the earliest position in partitions where the group has none, so that the group notices if retention
        drops messages before it reads them. Live members of the group do this themselves when they are given a
        partition. A partition that no broker leads must not keep the group from all others (rule 12).
        """
        there = self.positions(topic, group)
        if len(there) < self.partitions(topic):
            earliest = answers(self.earliest, topic, known=True)
            new = {partition: first for partition, first in earliest.items() if partition not in there}
            with contextlib.suppress(GroupBusyError):
                self._alter(topic, group, new)

    def _alter(self, topic: Topic[object], group: str, positions: Mapping[int, int]) -> None:
        """Stores positions of a group. Raises GroupBusyError if it has a live member."""
        name, named = self._address.named(topic.name), self._address.group(topic.name, group)
        topic_id = topic_ids.described(self._described(topic))
        offsets = {TopicPartition(name, partition): stored(to, topic_id) for partition, to in positions.items()}

        def alter() -> None:
            errors = set(self._admin.alter_group_offsets(named, offsets).values()) - {NoError}
            if errors & set(_LIVE):
                raise self._busy(topic, group)
            for error in errors:
                raise error

        self._of_group(alter)

    def _of_group(self, call: Callable[[], T]) -> T:
        """Makes a call about a group, again and again while brokers ask for patience; returns its result.

        The client remembers which broker knows a group and asks that broker for ever, even if it is away or another one
        has taken the group over (kafka-python 3.0.12). After a failure it is made to forget that here.
        """

        def looking_again() -> T:
            try:
                return call()
            except KafkaError:
                self._admin._manager.cluster._coordinators.clear()  # noqa: SLF001 - it has no public way to forget
                raise

        return _patiently(looking_again)

    def _busy(self, topic: Topic[object], group: str) -> GroupBusyError:
        return GroupBusyError(f"{self._address}: {topic} has a live consumer of {group}; close it first")


def connect(address: KafkaAddress) -> kafka.KafkaAdminClient:
    """Opens a client for everything but publishing and reading; the caller closes it. Thread-safe.

    Raises QueueUnavailableError: no broker answers.
    """
    with translated(str(address)):
        return kafka.KafkaAdminClient(
            bootstrap_timeout_ms=REQUEST_MS,
            request_timeout_ms=REQUEST_MS,
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            **address.options(),
        )


def _patiently(call: Callable[[], T]) -> T:
    """Repeats a call for a while: brokers that have just started, or taken over a group, ask clients to come back."""
    deadline = time.monotonic() + REQUEST_MS / 1_000
    while True:
        try:
            return call()
        except RetriableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
