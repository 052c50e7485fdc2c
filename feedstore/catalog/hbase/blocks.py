"""A generation as blocks: records of neighbouring keys in one cell, and an index of the first key of each. Pure.

For a gateway and HBase, a large cell costs hardly more than a small one, and a generation is written once, in the order
of its keys, and then only read. So a block of some forty pins is loaded at the price of one, and a look-up reads a
block and takes a record out of it.

    region byte, 0, number (4 bytes)    a block: MessagePack, a map from keys to records
    0xff, number (4 bytes)              a part of the index: MessagePack, the first keys of some thousand blocks
    0xff                                how many parts the index has: MessagePack, a number; written last
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from feedstore.catalog.port import CatalogUnavailableError

BLOCK_BYTES: Final = 2_048
"""About how large the first blocks are."""

BLOCK_BYTES_MAX: Final = 65_536
"""The largest size of blocks: one record may be that large."""

BLOCKS_OF_A_SIZE: Final = 65_536
"""The size of blocks is doubled after each run of this many. So 4 GB of records have an index of 330,000 keys, and 64
GB need no more memory than for a million.
"""

PART_KEYS: Final = 4_096
"""How many keys one part of the index has: a megabyte, if they are as long as they may be."""

REGIONS: Final = 4
_RUN: Final = 256
"""How many consecutive blocks one region has: a write concerns few regions, as a server syncs its log for each."""

_ENTRY_BYTES: Final = 6
_PART: Final = b"\xff"
COUNT_ROW: Final = _PART

T = TypeVar("T")

_encoder: Final = msgspec.msgpack.Encoder()
_blocks: Final = msgspec.msgpack.Decoder(dict[bytes, bytes])
_parts: Final = msgspec.msgpack.Decoder(list[bytes])
_count: Final = msgspec.msgpack.Decoder(int)


def split_keys() -> list[bytes]:
    """Where the table of a generation is split, so that several servers share its reads. The size is not known when a
    load begins, so it does not matter here: HBase splits the regions that grow.
    """
    return [bytes((number * 256 // REGIONS,)) for number in range(1, REGIONS)]


def block_row(number: int) -> bytes:
    region = number // _RUN % REGIONS
    return bytes((region * 256 // REGIONS, 0)) + number.to_bytes(4, "big")


def part_row(number: int) -> bytes:
    return _PART + number.to_bytes(4, "big")


def block_bytes(number: int) -> int:
    """About how large a block is; a block of one record may be larger."""
    return min(BLOCK_BYTES << number // BLOCKS_OF_A_SIZE, BLOCK_BYTES_MAX)


def rows(records: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Turns the records of a generation into its rows and their values, at constant memory except for the index. Passes
    on what `records` raises.
    """
    first_keys: list[bytes] = []
    for block in _in_blocks(records):
        yield block_row(len(first_keys)), _encoder.encode(block)
        first_keys.append(next(iter(block)))
    parts = range(0, len(first_keys), PART_KEYS)
    for number, first in enumerate(parts):
        yield part_row(number), _encoder.encode(first_keys[first : first + PART_KEYS])
    yield COUNT_ROW, _encoder.encode(len(parts))


def _in_blocks(records: Iterable[tuple[bytes, bytes]]) -> Iterator[dict[bytes, bytes]]:
    block: dict[bytes, bytes] = {}
    number, size, most = 0, 0, block_bytes(0)
    for key, record in records:
        more = len(key) + len(record) + _ENTRY_BYTES
        if block and size + more > most:
            yield block
            number, block, size = number + 1, {}, 0
            most = block_bytes(number)
        block[key] = record
        size += more
    if block:
        yield block


class BlockIndex:
    """Which block has a key. parts: the values of all of its rows, in order. Raises CatalogUnavailableError."""

    def __init__(self, table: str, parts: Iterable[bytes | None]) -> None:
        self._table = table
        self._first_keys: list[bytes] = []
        for number, part in enumerate(parts):
            keys = _read(_parts, part, f"{table}: part {number} of its index")
            self._first_keys += keys

    def numbers(self, keys: Sequence[bytes]) -> list[int]:
        """For each key, the number of the only block that may have it; -1 if the key is before the first block."""
        return [bisect_right(self._first_keys, key) - 1 for key in keys]

    def block(self, number: int, value: bytes | None) -> dict[bytes, bytes]:
        """Decodes a block. Raises CatalogUnavailableError if it is missing or damaged: its keys may have records."""
        return _read(_blocks, value, f"{self._table}: block {number}")


def parts_of(table: str, count: bytes | None) -> int:
    """How many parts the index has. count: the value of its row. Raises CatalogUnavailableError."""
    return _read(_count, count, f"{table}: the number of parts of its index")


def _read(decoder: "msgspec.msgpack.Decoder[T]", value: bytes | None, what: str) -> T:
    if value is None:
        raise CatalogUnavailableError(f"{what} is missing: use another generation, and build again")
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CatalogUnavailableError(f"{what} is damaged: {error}: use another generation, and build again") from error
