"""How long a cluster's reads took lately."""

from collections import deque

WINDOW = 256
"""How many of the latest reads count."""
_KNOWN_FROM = 20
_LOOK_AGAIN = 32


class Latency:
    """The 95th percentile of the latest reads. Not thread-safe."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=WINDOW)
        self._new = 0
        self._p95: float | None = None

    def add(self, took_s: float) -> None:
        self._took.append(took_s)
        self._new += 1

    def p95_s(self) -> float | None:
        """None until there are enough reads to tell. Sorted anew once in a while, not for every read."""
        if len(self._took) < _KNOWN_FROM:
            return None
        if self._p95 is None or self._new >= _LOOK_AGAIN:
            ordered = sorted(self._took)
            self._p95 = ordered[int(0.95 * len(ordered))]
            self._new = 0
        return self._p95
