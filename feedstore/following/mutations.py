"""How deliveries become mutations: pure, the one place where users and pins turn into rows and columns for
writing.
"""

from collections.abc import Sequence

from feedstore.following.layout import columns, row_key
from feedstore.widecolumn import DeleteColumns, Put


def put(rows: Sequence[tuple[int, int]], pins: Sequence[tuple[int, int]]) -> Put:
    """Each of `pins` (pin, created_ms) into the feed of each of `rows` (user, the timestamp of the edge, in ms)."""
    return Put([(row_key(user), ts) for user, ts in rows], columns(pins))


def remove(rows: Sequence[tuple[int, int]], pins: Sequence[tuple[int, int]]) -> DeleteColumns:
    """Each of `pins` out of the feed of each of `rows` (user, ts): whatever was delivered at or before ts, early or
    late.
    """
    return DeleteColumns([(row_key(user), ts) for user, ts in rows], columns(pins))
