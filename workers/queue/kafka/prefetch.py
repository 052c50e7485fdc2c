"""Messages that were fetched and not yet polled: bounded, and handed out to every partition in turn."""

from collections import deque
from collections.abc import Iterable

from workers.queue.port import Message, PollBudget


class PrefetchBuffer:
    """The messages that one member has fetched ahead. count and size: how many there are, and their bytes."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Message]] = {}
        self._turns: deque[int] = deque()  # partitions that have messages, the next one first
        self.count = 0
        self.size = 0

    def add(self, partition: int, messages: Iterable[Message]) -> None:
        waiting = self._waiting.setdefault(partition, deque())
        if not waiting and partition not in self._turns:
            self._turns.append(partition)
        for message in messages:
            waiting.append(message)
            self.count += 1
            self.size += len(message.value)

    def of(self, partition: int) -> int:
        """How many messages of a partition there are."""
        return len(self._waiting.get(partition, ()))

    def take(self, limit: int) -> list[Message]:
        """Removes and returns the messages of one poll. The next poll begins with another partition, so that none waits
        behind a busy one.
        """
        taken: list[Message] = []
        room = PollBudget(limit)
        for _ in range(len(self._turns)):
            partition = self._turns.popleft()
            waiting = self._waiting[partition]
            taken += [waiting.popleft() for _ in range(room.let_in(message.value for message in waiting))]
            if waiting:
                self._turns.append(partition)
            if room.is_full:
                break
        self.count -= len(taken)
        self.size -= sum(len(message.value) for message in taken)
        return taken

    def drop(self, partition: int) -> None:
        """Forgets a partition that was given up."""
        waiting = self._waiting.pop(partition, deque())
        self.count -= len(waiting)
        self.size -= sum(len(message.value) for message in waiting)
        if partition in self._turns:
            self._turns.remove(partition)
