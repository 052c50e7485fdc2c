"""Turns: a message does not wait behind the many messages of another user.

The first messages of a sender are tried as they come. If one poll brings more of one sender, the rest wait here. While
they do, later messages of that sender wait too. They are taken between the polls, in small portions, senders in turn.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from workers.pipeline.lots import Item

Body = TypeVar("Body")


class Turns(Generic[Body]):
    """Messages that wait for their turn. Each sender's are taken in the order in which they came.

    sender: the sender of a message, as a number.
    as_they_come: up to this many messages of one sender per poll are tried as they come, 1 or more.
    portion: how many messages are taken at once, 1 or more. Messages that are polled meanwhile wait for them.
    """

    def __init__(self, sender: Callable[[Body], int], as_they_come: int, portion: int) -> None:
        self._sender = sender
        self._as_they_come = as_they_come
        self._portion = portion
        self._waiting: OrderedDict[int, deque[Item[Body]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Item[Body]]:
        for items in self._waiting.values():
            yield from items

    def admit(self, items: Sequence[Item[Body]]) -> list[Item[Body]]:
        """Returns the messages of a poll that are to be tried now. The others wait."""
        senders = [self._sender(item.body) for item in items]
        if not self._waiting and max(Counter(senders).values(), default=0) <= self._as_they_come:
            return list(items)  # the usual case, in a third of the time
        now: list[Item[Body]] = []
        counts: Counter[int] = Counter()
        for item, sender in zip(items, senders, strict=True):
            counts[sender] += 1
            if sender in self._waiting or counts[sender] > self._as_they_come:
                self._waiting.setdefault(sender, deque()).append(item)
            else:
                now.append(item)
        return now

    def take(self) -> list[Item[Body]]:
        """Removes and returns the next messages, a portion at most: as many of each sender, if they have them."""
        taken: list[Item[Body]] = []
        while self._waiting and len(taken) < self._portion:
            each = max(1, (self._portion - len(taken)) // len(self._waiting))
            for sender in list(self._waiting)[: self._portion - len(taken)]:
                items = self._waiting[sender]
                taken += [items.popleft() for _ in range(min(each, len(items)))]
                if items:
                    self._waiting.move_to_end(sender)
                else:
                    del self._waiting[sender]
        return taken
