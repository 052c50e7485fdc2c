"""Posts updates to the queue."""

from collections.abc import Callable, Sequence

from feedstore.catalog.port import Update
from feedstore.errors import PortError
from feedstore.http.queues import QueuesUnavailableError
from feedstore.lazy import Lazy
from workers.catalog.messages import batches, encode_update
from workers.catalog.topics import UPDATES
from workers.queue.port import Queue


def publish(queue: Queue, catalog: str, updates: Sequence[Update]) -> None:
    """Publishes updates of a catalog; durable when it returns. Raises QueueUnavailableError: publish all again."""
    queue.publish(UPDATES, [encode_update(each) for each in batches(catalog, updates)])


class QueuePosting:
    """`feedstore.catalog.posting.Posting` on a queue that is opened when it is first needed; if that fails, it is tried
    again, and pages do not wait for it. opener: opens the queue, which this closes.
    """

    def __init__(self, opener: Callable[[], Queue]) -> None:
        self._queue = Lazy(opener, lambda: QueuesUnavailableError("closed"))
        self.close = self._queue.close
        """Closes the queue: no more updates are taken. Closing twice is fine."""

    def post(self, catalog: str, updates: Sequence[Update]) -> None:
        try:
            publish(self._queue.opened(), catalog, updates)
        except PortError as error:
            raise QueuesUnavailableError(str(error)) from error
