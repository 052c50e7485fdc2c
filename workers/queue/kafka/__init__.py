"""Kafka behind the queue port. Nothing of kafka-python is seen outside this package.

Needs the extra `kafka`. A queue is opened by its url (see `address`); its topics are made by `topics.apply`, never by
the first publisher or reader.
"""

from workers.queue.kafka.address import KafkaAddress, parse
from workers.queue.kafka.consumer import KafkaConsumer
from workers.queue.kafka.dead_letters import KafkaDeadLetters
from workers.queue.kafka.queue import KafkaQueue
from workers.queue.kafka.tail import KafkaTail

__all__ = ["KafkaAddress", "KafkaConsumer", "KafkaDeadLetters", "KafkaQueue", "KafkaTail", "parse"]
