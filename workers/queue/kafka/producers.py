"""The producers of one client: idempotent, and waiting for every acknowledgement."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

import kafka
from kafka.errors import KafkaError

from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.errors import translated
from workers.queue.port import QueueError

REQUEST_MS: Final = 10_000
DELIVERY_MS: Final = 20_000
"""How long a producer tries a message before it gives up."""
FLUSH_S: Final = 2 * DELIVERY_MS / 1_000
"""How long a call waits for its messages at most."""
BATCH_BYTES: Final = 131_072
"""A publish call fills one partition after the other, with about this much each: large batches are cheap."""
MAX_RECORD_BYTES: Final = 1_200_000
"""The largest record: a message of MAX_MESSAGE_BYTES, and the headers of a dead letter."""


class Producers:
    """One producer after the other: a producer that has failed may refuse everything afterwards, so that the call after
    an error opens a new one. Thread-safe.
    """

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._current: kafka.KafkaProducer | None = None
        self._calls: Counter[kafka.KafkaProducer] = Counter()  # how many calls use each producer now
        self._not_closed: list[kafka.KafkaProducer] = []
        self._version: object = None
        self._closed = False

    @contextlib.contextmanager
    def current(self) -> Iterator[kafka.KafkaProducer]:
        """A producer, which no other thread closes meanwhile. Raises QueueError after `close`."""
        with self._lock:
            producer = self._opened()
            self._calls[producer] += 1
        failed = True
        try:
            yield producer
            failed = False
        finally:
            self._leave(producer, failed=failed)

    def close(self) -> None:
        """Doing it twice is fine."""
        with self._lock:
            self._closed = True
            producers, self._current, self._not_closed = [self._current, *self._not_closed], None, []
        for one in producers:
            with contextlib.suppress(KafkaError):
                if one is not None:
                    one.close(timeout=REQUEST_MS / 1_000)

    def _opened(self) -> kafka.KafkaProducer:
        """The current producer, opened if there is none. The caller holds the lock."""
        if self._closed:
            raise QueueError(f"{self._address}: used after it was closed")
        if self._current is None:
            with translated(str(self._address)):
                self._current = producer(self._address, self._version)
            # The next producer is told the brokers' version. Otherwise it asks a broker when it is made: in an outage
            # that fails again and again.
            self._version = self._current.config["api_version"]
        return self._current

    def _leave(self, producer: kafka.KafkaProducer, *, failed: bool) -> None:
        """Ends a call. The last call that leaves a failed producer closes it."""
        with self._lock:
            self._calls[producer] -= 1
            if failed and self._current is producer:
                self._current = None
            if self._current is producer or self._calls[producer]:
                return
            del self._calls[producer]
            unused = [producer, *self._not_closed]
            self._not_closed = []
        for one in unused:
            try:
                one.close(timeout=1)
            except KafkaError:  # it still tries a message that a call gave up; a later call closes it
                with self._lock:
                    self._not_closed.append(one)


def producer(address: KafkaAddress, api_version: object = None) -> kafka.KafkaProducer:
    """Opens an idempotent producer; raises the errors of kafka-python. api_version: the brokers', if it is known."""
    return kafka.KafkaProducer(
        enable_idempotence=True,
        acks="all",
        batch_size=BATCH_BYTES,
        # A call flushes when it has handed over all its messages: until then batches may fill.
        linger_ms=1_000,
        max_request_size=MAX_RECORD_BYTES,
        api_version=api_version,
        max_block_ms=REQUEST_MS,
        request_timeout_ms=REQUEST_MS,
        delivery_timeout_ms=DELIVERY_MS,
        bootstrap_timeout_ms=REQUEST_MS,
        allow_auto_create_topics=False,
        metrics_enabled=False,
        **address.options(),
    )
