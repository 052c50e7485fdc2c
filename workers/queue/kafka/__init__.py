"""Kafka behind the queue port. Nothing of kafka-python is seen outside this package.

Needs the extra `kafka`. A queue is opened by its url (see `address`); its topics are made by `topics.apply`, never by
whoever publishes or reads first.
"""

from workers.queue.kafka.address import Address, parse
from workers.queue.kafka.consumer import KafkaConsumer
from workers.queue.kafka.dead_letters import KafkaDeadLetters
from workers.queue.kafka.queue import KafkaQueue

__all__ = ["Address", "KafkaConsumer", "KafkaDeadLetters", "KafkaQueue", "parse"]
