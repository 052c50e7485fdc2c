"""Turns deliveries into mutations. Pure; the only place where users and pins become rows and columns for writing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from feedstore.domain import MAX_ID
from feedstore.following.layout import COLUMN_BYTES, MULTIPLIER, ROW_BYTES, columns, row_key
from feedstore.widecolumn import DeleteCells, DeleteColumns, Put, PutCells

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


def put(rows: Sequence[tuple[int, int]], pins: Sequence[tuple[int, int]]) -> Put:
    """Puts each of `pins` (pin, created_ms) into the feed of each of `rows` (user, the edge's timestamp in ms)."""
    return Put([(row_key(user), ts) for user, ts in rows], columns(pins))


def remove(rows: Sequence[tuple[int, int]], pins: Sequence[tuple[int, int]]) -> DeleteColumns:
    """Removes each of `pins` from the feed of each of `rows` (user, ts), if it was delivered with a timestamp of at
    most `ts`, whether that delivery lands before this one or after it.
    """
    return DeleteColumns([(row_key(user), ts) for user, ts in rows], columns(pins))


def put_cells(users: "Numbers", timestamps: "Numbers", pins: "Numbers", created_ms: "Numbers") -> PutCells:
    """Puts each pin into the feed of its user: single cells, from arrays of equal length."""
    return PutCells(_rows(users), _columns(pins, created_ms), timestamps)


def remove_cells(users: "Numbers", timestamps: "Numbers", pins: "Numbers", created_ms: "Numbers") -> DeleteCells:
    """Removes each pin from its user's feed, as `remove` does: single delete markers, from arrays of equal length."""
    return DeleteCells(_rows(users), _columns(pins, created_ms), timestamps)


def buckets(users: "Numbers") -> "NDArray[np.uint8]":
    """The first byte of each user's row key: `layout.bucket` for many users."""
    import numpy as np  # noqa: PLC0415 - only writers of cells in arrays load it

    return (users.view(np.uint64) * np.uint64(MULTIPLIER) >> np.uint64(56)).astype(np.uint8)


def _rows(users: "Numbers") -> "NDArray[np.uint8]":
    import numpy as np  # noqa: PLC0415

    rows = np.empty((len(users), ROW_BYTES), np.uint8)
    rows[:, 0] = buckets(users)
    rows[:, 1:] = _big_endian(users)
    return rows


def _columns(pins: "Numbers", created_ms: "Numbers") -> "NDArray[np.uint8]":
    import numpy as np  # noqa: PLC0415

    columns = np.empty((len(pins), COLUMN_BYTES), np.uint8)
    columns[:, :8] = _big_endian(MAX_ID - created_ms)
    columns[:, 8:] = _big_endian(pins)
    return columns


def _big_endian(numbers: "Numbers") -> "NDArray[np.uint8]":
    import numpy as np  # noqa: PLC0415

    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
