"""The order in which requests begin if many come at once: the networks of their clients take turns."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 8
"""The most requests that begin in one round of an event loop. A long page takes a millisecond or two, in which the loop
neither accepts nor answers other clients.
"""


Begin = Callable[[], bool]


class RequestTurns:
    """Lets requests begin in turn. Used by one event loop. soon: calls a function in the loop's next round."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._left = AT_ONCE
        self._counting = False
        self._waiting: OrderedDict[str, deque[Begin]] = OrderedDict()

    def now(self) -> bool:
        """Whether a request may begin at once. If so, it is counted, and the caller begins it."""
        if not self._left or self._waiting:
            return False
        self._left -= 1
        self._count()
        return True

    def later(self, network: str, begin: Begin) -> None:
        """Calls `begin` when the network has its turn. begin: begins the request, and returns whether it did; if not,
        another one gets the turn.
        """
        self._waiting.setdefault(network, deque()).append(begin)
        self._count()

    def _count(self) -> None:
        if not self._counting:
            self._counting = True
            self._soon(self._next_round)

    def _next_round(self) -> None:
        self._counting = False
        self._left = AT_ONCE
        while self._left and self._waiting:
            network, each = self._waiting.popitem(last=False)
            begin = each.popleft()
            if each:
                self._waiting[network] = each
            if begin():
                self._left -= 1
                self._count()
