"""Reads entries of a catalog from files of batch jobs, JSON lines or Parquet; and updates from JSON lines.

A line is `{"key": "...", "record": ...}`; the record is any JSON value, and is kept as it was written, but for space. A
Parquet file has the columns `key` and `record`, each of strings or of bytes, which are kept as they are.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Final

import msgspec
from msgspec import Meta

from feedstore import validation
from feedstore.catalog.checks import check_entry
from feedstore.catalog.port import MAX_KEY_BYTES, MAX_RECORD_BYTES, CatalogRefusedError, CatalogUnavailableError, Update
from feedstore.catalog.posting import UPDATES_MAX, UpdateLine, compact
from feedstore.domain import InvalidValueError
from feedstore.errors import needing_extra

_LINE_BYTES_MAX: Final = 8 * (MAX_KEY_BYTES + MAX_RECORD_BYTES)
_COLUMNS: Final = ("key", "record")
_ROWS_AT_ONCE: Final = 1_024
_ROWS_BYTES: Final = 2**20
"""At most this many rows, of about _ROWS_BYTES bytes, are unpacked at once: a row that must be refused may be large."""
_BATCH_BYTES: Final = 2 * 2**20
"""About this many bytes of a file of updates are posted at once."""

Entries = Iterator[tuple[bytes, bytes]]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1)]
    record: msgspec.Raw


def entries_of(path: Path) -> Entries:
    """The entries of a file, in its order. The end of its name tells its format.

    Raises CatalogRefusedError if a line or row is not an entry, or the file is damaged; CatalogUnavailableError if the
    file cannot be read; ConfigError.
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
                    found = decoder.decode(line)
                    entry = found.key.encode(), compact(found.record)
                    check_entry(*entry)
                except (msgspec.MsgspecError, UnicodeError, RecursionError, CatalogRefusedError) as error:
                    raise CatalogRefusedError(f"{path}:{number}: {_wrong(error, line, _Line)}") from error
                yield entry
    except OSError as error:
        raise CatalogUnavailableError(f"{path}: {error.strerror or error}") from error


def batches_of(lines: IO[bytes], name: str, clock_ms: Callable[[], int]) -> Iterator[list[Update]]:
    """Yields the updates of JSON lines in their order, about as many at a time as one post takes. name: the file's
    name. clock_ms: the home's clock.

    Raises CatalogRefusedError if a line is no update; CatalogUnavailableError if the file cannot be read.
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
                raise CatalogRefusedError(f"{name}:{number}: {_wrong(error, line, UpdateLine)}") from error
            size += len(line)
            if len(batch) == UPDATES_MAX or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except OSError as error:
        raise CatalogUnavailableError(f"{name}: {error.strerror or error}") from error
    if batch:
        yield batch


def _wrong(error: Exception, line: bytes, into: type[Any]) -> str:
    """Says what is wrong with a line that should have been an `into`."""
    if len(line) == _LINE_BYTES_MAX:
        return f"a line of more than {_LINE_BYTES_MAX} bytes"
    match error:
        case msgspec.ValidationError():
            return str(validation.of_json(error, line, into))
        case msgspec.MsgspecError() | UnicodeDecodeError() | RecursionError():
            return validation.malformed(error, line)
        case _:
            return str(error)


def _rows(path: Path) -> Entries:
    with needing_extra(f"{path}: Parquet", "parquet"):
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - its library is an extra
    try:
        with parquet.ParquetFile(path, buffer_size=_ROWS_BYTES) as file:
            names = file.schema_arrow.names
            if any(names.count(each) != 1 for each in _COLUMNS):
                raise CatalogRefusedError(f"{path}: expected the columns key and record")
            for number, (key, record) in enumerate(_pairs(file), 1):
                try:
                    entry = _bytes(key), _bytes(record)
                    check_entry(*entry)
                except CatalogRefusedError as error:
                    raise CatalogRefusedError(f"{path}: row {number}: {error}") from error
                yield entry
    except (OSError, ArrowException) as error:
        # The system's errors have a number. All others are about the content of the file, and trying again later will
        # not help.
        if isinstance(error, OSError) and error.errno is not None:
            raise CatalogUnavailableError(f"{path}: {error.strerror}") from error
        raise CatalogRefusedError(f"{path}: damaged, or no Parquet: {error}") from error


def _pairs(file: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and records of a Parquet file, some rows at a time."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(each) for each in range(group.num_columns)]
        size = sum(each.total_uncompressed_size for each in columns if each.path_in_schema in _COLUMNS)
        rows = max(1, min(_ROWS_AT_ONCE, _ROWS_BYTES * group.num_rows // max(1, size)))
        for batch in file.iter_batches(rows, row_groups=[number], columns=[*_COLUMNS]):
            yield from zip(*(_values(batch[each]) for each in _COLUMNS), strict=True)


def _values(column: Any) -> list[Any]:
    """The values of a column. If one should be text and is not, the error takes its place: the caller knows its row."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(each) for each in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return error


def _bytes(value: Any) -> bytes:
    match value:
        case UnicodeDecodeError():
            raise CatalogRefusedError(str(value))
        case str():
            return value.encode()
        case bytes():
            return value
        case _:
            raise CatalogRefusedError(f"expected strings or bytes, got {value!r:.80}")
