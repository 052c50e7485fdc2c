"""Where posted updates go: the queue."""

import threading
from collections.abc import Callable, Sequence

from feedstore.catalog.port import Update
from feedstore.errors import PortError
from feedstore.http.queues import QueuesUnavailableError
from workers.catalog.messages import batches, encode_update
from workers.catalog.topics import UPDATES
from workers.queue.port import Queue


def publish(queue: Queue, catalog: str, updates: Sequence[Update]) -> None:
    """Durable when it returns. Raises QueueUnavailableError: some may have been stored; publish all again."""
    queue.publish(UPDATES, [encode_update(each) for each in batches(catalog, updates)])


class QueuePosting:
    """`feedstore.catalog.posting.Posting`, on a queue that is opened when it is first needed, and again until that
    succeeds: pages do not wait for a queue that is away. opener: gives a queue that this closes.
    """

    def __init__(self, opener: Callable[[], Queue]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._queue: Queue | None = None
        self._closed = False

    def post(self, catalog: str, updates: Sequence[Update]) -> None:
        try:
            publish(self._opened(), catalog, updates)
        except PortError as error:
            raise QueuesUnavailableError(str(error)) from error

    def close(self) -> None:
        """Takes no more. Doing it twice is fine."""
        with self._lock:
            self._closed = True
            queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    def _opened(self) -> Queue:
        with self._lock:
            if self._closed:
                raise QueuesUnavailableError("closed")
            if self._queue is None:
                self._queue = self._opener()
            return self._queue
