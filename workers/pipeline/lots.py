"""The messages that a stage has polled and not committed yet, in the order in which they were polled.

A position is committed only when every message before it is done (rule 11). A tick is fired only when every message
before it is done (rule 10).
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from workers.pipeline.ticks import Tick
from workers.queue.port import Malformed, Message

Body = TypeVar("Body")

MAX_LOTS = 100
"""The most lots that are kept apart. Each may hold a tick of every pair of partitions."""


@dataclass(eq=False, slots=True)
class Lot:
    """One poll, or several that were merged. It is committed as a whole, once none of its items waits.

    spans: for each partition, the offset of its first message and that after its last one.
    waiting: how many of its items are not done.
    ticks: the newest one of each source, by (partition, source, sources).
    progressed: whether one of its items was handled.
    """

    spans: dict[int, tuple[int, int]]
    ticks: dict[tuple[int, int, int], Tick] = field(default_factory=dict)
    waiting: int = 0
    progressed: bool = False
    merged_into: "Lot | None" = None


@dataclass(eq=False, slots=True)
class Taken:
    """A body of a message that is not done: as it was polled, or divided into several items.

    partition, offset: the place of the message. value: the bytes of the message if the body is all of it and was not
    divided; None if not, because one body that waits for days must not keep all others of its message in memory. size:
    the bytes that it counts while one of its items waits. waiting: how many of its items are not done.
    """

    partition: int
    offset: int
    value: bytes | None
    size: int
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Item(Generic[Body]):
    """A body of a message that is not done, or a part of one.

    number: its place in the order of polling. faults: how often it failed alone, because of its own error.
    """

    number: int
    lot: Lot
    taken: Taken
    body: Body
    faults: int = 0


class Lots:
    """All lots of a stage. It counts the items that wait, and their bytes. Each of several bodies of a message counts
    an equal part of its bytes. most_items, most_size: above these there is no room for more.
    """

    def __init__(self, most_items: int, most_size: int) -> None:
        self._lots: deque[Lot] = deque()
        self._numbers = itertools.count()
        self._most_items, self._most_size = most_items, most_size
        self.items = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._lots)

    def __iter__(self) -> Iterator[Lot]:
        return iter(self._lots)

    def has_room(self, times: int = 1) -> bool:
        """Whether `times` as much as waits now would still fit."""
        return self.items * times < self._most_items and self.size * times < self._most_size

    def begin(self, messages: Iterable[Message]) -> Lot:
        """A new lot at the end, for the messages of one poll."""
        spans: dict[int, tuple[int, int]] = {}
        for message in messages:
            first, _ = spans.get(message.partition, (message.offset, 0))
            spans[message.partition] = first, message.offset + 1
        lot = Lot(spans)
        self._lots.append(lot)
        return lot

    def done_spans(self) -> dict[int, tuple[int, int]]:
        """The messages of each partition that are done, with everything before them: the first offset and the one after
        the last message.
        """
        self._merge()
        spans: dict[int, tuple[int, int]] = {}
        for lot in self._done():
            _join(spans, lot.spans)
        return spans

    def take_all(
        self, lot: Lot, message: Message, bodies: Sequence[Body | Tick | Malformed]
    ) -> tuple[list[Item[Body]], list[Item[Malformed]]]:
        """Takes all bodies of a message: returns those that are to be done, and those that cannot be decoded."""
        work: list[Body] = []
        malformed: list[Malformed] = []
        for body in bodies:
            if isinstance(body, Tick):
                _note(lot.ticks, (message.partition, body.source, body.sources), body)
            elif isinstance(body, Malformed):
                malformed.append(body)
            else:
                work.append(body)
        items = self.take(lot, message, work, whole=len(bodies) == 1)
        return items, self.take(lot, message, malformed, whole=False) if malformed else []

    def take(self, lot: Lot, message: Message, bodies: Sequence[Body], *, whole: bool) -> list[Item[Body]]:
        """The items of a message, one for each of its bodies. The message is done once all of them are. whole: whether
        one body is the whole message.
        """
        partition, offset, value = message
        size, kept = (len(value), value) if whole else (-(-len(value) // max(1, len(bodies))), None)
        items = [
            Item(number, lot, Taken(partition, offset, kept, size, 1), body)
            for body, number in zip(bodies, self._numbers, strict=False)
        ]
        lot.waiting += len(items)
        self.items += len(items)
        self.size += size * len(items)
        return items

    def part(self, item: Item[Body], body: Body) -> Item[Body]:
        """A second item, for a part that was taken from the first. The message is done once both are."""
        lot, taken = _merged(item.lot), item.taken
        item.lot = lot
        taken.value = None
        lot.waiting += 1
        taken.waiting += 1
        self.items += 1
        return Item(item.number, lot, taken, body)

    def done(self, item: Item[Any]) -> None:
        """Notes that an item is done: its effect is durable, or it is parked or in the dead letters."""
        lot, taken = item.lot, item.taken
        if lot.merged_into is not None:
            lot = item.lot = _merged(lot)
        lot.waiting -= 1
        taken.waiting -= 1
        self.items -= 1
        if not taken.waiting:
            self.size -= taken.size

    def settle(self, ticks: Callable[[Sequence[tuple[int, Tick]]], bool]) -> dict[int, int]:
        """Fires the ticks of the lots at the front that are done, and returns the positions to commit.

        ticks: fires ticks, each with its partition; False if they must be fired later. The first lot whose ticks were
            not fired, and all lots after it, are not committed: a tick that is committed does not come again.
        The lots stay until `committed` is called: a commit may fail.
        """
        self._merge()
        done = self._done()
        waiting = [(partition, tick) for lot in done for (partition, _, _), tick in lot.ticks.items()]
        if waiting:
            if ticks(waiting):
                for lot in done:
                    lot.ticks.clear()
            else:
                done = list(itertools.takewhile(lambda lot: not lot.ticks, done))
        positions: dict[int, int] = {}
        for lot in done:
            positions |= {partition: end for partition, (_, end) in lot.spans.items()}
        return positions

    def committed(self) -> None:
        """Notes that the positions that `settle` returned are committed."""
        while self._lots and not self._lots[0].waiting and not self._lots[0].ticks:
            self._lots.popleft()

    def _done(self) -> list[Lot]:
        return list(itertools.takewhile(lambda lot: not lot.waiting, self._lots))

    def _merge(self) -> None:
        """Merges lots that need not be kept apart, so that memory is bounded while one message waits for days.

        A lot that is done is merged into the one before it, if that cannot be committed now. Only the first lot with
        ticks is kept apart: while its ticks cannot be noted, the messages before them may still be committed.
        Neighbours are merged if there are more than MAX_LOTS: that only makes commits later.
        """
        kept: deque[Lot] = deque()
        for lot in self._lots:
            before = kept[-1] if kept else None
            if before is not None and not lot.waiting and (before.ticks or (before.waiting and not lot.ticks)):
                _merge_into(before, lot)
            else:
                kept.append(lot)
        if len(kept) > MAX_LOTS:
            lots = list(kept)
            for before, lot in zip(lots[::2], lots[1::2], strict=False):  # the last of an odd number stays as it is
                _merge_into(before, lot)
            kept = deque(lots[::2])
        self._lots = kept


def _merged(lot: Lot) -> Lot:
    while lot.merged_into is not None:
        lot = lot.merged_into
    return lot


def _merge_into(before: Lot, lot: Lot) -> None:
    _join(before.spans, lot.spans)
    before.waiting += lot.waiting
    before.progressed |= lot.progressed
    for key, tick in lot.ticks.items():
        _note(before.ticks, key, tick)
    # Items may refer to the merged lot for as long as they wait: it must not keep its ticks in memory.
    lot.spans, lot.ticks, lot.merged_into = {}, {}, before


def _join(spans: dict[int, tuple[int, int]], later: Mapping[int, tuple[int, int]]) -> None:
    for partition, (first, end) in later.items():
        spans[partition] = (min(first, spans.get(partition, (first, end))[0]), end)


def _note(ticks: dict[tuple[int, int, int], Tick], key: tuple[int, int, int], tick: Tick) -> None:
    """Notes a tick. It replaces an older tick of the same source."""
    known = ticks.get(key)
    if known is None or tick.settled_ms >= known.settled_ms:
        ticks[key] = tick
