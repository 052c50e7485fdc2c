"""Deliveries into packs: what travels of many actions, column by column."""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import assert_never

import msgspec

from feedstore.domain import (
    MAX_ID,
    Followed,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    RespaceAsked,
    Unfollowed,
    board,
    user,
)
from workers.following.messages import (
    PACK_CELLS,
    ActionColumns,
    Block,
    BlockColumns,
    Column,
    Delivery,
    Packed,
    PairColumns,
    encode_delivery,
)

FOLLOW_USER, FOLLOW_BOARD, SAVE, DELETE, REFILL_ALL, REFILL_HERE = range(1, 7)
"""Kinds of actions, as `ActionColumns` has them."""

Line = tuple[int, int, int, int, int, int]
"""An action as a kind and five numbers."""


def packed(deliveries: Iterable[Delivery]) -> Iterator[Delivery | Packed]:
    """The same cells in few messages. Deliveries that do not fit a pack come as they are. Memory is bounded by one pack
    for each cluster that deliveries are for.
    """
    packers: dict[str | None, Packer] = {}
    for delivery in deliveries:
        line = None if delivery.purge is not None or delivery.strays else _line(delivery.action, delivery.cluster)
        if line is None:
            yield delivery
            continue
        packer = packers.get(delivery.cluster)
        if packer is None:
            packer = packers[delivery.cluster] = Packer(delivery.read_ms, delivery.cluster)
        for marker, blocks in enumerate((delivery.puts, delivery.markers)):
            for block in blocks:
                if packer.read_ms != delivery.read_ms or packer.cells + block.cells() > PACK_CELLS:
                    yield packer.packed()
                    packer = packers[delivery.cluster] = Packer(delivery.read_ms, delivery.cluster)
                packer.add(line, block, marker, delivery.trace)
    yield from (packer.packed() for packer in packers.values() if packer.cells)


class Packer:
    """A pack in the making. cells: how many it holds so far."""

    def __init__(self, read_ms: int, cluster: str | None) -> None:
        self.read_ms = read_ms
        self.cells = 0
        self._cluster = cluster
        self._actions: dict[Line, int] = {}
        self._blocks: list[tuple[int, int, int, int, int, int]] = []
        self._rows = _Runs()
        self._pins = _Runs()
        self._traces: dict[int, str] = {}

    def add(self, line: Line, block: Block, marker: int, trace: str | None = None) -> None:
        """A block of an action. marker: 1 for delete markers, 0 for cells. trace: the context that it carries."""
        number = self._actions.setdefault(line, len(self._actions))
        if trace is not None:
            self._traces[number] = trace
        rows, pins = block.rows, block.pins
        first_row, first_pin = self._rows.place(rows), self._pins.place(pins)
        self._blocks.append((number, marker, first_row, len(rows), first_pin, len(pins)))
        self.cells += len(rows) * len(pins)

    def packed(self) -> Packed:
        """To be asked for once it holds something."""
        kinds, *numbers = columns(list(self._actions))
        return Packed(
            self.read_ms,
            ActionColumns(len(self._actions), kinds, numbers),
            BlockColumns(len(self._blocks), *columns(self._blocks)),
            PairColumns(len(self._rows.pairs), *columns(self._rows.pairs)),
            PairColumns(len(self._pins.pairs), *columns(self._pins.pairs)),
            self._cluster,
            list(self._traces.items()),
        )


class _Runs:
    """Pairs of numbers, of which the same run is kept once: pins of one owner have the same followers, and followers of
    one followee get the same pins.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._places: dict[tuple[tuple[int, int], ...], int] = {}

    def place(self, run: Sequence[tuple[int, int]]) -> int:
        """Where a run begins."""
        place = self._places.setdefault(tuple(run), len(self.pairs))
        if place == len(self.pairs):
            self.pairs += run
        return place


def columns(lines: Sequence[Sequence[int]]) -> list[Column]:
    """Lines of numbers, one or more of one length, as columns."""
    width = len(lines[0])
    # A zip of so many lines makes an iterator for each.
    flat = list(chain.from_iterable(lines))
    if len(flat) != width * len(lines):
        raise ValueError(f"{len(lines)} lines of {width} numbers have {len(flat)}")
    return [column(flat[at::width]) for at in range(width)]


def column(values: Sequence[int]) -> Column:
    least = min(values)
    width = ((max(values) - least).bit_length() + 7) // 8
    if not width:
        return Column(least, 0, b"")
    differences = array("Q", [value - least for value in values])
    if sys.byteorder == "big":
        differences.byteswap()
    wide = differences.tobytes()
    more = bytearray(len(values) * width)
    for at in range(width):
        more[at::width] = wide[at::8]
    return Column(least, width, bytes(more))


def golden_vectors() -> dict[str, object]:
    """`schemas/packs.json`: packs, and the deliveries that every language must make of them."""
    pin, far = Pin(11, 12, 13, 1_341_100_972_000), Pin(10**12, 2**53, 2**62, MAX_ID)
    rows, entry = [(21, 1_341_100_973_000), (2**40, 1_341_100_973_001)], [(pin.pin, pin.created_ms)]
    several = [
        Delivery(PinSaved(pin, 51), 61, [Block(rows, entry)]),
        Delivery(PinSaved(pin, 51), 61, [Block(rows[:1], entry)]),
        Delivery(PinDeleted(far, 52), 61, markers=[Block(rows, [(far.pin, far.created_ms)])]),
        Delivery(Followed(1, user(2), 3, 53), 61, [Block([(1, 3)], [*entry, (far.pin, far.created_ms)])]),
        Delivery(Followed(1, board(1), 4, 54), 61, [Block([(1, 4)], entry)]),
        Delivery(RefillAsked(1, None, 55), 61, [Block([(1, 4)], entry)]),
    ]
    one = [Delivery(RefillAsked(1, "a", 55), 61, [Block([(1, 4)], entry)], cluster="a")]
    return {
        "description": "Messages of feed.deliveries of version 2, and what they say as those of version 1.",
        "packs": [
            {
                "message": encode_delivery(pack).decode(),
                "deliveries": [msgspec.to_builtins(each) for each in deliveries],
            }
            for deliveries in (several, one)
            for pack in packed(deliveries)
        ],
    }


def _line(action: RecordedAction, cluster: str | None) -> Line | None:
    """An action in numbers; None if it has none in a pack for this cluster."""
    match action:  # most are saved pins
        case PinSaved() | PinDeleted():
            kind, pin = SAVE if isinstance(action, PinSaved) else DELETE, action.pin
            return kind, action.committed_ms, pin.pin, pin.owner, pin.created_ms, pin.board
        case Followed():
            kind = FOLLOW_USER if action.followee.kind == "user" else FOLLOW_BOARD
            return kind, action.committed_ms, action.follower, action.followee.id, action.ts, 0
        case RefillAsked(user_id, None, committed_ms):
            return REFILL_ALL, committed_ms, user_id, 0, 0, 0
        case RefillAsked(user_id, asked_for, committed_ms):
            return (REFILL_HERE, committed_ms, user_id, 0, 0, 0) if asked_for == cluster else None
        case Unfollowed() | RespaceAsked():
            return None
        case _:
            assert_never(action)
