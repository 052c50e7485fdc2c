"""A pack says what many deliveries say, column by column. Expanders make messages of packs, and writers make arrays of
the messages.

numpy is imported where an array is made: a process that writes no cells never imports it.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from feedstore.domain import (
    MAX_ID,
    Followed,
    InvalidValueError,
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
from feedstore.following import MAX_CHUNK, mutations
from feedstore.tracing import Context, Key
from feedstore.widecolumn import Mutation
from workers.following.messages import (
    PACK_CELLS,
    ActionColumns,
    Block,
    BlockColumns,
    Column,
    Delivery,
    Hold,
    Packed,
    PairColumns,
    Ticks,
    decode_delivery,
    encode_delivery,
)
from workers.pipeline.ticks import Tick
from workers.queue.port import MalformedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

FOLLOW_USER, FOLLOW_BOARD, SAVE, DELETE, REFILL_ALL, REFILL_HERE = range(1, 7)
"""The kinds of actions in `ActionColumns`."""

_TRACES_MAX: Final = 1_000
"""The most contexts of traces in one pack. Each takes about 60 bytes, and a message has 1,000,000 bytes at most."""

Line = tuple[int, int, int, int, int, int]
"""An action as a kind and five numbers."""

_NUMBERS_OF: Final = {
    FOLLOW_USER: 4,
    FOLLOW_BOARD: 4,
    SAVE: 5,
    DELETE: 5,
    REFILL_ALL: 2,
    REFILL_HERE: 2,
}
"""How many of an action's five numbers a kind uses; the others are 0."""


def packed(deliveries: Iterable[Delivery]) -> Iterator[Delivery | Packed]:
    """Packs deliveries into few messages. Those that do not fit a pack come as they are. Memory is bounded by one pack
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
                if packer.read_ms != delivery.read_ms or not packer.has_room(block, delivery.trace):
                    yield packer.packed()
                    packer = packers[delivery.cluster] = Packer(delivery.read_ms, delivery.cluster)
                packer.add(line, block, marker, delivery.trace)
    yield from (packer.packed() for packer in packers.values() if packer.cells)


class Packer:
    """Builds a pack. cells: how many it holds so far."""

    def __init__(self, read_ms: int, cluster: str | None) -> None:
        self.read_ms = read_ms
        self.cells = 0
        self._cluster = cluster
        self._actions: dict[Line, int] = {}
        self._blocks: list[tuple[int, int, int, int, int, int]] = []
        self._rows = _Runs()
        self._pins = _Runs()
        self._traces: dict[int, str] = {}

    def has_room(self, block: Block, trace: str | None) -> bool:
        """Whether a block may be added. trace: the context of its action."""
        return self.cells + block.cells() <= PACK_CELLS and (trace is None or len(self._traces) < _TRACES_MAX)

    def add(self, line: Line, block: Block, marker: int, trace: str | None = None) -> None:
        """Adds a block of an action. marker: 1 for delete markers, 0 for cells. trace: the action's context."""
        number = self._actions.setdefault(line, len(self._actions))
        if trace is not None:
            self._traces[number] = trace
        rows, pins = block.rows, block.pins
        first_row, first_pin = self._rows.place(rows), self._pins.place(pins)
        self._blocks.append((number, marker, first_row, len(rows), first_pin, len(pins)))
        self.cells += len(rows) * len(pins)

    def packed(self) -> Packed:
        """The pack; at least one block must have been added."""
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
    """Runs of pairs of numbers; equal runs are kept once: pins of one owner have the same followers, and followers of
    one followee get the same pins.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._places: dict[tuple[tuple[int, int], ...], int] = {}

    def place(self, run: Sequence[tuple[int, int]]) -> int:
        """The place where a run begins; adds the run if it is new."""
        place = self._places.setdefault(tuple(run), len(self.pairs))
        if place == len(self.pairs):
            self.pairs += run
        return place


def columns(lines: Sequence[Sequence[int]]) -> list[Column]:
    """Turns lines of numbers into columns. There must be at least one line, and all must have one length."""
    width = len(lines[0])
    # Not by `zip`: with so many lines it makes an iterator for each.
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
    """An action in numbers; None if a pack for this cluster cannot say it."""
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


@dataclass(frozen=True, eq=False)
class Pack:
    """Blocks of cells of many actions. A pack is valid: everything is checked when it is unpacked.

    read_ms: the store's time from before the handler's first read. cluster: the only cluster that applies it; None for
        all.
    actions: an array of (6, actions): the kinds and numbers of `ActionColumns`.
    blocks: (6, blocks), the columns of `BlockColumns`: a block's action; whether it is of delete markers; its first
        row, and the number of its rows; its first pin, and the number of its pins.
    rows: (2, rows): users and timestamps. pins: (2, pins): ids and creation times. A part of a pack may hold more rows
        and pins than its blocks need.
    traces: the contexts that traced actions carry, by the action's number.
    """

    read_ms: int
    cluster: str | None
    actions: "Numbers"
    blocks: "Numbers"
    rows: "Numbers"
    pins: "Numbers"
    traces: Mapping[int, str]

    def cells(self) -> int:
        """How many cells and markers it writes."""
        _, _, _, rows, _, pins = self.blocks
        return int(rows @ pins)

    @cached_property
    def buckets(self) -> frozenset[int]:
        """The first bytes of the keys of the rows that its blocks need."""
        import numpy as np  # noqa: PLC0415

        _, _, first, count, _, _ = self.blocks
        borders = np.zeros(self.rows.shape[1] + 1, np.int64)
        np.add.at(borders, first, 1)
        np.add.at(borders, first + count, -1)
        needed = borders[:-1].cumsum() > 0
        return frozenset(mutations.buckets(self.rows[0][needed]).tolist())

    def committed_ms(self) -> list[int]:
        """When the action of each block committed."""
        found: list[int] = self.actions[1][self.blocks[0]].tolist()
        return found

    def large_saves(self, rows: int) -> list[int]:
        """When the saved pin of each block with at least `rows` rows committed."""
        of, _, _, counts, _, _ = self.blocks
        found: list[int] = self.actions[1][of[(counts >= rows) & (self.actions[0][of] == SAVE)]].tolist()
        return found

    def traced(self) -> dict[Key, Context]:
        """The contexts that the actions of its blocks carry."""
        if not self.traces:
            return {}
        here = set(self.blocks[0].tolist())
        lines = self.actions.T
        return {
            _action(lines[number].tolist(), self.cluster): trace
            for number, trace in self.traces.items()
            if number in here
        }

    def recorded(self) -> list[RecordedAction]:
        """The actions that its blocks come from, each once."""
        import numpy as np  # noqa: PLC0415

        lines = self.actions[:, np.unique(self.blocks[0])].T.tolist()
        return [_action(line, self.cluster) for line in lines]

    def deliveries(self) -> Iterator[Delivery]:
        """The pack as deliveries, one for each block."""
        rows, pins = _pairs(self.rows), _pairs(self.pins)
        for number, marker, row, row_count, pin, pin_count in self.blocks.T.tolist():
            action = _action(self.actions[:, number].tolist(), self.cluster)
            blocks = [Block(rows[row : row + row_count], pins[pin : pin + pin_count])]
            puts, markers = ([], blocks) if marker else (blocks, [])
            yield Delivery(action, self.read_ms, puts, markers, cluster=self.cluster, trace=self.traces.get(number))

    def halves(self) -> "tuple[Pack | Delivery, Pack | Delivery] | None":
        """Divides the pack into two that together do the same, each with some of its blocks. None if it has one."""
        count = self.blocks.shape[1]
        if count == 1:
            return None
        first, second = self.blocks[:, : count // 2], self.blocks[:, count // 2 :]
        return self._part(first, self.rows), self._part(second, self.rows)

    def divided(self, buckets: frozenset[int]) -> "tuple[Pack | Delivery, Pack | Delivery]":
        """Divides it into the part whose row keys begin with the given bytes, some of its own, and the rest."""
        import numpy as np  # noqa: PLC0415

        inside = np.isin(mutations.buckets(self.rows[0]), list(buckets))
        return self._with_rows(inside), self._with_rows(~inside)

    def _with_rows(self, wanted: "NDArray[np.bool_]") -> "Pack | Delivery":
        """The part with only the wanted rows, and the blocks that still have one."""
        import numpy as np  # noqa: PLC0415

        before = np.concatenate([[0], wanted.cumsum()])  # how many wanted rows precede each row
        blocks = self.blocks.copy()
        _, _, first, count, _, _ = self.blocks
        blocks[2], blocks[3] = before[first], before[first + count] - before[first]
        return self._part(blocks[:, blocks[3] > 0], self.rows[:, wanted])

    def _part(self, blocks: "Numbers", rows: "Numbers") -> "Pack | Delivery":
        """A pack with other blocks; a delivery if there is only one."""
        part = replace(self, blocks=blocks, rows=rows)
        return next(part.deliveries()) if blocks.shape[1] == 1 else part


def decode_bodies(value: bytes) -> Sequence[Delivery | Hold | Pack | Tick]:
    """Decodes a message of feed.deliveries, for a writer: one body, or several ticks. Raises MalformedError."""
    message = decode_delivery(value)
    if isinstance(message, Ticks):
        return message.each()
    if not isinstance(message, Packed):
        return (message,)
    try:
        return (unpacked(message),)
    except InvalidValueError as error:
        raise MalformedError("malformed", str(error)) from error


def encode_body(body: Delivery | Hold | Pack) -> bytes:
    """Makes a message of feed.deliveries of one body."""
    if not isinstance(body, Pack):
        return encode_delivery(body)
    (message,) = packed(body.deliveries())
    return encode_delivery(message)


def cell_mutations(packs: Sequence[Pack]) -> list[Mutation]:
    """The mutations of some packs: one of all cells, and one of all delete markers."""
    import numpy as np  # noqa: PLC0415

    cells = np.concatenate([_cells(pack) for pack in packs], axis=1)
    marker = cells[0].astype(bool)
    found: list[Mutation] = []
    if not marker.all():
        found.append(mutations.put_cells(*(line[~marker] for line in cells[1:])))
    if marker.any():
        found.append(mutations.remove_cells(*(line[marker] for line in cells[1:])))
    return found


def unpacked(message: Packed) -> Pack:
    """Makes a pack of a message. Raises InvalidValueError if the message is not consistent."""
    actions = _read(message.actions.count, [message.actions.kinds, *message.actions.numbers])
    of = message.blocks
    blocks = _read(of.count, [of.actions, of.markers, of.first_rows, of.rows, of.first_pins, of.pins])
    rows = _read(message.rows.count, [message.rows.ids, message.rows.times])
    pins = _read(message.pins.count, [message.pins.ids, message.pins.times])
    pack = Pack(message.read_ms, message.cluster, actions, blocks, rows, pins, dict(message.traces))
    _check_actions(pack)
    _check_blocks(pack)
    for field, pairs in (("rows", rows), ("pins", pins)):
        if pairs.min() < 1:
            raise InvalidValueError(field, int(pairs.min()), "ids and times from 1 to 2^63-1")
    return pack


def _check_actions(pack: Pack) -> None:
    import numpy as np  # noqa: PLC0415

    kinds, numbers = pack.actions[0], pack.actions[1:]
    known = np.array([_NUMBERS_OF.get(kind, 0) for kind in range(max(_NUMBERS_OF) + 1)])
    if not 1 <= kinds.min() <= kinds.max() < len(known):
        raise InvalidValueError("actions.kinds", [int(kinds.min()), int(kinds.max())], f"1 to {len(known) - 1}")
    used = np.arange(len(numbers))[:, np.newaxis] < known[kinds]
    if ((numbers > 0) != used).any():
        raise InvalidValueError(
            "actions.numbers", "another", "from 1 to 2^63-1, and 0 for those that a kind does not use"
        )
    is_follow = (kinds == FOLLOW_USER) | (kinds == FOLLOW_BOARD)
    if ((numbers[0] == MAX_ID) | (is_follow & (numbers[3] == MAX_ID))).any():
        raise InvalidValueError("actions.numbers", MAX_ID, "times up to 2^63-2")
    if ((kinds == FOLLOW_USER) & (numbers[1] == numbers[2])).any():
        raise InvalidValueError("actions.numbers", "a follow of oneself", "a user other than the follower")
    if pack.cluster is None and (kinds == REFILL_HERE).any():
        raise InvalidValueError("cluster", None, "that of the refills")
    if pack.cluster == "" and (kinds == REFILL_HERE).any():
        raise InvalidValueError("cluster", "", "a cluster's name, or null for all")


def _check_blocks(pack: Pack) -> None:
    of, markers, first_rows, rows, first_pins, pins = pack.blocks
    if of.max() >= pack.actions.shape[1]:
        raise InvalidValueError("blocks.actions", int(of.max()), f"less than {pack.actions.shape[1]}")
    if markers.max() > 1:
        raise InvalidValueError("blocks.markers", int(markers.max()), "0 or 1")
    for field, first, count, pairs in (("rows", first_rows, rows, pack.rows), ("pins", first_pins, pins, pack.pins)):
        if not 1 <= count.min() <= count.max() <= MAX_CHUNK:
            raise InvalidValueError(f"blocks.{field}", [int(count.min()), int(count.max())], f"1 to {MAX_CHUNK}")
        if first.max() > PACK_CELLS or (first + count).max() > pairs.shape[1]:
            raise InvalidValueError(f"blocks.{field}", int(first.max()), f"places in {pairs.shape[1]}")
    if (rows * pins).max() > MAX_CHUNK:
        raise InvalidValueError("block", int((rows * pins).max()), f"at most {MAX_CHUNK} cells")
    if pack.cells() > PACK_CELLS:
        raise InvalidValueError("pack", pack.cells(), f"at most {PACK_CELLS} cells")


def _read(count: int, columns: Sequence[Column]) -> "Numbers":
    """Makes an array of columns with `count` numbers each, a line for each column."""
    import numpy as np  # noqa: PLC0415

    found = np.empty((len(columns), count), np.int64)
    for line, column in zip(found, columns, strict=True):
        if len(column.more) != count * column.width:
            raise InvalidValueError("column", len(column.more), f"{count} times {column.width} bytes")
        line[:] = column.least
        if not column.width:
            continue
        wide = np.zeros((count, 8), np.uint8)
        wide[:, : column.width] = np.frombuffer(column.more, np.uint8).reshape(count, column.width)
        numbers = wide.view("<u8").ravel()
        # Not for columns of few bytes, as most are.
        if 1 << 8 * column.width > MAX_ID - column.least and int(numbers.max()) > MAX_ID - column.least:
            raise InvalidValueError("column", column.least + int(numbers.max()), "numbers up to 2^63-1")
        line[:] += numbers.astype(np.int64)
    return found


def _pairs(numbers: "Numbers") -> list[tuple[int, int]]:
    return list(zip(*numbers.tolist(), strict=True))


def _action(line: Iterable[int], cluster: str | None) -> RecordedAction:
    kind, committed_ms, first, second, third, fourth = line
    if kind == FOLLOW_USER:
        return Followed(first, user(second), third, committed_ms)
    if kind == FOLLOW_BOARD:
        return Followed(first, board(second), third, committed_ms)
    if kind == SAVE:
        return PinSaved(Pin(first, second, fourth, third), committed_ms)
    if kind == DELETE:
        return PinDeleted(Pin(first, second, fourth, third), committed_ms)
    if kind == REFILL_ALL:
        return RefillAsked(first, None, committed_ms)
    if kind == REFILL_HERE:
        return RefillAsked(first, cluster, committed_ms)
    raise AssertionError(f"an action of the kind {kind} was unpacked")


def _cells(pack: Pack) -> "Numbers":
    """All cells, in lines: whether it is a delete marker, user, timestamp, pin, creation time. A block is a cross
    product: the cells of its first row come first.
    """
    import numpy as np  # noqa: PLC0415

    _, markers, first_rows, rows, first_pins, pins = pack.blocks
    count = rows * pins
    number = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)  # the number of a cell in its block
    pins_of = np.repeat(pins, count)
    row = np.repeat(first_rows, count) + number // pins_of
    pin = np.repeat(first_pins, count) + number % pins_of
    return np.vstack([np.repeat(markers, count), pack.rows[:, row], pack.pins[:, pin]])
