"""Reading a topic with kafka-python's consumer, as a member of a group or not."""

from collections.abc import Mapping
from typing import Any, Final

import kafka
from kafka.structs import TopicPartition

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.prefetch import PrefetchBuffer
from workers.queue.port import Message

METADATA_MS: Final = 10_000
"""How soon a reader notices partitions that were added. No watermark moves before a group has."""

MAX_AHEAD_BYTES: Final = 1_000_000
"""Beyond this many bytes of messages that wait here, nothing more is asked for."""
FETCH_BYTES: Final = 1_048_576
PARTITION_FETCH_BYTES: Final = 1_048_576

MAX_RECORDS: Final = 1_000_000_000
"""The client hands over whatever has arrived (FETCH_BYTES from each broker at most). It must never keep a part of a
fetch: a partition that is paused then is sometimes not read again after it was resumed (seen in kafka-python 3.0.12).
"""

SLICE_S: Final = 0.25
"""How soon a waiting poll notices that its queue was closed. Messages end the wait at once; each look at the client
costs a few hand-overs between threads, which an idle worker would pay ten times a second for nothing.
"""
REQUEST_S: Final = 10.0
"""How long one call for positions or offsets may take before it counts as unavailable."""
CLOSE_S: Final = 5.0


def client(address: KafkaAddress, **options: object) -> kafka.KafkaConsumer:
    """A client that never moves a position by itself; raises what kafka-python raises. options: more of them."""
    return kafka.KafkaConsumer(
        enable_auto_commit=False,
        # A position that is gone must never be replaced by another one unseen (rule 8).
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
    """Pauses the partitions of which enough is here: otherwise they would block the others. limit: of messages of one
    partition that may wait here before no more of it are asked for.
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
    """Adds what the client has fetched."""
    for place, records in fetched.items():
        ahead.add(place.partition, [Message(place.partition, record.offset, record.value or b"") for record in records])


def lost(client: kafka.KafkaConsumer, place: TopicPartition, topic: str, who: str, position: int) -> str:
    """The message about a position that points at nothing. who: its reader. Raises the errors of kafka-python."""
    earliest = client.beginning_offsets([place], timeout_ms=REQUEST_S * 1_000)[place]
    end = client.end_offsets([place], timeout_ms=REQUEST_S * 1_000)[place]
    if position < earliest:
        kept = f"the earliest that is kept is {earliest}"
    else:
        kept = f"the log ends at {end}: the brokers lost what was there, or the topic was created again"
    return f"{topic}/{place.partition}: {who} wants offset {position}, {kept}"
