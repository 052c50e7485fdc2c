"""The state of the workers' side. It is a port, because the workers import this package and not the other way round."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from feedstore.errors import NotNowError


class QueuesUnavailableError(NotNowError):
    """Not now: the queue, the dead letters or the follow store do not answer."""


class GroupState(msgspec.Struct, frozen=True):
    """How much a consumer group has left to do. topic: what it reads; None for the relay, which reads the outbox."""

    group: str
    topic: str | None
    lag: int


class QueuesState(msgspec.Struct, frozen=True):
    """groups: in the order in which an action passes them."""

    groups: list[GroupState]
    dead_letters: int


class Letter(msgspec.Struct, frozen=True):
    """A message that could not be done, without the message. detail: the error in full."""

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
