"""Sorts entries by key in bounded memory: parts are sorted, written to files, and merged."""

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import IO, Final

from feedstore.catalog.port import CatalogRefusedError, CatalogUnavailableError
from feedstore.portions import portions

PART_BYTES: Final = 64 << 20
"""About how many bytes of entries are in memory at once."""

_ENTRY_BYTES: Final = 150
"""How many bytes of memory an entry takes in addition to its content."""

_LENGTHS: Final = struct.Struct("<HI")


def by_key(entries: Iterable[tuple[bytes, bytes]], part_bytes: int = PART_BYTES) -> Iterator[tuple[bytes, bytes]]:
    """The entries, keys strictly ascending.

    Raises CatalogRefusedError if a key is there twice, CatalogUnavailableError if the disk for temporary files is full.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="feedstore-sort-")))
        try:
            parts: list[Iterable[tuple[bytes, bytes]]] = []
            for number, part in enumerate(portions(entries, _size, part_bytes)):
                file = stack.enter_context((directory / str(number)).open("w+b"))
                _write(file, sorted(part, key=itemgetter(0)))
                parts.append(_read(file))
            before = None
            for entry in heapq.merge(*parts, key=itemgetter(0)):
                if entry[0] == before:
                    raise CatalogRefusedError(f"key {before!r} is there twice: a batch has one record of a key")
                before = entry[0]
                yield entry
        except OSError as error:
            raise CatalogUnavailableError(f"{directory}: {error.strerror or error}") from error


def _size(entry: tuple[bytes, bytes]) -> int:
    return len(entry[0]) + len(entry[1]) + _ENTRY_BYTES


def _write(file: IO[bytes], part: Iterable[tuple[bytes, bytes]]) -> None:
    for key, record in part:
        file.write(_LENGTHS.pack(len(key), len(record)) + key + record)
    file.flush()
    file.seek(0)


def _read(file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    while head := file.read(_LENGTHS.size):
        key_bytes, record_bytes = _LENGTHS.unpack(head)
        yield file.read(key_bytes), file.read(record_bytes)
