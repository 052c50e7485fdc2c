"""Entries of a catalog from files that somebody's batch job has written, JSON lines or Parquet; and updates.

A line is `{"key": "...", "record": ...}`; the record is any JSON value, and is kept as compact JSON. A Parquet file has
the columns `key` and `record`, each of strings or of bytes, which are kept as they are.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Final

import msgspec
from msgspec import Meta

from feedstore.catalog.port import MAX_KEY_BYTES, MAX_RECORD_BYTES, CatalogRefusedError, CatalogUnavailableError, Update
from feedstore.catalog.posting import UPDATES_MAX, UpdateLine
from feedstore.domain import InvalidValueError
from feedstore.errors import ConfigError

_LINE_BYTES_MAX: Final = 8 * (MAX_KEY_BYTES + MAX_RECORD_BYTES)
_ROWS_AT_ONCE: Final = 10_000
_BATCH_BYTES: Final = 2 * 2**20
"""About so much of a file of updates is posted at once."""

Entries = Iterator[tuple[bytes, bytes]]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1)]
    record: msgspec.Raw


def entries_of(path: Path) -> Entries:
    """The entries of a file, in its order. The end of its name tells what it is.

    Raises CatalogRefusedError for a line or row that is not an entry, CatalogUnavailableError if the file cannot be
    read, ConfigError.
    """
    kinds: dict[str, Callable[[Path], Entries]] = {".jsonl": _lines, ".ndjson": _lines, ".parquet": _rows}
    read = kinds.get(path.suffix)
    if read is None:
        raise CatalogRefusedError(f"{path}: expected a file that ends in {', '.join(kinds)}")
    return read(path)


def _lines(path: Path) -> Entries:
    decoder = msgspec.json.Decoder(_Line)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LINE_BYTES_MAX):
                number += 1
                if not line.strip():
                    continue
                try:
                    entry = decoder.decode(line)
                    # Raw is checked for its form only when it is decoded.
                    record = msgspec.json.encode(msgspec.json.decode(entry.record))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise CatalogRefusedError(f"{path}:{number}: {error}") from error
                yield entry.key.encode(), record
    except OSError as error:
        raise CatalogUnavailableError(f"{path}: {error.strerror or error}") from error


def batches_of(lines: IO[bytes], name: str, clock_ms: Callable[[], int]) -> Iterator[list[Update]]:
    """The updates of JSON lines, in their order, about as many at a time as one post takes. name: of the file.
    clock_ms: of the home.

    Raises CatalogRefusedError for a line that is no update; CatalogUnavailableError if the file cannot be read.
    """
    decoder = msgspec.json.Decoder(UpdateLine)
    batch: list[Update] = []
    size = number = 0
    try:
        while line := lines.readline(_LINE_BYTES_MAX):
            number += 1
            if not line.strip():
                continue
            try:
                batch.append(decoder.decode(line).update("line", clock_ms()))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidValueError) as error:
                raise CatalogRefusedError(f"{name}:{number}: {error}") from error
            size += len(line)
            if len(batch) == UPDATES_MAX or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except OSError as error:
        raise CatalogUnavailableError(f"{name}: {error.strerror or error}") from error
    if batch:
        yield batch


def _rows(path: Path) -> Entries:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - its library is an extra
    except ImportError as error:
        raise ConfigError(f"{path}: Parquet: install feedstore[parquet]: {error}") from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["key", "record"]):
                if batch.num_columns < 2:
                    raise CatalogRefusedError(f"{path}: expected the columns key and record")
                for key, record in zip(batch["key"].to_pylist(), batch["record"].to_pylist(), strict=True):
                    yield _bytes(path, key), _bytes(path, record)
    except (OSError, ArrowException) as error:
        raise CatalogUnavailableError(f"{path}: {error}") from error


def _bytes(path: Path, value: Any) -> bytes:
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case _:
            raise CatalogRefusedError(f"{path}: expected strings or bytes, got {value!r:.80}")
