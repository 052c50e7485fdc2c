"""The state of the workers' side. It is a port, because the workers import this package and not the other way round."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from feedstore.errors import NotNowError


class QueuesUnavailableError(NotNowError):
    """Not now: the queue, the dead letters or the follow store do not answer."""


class GroupState(msgspec.Struct, frozen=True):
    """How much a consumer group has left to do. topic: the topic that it reads; null for the relay, which reads the
    outbox. lag: how many messages are left; for the relay, how many actions.
    """

    group: str
    topic: str | None
    lag: int


class QueuesState(msgspec.Struct, frozen=True):
    """groups: in the order in which an action passes them."""

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
        ...

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        """Up to `limit` dead letters with ids larger than `after`, ascending. Raises QueuesUnavailableError."""
        ...

    def stopped(self) -> str | None:
        """Why the work is not done: the worker of this process has stopped by itself, or a home in files has no worker.
        None if the work is done, or if nothing is known of it here. Returns at once.
        """
        ...
