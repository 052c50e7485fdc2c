"""The writes that every adapter refuses, before it makes any.

Checks run over whole sequences in C (`{*map(len, ...)}`): they run for every cell that is written.
"""

from collections.abc import Sequence
from itertools import chain
from typing import assert_never

from feedstore.widecolumn.port import (
    MAX_LIMIT,
    DeleteCells,
    DeleteColumns,
    Mutation,
    Put,
    PutCells,
    RefusedError,
    Table,
)

MAX_TIMESTAMP = 2**63 - 2
"""One less than what 64 bits hold: to HBase, 2^63-1 means "whatever the time is when it arrives"."""


def check_batch(table: Table, batch: Sequence[Mutation]) -> None:
    """Raises RefusedError unless the table can hold every cell of the batch."""
    # All products are checked at once: those of real actions are small, and a check costs more than what it looks at.
    cells = []
    for mutation in batch:
        match mutation:
            case Put(rows, columns) | DeleteColumns(rows, columns):
                if rows and columns:
                    cells.append((rows, columns))
            case PutCells() | DeleteCells():
                _check_cells(table, mutation)
            case _:
                assert_never(mutation)
    if not cells:
        return
    keys, timestamps = zip(*chain.from_iterable(rows for rows, _ in cells), strict=True)
    _check_lengths(table, "row", keys, table.row_bytes)
    _check_lengths(table, "column", [*chain.from_iterable(columns for _, columns in cells)], table.column_bytes)
    if {*map(type, timestamps)} != {int} or min(timestamps) < 1 or max(timestamps) > MAX_TIMESTAMP:
        bad = next(each for each in timestamps if type(each) is not int or not 1 <= each <= MAX_TIMESTAMP)
        raise RefusedError(f"{table.name}: timestamp: expected ms from 1 to 2^63-2, got {bad!r}")


def check_row(table: Table, row: bytes) -> None:
    if type(row) is not bytes or len(row) != table.row_bytes:
        _refuse(table, "row", row, table.row_bytes)


def check_read(table: Table, row: bytes, after: bytes | None, limit: int) -> None:
    if type(row) is not bytes or len(row) != table.row_bytes:  # and no call of `check_row`: this runs for every page
        _refuse(table, "row", row, table.row_bytes)
    if after is not None and (type(after) is not bytes or len(after) != table.column_bytes):
        _refuse(table, "after", after, table.column_bytes)
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise RefusedError(f"{table.name}: limit: expected 1 to {MAX_LIMIT}, got {limit!r}")


def check_range(table: Table, start: bytes, stop: bytes | None) -> None:
    """The ends of a scan may be of any length: they compare with row keys as bytes do."""
    for field, value in (("start", start), ("stop", stop)):
        if type(value) is not bytes and not (field == "stop" and value is None):
            raise RefusedError(f"{table.name}: {field}: expected bytes, got {value!r}")


def _check_cells(table: Table, mutation: PutCells | DeleteCells) -> None:
    rows, columns, timestamps = mutation
    count = _check_array(table, "rows", rows, "uint8", table.row_bytes)
    for field, values, dtype, width in (
        ("columns", columns, "uint8", table.column_bytes),
        ("timestamps", timestamps, "int64", None),
    ):
        if (found := _check_array(table, field, values, dtype, width)) != count:
            raise RefusedError(f"{table.name}: {field}: expected as many as rows, {count}, got {found}")
    if count and not 1 <= timestamps.min() <= timestamps.max() <= MAX_TIMESTAMP:
        bad = next(each for each in timestamps.tolist() if not 1 <= each <= MAX_TIMESTAMP)
        raise RefusedError(f"{table.name}: timestamps: expected ms from 1 to 2^63-2, got {bad}")


def _check_array(table: Table, field: str, values: object, dtype: str, width: int | None) -> int:
    """The length of an array. Raises RefusedError if it is not one as the port wants it. width: the bytes of each item;
    None if the items are numbers.
    """
    import numpy as np  # noqa: PLC0415  # the maker of the mutation has loaded it; a reader does not

    if type(values) is not np.ndarray:
        raise RefusedError(f"{table.name}: {field}: expected an array of numpy, got {type(values).__name__}")
    if values.dtype != dtype:  # another byte order is another dtype
        raise RefusedError(f"{table.name}: {field}: expected {dtype}, got {values.dtype.str}")
    if values.shape[1:] != (() if width is None else (width,)) or not values.ndim:
        shape = "(cells,)" if width is None else f"(cells, {width})"
        raise RefusedError(f"{table.name}: {field}: expected the shape {shape}, got {values.shape}")
    if not values.flags.c_contiguous:
        raise RefusedError(f"{table.name}: {field}: expected a C-contiguous array")
    return len(values)


def _check_lengths(table: Table, field: str, values: Sequence[bytes], length: int) -> None:
    if {*map(type, values)} != {bytes} or {*map(len, values)} != {length}:
        _refuse(table, field, next(v for v in values if type(v) is not bytes or len(v) != length), length)


def _refuse(table: Table, field: str, value: object, length: int) -> None:
    shown = repr(value)
    raise RefusedError(
        f"{table.name}: {field}: expected {length} bytes, got {shown if len(shown) <= 80 else shown[:77] + '...'}"
    )
