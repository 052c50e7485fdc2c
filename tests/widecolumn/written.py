"""Mutations as the single cells that they write."""

from collections.abc import Iterator
from typing import NamedTuple, assert_never

from feedstore.widecolumn.port import DeleteCells, DeleteColumns, Mutation, Put, PutCells, lines


class Written(NamedTuple):
    """A cell or a delete marker that a mutation writes."""

    row: bytes
    column: bytes
    timestamp: int


def cells_in(mutation: Mutation) -> Iterator[Written]:
    """The cells of a mutation, one by one: for reading, where a cell may cost a microsecond."""
    match mutation:
        case Put(rows, columns) | DeleteColumns(rows, columns):
            return (Written(row, column, timestamp) for row, timestamp in rows for column in columns)
        case PutCells(rows, columns, timestamps) | DeleteCells(rows, columns, timestamps):
            return map(Written, lines(rows), lines(columns), timestamps.tolist())
        case _:
            assert_never(mutation)


def count_in(mutation: Mutation) -> int:
    """How many cells a mutation writes."""
    match mutation:
        case Put(rows, columns) | DeleteColumns(rows, columns):
            return len(rows) * len(columns)
        case PutCells(rows) | DeleteCells(rows):
            return len(rows)
        case _:
            assert_never(mutation)
