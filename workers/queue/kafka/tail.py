"""A reader of a topic from its end. It belongs to no group and assigns the partitions to itself."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka.errors import LogTruncationError, OffsetOutOfRangeError
from kafka.structs import TopicPartition

from workers.queue.kafka import reading
from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.errors import translated
from workers.queue.kafka.prefetch import PrefetchBuffer
from workers.queue.port import Message, PositionLostError, QueueError, check_limit


class KafkaTail:
    """Reads every partition of a topic."""

    def __init__(self, address: KafkaAddress, topic: str, partitions: int, closed: Callable[[], bool]) -> None:
        """For KafkaQueue. partitions: how many the topic has now. closed: whether the queue was closed."""
        self._place = f"{address}: {topic}"
        self._topic = topic
        self._name = address.named(topic)
        self._queue_closed = closed
        self._closed = False
        self._ahead = PrefetchBuffer()
        self._lost: str | None = None
        self._client = reading.client(address, group_id=None)
        try:
            places = [TopicPartition(self._name, partition) for partition in range(partitions)]
            ends = self._client.end_offsets(places, timeout_ms=reading.REQUEST_S * 1_000)
            self._begin(ends)
        except BaseException:
            self._client.close(autocommit=False, timeout_ms=0)
            raise

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        """The port's. With a timeout of 0 it returns what has arrived: the first messages take a few polls."""
        check_limit(limit)
        deadline = time.monotonic() + timeout_s
        while True:
            self._refuse_closed()
            wait_s = 0.0 if self._ahead.count else min(reading.SLICE_S, max(0.0, deadline - time.monotonic()))
            self._ask(limit, wait_s)
            if self._lost is not None:
                raise PositionLostError(self._lost)
            taken = self._ahead.take(limit)
            if taken or time.monotonic() >= deadline:
                return taken

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(QueueError), translated(self._place):
            self._client.close(autocommit=False, timeout_ms=reading.CLOSE_S * 1_000)

    def _begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Adds partitions, each to be read from an offset. The others are read further from where they are."""
        self._client.assign([*self._client.assignment(), *offsets])
        for place, offset in offsets.items():
            self._client.seek(place, offset)

    def _ask(self, limit: int, wait_s: float) -> None:
        with translated(self._place):
            self._begin_added()
            reading.choose(self._client, self._ahead, limit)
            try:
                fetched: Mapping[TopicPartition, list[Any]] = self._client.poll(
                    timeout_ms=int(wait_s * 1_000), max_records=reading.MAX_RECORDS
                )
            except OffsetOutOfRangeError as error:
                self._note_lost(error.args[0])
                return
            except LogTruncationError as error:
                self._note_lost({place: self._position(place) for place in error.divergent_offsets})
                return
        reading.take_in(fetched, self._ahead)

    def _begin_added(self) -> None:
        """Adds new partitions, to be read from their first offset: if messages of them have expired by now, they are
        lost. The client's metadata are never older than METADATA_MS, and looking at them asks no broker.
        """
        there = self._client.partitions_for_topic(self._name)
        if len(there) > len(self._client.assignment()):
            places = {TopicPartition(self._name, partition) for partition in there} - self._client.assignment()
            self._begin(dict.fromkeys(places, 0))

    def _position(self, place: TopicPartition) -> int:
        position: int = self._client.position(place, timeout_ms=reading.REQUEST_S * 1_000)
        return position

    def _note_lost(self, positions: Mapping[TopicPartition, int]) -> None:
        place, position = next(iter(positions.items()))
        self._lost = reading.lost(self._client, place, self._topic, "a tail", position)

    def _refuse_closed(self) -> None:
        if self._closed or self._queue_closed():
            raise QueueError(f"{self._place}: a tail was used after it was closed")
