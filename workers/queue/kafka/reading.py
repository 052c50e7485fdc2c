"""Reading a topic with kafka-python's consumer, in a group or without one."""

from collections.abc import Mapping
from typing import Any, Final

import kafka
from kafka.structs import TopicPartition

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.prefetch import PrefetchBuffer
from workers.queue.port import Message

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


def client(address: KafkaAddress, **options: object) -> kafka.KafkaConsumer:
    """Opens a client that never moves a position by itself; raises the errors of kafka-python. options: further options
    of the client.
    """
    return kafka.KafkaConsumer(
        enable_auto_commit=False,
        # If the messages at a position are gone, the client must not silently choose another position (rule 8).
        auto_offset_reset="none",
        allow_auto_create_topics=False,
        metadata_max_age_ms=METADATA_MS,
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        bootstrap_timeout_ms=int(REQUEST_S * 1_000),
        metrics_enabled=False,
        **options,
        **address.options(),
    )


def choose(client: kafka.KafkaConsumer, ahead: PrefetchBuffer, limit: int) -> None:
    """Pauses the partitions of which enough messages wait here, because they would block the others; resumes the rest.
    limit: a partition of which this many messages wait here is paused.
    """
    full = ahead.size >= MAX_AHEAD_BYTES
    paused = client.paused()
    for place in client.assignment():
        enough = full or ahead.of(place.partition) >= limit
        if enough and place not in paused:
            client.pause(place)
        elif not enough and place in paused:
            client.resume(place)


def take_in(fetched: Mapping[TopicPartition, list[Any]], ahead: PrefetchBuffer) -> None:
    """Adds the messages that the client has fetched."""
    for place, records in fetched.items():
        ahead.add(place.partition, [Message(place.partition, record.offset, record.value or b"") for record in records])


def lost(client: kafka.KafkaConsumer, place: TopicPartition, topic: str, who: str, position: int) -> str:
    """The error message about a position at which there is no message any more. who: the reader that has this position.
    Raises the errors of kafka-python.
    """
    earliest = client.beginning_offsets([place], timeout_ms=REQUEST_S * 1_000)[place]
    end = client.end_offsets([place], timeout_ms=REQUEST_S * 1_000)[place]
    if position < earliest:
        kept = f"the earliest that is kept is {earliest}"
    else:
        kept = f"the log ends at {end}: the brokers lost what was there, or the topic was created again"
    return f"{topic}/{place.partition}: {who} wants offset {position}, {kept}"
