"""How long it takes until the last follower of a large fanout has the pin."""

from collections.abc import Callable, Sequence
from typing import Final

from feedstore.domain import PinSaved
from feedstore.metering import Meter
from workers.following import metrics
from workers.following.messages import Delivery
from workers.following.packs import Pack

MOST: Final = 1_000
"""So many are followed to their end at once; the others are not counted."""


class LargeFanouts:
    """The fanouts of one cluster that are under way, as far as this process writes them. A fanout is large if it has a
    full page of followers. Its last follower has the pin for certain once the watermark has passed its commit.

    chunk: how many followers are on a page.
    """

    def __init__(self, meter: Meter, cluster: str, chunk: int) -> None:
        self._meter = meter
        self._cluster = cluster
        self._chunk = chunk
        self._committed_ms: set[int] = set()
        meter.observe(metrics.FANOUT_SECONDS, [], cluster)

    def landed(self, messages: Sequence[Delivery | Pack]) -> None:
        for message in messages:
            self._committed_ms.update(self._large(message)[: MOST - len(self._committed_ms)])

    def _large(self, message: Delivery | Pack) -> list[int]:
        """When the saved pins of a message's large fanouts committed."""
        if isinstance(message, Pack):
            return message.large_saves(self._chunk)
        is_large = message.puts and len(message.puts[0].rows) >= self._chunk
        return [message.action.committed_ms] if is_large and isinstance(message.action, PinSaved) else []

    def ticked(self, watermark: Callable[[], int | None], now_ms: Callable[[], int]) -> None:
        """Ticks have come through: the watermark may have moved. It is asked only if a fanout is under way."""
        if not self._committed_ms:
            return
        mark = watermark() or 0
        passed = [ms for ms in self._committed_ms if ms < mark]
        if passed:
            now = now_ms()
            self._committed_ms.difference_update(passed)
            self._meter.observe(metrics.FANOUT_SECONDS, [(now - ms) / 1_000 for ms in passed], self._cluster)
