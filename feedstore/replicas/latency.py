"""How long a cluster's recent reads took."""

from collections import deque

WINDOW = 256
"""How many of the latest reads count."""
_KNOWN_FROM = 20


class Latency:
    """The 95th percentile of the latest reads. Not thread-safe."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=WINDOW)

    def add(self, took_s: float) -> None:
        self._took.append(took_s)

    def p95_s(self) -> float | None:
        """None until there are enough reads. It sorts: do not call it for every read."""
        if len(self._took) < _KNOWN_FROM:
            return None
        ordered = sorted(self._took)
        return ordered[int(0.95 * len(ordered))]
