"""When it is time again for what a loop does every so often."""

from collections.abc import Callable


class Rounds:
    """Says when it is time again; the first time comes after `every_s`. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float], every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._last_s = clock()

    def due(self) -> bool:
        now_s = self._clock()
        if now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True
