"""Dead letters in a topic of their own, `feed.dead`: one partition, kept for ever.

A letter is a record: its value is the message, its headers say the rest, its key names what was buried, and its id is
its offset + 1. A record of another program is a letter too: what it does not say is unknown, and its offset names it if
it has no key. A letter is dropped by appending a record of the same key without a value. All records before the first
remaining letter are deleted; dropped letters between remaining ones keep their space.

Every process keeps the ids in memory and reads the new records before each call. Two processes that bury the same
message at the same moment may store it twice; the first one counts, in every process. It is made for thousands of
letters, not for millions: people have to read them.
"""

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import kafka
import structlog
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from feedstore.lazy import closed_on_error
from workers.queue.kafka import reading, topic_ids
from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.errors import describe, translated
from workers.queue.kafka.producers import FLUSH_S, MAX_RECORD_BYTES, REQUEST_MS, Producers
from workers.queue.kafka.queue import connect
from workers.queue.kafka.reading import beginnings_of, ends_of
from workers.queue.port import (
    MAX_MESSAGE_BYTES,
    DeadLetter,
    QueueError,
    QueueUnavailableError,
    Topic,
    check_limit,
)

_log = structlog.get_logger()

DEAD: Final = "feed.dead"
MAX_DETAIL_CHARS: Final = 20_000
"""Longer details lose their middle."""

_MS: Final = re.compile(r"[0-9]{1,13}")


class KafkaDeadLetters:
    """Dead letters in a topic. Thread-safe; one call at a time."""

    def __init__(self, address: KafkaAddress, client: kafka.KafkaConsumer) -> None:
        """For `open`."""
        self._address = address
        self._place = TopicPartition(address.named(DEAD), 0)
        self._client = client
        self._producers = Producers(address)
        self._lock = threading.Lock()
        self._id = self._topic_id()
        self._next = 0  # the first offset that was not read
        self._ids: dict[bytes, int] = {}  # of the remaining letters, ascending, by key
        self._closed = False

    @classmethod
    def open(cls, address: KafkaAddress) -> "KafkaDeadLetters":
        """Opens the dead letters at an address.

        Raises QueueUnavailableError: no broker answers, or the topic is missing.
        """
        with translated(str(address)):
            client = reading.client(
                address,
                group_id=None,
                auto_offset_reset="earliest",
                max_partition_fetch_bytes=2 * MAX_RECORD_BYTES,
            )
            with closed_on_error(client):
                _check_there(address, client.partitions_for_topic(address.named(DEAD)))
                client.assign([TopicPartition(address.named(DEAD), 0)])
        return cls(address, client)

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        key = _key(topic.name, group, value)
        if len(value) > MAX_MESSAGE_BYTES:
            detail = f"{detail} (of {len(value)} bytes the first {MAX_MESSAGE_BYTES} are kept here)"
            value = value[:MAX_MESSAGE_BYTES]
        headers = {
            "topic": topic.name,
            "group": group,
            "reason": reason,
            "detail": _cut(detail),
            "died_ms": str(died_ms),
        }
        with self._calling():
            if key not in self._ids:
                self._send(key, value, headers)

    def letters(self, after: int, limit: int) -> list[DeadLetter]:
        check_limit(limit)
        with self._calling():
            wanted = [letter_id for letter_id in self._ids.values() if letter_id > after][:limit]
            if not wanted:
                return []
            chosen = set(wanted)
            records = self._records(wanted[0] - 1, wanted[-1])
            return [_letter(record) for record in records if record.offset + 1 in chosen]

    def letter(self, letter_id: int) -> DeadLetter | None:
        with self._calling():
            if letter_id not in self._ids.values():
                return None
            return next((_letter(record) for record in self._records(letter_id - 1, letter_id)), None)

    def count(self) -> int:
        with self._calling():
            return len(self._ids)

    def drop(self, letter_id: int) -> bool:
        with self._calling():
            key = next((key for key, known in self._ids.items() if known == letter_id), None)
            if key is None:
                return False
            self._send(key, None, {})
            self._catch_up()
            front = min(self._ids.values(), default=self._next + 1) - 1
        self._delete_before(front)
        return True

    def close(self) -> None:
        """Closing twice is fine; any other use afterwards raises QueueError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._producers.close()
            self._client.close(autocommit=False)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Admits one call at a time, and reads what is new before it."""
        with self._lock, translated(f"{self._address}: {DEAD}"):
            if self._closed:
                raise QueueError(f"{self._address}: dead letters were used after they were closed")
            self._catch_up()
            yield

    def _send(self, key: bytes, value: bytes | None, headers: dict[str, str]) -> None:
        encoded = [(name, text.encode("utf-8", "backslashreplace")) for name, text in headers.items()]
        with self._producers.current() as producer:
            sent = producer.send(self._place.topic, value=value, key=key, headers=encoded, partition=0)
            producer.flush(timeout=FLUSH_S)
            sent.get(timeout=0)

    def _catch_up(self) -> None:
        """Reads what was buried and dropped since the last call, by this process and others."""
        begin = beginnings_of(self._client, [self._place])[self._place]
        end = ends_of(self._client, [self._place])[self._place]
        topic_id = self._topic_id()
        if topic_ids.differ(self._id, topic_id) or end < self._next:
            # The topic was made again: what was buried in the earlier one is not there.
            self._ids, self._next = {}, begin
        self._id = topic_id or self._id
        self._ids = {key: letter_id for key, letter_id in self._ids.items() if letter_id > begin}
        for record in self._records(max(self._next, begin), end):
            key = _identity(record)
            if record.value is None:
                self._ids.pop(key, None)
            elif key not in self._ids:
                self._ids[key] = record.offset + 1
            self._next = record.offset + 1
        self._next = max(self._next, end)

    def _topic_id(self) -> uuid.UUID | None:
        return topic_ids.of(self._client._cluster, self._place.topic)  # noqa: SLF001 - there is no other way

    def _records(self, start: int, end: int) -> Iterator[Any]:
        """The records from one offset up to another."""
        if start >= end:
            return
        self._client.seek(self._place, start)
        deadline = time.monotonic() + REQUEST_MS / 1_000
        while self._client.position(self._place, timeout_ms=REQUEST_MS) < end:
            if time.monotonic() > deadline:
                raise QueueUnavailableError(f"{self._address}: {DEAD}: nothing came within {REQUEST_MS} ms")
            for record in self._client.poll(timeout_ms=200).get(self._place, ()):
                deadline = time.monotonic() + REQUEST_MS / 1_000
                if record.offset < end:
                    yield record

    def _delete_before(self, offset: int) -> None:
        """Frees the space of the records before the first remaining letter. Without permission nothing is lost."""
        try:
            with contextlib.closing(connect(self._address)) as admin:
                admin.delete_records({self._place: offset}, timeout_ms=REQUEST_MS)
        except (KafkaError, QueueError) as error:
            _log.warning("dead_letters.not_deleted", error=describe(error))


def _check_there(address: KafkaAddress, partitions: set[int]) -> None:
    if not partitions:
        name = address.named(DEAD)
        raise QueueUnavailableError(f"{address}: no topic {name}; make it first (feedctl topics apply)")


def _key(topic: str, group: str, value: bytes) -> bytes:
    return sha256(f"{topic}\0{group}\0".encode() + value).digest()


def _cut(detail: str) -> str:
    if len(detail) <= MAX_DETAIL_CHARS:
        return detail
    half = MAX_DETAIL_CHARS // 2
    return f"{detail[:half]}\n... {len(detail) - 2 * half} characters ...\n{detail[-half:]}"


def _identity(record: Any) -> bytes:
    """What names a letter to all processes: its key. Records of other programs may have none."""
    key: bytes | None = record.key
    return b"offset %d" % record.offset if key is None else key


def _letter(record: Any) -> DeadLetter:
    """The letter in a record, even if another program wrote it: one such record must not hide all letters."""
    said = {name: text.decode("utf-8", "replace") for name, text in record.headers if text is not None}
    died_ms = said.get("died_ms", "")
    return DeadLetter(
        record.offset + 1,
        said.get("topic", "unknown"),
        said.get("group", "unknown"),
        said.get("reason", "foreign"),
        said.get("detail", f"this program did not write this record of {DEAD}"),
        int(died_ms) if _MS.fullmatch(died_ms) else record.timestamp,
        record.value,
    )
