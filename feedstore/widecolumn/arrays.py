"""A batch as cells in arrays: all that it puts, and all that it marks. It needs numpy: adapters load it to write."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

import numpy as np

from feedstore.widecolumn.port import DeleteCells, DeleteColumns, Mutation, Put, PutCells, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]
    """rows, columns, timestamps"""


def gathered(table: Table, batch: Sequence[Mutation]) -> tuple[PutCells, DeleteCells]:
    """All cells and all markers of a batch that has been checked."""
    puts: list[Put | PutCells] = []
    markers: list[DeleteColumns | DeleteCells] = []
    for mutation in batch:
        match mutation:
            case Put() | PutCells():
                puts.append(mutation)
            case DeleteColumns() | DeleteCells():
                markers.append(mutation)
            case _:
                assert_never(mutation)
    return PutCells(*_joined(table, puts)), DeleteCells(*_joined(table, markers))


def _joined(table: Table, mutations: Sequence[Mutation]) -> "Arrays":
    parts: list[Arrays] = [each for each in mutations if isinstance(each, PutCells | DeleteCells)]
    if products := [each for each in mutations if isinstance(each, Put | DeleteColumns)]:
        parts.append(_multiplied(table, products))
    if len(parts) == 1:
        return parts[0]
    rows, columns, timestamps = zip(*parts, strict=True) if parts else ([], [], [])
    # Arrays of single numbers only: joining arrays of structured types would change the byte order of their fields.
    return (
        np.concatenate([np.empty((0, table.row_bytes), np.uint8), *rows]),
        np.concatenate([np.empty((0, table.column_bytes), np.uint8), *columns]),
        np.concatenate([np.empty(0, np.int64), *timestamps]),
    )


def _multiplied(table: Table, products: Sequence[Put | DeleteColumns]) -> "Arrays":
    """The cells of products. Joined bytes are multiplied, so that the loops go over rows and mutations, not cells."""
    rows = b"".join([row * len(columns) for rows, columns in products for row, _ in rows])
    columns = b"".join([b"".join(columns) * len(rows) for rows, columns in products])
    timestamps = np.array([timestamp for rows, _ in products for _, timestamp in rows], np.int64)
    each = [len(columns) for rows, columns in products for _ in rows]
    return (
        np.frombuffer(rows, np.uint8).reshape(-1, table.row_bytes),
        np.frombuffer(columns, np.uint8).reshape(-1, table.column_bytes),
        np.repeat(timestamps, np.array(each, np.int64)),
    )
