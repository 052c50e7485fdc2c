"""Turns the errors of kafka-python into the port's, which say what the caller should do."""

import contextlib
from collections.abc import Iterator

from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    UnknownMemberIdError,
)

from workers.queue.port import MessageRefusedError, QueueError, QueueUnavailableError

REBALANCED = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""A commit came too late or too early, because the group is rebalancing. Nothing is lost: what was not committed comes
again, to this member or to another.
"""

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """Turns errors of kafka-python and of the network into the port's; the port's own errors pass through.

    Wrong credentials and missing permissions are "not now" too: an operator can mend them, and a worker that waits
    meanwhile loses nothing.
    """
    try:
        yield
    except QueueError:
        raise
    except _TOO_LARGE as error:
        raise MessageRefusedError(f"{place}: {describe(error)}") from error
    except IllegalStateError as error:
        raise QueueError(f"{place}: used after it was closed: {describe(error)}") from error
    except (KafkaError, OSError) as error:
        raise QueueUnavailableError(f"{place}: {describe(error)}") from error


def describe(error: Exception) -> str:
    """An error in one line. Errors of kafka-python often have a name and nothing else, or the text `None`."""
    text = " ".join(str(error).split()).removesuffix(": None")
    name = type(error).__name__
    return text if name in text else f"{name}: {text}" if text else name
