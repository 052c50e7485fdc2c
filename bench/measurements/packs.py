"""Deliveries on their way through the queue: in packs, against a message each."""

import time
from collections.abc import Callable, Iterator, Sequence

from bench.context import Context
from bench.deliveries import CAP, Deliveries
from bench.results import Row, at_most, interleaved, ratios
from feedstore.domain import Pin, PinSaved
from feedstore.following import MAX_CHUNK, feed_table, mutations
from feedstore.portions import chunks
from feedstore.widecolumn import Put
from feedstore.widecolumn.arrays import gathered
from workers.following.messages import Block, Delivery, decode_delivery, encode_delivery
from workers.following.packs import Pack, cell_mutations, decode_bodies, packed

LOT = 500
"""So many actions' deliveries are published together."""
FIRST_MS = 1_700_000_000_000
TABLE = feed_table(CAP, CAP // 4, 432_000_000)

Lot = Sequence[Delivery]


def measure(context: Context) -> list[Row]:
    """What a delivery takes in the queue, and what it costs to encode it and to make its cells again"""
    lots = [*_lots(context.deliveries, context.pick(100, 10))]
    cells = sum(delivery.cells() for lot in lots for delivery in lot)
    count = sum(len(lot) for lot in lots)

    def us(way: Callable[[Lot], int]) -> float:
        began = time.thread_time()
        for lot in lots:
            way(lot)
        return (time.thread_time() - began) / cells * 1e6

    sides = {"packs": lambda: us(_together), "a message each": lambda: us(_one_by_one)}
    interleaved(sides, 1)
    taken = interleaved(sides, context.repeats)
    sizes = [sum(map(way, lots)) for way in (_together, _one_by_one)]
    note = f"{count:,} deliveries, {cells:,} cells, of {LOT} actions at once"
    return [
        Row("bytes of deliveries in packs / of a message each", "x", [sizes[0] / sizes[1]], at_most(0.25), note),
        Row("encoded, decoded and made into cells, in packs / each", "x", ratios(*taken.values()), note=note),
        *(Row(f"the same, processor time: {side}", "us/cell", samples) for side, samples in taken.items()),
    ]


def _together(lot: Lot) -> int:
    """Returns the bytes of the messages."""
    size = 0
    for message in packed(lot):
        value = encode_delivery(message)
        size += len(value)
        (body,) = decode_bodies(value)
        assert isinstance(body, Pack)
        cell_mutations([body])
    return size


def _one_by_one(lot: Lot) -> int:
    size = 0
    puts: list[Put] = []
    for delivery in lot:
        value = encode_delivery(delivery)
        size += len(value)
        body = decode_delivery(value)
        assert isinstance(body, Delivery)
        puts += [mutations.put(block.rows, block.pins) for block in body.puts]
    gathered(TABLE, puts)
    return size


def _lots(deliveries: Deliveries, most: int) -> Iterator[Lot]:
    for groups in chunks([*deliveries.groups()][-most * LOT :], LOT):
        yield [each for group in groups for each in _of(deliveries, group)]


def _of(deliveries: Deliveries, group: range) -> Iterator[Delivery]:
    """The deliveries of one action: a pin to many, or many pins to one. Each user has a time of their own."""
    for some in chunks(group, MAX_CHUNK):
        rows = dict.fromkeys((deliveries.users[at], FIRST_MS + deliveries.users[at]) for at in some)
        pins = dict.fromkeys((deliveries.pins[at], deliveries.created_ms[at]) for at in some)
        pin, created_ms = next(iter(pins))
        action = PinSaved(Pin(pin, 1 + pin % 1_000_003, 1 + pin % 1_000_033, created_ms), FIRST_MS + group.start)
        yield Delivery(action, FIRST_MS, [Block([*rows], [*pins])])
