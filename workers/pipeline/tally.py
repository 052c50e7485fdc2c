"""The counts of a stage's work."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from feedstore.errors import NotNowError
from feedstore.metering import Meter
from workers.pipeline import metrics
from workers.pipeline.ticks import Settled, Tick

TELL_EVERY_S: Final = 1.0
"""The gauges of what waits are updated at most this often."""

_REASONS: Final = frozenset(next(label.values for label in metrics.DEAD.labels if label.name == "reason"))


class Tally:
    """Counts the work of one stage. group, clock: the stage's. wall_ms: ms since 1970. held: which partitions the stage
    reads now.
    """

    def __init__(
        self,
        meter: Meter,
        group: str,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        held: Callable[[], Collection[int]],
    ) -> None:
        self._meter = meter
        self._group = group
        self._clock = clock
        self._wall_ms = wall_ms
        self._held = held
        # All begin with 0, so that the first of a kind is seen as an increase.
        for outcome in ("done", "parked", "dead"):
            meter.add(metrics.MESSAGES, 0, group, outcome)
        for reason in ("unavailable", "fault"):
            meter.add(metrics.RETRIES, 0, group, reason)
        for reason in _REASONS:
            meter.add(metrics.DEAD, 0, group, reason)
        for histogram in (metrics.BATCH, metrics.HANDLE_SECONDS):
            meter.observe(histogram, [], group)
        self._told_s = clock() - TELL_EVERY_S
        self._settled: defaultdict[int, Settled] = defaultdict(Settled)  # by the partition that ticks came through

    def polled(self, size: int) -> None:
        self._meter.add(metrics.LOTS, 1, self._group)
        self._meter.add(metrics.BYTES, size, self._group)

    def handled(self, messages: int, began_s: float, error: BaseException | None) -> None:
        self._meter.observe(metrics.BATCH, [messages], self._group)
        self._meter.observe(metrics.HANDLE_SECONDS, [self._clock() - began_s], self._group)
        if error is not None:
            reason = "unavailable" if isinstance(error, NotNowError) else "fault"
            self._meter.add(metrics.RETRIES, 1, self._group, reason)

    def done(self, messages: int) -> None:
        self._meter.add(metrics.MESSAGES, messages, self._group, "done")

    def parked(self, messages: int) -> None:
        self._meter.add(metrics.MESSAGES, messages, self._group, "parked")

    def dead(self, reason: str) -> None:
        self._meter.add(metrics.MESSAGES, 1, self._group, "dead")
        self._meter.add(metrics.DEAD, 1, self._group, reason if reason in _REASONS else "other")

    def ticked(self, ticks: Sequence[tuple[int, Tick]]) -> None:
        """Notes that everything before these ticks, each with its partition, is done."""
        now_s, now_ms = self._clock(), self._wall_ms()
        for partition, tick in ticks:
            settled = self._settled[partition]
            # Through a partition of the first topic, only the ticks of that partition come.
            own = replace(tick, sources=1) if tick.partitions is None else tick
            if own.sources < settled.sources and own.settled_ms > settled.latest_ms():
                # The topic was made again with fewer partitions. Ticks from before partitions were added are earlier.
                settled = self._settled[partition] = Settled()
            settled.note(own)
        for partition in {partition for partition, _ in ticks}:
            # If the partition was gained just now, a source that has not been heard of may be stuck.
            if (settled_ms := self._settled[partition].settled_ms()) is not None:
                ago_s = (now_ms - settled_ms) / 1_000
                self._meter.since(metrics.BEHIND, now_s - ago_s, self._group, str(partition))

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in list(partitions):
            self._settled.pop(partition, None)
            self._meter.forget(metrics.BEHIND, self._group, str(partition))

    def waits(self, messages: int, size: int, failing_since_s: Callable[[], Iterable[float]]) -> None:
        """Notes what is polled and not done. failing_since_s: when the first failed attempt of waiting ones began."""
        now_s = self._clock()
        if now_s - self._told_s < TELL_EVERY_S:
            return
        self._told_s = now_s
        self._meter.note(metrics.WAITING, messages, self._group)
        self._meter.note(metrics.WAITING_BYTES, size, self._group)
        self._meter.since(metrics.RETRYING, min(failing_since_s(), default=None), self._group)
        self._forget(self._settled.keys() - self._held())

    def closed(self) -> None:
        """Removes the gauges: the stage has ended, and how much waits is unknown from now on."""
        for gauge in (metrics.WAITING, metrics.WAITING_BYTES, metrics.RETRYING):
            self._meter.forget(gauge, self._group)
        self._forget(self._settled)
