"""One member of a Kafka consumer group.

The client's own thread sends the heartbeats; whatever else the group asks for (joining, giving partitions up) happens
inside `poll` and `keep_alive`. One of the two must be called within the address' `max_poll_interval_ms`: a member whose
thread hangs for longer loses its partitions to the others. A member whose process is stopped loses them within
SESSION_TIMEOUT_MS.

Partitions move one by one (cooperative-sticky): those that stay are not read again from the committed position.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import kafka
import structlog
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import LeaderNotAvailableError, NoOffsetForPartitionError
from kafka.structs import MemberState, TopicPartition

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.errors import REBALANCED, translated
from workers.queue.kafka.positions import Positions, stored
from workers.queue.kafka.reading import REQUEST_S, SLICE_S, Reader, beginnings_of, ends_of
from workers.queue.port import Message, check_partition, check_position

_log = structlog.get_logger()

SESSION_TIMEOUT_MS: Final = 10_000
"""How long a member that is killed or stopped still keeps its partitions from the others."""
HEARTBEAT_MS: Final = 3_000

JOIN_S: Final = 5.0
"""How long a call waits for the group to assign its partitions, whatever the call's own timeout."""
KEEP_ALIVE_S: Final = 0.5
"""`keep_alive` does nothing if the client was called within this time."""

_NO_LEADER: Final = -1


class KafkaConsumer(Reader):
    """One member of a group on one topic, among any number of them."""

    def __init__(
        self,
        address: KafkaAddress,
        topic: str,
        group: str,
        partitions: Callable[[], int],
        closed: Callable[[], bool],
    ) -> None:
        """For KafkaQueue. It joins the group with its first poll. partitions: how many the topic has now. closed:
        whether the queue was closed.
        """
        self._group = group
        self._partitions = partitions
        self._positions = Positions()
        self._delivered: dict[int, int] = {}  # the position after the last message that a poll returned
        self._begun_unled: set[int] = set()
        self._asked_s = 0.0
        # A partition without a committed position begins in `_begin`; no other position ever moves.
        super().__init__(
            address,
            topic,
            f"a consumer of {group}",
            closed,
            group_id=address.group(topic, group),
            partition_assignment_strategy=[CooperativeStickyAssignor],
            max_poll_interval_ms=address.max_poll_interval_ms,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    def _begin_reading(self) -> None:
        self._client.subscribe([self._name], listener=_Listener(self))
        # If the group's leader does not know the topic yet, it assigns no partitions, and later does not notice the
        # topic. A partition that no broker leads is known, and must not keep others from being read.
        with suppress(LeaderNotAvailableError):
            ends_of(self._client, (TopicPartition(self._name, each) for each in range(self._partitions())))

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The port's. It takes up to JOIN_S longer while the group assigns its partitions."""
        taken = super().poll(limit, timeout_s)
        for message in taken:
            self._delivered[message.partition] = message.offset + 1
        return taken

    def keep_alive(self) -> None:
        self._refuse_closed()
        if time.monotonic() - self._asked_s >= KEEP_ALIVE_S:
            self._ask(0, 0.0)

    def commit(self, positions: Mapping[int, int]) -> None:
        """The port's. If a position cannot be stored because partitions are moving, a later call of any method stores
        it, provided that its partition stays here.
        """
        self._refuse_closed()
        self._positions.owe(self._checked(positions))
        with translated(self._place):
            self._store()

    def held(self) -> frozenset[int]:
        return self._positions.held

    def gained(self, partitions: Iterable[int]) -> None:
        """Adds partitions. The listener calls it, inside a call of the client."""
        partitions = sorted(partitions)
        self._forget(partitions)
        self._positions.gained(partitions)
        _log.info("partitions.gained", topic=self._topic, group=self._group, partitions=partitions)

    def gave_up(self, partitions: Iterable[int]) -> None:
        """Removes partitions. The listener calls it, inside a call of the client."""
        partitions = sorted(partitions)
        self._forget(partitions)
        self._positions.gave_up(partitions)
        _log.info("partitions.given_up", topic=self._topic, group=self._group, partitions=partitions)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._ahead.drop(partition)
            self._delivered.pop(partition, None)
            self._lost.pop(partition, None)
            self._damaged_s.pop(partition, None)
            self._begun_unled.discard(partition)

    def _prepare(self) -> None:
        self._asked_s = time.monotonic()
        self._store()

    def _fetch(self, wait_s: float) -> Mapping[TopicPartition, list[Any]]:
        """Polls the client once; while the group assigns its partitions, as often as that takes.

        If a join ends between two polls, the client drops its result and joins again. Polls that do not wait could
        repeat this for ever, and every join disturbs the whole group.
        """
        deadline = time.monotonic() + JOIN_S
        while True:
            try:
                fetched = super()._fetch(wait_s)
            except NoOffsetForPartitionError as error:
                self._begin(error.args[0])
                return {}
            state = self._client.group_metadata().state
            if state == MemberState.REBALANCING:
                # A leader that joined because partitions were added does not join again by itself (seen in kafka-python
                # 3.0.12): it would read what it had, send no heartbeats, and be evicted without noticing. While a join
                # is under way this call changes nothing.
                self._client._coordinator.request_rejoin()  # noqa: SLF001 - the client has no other way to ask for it
            if fetched or state == MemberState.STABLE or time.monotonic() > deadline or self._queue_closed():
                return fetched
            wait_s = SLICE_S

    def _begin(self, places: Collection[TopicPartition]) -> None:
        """Begins partitions in which the group has no position: at the earliest message, and stores that position. If
        no broker leads a partition, its earliest message is not known: it begins at the first one that there ever was,
        and `_note_lost` begins it again if that is gone. Without a position, the client would read nothing of all
        others (rule 12).
        """
        unled = {place for place in places if not self._is_led(place)}
        for place, earliest in beginnings_of(self._client, set(places) - unled).items():
            self._client.seek(place, earliest)
            self._positions.learned(place.partition, None)
            self._positions.owe({place.partition: earliest})
            self._begun_unled.discard(place.partition)
        for place in unled:
            self._client.seek(place, 0)
            self._positions.learned(place.partition, None)
            self._begun_unled.add(place.partition)
        self._store()

    def _is_led(self, place: TopicPartition) -> bool:
        """Whether a broker leads a partition, by the client's metadata: without a leader, a call takes ten seconds."""
        leader = self._client._cluster.leader_for_partition(place)  # noqa: SLF001 - there is no other way
        return leader not in {None, _NO_LEADER}

    def _note_lost(self, positions: Mapping[TopicPartition, int]) -> None:
        begun = {
            place for place, position in positions.items() if not position and place.partition in self._begun_unled
        }
        if begun:
            self._begin(begun)
        if lost := {place: position for place, position in positions.items() if place not in begun}:
            super()._note_lost(lost)

    def _checked(self, positions: Mapping[int, int]) -> Mapping[int, int]:
        """The positions without those that need not be stored. A partition that has moved back here is read from its
        stored position; if no broker leads it, this cannot be compared with its end, and must not keep the positions of
        all others from being stored (rule 12).

        Raises ValueError for positions that this member cannot have reached, PositionLostError for those that it
        reached in an earlier topic.
        """
        beyond = [
            partition
            for partition, position in positions.items()
            if not 0 <= position <= self._delivered.get(partition, -1)
        ]
        ends: dict[int, int] = {}
        for partition in beyond:
            if partition not in self._delivered:
                check_partition(self._topic, partition, self._partitions())
            if partition in self._positions.held and (end := self._end(partition)) is not None:
                ends[partition] = end
        self._refuse_another_topic()
        for partition in beyond:
            position = positions[partition]
            check_position(self._topic, partition, position, ends.get(partition, position))
        return {each: position for each, position in positions.items() if each not in beyond or each in ends}

    def _end(self, partition: int) -> int | None:
        """The end of a partition; None if no broker leads it."""
        place = TopicPartition(self._name, partition)
        with translated(self._place):
            try:
                return ends_of(self._client, [place])[place]
            except LeaderNotAvailableError:
                return None

    def _store(self) -> None:
        """Stores the positions that are still to be stored, if the group permits it now."""
        if self._client.group_metadata().state != MemberState.STABLE:
            # Nothing can be stored before a join has ended, and a join waits for the other members. Brokers answer the
            # requests of a connection in order, so that asking for positions now would wait as long.
            return
        try:
            for partition in self._positions.unknown():
                place = TopicPartition(self._name, partition)
                self._positions.learned(partition, self._client.committed(place, timeout_ms=REQUEST_S * 1_000))
            due = self._positions.due()
            if due:
                self._refuse_another_topic()
                self._client.commit(
                    {
                        TopicPartition(self._name, partition): stored(position, self._id)
                        for partition, position in due.items()
                    },
                    timeout_ms=REQUEST_S * 1_000,
                )
        except REBALANCED as error:
            _log.info("positions.later", topic=self._topic, group=self._group, reason=type(error).__name__)
            return
        self._positions.stored(due)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Tells a consumer which partitions it holds. The client's thread calls it during `poll`: it must not block."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        # Eager protocols also name the partitions that stay; this one names only the new ones.
        self._consumer.gained(place.partition for place in assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.gave_up(place.partition for place in revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._consumer.gave_up(place.partition for place in lost)
