"""The state of the workers' side. It is a port, because the workers import this package and not the other way round."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import msgspec

from feedstore.background import answer_of, on_a_thread
from feedstore.errors import NotNowError

STATE_S: Final = 3.0
"""How long a caller waits for the state of queues: a broker that hangs can take minutes."""


class QueuesUnavailableError(NotNowError):
    """Not now: the queue or the dead letters do not answer."""


class GroupState(msgspec.Struct, frozen=True):
    """How much a consumer group has left to do. topic: the topic that it reads; null for the relay, which reads the
    outbox. lag: how many messages are left; for the relay, how many actions.
    """

    group: str
    topic: str | None
    lag: int


class QueuesState(msgspec.Struct, frozen=True):
    """groups: in the order in which an action passes them. The relay is missing while a shard of the follow store is
    away.
    """

    groups: list[GroupState]
    dead_letters: int


class Letter(msgspec.Struct, frozen=True):
    """A dead letter: a message that could not be processed. The message itself is not here: `feedctl dead show` prints
    it. topic: where it came from. group: the consumer group that could not process it. reason: a stable word. detail:
    the whole error. died_ms: when it became a dead letter, in ms since 1970. bytes: the size of the message.
    """

    id: int
    topic: str
    group: str
    reason: str
    detail: str
    died_ms: int
    bytes: int


class Queues(Protocol):
    """Thread-safe."""

    def state(self) -> QueuesState:
        """How much each group has left to do. Raises QueuesUnavailableError."""

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        """Up to `limit` dead letters with ids larger than `after`, ascending. Raises QueuesUnavailableError."""

    def stopped(self) -> str | None:
        """Why the work is not done: the worker of this process has stopped by itself, or a home in files has no worker.
        None if the work is done, or if nothing is known of it here. Returns at once.
        """


class BoundedQueues:
    """Queues whose state is looked at on a thread, one look at a time, and waited for at most `STATE_S` from the
    beginning of the look. So metrics, and the status, say what else is known while a broker hangs. clock: in s.
    """

    def __init__(self, queues: Queues, clock: Callable[[], float]) -> None:
        self._queues = queues
        self._clock = clock
        self._lock = threading.Lock()
        self._look: Future[QueuesState] | None = None
        self._until_s = 0.0

    def state(self) -> QueuesState:
        with self._lock:
            look = self._look
            if look is None or look.done():
                self._until_s = self._clock() + STATE_S
                try:
                    look = self._look = answer_of(self._queues.state, on_a_thread("queues"))
                except RuntimeError as error:  # the machine has no thread left
                    raise QueuesUnavailableError(str(error)) from error
            left_s = self._until_s - self._clock()
        try:
            return look.result(max(0.0, left_s))
        except TimeoutError:
            raise QueuesUnavailableError(f"no answer within {STATE_S:g} s") from None

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        return self._queues.letters(after, limit)

    def stopped(self) -> str | None:
        return self._queues.stopped()
