"""What one poll may return, kept in the same way by every adapter."""

from collections.abc import Iterable

from workers.queue.port import MAX_POLL_BYTES


class PollBudget:
    """What a poll may still take: `limit` messages of MAX_POLL_BYTES together, or a single one that is larger."""

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
