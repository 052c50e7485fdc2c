"""Messages that were fetched and not yet polled: bounded, and handed out to every partition in turn."""

from collections import deque
from collections.abc import Iterable

from workers.queue.port import Message


class Ahead:
    """What one member has fetched ahead. count and size: how many messages there are, and their bytes."""

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
        """Up to `limit` messages; another partition is first the next time, so that none waits behind a busy one."""
        taken: list[Message] = []
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            waiting = self._waiting[partition]
            while waiting and len(taken) < limit:
                taken.append(waiting.popleft())
            self._turns.popleft()
            if waiting:
                self._turns.append(partition)
            if len(taken) >= limit:
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
