"""Made-up records of pins, as a catalog of pins holds them."""

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from feedstore.catalog.pins import key_of, record_of
from feedstore.domain import Pin

LINE: Final = struct.Struct(">QBBQQQ")
"""Of a file: a key and its record. Pin, version, whether it was deleted, owner, board, created_ms."""

_KEY_BYTES: Final = 8
_BEGAN_MS: Final = 1_700_000_000_000


def records(count: int, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Of pins 1 to count; one in twenty is deleted."""
    rng = Random(seed)
    for pin in range(1, count + 1):
        created_ms = _BEGAN_MS + pin * 400 + rng.randrange(400)
        made = Pin(pin, rng.randrange(1, 1 << 20), rng.randrange(1, 1 << 22), created_ms)
        yield key_of(pin), record_of(made, deleted=rng.random() < 0.05)


def stored(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """What `write` has written."""
    with path.open("rb") as file:
        while some := file.read(10_000 * LINE.size):
            for at in range(0, len(some), LINE.size):
                yield some[at : at + _KEY_BYTES], some[at + _KEY_BYTES : at + LINE.size]


def write(path: Path, count: int) -> None:
    """One after the other, without anything between them."""
    with path.open("wb") as file:
        made = records(count)
        while some := list(islice(made, 10_000)):
            file.write(b"".join(key + record for key, record in some))
