"""The cell layout: where an entry of a feed is in the wide-column model. Golden vectors:
`schemas/cell-layout.json`.

Row key, 9 bytes: one byte of a hash of the user id, so that regions split evenly on the first byte; then the user id,
big-endian. Column, 16 bytes: 2^63-1 minus the pin's creation time in ms, then the pin id, both big-endian: the newest
pin sorts first, ties by ascending pin id. The value is empty: everything is in the key. The cell's timestamp is that
of the edge that delivers the pin (rule 3), never the pin's own time.
"""

import json
import struct
from collections.abc import Iterable, Sequence

from feedstore.domain import MAX_ID, Entry
from feedstore.widecolumn import Table, Trim

FEEDS = "following_feed"
"""The name of the table."""

ROW_BYTES = 9
COLUMN_BYTES = 16

# The 64-bit golden ratio (Knuth, TAOCP 3, 6.4, multiplicative hashing): its top byte spreads sequential ids evenly.
MULTIPLIER = 0x9E3779B97F4A7C15
_ROW = struct.Struct(">BQ").pack
_COLUMN = struct.Struct(">QQ")


def bucket(user: int) -> int:
    """The first byte of a user's row key, 0..255: bits 56 to 63 of `user * 0x9E3779B97F4A7C15` modulo 2^64."""
    return (user * MULTIPLIER >> 56) & 0xFF


def row_key(user: int) -> bytes:
    return _ROW((user * MULTIPLIER >> 56) & 0xFF, user)


def bucket_range(number: int, from_user: int) -> tuple[bytes, bytes | None]:
    """The row keys of a bucket from the id `from_user` on, which need not be in it, as a half-open range."""
    return _ROW(number, from_user), bytes([number + 1]) if number < 255 else None


def column(pin: int, created_ms: int) -> bytes:
    return _COLUMN.pack(MAX_ID - created_ms, pin)


def columns(entries: Iterable[tuple[int, int]]) -> list[bytes]:
    """The columns of (pin, created_ms) pairs."""
    pack = _COLUMN.pack
    return [pack(MAX_ID - created_ms, pin) for pin, created_ms in entries]


def entries_of(cells: Iterable[bytes]) -> list[Entry]:
    """The entries of columns, in the same order."""
    return [Entry(pin, MAX_ID - reverse) for reverse, pin in _COLUMN.iter_unpack(b"".join(cells))]


def pins_of(cells: Iterable[bytes]) -> list[bytes]:
    """The ids of the pins of columns, 8 bytes each, big-endian, in the same order."""
    return [cell[8:] for cell in cells]


def pins_and_times(cells: Sequence[bytes]) -> list[int]:
    """The numbers of `entries_of` as a flat list (pin, creation time, pin, ...): faster, as it makes no entries."""
    numbers = list(struct.unpack(f">{2 * len(cells)}Q", b"".join(cells)))
    numbers[::2], numbers[1::2] = numbers[1::2], [MAX_ID - reverse for reverse in numbers[::2]]
    return numbers


def feed_table(cap: int, slack: int, purge_window_ms: int) -> Table:
    """The table of the feeds: a trim leaves `cap + slack` visible columns of a row (rule 9)."""
    return Table(FEEDS, ROW_BYTES, COLUMN_BYTES, trim=Trim(cap, slack), purge_window_ms=purge_window_ms)


def golden_vectors() -> str:
    """`schemas/cell-layout.json`: inputs and the bytes that every language must make of them."""
    users = [1, 2, 255, 256, 304691, 2**31, 2**32 + 1, 2**53, 2**62 - 1, MAX_ID]
    entries = [(1, 1), (1, 2), (2, 1), (563069, 1341705593000), (7, 1341100972000), (MAX_ID, MAX_ID), (1, MAX_ID)]
    vectors = {
        "description": "Row keys and columns of the table following_feed. Byte strings in hex.",
        "rows": [{"user": user, "row": row_key(user).hex()} for user in users],
        "columns": [
            {"pin": pin, "created_ms": created_ms, "column": column(pin, created_ms).hex()}
            for pin, created_ms in entries
        ],
    }
    return json.dumps(vectors, indent=2) + "\n"
