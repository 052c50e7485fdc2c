"""Requests that write cells, as the bytes that are sent. They are the bytes that thriftpy2 makes of a struct for each
cell, row and request, but made for thousands of cells at once. This needs numpy, so it is loaded for a write.

Thrift's binary protocol (doc/specs/thrift-binary-protocol.md in its repository), with all numbers big-endian: a message
is its version and kind, the name of the call, a number, and the arguments as a struct. A struct is its fields and a
zero. A field is its type in 1 byte, its number in 2, and its value. Text is its length in 4 bytes and itself. A list is
the type of its items in 1 byte, their number in 4, and the items.

A request holds an *item* (TPut, TDelete) for each row and timestamp: a head with the row and the number of its cells,
the cells, a tail. Each of the three has one width, so all cells are first made with a head and a tail, as records of
one width; then the heads that do not begin an item, and the tails that do not end one, are taken out.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from feedstore.widecolumn.hbase.addresses import Sync
from feedstore.widecolumn.hbase.encoding import DELETE_COLUMNS, DURABILITY, FAMILY
from feedstore.widecolumn.port import DeleteCells, PutCells, RefusedError, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS_MAX = 2_500
"""The most cells in one request, unless one item has more. A batch of 10,000 becomes four requests, which are written
side by side. Measured in turns with 1,000, for cells of actions on busy cores: 1.2 times the rate (4,000: 0.95 times).
"""

BYTES_MAX = 64 << 20
"""The most bytes of one item. A gateway takes no message above 100 MiB."""

Call = Literal["putMultiple", "deleteMultiple"]

Part = bytes | tuple[str, str]
"""A part of a record: bytes that are the same in every record, or the name of a value and its type in numpy."""

_I32, _I64, _TEXT, _STRUCT, _LIST = 8, 10, 11, 12, 15
_CALL = 0x80010001
_STOP = b"\0"


class Frame(NamedTuple):
    """A whole request. message: as it is sent."""

    call: Call
    message: bytes


class Frames:
    """The requests for one table.

    name: with its namespace.
    sync: how far a write must have got when it is answered. Each item says so, because somebody else may change the
        default of a table, or of a server.
    """

    def __init__(self, name: bytes, table: Table, sync: Sync) -> None:
        head: list[Part] = [
            _field(_TEXT, 1) + _number(table.row_bytes),
            ("row", f"V{table.row_bytes}"),
            _field(_LIST, 2) + bytes([_STRUCT]),
            ("cells", ">i4"),
        ]
        column: list[Part] = [
            _field(_TEXT, 1) + _text(FAMILY),
            _field(_TEXT, 2) + _number(table.column_bytes),
            ("column", f"V{table.column_bytes}"),
        ]
        timestamp: list[Part] = [_field(_I64, 3), ("timestamp", ">i8")]
        durability = _number(DURABILITY[sync])
        # A put's own timestamp serves all its cells. A delete's own is ignored as soon as it names columns.
        self._puts = _Call(
            "putMultiple",
            name,
            head,
            [*column, _field(_TEXT, 3) + _text(b"") + _STOP],
            [*timestamp, _field(_I32, 6) + durability + _STOP],
        )
        self._deletes = _Call(
            "deleteMultiple",
            name,
            head,
            [*column, *timestamp, _STOP],
            [_field(_I32, 4) + _number(DELETE_COLUMNS) + _field(_I32, 7) + durability + _STOP],
        )

    def of(self, puts: PutCells, markers: DeleteCells, cells_max: int = CELLS_MAX) -> Iterator[Frame]:
        """The requests that write cells and markers, row after row. A request of neighbouring rows concerns fewer
        regions. For each region a server does the same work, such as a sync of its log, however few rows there are.

        The cells of one row at one timestamp are atomic: they are never in two requests.

        Raises:
            RefusedError: one row has more cells at one timestamp than a gateway takes. Raised before the first request.
        """
        both = [_Sorted(self._puts, puts), _Sorted(self._deletes, markers)]
        return (frame for each in both for frame in each.frames(cells_max))


class _Template:
    """How records of one width are made."""

    def __init__(self, parts: Sequence[Part]) -> None:
        types = [(f"same{at}", f"V{len(part)}") if isinstance(part, bytes) else part for at, part in enumerate(parts)]
        record = np.zeros((), types)
        for (name, _), part in zip(types, parts, strict=True):
            if isinstance(part, bytes):
                record[name] = np.void(part)
        self._type = record.dtype
        self._record = record.tobytes()

    def __len__(self) -> int:
        """The width, in bytes."""
        return len(self._record)

    def records(self, values: "Mapping[str, NDArray[Any]]", count: int) -> "NDArray[np.uint8]":
        """A line of bytes for each record."""
        made = np.frombuffer(bytearray(self._record * count), self._type)
        for name, each in values.items():
            made[name] = each
        return made.view(np.uint8).reshape(count, len(self))


class _Call:
    """One kind of request: what it begins with, and how its items are made."""

    def __init__(
        self, name: Call, table: bytes, head: Sequence[Part], cell: Sequence[Part], tail: Sequence[Part]
    ) -> None:
        self.name = name
        self.beginning = b"".join(
            (
                struct.pack(">I", _CALL) + _text(name.encode()) + _number(0),
                _field(_TEXT, 1) + _text(table),
                _field(_LIST, 2) + bytes([_STRUCT]),
            )
        )
        self.template = _Template([*head, *cell, *tail])
        self.head_bytes, self.tail_bytes = len(_Template(head)), len(_Template(tail))


class _Sorted:
    """Cells in the order of their rows and timestamps."""

    def __init__(self, call: _Call, cells: PutCells | DeleteCells) -> None:
        rows, columns, timestamps = cells
        row_bytes, column_bytes = rows.shape[1], columns.shape[1]
        # As text, which sorts faster. Zeros at its end do not count, but all rows are of one length.
        text = rows.view(f"S{row_bytes}").ravel()
        order = np.lexsort((timestamps, text))
        self._call = call
        self._rows = rows.view(f"V{row_bytes}").ravel()[order]
        self._columns = columns.view(f"V{column_bytes}").ravel()[order]
        self._timestamps = timestamps[order]
        begins = np.ones(len(rows) + 1, np.bool_)
        begins[1:-1] = (self._rows[1:] != self._rows[:-1]) | (self._timestamps[1:] != self._timestamps[:-1])
        self._items = np.flatnonzero(begins)
        """Where each item begins, and where the last one ends."""
        largest, most = int(np.diff(self._items).max(initial=0)), BYTES_MAX // len(call.template)
        if largest > most:
            raise RefusedError(f"cells of one row at one timestamp: expected at most {most:,}, got {largest:,}")

    def frames(self, cells_max: int) -> Iterator[Frame]:
        items, first, last = self._items, 0, len(self._items) - 1
        while first < last:
            fit = int(np.searchsorted(items, items[first] + cells_max, side="right")) - 1
            end = max(first + 1, fit)
            yield self._frame(items[first : end + 1])
            first = end

    def _frame(self, items: "NDArray[np.int64]") -> Frame:
        first, end = int(items[0]), int(items[-1])
        cells = np.diff(items)
        values = {
            "row": self._rows[first:end],
            "cells": np.repeat(cells, cells),
            "column": self._columns[first:end],
            "timestamp": self._timestamps[first:end],
        }
        call = self._call
        records = call.template.records(values, end - first)
        kept = np.ones(records.shape, np.bool_)
        kept[:, : call.head_bytes] = False
        kept[:, -call.tail_bytes :] = False
        kept[items[:-1] - first, : call.head_bytes] = True
        kept[items[1:] - first - 1, -call.tail_bytes :] = True
        return Frame(call.name, b"".join((call.beginning, _number(len(cells)), records[kept].tobytes(), _STOP)))


def _field(kind: int, number: int) -> bytes:
    return struct.pack(">bh", kind, number)


def _number(value: int) -> bytes:
    return struct.pack(">i", value)


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value
