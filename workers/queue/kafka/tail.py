"""A reader of a topic from its end. It belongs to no group and assigns the partitions to itself."""

from collections.abc import Callable, Mapping

from kafka.structs import TopicPartition

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.reading import Reader, ends_of


class KafkaTail(Reader):
    """Reads every partition of a topic."""

    def __init__(self, address: KafkaAddress, topic: str, partitions: int, closed: Callable[[], bool]) -> None:
        """For KafkaQueue. partitions: how many the topic has now. closed: whether the queue was closed."""
        self._partitions = partitions
        super().__init__(address, topic, "a tail", closed, group_id=None)

    def _begin_reading(self) -> None:
        self._begin(ends_of(self._client, (TopicPartition(self._name, each) for each in range(self._partitions))))

    def _begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Adds partitions, each to be read from an offset. The others continue from where they are."""
        self._client.assign([*self._client.assignment(), *offsets])
        for place, offset in offsets.items():
            self._client.seek(place, offset)

    def _prepare(self) -> None:
        """Adds new partitions, to be read from their first offset: if messages of them have expired by now, they are
        lost. The client's metadata are never older than METADATA_MS, and looking at them asks no broker.
        """
        there = self._client.partitions_for_topic(self._name)
        if len(there) > len(self._client.assignment()):
            places = {TopicPartition(self._name, partition) for partition in there} - self._client.assignment()
            self._begin(dict.fromkeys(places, 0))
