"""Sorts entries by key in bounded memory: parts are sorted, written to files, and merged."""

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from typing import IO, Final

from feedstore.catalog.port import CatalogRefusedError, CatalogUnavailableError
from feedstore.portions import portions

PART_BYTES: Final = 64 << 20
"""About how many bytes of entries are in memory at once."""

FILES_MAX: Final = 256
"""This many parts are merged into one, because a process may have few files open (often 1,024)."""

_ENTRY_BYTES: Final = 150
"""How many bytes of memory an entry takes in addition to its content."""

_LENGTHS: Final = struct.Struct("<HI")


def by_key(
    entries: Iterable[tuple[bytes, bytes]], part_bytes: int = PART_BYTES, files_max: int = FILES_MAX
) -> Iterator[tuple[bytes, bytes]]:
    """The entries, keys strictly ascending.

    Raises CatalogRefusedError if a key is there twice, CatalogUnavailableError if the disk for temporary files is full.
    """
    with ExitStack() as stack:
        parts: list[IO[bytes]] = []

        def add(entries: Iterable[tuple[bytes, bytes]]) -> None:
            file = stack.enter_context(tempfile.TemporaryFile(prefix="feedstore-sort-"))
            _write(file, entries)
            parts.append(file)

        try:
            for part in portions(entries, _size, part_bytes):
                add(sorted(part, key=itemgetter(0)))
                if len(parts) == files_max:
                    add(_merged(parts))
                    while len(parts) > 1:
                        parts.pop(0).close()  # its space on the disk is free
            before = None
            for entry in _merged(parts):
                if entry[0] == before:
                    raise CatalogRefusedError(f"key {before!r} is there twice: a batch has one record of a key")
                before = entry[0]
                yield entry
        except OSError as error:
            raise CatalogUnavailableError(f"{tempfile.gettempdir()}: {error.strerror or error}") from error


def _merged(parts: Sequence[IO[bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return heapq.merge(*map(_read, parts), key=itemgetter(0))


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
