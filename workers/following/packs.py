"""Packs as the writers have them: what many deliveries say, as arrays.

numpy is imported where an array is made: a process that writes no cells never does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from feedstore.domain import (
    MAX_ID,
    Followed,
    InvalidValueError,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    board,
    user,
)
from feedstore.following import MAX_CHUNK, mutations
from feedstore.widecolumn import Mutation
from workers.following import packing
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
    decode_delivery,
    encode_delivery,
)
from workers.pipeline.decoding import MalformedError
from workers.pipeline.ticks import Tick

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_NUMBERS_OF: Final = {
    packing.FOLLOW_USER: 4,
    packing.FOLLOW_BOARD: 4,
    packing.SAVE: 5,
    packing.DELETE: 5,
    packing.REFILL_ALL: 2,
    packing.REFILL_HERE: 2,
}
"""How many of an action's five numbers a kind uses; the others are 0."""


@dataclass(frozen=True, eq=False)
class Pack:
    """Blocks of cells of many actions. Whatever could be wrong with one was refused when it was unpacked.

    read_ms, cluster: as of a `Delivery`.
    actions: an array of (6, actions): kinds and numbers, as `ActionColumns` has them.
    blocks: (4, blocks): the action of each, counted from 0; whether it is of delete markers; how many rows; how many
        pins.
    rows: (2, rows): users and timestamps. pins: (2, pins): ids and creation times. Those of all blocks, in their order.
    """

    read_ms: int
    cluster: str | None
    actions: "Numbers"
    blocks: "Numbers"
    rows: "Numbers"
    pins: "Numbers"

    def cells(self) -> int:
        """How many cells and markers it writes."""
        return int((self.blocks[2] * self.blocks[3]).sum())

    @cached_property
    def buckets(self) -> frozenset[int]:
        """The first bytes of its row keys."""
        return frozenset(mutations.buckets(self.rows[0]).tolist())

    def committed_ms(self) -> list[int]:
        """When the action of each block committed."""
        found: list[int] = self.actions[1][self.blocks[0]].tolist()
        return found

    def large_saves(self, rows: int) -> list[int]:
        """When the saved pin of each block with so many rows or more committed."""
        of, _, counts, _ = self.blocks
        found: list[int] = self.actions[1][of[(counts >= rows) & (self.actions[0][of] == packing.SAVE)]].tolist()
        return found

    def recorded(self) -> list[RecordedAction]:
        """The actions that its blocks come from, each once."""
        import numpy as np  # noqa: PLC0415

        lines = self.actions[:, np.unique(self.blocks[0])].T.tolist()
        return [_action(line, self.cluster) for line in lines]

    def deliveries(self) -> Iterator[Delivery]:
        """The same as deliveries, one for each block."""
        actions = [_action(line, self.cluster) for line in self.actions.T.tolist()]
        rows, pins = iter(_pairs(self.rows)), iter(_pairs(self.pins))
        for number, marker, row_count, pin_count in self.blocks.T.tolist():
            blocks = [Block([next(rows) for _ in range(row_count)], [next(pins) for _ in range(pin_count)])]
            puts, markers = ([], blocks) if marker else (blocks, [])
            yield Delivery(actions[number], self.read_ms, puts, markers, cluster=self.cluster)

    def halves(self) -> "tuple[Pack | Delivery, Pack | Delivery] | None":
        """Two parts that together do the same: each has some of its blocks. A part of one block is a delivery. None if
        it has only one.
        """
        count = self.blocks.shape[1]
        if count == 1:
            return None
        first = _whole_blocks(self, 0, count // 2)
        second = _whole_blocks(self, count // 2, count)
        return _small(first), _small(second)

    def divided(self, buckets: frozenset[int]) -> "tuple[Pack, Pack]":
        """The part whose row keys begin with some bytes, and the rest; neither is empty if it needs some of them and
        others.
        """
        import numpy as np  # noqa: PLC0415

        inside = np.isin(mutations.buckets(self.rows[0]), list(buckets))
        return _with_rows(self, inside), _with_rows(self, ~inside)

    def packed(self) -> Packed:
        """What travels: only actions that its blocks come from."""
        import numpy as np  # noqa: PLC0415

        used, numbers = np.unique(self.blocks[0], return_inverse=True)
        blocks = [numbers.tolist(), *self.blocks[1:].tolist()]
        kinds, *rest = _columns(self.actions[:, used])
        return Packed(
            self.read_ms,
            ActionColumns(len(used), kinds, rest),
            BlockColumns(len(blocks[0]), *map(packing.column, blocks)),
            PairColumns(self.rows.shape[1], *_columns(self.rows)),
            PairColumns(self.pins.shape[1], *_columns(self.pins)),
            self.cluster,
        )


def decode_body(value: bytes) -> Delivery | Hold | Pack | Tick:
    """What a message of feed.deliveries says to a writer. Raises MalformedError."""
    message = decode_delivery(value)
    if not isinstance(message, Packed):
        return message
    try:
        return unpacked(message)
    except InvalidValueError as error:
        raise MalformedError("malformed", str(error)) from error


def encode_body(body: Delivery | Hold | Pack) -> bytes:
    """The message of feed.deliveries that says it."""
    return encode_delivery(body.packed() if isinstance(body, Pack) else body)


def halves(body: Delivery | Hold | Pack) -> tuple[Delivery | Pack, Delivery | Pack] | None:
    """Two bodies that together do what one does; None if it is not a pack of several blocks."""
    return body.halves() if isinstance(body, Pack) else None


def cell_mutations(packs: Sequence[Pack]) -> list[Mutation]:
    """What packs write: all cells together, and all delete markers."""
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
    """Raises InvalidValueError unless all that it says can be."""
    actions = _read(message.actions.count, [message.actions.kinds, *message.actions.numbers])
    of = message.blocks
    blocks = _read(of.count, [of.actions, of.markers, of.rows, of.pins])
    rows = _read(message.rows.count, [message.rows.ids, message.rows.times])
    pins = _read(message.pins.count, [message.pins.ids, message.pins.times])
    pack = Pack(message.read_ms, message.cluster, actions, blocks, rows, pins)
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
    if ((kinds == packing.FOLLOW_USER) & (numbers[1] == numbers[2])).any():
        raise InvalidValueError("actions.numbers", "a follow of oneself", "a user other than the follower")
    if pack.cluster is None and (kinds == packing.REFILL_HERE).any():
        raise InvalidValueError("cluster", None, "that of the refills")
    if pack.cluster == "" and (kinds == packing.REFILL_HERE).any():
        raise InvalidValueError("cluster", "", "a cluster's name, or null for all")


def _check_blocks(pack: Pack) -> None:
    of, markers, rows, pins = pack.blocks
    if of.max() >= pack.actions.shape[1]:
        raise InvalidValueError("blocks.actions", int(of.max()), f"less than {pack.actions.shape[1]}")
    if markers.max() > 1:
        raise InvalidValueError("blocks.markers", int(markers.max()), "0 or 1")
    for field, counts, pairs in (("rows", rows, pack.rows), ("pins", pins, pack.pins)):
        if not 1 <= counts.min() <= counts.max() <= MAX_CHUNK:
            raise InvalidValueError(f"blocks.{field}", [int(counts.min()), int(counts.max())], f"1 to {MAX_CHUNK}")
        if counts.sum() != pairs.shape[1]:
            raise InvalidValueError(f"blocks.{field}", int(counts.sum()), f"{pairs.shape[1]} together")
    if (rows * pins).max() > MAX_CHUNK:
        raise InvalidValueError("block", int((rows * pins).max()), f"at most {MAX_CHUNK} cells")
    if pack.cells() > PACK_CELLS:
        raise InvalidValueError("pack", pack.cells(), f"at most {PACK_CELLS} cells")


def _read(count: int, columns: Sequence[Column]) -> "Numbers":
    """Columns of so many numbers, as an array of a line for each."""
    import numpy as np  # noqa: PLC0415

    found = np.empty((len(columns), count), np.int64)
    for line, column in zip(found, columns, strict=True):
        if len(column.more) != count * column.width:
            raise InvalidValueError("column", len(column.more), f"{count} times {column.width} bytes")
        wide = np.zeros((count, 8), np.uint8)
        if column.width:
            wide[:, : column.width] = np.frombuffer(column.more, np.uint8).reshape(count, column.width)
        numbers = wide.view("<u8").ravel()
        if int(numbers.max()) > MAX_ID - column.least:
            raise InvalidValueError("column", column.least + int(numbers.max()), "numbers up to 2^63-1")
        line[:] = numbers.astype(np.int64) + column.least
    return found


def _columns(numbers: "Numbers") -> list[Column]:
    return [packing.column(line) for line in numbers.tolist()]


def _pairs(numbers: "Numbers") -> list[tuple[int, int]]:
    return list(zip(*numbers.tolist(), strict=True))


def _small(pack: Pack) -> "Pack | Delivery":
    return next(pack.deliveries()) if pack.blocks.shape[1] == 1 else pack


def _action(line: Iterable[int], cluster: str | None) -> RecordedAction:
    kind, committed_ms, first, second, third, fourth = line
    match kind:
        case packing.FOLLOW_USER:
            return Followed(first, user(second), third, committed_ms)
        case packing.FOLLOW_BOARD:
            return Followed(first, board(second), third, committed_ms)
        case packing.SAVE:
            return PinSaved(Pin(first, second, fourth, third), committed_ms)
        case packing.DELETE:
            return PinDeleted(Pin(first, second, fourth, third), committed_ms)
        case packing.REFILL_ALL:
            return RefillAsked(first, None, committed_ms)
        case packing.REFILL_HERE:
            return RefillAsked(first, cluster, committed_ms)
        case _:
            raise AssertionError(f"an action of the kind {kind} was unpacked")


def _whole_blocks(pack: Pack, first: int, end: int) -> Pack:
    """The blocks from `first` to before `end`."""
    rows, pins = pack.blocks[2:, :first].sum(axis=1)
    rows_end, pins_end = pack.blocks[2:, :end].sum(axis=1)
    return replace(
        pack,
        blocks=pack.blocks[:, first:end],
        rows=pack.rows[:, rows:rows_end],
        pins=pack.pins[:, pins:pins_end],
    )


def _with_rows(pack: Pack, wanted: "NDArray[np.bool_]") -> Pack:
    """Some of the rows, and the blocks that still have one."""
    import numpy as np  # noqa: PLC0415

    _, _, rows, pins = pack.blocks
    block_of_row = np.repeat(np.arange(len(rows)), rows)
    left = np.bincount(block_of_row[wanted], minlength=len(rows))
    blocks = pack.blocks.copy()
    blocks[2] = left
    return replace(
        pack,
        blocks=blocks[:, left > 0],
        rows=pack.rows[:, wanted],
        pins=pack.pins[:, np.repeat(left > 0, pins)],
    )


def _cells(pack: Pack) -> "Numbers":
    """A line for each cell's number: whether it is a delete marker, user, timestamp, pin, creation time. A block is a
    cross product: the cells of its first row come first.
    """
    import numpy as np  # noqa: PLC0415

    _, markers, rows, pins = pack.blocks
    count = rows * pins
    number = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)  # of a cell in its block
    pins_of = np.repeat(pins, count)
    row = np.repeat(rows.cumsum() - rows, count) + number // pins_of
    pin = np.repeat(pins.cumsum() - pins, count) + number % pins_of
    return np.vstack([np.repeat(markers, count), pack.rows[:, row], pack.pins[:, pin]])
