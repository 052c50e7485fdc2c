"""In which order requests begin if many come at once: the networks of their clients take turns."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 8
"""Requests that begin in one round of an event loop. A long page takes it a millisecond or two, in which it neither
accepts nor answers anybody else.
"""


Begin = Callable[[], bool]


class RequestTurns:
    """Used by one event loop. soon: calls back in the loop's next round."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._left = AT_ONCE
        self._counting = False
        self._waiting: OrderedDict[str, deque[Begin]] = OrderedDict()

    def now(self) -> bool:
        """Whether a request may begin at once, which it does then."""
        if not self._left or self._waiting:
            return False
        self._left -= 1
        self._count()
        return True

    def later(self, network: str, begin: Begin) -> None:
        """Begins a request in its turn. begin: says whether it did; if not, the turn is another one's."""
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
