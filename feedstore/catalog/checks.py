"""Checks of the port's arguments, the same for every adapter."""

import hashlib
import operator
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from feedstore.catalog import rule
from feedstore.catalog.port import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_RECORD_BYTES,
    MAX_SOURCES,
    MAX_TIME_MS,
    CatalogRefusedError,
    LacksUpdatesError,
    Update,
)

_SIZES = struct.Struct(">HI")
_CHECKED_AT_ONCE = 1_000


def check_keys(keys: Sequence[bytes]) -> None:
    if len(keys) > MAX_KEYS:
        raise CatalogRefusedError(f"{len(keys)} keys, at most {MAX_KEYS} in a fetch")
    sizes = list(map(len, keys))
    if sizes and not 0 < min(sizes) <= max(sizes) <= MAX_KEY_BYTES:
        for key in keys:
            _check_key(key)


def check_updates(updates: Sequence[Update]) -> None:
    if len(updates) > MAX_KEYS:
        raise CatalogRefusedError(f"{len(updates)} updates, at most {MAX_KEYS} in a call")
    for update in updates:
        _check_key(update.key)
        check_time(update.time_ms)
        if update.record is not None:
            _check_record(update.key, update.record)


def check_entry(key: bytes, record: bytes) -> None:
    """Checks an entry of a file while it is read, so that the error can name its place."""
    _check_key(key)
    _check_record(key, record)


def check_time(time_ms: int) -> None:
    if not 1 <= time_ms <= MAX_TIME_MS:
        raise CatalogRefusedError(f"a time of {time_ms} ms: expected 1 to {MAX_TIME_MS}")


def check_source(source: int, sources: int) -> None:
    if not 0 <= source < sources <= MAX_SOURCES:
        raise CatalogRefusedError(f"source {source} of {sources}: expected one of at most {MAX_SOURCES}")


def check_keep(keep: int) -> None:
    if keep < 1:
        raise CatalogRefusedError(f"keep {keep} generations: expected at least 1")


def check_floor(floor_ms: int, as_of_ms: int) -> None:
    """Refuses a load if the delta may lack updates since its `as_of_ms`. Call it before the load begins."""
    if not rule.is_complete(floor_ms, as_of_ms):
        raise LacksUpdatesError(
            f"as of {as_of_ms}: updates up to {floor_ms} may be missing; build again, or load a batch read later"
        )


class Checked:
    """Passes on the records of a load, and checks, counts and hashes them, some at a time, at constant memory.

    records: how many have passed. sha256: over all that have passed, each preceded by the sizes of key (2 bytes) and
    record (4 bytes).
    """

    def __init__(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        self.records = 0
        self._given = records
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Raises CatalogRefusedError."""
        before = b""
        given = iter(self._given)
        while some := list(islice(given, _CHECKED_AT_ONCE)):
            keys, records = zip(*some, strict=True)
            sizes, record_sizes = list(map(len, keys)), list(map(len, records))
            if (
                not before < keys[0]
                or not all(map(operator.lt, keys, keys[1:]))
                or max(sizes) > MAX_KEY_BYTES
                or max(record_sizes) > MAX_RECORD_BYTES
            ):
                _refuse_first(before, some)
            before = keys[-1]
            self._hash.update(_hashed(keys, records, sizes, record_sizes))
            self.records += len(some)
            yield from some

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def is_of(records: Iterable[tuple[bytes, bytes]], checked: Checked) -> bool:
    """Whether these records are the same that have passed through `checked`."""
    number = 0
    found = hashlib.sha256()
    given = iter(records)
    while some := list(islice(given, _CHECKED_AT_ONCE)):
        keys, values = zip(*some, strict=True)
        found.update(_hashed(keys, values, map(len, keys), map(len, values)))
        number += len(some)
    return (number, found.hexdigest()) == (checked.records, checked.sha256)


def _hashed(
    keys: Sequence[bytes], records: Sequence[bytes], sizes: Iterable[int], record_sizes: Iterable[int]
) -> bytes:
    heads = map(_SIZES.pack, sizes, record_sizes)
    return b"".join(chain.from_iterable(zip(heads, keys, records, strict=True)))


def _refuse_first(before: bytes, records: Iterable[tuple[bytes, bytes]]) -> None:
    for key, record in records:
        _check_key(key)
        if not before < key:
            raise CatalogRefusedError(f"key {key.hex()} comes after {before.hex()}: sort the keys, each once")
        _check_record(key, record)
        before = key
    raise AssertionError("all of these records may pass")


def generation_id(as_of_ms: int, sha256: str) -> str:
    return f"{as_of_ms}-{sha256[:16]}"


def _check_key(key: bytes) -> None:
    if not 1 <= len(key) <= MAX_KEY_BYTES:
        raise CatalogRefusedError(f"a key of {len(key)} bytes: expected 1 to {MAX_KEY_BYTES}")


def _check_record(key: bytes, record: bytes) -> None:
    if len(record) > MAX_RECORD_BYTES:
        raise CatalogRefusedError(f"key {key.hex()}: a record of {len(record)} bytes, at most {MAX_RECORD_BYTES}")
