"""Which parts of a store are away, and what waits for them.

The rows of a store are shared out over *slots* (the first byte of a row key, say). A message needs the slots of its
rows. When messages fail together because something is unavailable, an `Isolation` tries them slice by slice. The slots
of a slice that fails have an *outage*: messages that need them wait in it without an attempt, so that no other message
waits behind them. Now and then a few of these are tried; if they succeed, the outage ends. If nothing can be done at
all, the whole store has an outage.

Time is an argument everywhere; nothing here calls a store.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from workers.pipeline.lots import Item, Lots

Body = TypeVar("Body")

SLICES = 16
"""The slots of a store are divided into this many slices to find those that are away."""
MAX_FAILED = 3
"""The whole store counts as away once this many slices have failed and none has succeeded."""
MAX_SLICES = 64
"""Messages that cannot be divided are grouped by the combination of slices that they need. Beyond this many groups, all
others are tried as one."""


class Slots(Protocol[Body]):
    """Tells which slots a message needs.

    count: the slots of the store are 0..count-1. Larger numbers name other things that a message may need, such as a
        table for notes or another store; each of them is a slice of its own.
    """

    @property
    def count(self) -> int: ...

    def needed(self, body: Body) -> frozenset[int]:
        """The slots that the message needs; empty if it needs none."""

    def divided(self, body: Body, slots: frozenset[int]) -> tuple[Body, Body] | None:
        """Divides a message into the part that needs the given slots, which are some of its own, and the rest. Together
        they do what the message does. None if it cannot be divided.
        """

    def halved(self, body: Body) -> tuple[Body, Body] | None:
        """Divides a message that failed into two that together do the same. None if it cannot be divided."""


@dataclass(eq=False)
class Group(Generic[Body]):
    """Items that are tried together.

    failures: how often they failed because something was unavailable. since_s: when the first attempt that failed
    began. at_the_latest_s: if they came before they were due, the time at which they are tried in any case.
    """

    items: list[Item[Body]]
    failures: int = 0
    since_s: float | None = None
    at_the_latest_s: float | None = None


@dataclass(eq=False)
class Isolation(Generic[Body]):
    """Slices of items that failed together, tried one after the other to find what is away.

    failures: how often the items had failed before. give_up: the store counts as away once this many slices have failed
        and none has succeeded.
    """

    untried: list[Group[Body]]  # the last one is tried first
    since_s: float
    failures: int
    give_up: int = MAX_FAILED
    failed: list[Group[Body]] = field(default_factory=list)
    healthy: set[int] = field(default_factory=set)
    succeeded: bool = False

    def over(self) -> bool:
        return not self.untried or self.nothing_works()

    def nothing_works(self) -> bool:
        return not self.succeeded and len(self.failed) >= self.give_up

    def items(self) -> list[Item[Body]]:
        """Every item that is not done."""
        return [item for group in (*self.untried, *self.failed) for item in group.items]


@dataclass(eq=False)
class Outage(Generic[Body]):
    """Slots that are away, or the whole store.

    slots: empty for the whole store. items: the messages that wait. An outage may outlast them: whether its slots work
    again is only known when a message that needs them is tried. since_s: when the first attempt that failed began.
    tried_s: when the first failed attempt of an item that waits now began; None if none of them was tried. due_s: when
    it is tried again. width: how many slots are tried then; it doubles as long as they work.
    """

    slots: frozenset[int]
    since_s: float
    failures: int
    due_s: float
    items: list[Item[Body]] = field(default_factory=list)
    width: int = 1
    tried_s: float | None = None

    def join(self, items: Iterable[Item[Body]], tried_s: float | None) -> None:
        """Adds items, which wait here from now on. tried_s: when their first attempt that failed began."""
        if not self.items:
            self.tried_s = tried_s
        elif tried_s is not None:
            self.tried_s = tried_s if self.tried_s is None else min(self.tried_s, tried_s)
        self.items += items


@dataclass(eq=False)
class Probe(Generic[Body]):
    """A few of an outage's items, taken from it to be tried. slots: if it succeeds, these slots work. tried_s: the
    outage's `tried_s` when they were taken.
    """

    outage: Outage[Body]
    slots: frozenset[int]
    items: list[Item[Body]]
    tried_s: float | None


class Outages(Generic[Body]):
    """Every outage that a stage knows of. A slot is in one outage at most.

    lots: where the parts of items are counted.
    """

    def __init__(self, slots: Slots[Body], lots: Lots, rng: random.Random) -> None:
        self._slots = slots
        self._lots = lots
        self._rng = rng
        self._by_slot: dict[int, Outage[Body]] = {}
        self._outages: list[Outage[Body]] = []
        self.whole: Outage[Body] | None = None

    def __iter__(self) -> Iterator[Outage[Body]]:
        if self.whole is not None:
            yield self.whole
        yield from self._outages

    def split(self, item: Item[Body], slots: frozenset[int] | None) -> Item[Body] | None:
        """Splits off the part of an item that needs some slots, or a half if none are given; the item keeps the rest.
        None if that is impossible: the item is then as it was.
        """
        parts = self._slots.halved(item.body) if slots is None else self._slots.divided(item.body, slots)
        if parts is None:
            return None
        part, item.body = parts
        return self._lots.part(item, part)

    def needed(self, items: Sequence[Item[Body]]) -> frozenset[int]:
        """The slots that these items need."""
        return frozenset().union(*(self._slots.needed(item.body) for item in items))

    def admit(self, items: Sequence[Item[Body]], tried_s: float | None) -> list[Item[Body]]:
        """Puts items that need a slot that is away into its outage; returns the others. tried_s: when their first
        attempt that failed began; None if they were not tried.
        """
        if self.whole is not None:
            self.whole.join(items, tried_s)
            return []
        if not self._by_slot:
            return list(items)
        free: list[Item[Body]] = []
        for item in items:
            needed = self._slots.needed(item.body)
            # The outages of its slots, each once, in the order of the slots.
            for outage in dict.fromkeys(each for slot in sorted(needed) if (each := self._by_slot.get(slot))):
                taken = outage.slots & needed
                if not taken:
                    continue
                if taken == needed or (part := self.split(item, taken)) is None:
                    outage.join([item], tried_s)
                    break
                outage.join([part], tried_s)
                needed = self._slots.needed(item.body)
            else:
                free.append(item)
        return free

    def slices(self, items: Sequence[Item[Body]]) -> list[Group[Body]]:
        """Sorts items into slices. As far as items can be divided, no two slices need the same slots."""
        found: dict[tuple[int, ...], list[Item[Body]]] = {}
        for item in items:
            by_slice: dict[int, set[int]] = {}
            for slot in self._slots.needed(item.body):
                by_slice.setdefault(self._slice(slot), set()).add(slot)
            numbers = sorted(by_slice)
            while len(numbers) > 1 and (part := self.split(item, frozenset(by_slice[numbers[0]]))) is not None:
                found.setdefault((numbers.pop(0),), []).append(part)
            # An item that cannot be divided is tried with those that need the same slices: among others, one slice that
            # is away would make all of them look away.
            key = tuple(numbers)
            found.setdefault(key if key in found or len(found) < MAX_SLICES else (), []).append(item)
        groups = [Group(each) for each in found.values()]
        self._rng.shuffle(groups)
        return groups

    def ended(self, isolation: Isolation[Body], now_s: float, wait_s: Callable[[int], float]) -> list[Group[Body]]:
        """Begins the outages that an isolation has found. Returns items that need no outage's slots, to be tried again
        as messages that failed.

        wait_s: how long to wait, given the number of failures.
        """
        failures = isolation.failures + 1
        one_slice = len(isolation.failed) + len(isolation.untried) == 1
        if isolation.nothing_works() and (self.whole is not None or not one_slice):
            self._begin_whole(isolation.items(), isolation.since_s, failures, now_s + wait_s(failures))
            return []
        left: list[Group[Body]] = []
        for group in isolation.failed:
            slices = {self._slice(slot) for slot in self.needed(group.items) - isolation.healthy}
            slots = (slot for number in slices for slot in self._slots_in(number))
            away = frozenset(slot for slot in slots if slot not in self._by_slot and slot not in isolation.healthy)
            if away:
                self._begin(away, isolation.since_s, failures, now_s + wait_s(failures))
            group.failures, group.since_s = failures, isolation.since_s
            group.items = self.admit(group.items, isolation.since_s)
            if group.items:
                left.append(group)
        return left

    def due_s(self) -> float:
        """When the next outage is to be tried; infinite if nothing waits in any."""
        return min((outage.due_s for outage in self if outage.items), default=math.inf)

    def take_due(self, now_s: float, limit: int) -> Isolation[Body] | Probe[Body] | None:
        """The next attempt for the outage that has been due for longest: at most `limit` items, which need a few of its
        slots. None if no outage is due.
        """
        outage = min(
            (each for each in self if each.items and each.due_s <= now_s), key=attrgetter("due_s"), default=None
        )
        if outage is None:
            return None
        if outage is self.whole:
            self._rng.shuffle(outage.items)
            items, outage.items = outage.items[:limit], outage.items[limit:]
            return Isolation(self.slices(items), outage.since_s, outage.failures, give_up=1)
        return self._probe(outage, limit)

    def worked(self, probe: Probe[Body], now_s: float) -> list[Item[Body]]:
        """Notes that a probe's items are done: the outage of its slots ends. Every other outage is tried soon, because
        it may be over too. Returns the items that no outage holds any more.
        """
        outage = probe.outage
        for each in self._outages:
            each.due_s = min(each.due_s, now_s)
        outage.width *= 2
        self._close(outage, probe.slots)
        items, outage.items = outage.items, []
        return self.admit(items, outage.tried_s)

    def failed(self, probe: Probe[Body], began_s: float, now_s: float, wait_s: Callable[[int], float]) -> None:
        """Notes that a probe has failed: its items wait again, and the next probe is small. began_s: when it began."""
        outage = probe.outage
        outage.join(probe.items, began_s if probe.tried_s is None else probe.tried_s)
        outage.failures += 1
        outage.due_s = now_s + wait_s(outage.failures)
        outage.width = 1

    def answered(self) -> list[Item[Body]]:
        """Notes that the store did something: it is not away as a whole. Returns the items that waited for it."""
        if self.whole is None:
            return []
        items, self.whole = self.whole.items, None
        return items

    def drop(self, items: Iterable[Item[Body]]) -> None:
        """Forgets items that were done outside of their outage."""
        gone = set(items)
        for outage in self:
            outage.items = [item for item in outage.items if item not in gone]

    def _probe(self, outage: Outage[Body], limit: int) -> Probe[Body]:
        # If an item that also needs another outage's slots fails, that says nothing about this outage.
        pure = [item for item in outage.items if not self._waits_elsewhere(item, outage)]
        candidates = pure or list(outage.items)
        here = outage.slots
        needed = sorted(self.needed(candidates) & here)
        slots = frozenset(self._rng.sample(needed, min(outage.width, len(needed))))
        taken: list[Item[Body]] = []
        for item in candidates:
            needs = self._slots.needed(item.body) & here
            if len(taken) == limit:
                break
            if needs <= slots:
                taken.append(item)
            elif needs & slots and (part := self.split(item, needs & slots)) is not None:
                outage.items.append(part)
                taken.append(part)
        if not taken:  # no item needs only these slots: take one item's slots, and all items that need no others
            slots = self._slots.needed(self._rng.choice(candidates).body) & here
            taken = [item for item in candidates if self._slots.needed(item.body) & here <= slots][:limit]
        if len(slots) == 1:
            # Perhaps only some rows of the slot fail: halving gets the others done.
            if len(taken) == 1 and (part := self.split(taken[0], None)) is not None:
                outage.items.append(part)
            taken = self._rng.sample(taken, -(-len(taken) // 2))
        gone = set(taken)
        outage.items = [item for item in outage.items if item not in gone]
        # A success proves only the slots that these items need. If the outage of another slot ended, items that need
        # all slots would wait in the outage of a slot that is well, and no probe of that slot would ever succeed.
        return Probe(outage, slots & self.needed(taken), taken, outage.tried_s)

    def _waits_elsewhere(self, item: Item[Body], outage: Outage[Body]) -> bool:
        return any(self._by_slot.get(slot, outage) is not outage for slot in self._slots.needed(item.body))

    def _begin(self, slots: frozenset[int], since_s: float, failures: int, due_s: float) -> None:
        outage: Outage[Body] = Outage(slots, since_s, failures, due_s)
        self._outages.append(outage)
        for slot in slots:
            self._by_slot[slot] = outage

    def _begin_whole(self, items: list[Item[Body]], since_s: float, failures: int, due_s: float) -> None:
        if self.whole is None:
            self.whole = Outage(frozenset(), since_s, failures, due_s)
        self.whole.join(items, since_s)
        self.whole.failures, self.whole.due_s = max(self.whole.failures, failures), due_s

    def _close(self, outage: Outage[Body], slots: frozenset[int]) -> None:
        for slot in slots:
            del self._by_slot[slot]
        outage.slots -= slots
        if not outage.slots:
            self._outages.remove(outage)

    def _slice(self, slot: int) -> int:
        count = self._slots.count
        return slot * SLICES // count if slot < count else SLICES + slot - count

    def _slots_in(self, number: int) -> range:
        """The slots of a slice. If a slice fails, it is not known which of its slots do: probes find that out."""
        count = self._slots.count
        if number >= SLICES:
            return range(count + number - SLICES, count + number - SLICES + 1)
        return range(-(-number * count // SLICES), -(-(number + 1) * count // SLICES))
