"""Batches that a client of kafka-python cannot read: they were damaged on the way, or on a broker's disk, or the client
does not have their codec.
"""

from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from workers.queue.kafka.errors import describe


class UnreadableBatchError(KafkaError):  # type: ignore[misc]  # the library has no types
    """The next batch of a partition cannot be read. It is fetched again: another broker may have a good copy."""

    def __init__(self, place: TopicPartition, offset: int, why: str) -> None:
        super().__init__(f"{place.topic}/{place.partition} at offset {offset} cannot be read: {why}")
        self.place = place

    def __str__(self) -> str:
        return str(self.args[0])


def name_unreadable(fetcher: Fetcher) -> None:
    """Makes a client name a batch that it cannot read, and fetch it again (what it corrects was seen in 3.0.12).

    The client keeps what is left of such a batch, though nothing more comes out of it. Its next poll never returned.
    """
    fetcher.PartitionRecords = _Records


class _Records(Fetcher.PartitionRecords):  # type: ignore[misc]  # the library has no types
    """What a fetch has brought of a partition."""

    def take(self, n: int | None = None) -> list[Any]:
        try:
            taken: list[Any] = super().take(n)
        except Exception as error:
            self.drain()
            raise UnreadableBatchError(self.topic_partition, self.next_fetch_offset, describe(error)) from error
        return taken
