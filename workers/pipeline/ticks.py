"""Ticks: how far a source of messages is."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from workers.queue.port import Queue, Topic

Ms = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class Tick(msgspec.Struct, frozen=True, tag_field="type", tag="tick", omit_defaults=True):
    """Everything that committed before `settled_ms` precedes this message in its partition (rule 10).

    source: the partition of the first topic that it came through, of `sources` partitions.
    partitions: how many partitions of the second topic it was published to. None on the first topic, and on the second
        if it comes from an earlier program.
    """

    settled_ms: Ms
    source: Annotated[int, Meta(ge=0)]
    sources: Annotated[int, Meta(ge=1)]
    partitions: Annotated[int, Meta(ge=1)] | None = None


class KnownPartitions:
    """The partitions that ticks come through. Their number only grows, unless the topic was made again. So the queue is
    asked for it only if a tick says that there are more than were known: otherwise a queue that is away would hold up
    its readers.
    """

    def __init__(self, queue: Queue, first: Topic[Any], second: Topic[Any] | None = None) -> None:
        """second: None for a reader of the first topic."""
        self._queue = queue
        self._topics = (first,) if second is None else (first, second)
        self._known = [0] * len(self._topics)

    def had(self, tick: Tick) -> bool:
        """Whether the tick came through a partition that exists. If not, the tick says nothing, and a reader must not
        keep its numbers: a watermark would wait for ever for partitions that never existed.

        Raises QueueUnavailableError: the queue cannot be asked how many there are.
        """
        if tick.source >= tick.sources:
            return False
        if not self._are_known(tick):
            self._ask()
        return self._are_known(tick)

    def are_fewer(self, sources: int) -> bool:
        """Whether the first topic has fewer partitions than that now, because it was made again. Asks the queue, so
        call it only if a tick says so; from then on `had` knows it too. Raises QueueUnavailableError.
        """
        self._ask()
        return self._known[0] < sources

    def _ask(self) -> None:
        self._known = [self._queue.partitions(topic) for topic in self._topics]

    def _are_known(self, tick: Tick) -> bool:
        needed = (tick.sources, tick.partitions or 1)[: len(self._topics)]
        return all(wanted <= known for wanted, known in zip(needed, self._known, strict=True))


class Settled:
    """The settled time by all ticks that one reader has met, in all partitions of the first topic, or by those that
    came through one partition of the second. The reader must begin with a new object after a gap, and if the first
    topic was made again with fewer partitions.

    sources: the largest number of partitions of the first topic that a tick named; 0 before the first tick.
    """

    def __init__(self) -> None:
        self._by_source: dict[int, int] = {}
        self.sources = 0

    def note(self, tick: Tick) -> None:
        """Notes that the reader has done all that precedes the tick in its partition."""
        self._by_source[tick.source] = max(tick.settled_ms, self._by_source.get(tick.source, 0))
        self.sources = max(tick.sources, self.sources)

    def latest_ms(self) -> int:
        """The latest time of a tick; 0 before the first one."""
        return max(self._by_source.values(), default=0)

    def settled_ms(self) -> int | None:
        """A time such that the reader has done everything that committed before it and was published in what it reads;
        None until a tick has come through every partition.
        """
        if not self._by_source or len(self._by_source) < self.sources:
            return None
        return min(self._by_source.values())
