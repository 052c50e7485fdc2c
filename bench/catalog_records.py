"""Made-up records of pins, as a catalog of pins holds them: a version, owner, board, three times, and an empty map."""

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

KEY: Final = struct.Struct(">Q")
RECORD: Final = struct.Struct(">BQQQQQB")

_BEGAN_MS = 1_700_000_000_000
_EMPTY_MAP = 0x80


def records(count: int, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Of pins 0 to count - 1; one in twenty is deleted."""
    rng = Random(seed)
    for pin in range(count):
        saved_ms = _BEGAN_MS + pin * 400 + rng.randrange(400)
        deleted_ms = saved_ms + 1 if rng.random() < 0.05 else 0
        owner, board = rng.randrange(1, 1 << 20), rng.randrange(1, 1 << 22)
        yield KEY.pack(pin), RECORD.pack(1, owner, board, saved_ms - 30, saved_ms, deleted_ms, _EMPTY_MAP)


def stored(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """What `write` has written."""
    width = KEY.size + RECORD.size
    with path.open("rb") as file:
        while some := file.read(10_000 * width):
            for at in range(0, len(some), width):
                yield some[at : at + KEY.size], some[at + KEY.size : at + width]


def write(path: Path, count: int) -> None:
    """One after the other, without anything between them."""
    with path.open("wb") as file:
        made = records(count)
        while some := list(islice(made, 10_000)):
            file.write(b"".join(key + record for key, record in some))
