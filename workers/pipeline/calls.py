"""The calls of a stage that may take long. The stage is free meanwhile, and stays a member of its group."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from feedstore.errors import NotNowError
from workers.pipeline.retry import Away
from workers.queue.port import Consumer, PositionLostError, QueueUnavailableError

Result = TypeVar("Result")

ALIVE_S: Final = 1.0
"""How often the queue is told that the stage is alive during a call."""


class Calls:
    """Makes the calls of one stage. Each call that was started is waited for before the step of the stage ends.

    consumer: the stage's, which is kept alive. clock: monotonic seconds.

    worked: how often the stage got something done.
    """

    def __init__(self, name: str, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self.worked = 0
        self._handling = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._beginning = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-next")

    def handle(self, call: Callable[[], Result]) -> "Future[Result]":
        """Starts a call on the handler's thread, which makes one at a time."""
        return self._handling.submit(call)

    def begin(self, call: Callable[[], Result]) -> "Future[Result]":
        """Starts a call on another thread, while the handler works."""
        return self._beginning.submit(call)

    def wait_for(self, calling: "Future[Any]") -> None:
        """Waits for a call to end. Meanwhile, however long that is, it tells the queue that this member is alive."""
        try:
            while not wait([calling], ALIVE_S).done:
                with suppress(QueueUnavailableError, PositionLostError):
                    self._consumer.keep_alive()
        finally:
            wait([calling])

    def aside(self, call: Callable[[], Result]) -> Result:
        """Makes another call on the handler's thread; returns its result or raises its error."""
        calling = self.handle(call)
        self.wait_for(calling)
        return calling.result()

    def answers(self, away: Away, call: Callable[[], object]) -> bool:
        """Calls something that may be away, unless it rests after a failure; returns whether it answered."""
        if away.is_resting():
            return False
        began_s = self._clock()
        try:
            self.aside(call)
        except NotNowError as error:
            away.noted(error, (began_s, self.worked))
            return False
        away.ended()
        return True

    def close(self) -> None:
        """Ends the threads, once their calls have ended."""
        self._handling.shutdown()
        self._beginning.shutdown()
