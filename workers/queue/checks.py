"""Rules of every adapter: what it refuses, in the same words, and how much one poll may return."""

from collections.abc import Iterable, Mapping, Sequence

from workers.queue.port import MAX_MESSAGE_BYTES, MAX_POLL_BYTES, MessageRefusedError, Topic

MAX_PARTITIONS = 1_024


def check_partitions(partitions: Mapping[Topic[object], int]) -> None:
    """Raises ValueError unless there are topics, and each is given 1..MAX_PARTITIONS partitions."""
    if not partitions:
        raise ValueError("partitions: expected a number for each topic, got none")
    for topic, count in partitions.items():
        if not 1 <= count <= MAX_PARTITIONS:
            raise ValueError(f"partitions of {topic}: expected 1 to {MAX_PARTITIONS}, got {count}")


def check_partition(topic: str, partition: int, partitions: int) -> None:
    """Raises ValueError where a topic has no such partition."""
    if not 0 <= partition < partitions:
        raise ValueError(f"partition of {topic}: expected 0 to {partitions - 1}, got {partition}")


def check_position(topic: str, partition: int, position: int, end: int) -> None:
    """Raises ValueError where a group would commit what was never published."""
    if not 0 <= position <= end:
        raise ValueError(f"position of {topic}/{partition}: expected 0 to {end}, got {position}")


def check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")


def refuse_oversized(topic: str, values: Sequence[bytes]) -> None:
    """Raises MessageRefusedError where a message is over MAX_MESSAGE_BYTES."""
    largest = max(map(len, values), default=0)
    if largest > MAX_MESSAGE_BYTES:
        raise MessageRefusedError(f"{topic}: a message of {largest} bytes, at most {MAX_MESSAGE_BYTES} are taken")


class PollBudget:
    """The room of a poll: `limit` messages of MAX_POLL_BYTES together, or a single one that is larger."""

    def __init__(self, limit: int) -> None:
        self._messages = limit
        self._bytes = MAX_POLL_BYTES
        self._is_whole = True

    @property
    def is_full(self) -> bool:
        """True once no message was let in, or none can be any more."""
        return self._messages <= 0

    def let_in(self, values: Iterable[bytes]) -> int:
        """How many of the next messages, from the first on, this poll returns too."""
        count = 0
        for value in values:
            if len(value) > self._bytes and not self._is_whole:
                self._messages = 0
            if self._messages <= 0:
                break
            count += 1
            self._messages -= 1
            self._bytes -= len(value)
            self._is_whole = False
        return count
