"""Mutations by their rows, whatever their form: for stores that lose some of them."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from feedstore.widecolumn import DeleteCells, DeleteColumns, Mutation, Put, PutCells
from feedstore.widecolumn.port import lines


def rows_of(batch: Iterable[Mutation]) -> set[bytes]:
    """The keys of all rows that a batch writes to."""
    found: set[bytes] = set()
    for mutation in batch:
        if isinstance(mutation, PutCells | DeleteCells):
            found.update(lines(mutation.rows))
        else:
            found.update(row for row, _ in mutation.rows)
    return found


def with_rows(mutation: Mutation, wanted: Callable[[bytes], bool]) -> Mutation:
    """What a mutation writes to some rows."""
    if isinstance(mutation, PutCells | DeleteCells):
        mask = np.array([wanted(row) for row in lines(mutation.rows)], bool)
        return type(mutation)(*(array[mask] for array in mutation))
    return mutation._replace(rows=[each for each in mutation.rows if wanted(each[0])])


def by_row(mutation: Mutation) -> Sequence[Mutation]:
    """The parts of a mutation that are written together or not at all: those of one row at one timestamp."""
    if isinstance(mutation, PutCells | DeleteCells):
        places = list(zip(lines(mutation.rows), mutation.timestamps.tolist(), strict=True))
        masks = (np.array([each == place for each in places]) for place in dict.fromkeys(places))
        return [type(mutation)(*(array[mask] for array in mutation)) for mask in masks]
    kind = Put if isinstance(mutation, Put) else DeleteColumns
    return [kind([row], mutation.columns) for row in mutation.rows]
