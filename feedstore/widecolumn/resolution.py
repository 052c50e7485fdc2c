"""Which cell of a column is visible, and what a trim may drop. Pure: no store, no clock.

An adapter may find the visible cells faster (its sort order can put the deciding version first), but what it drops is
decided here and nowhere else.
"""

from collections.abc import Collection
from typing import NamedTuple

from feedstore.widecolumn.port import Cell


class Version(NamedTuple):
    """One stored version of a column: a put, or a marker that masks every put at or below its timestamp."""

    column: bytes
    timestamp: int
    is_marker: bool


class Garbage(NamedTuple):
    """The cells that a trim may drop from a row, by reason. All of it goes at once: a marker may be forgotten only
    together with what it masks.
    """

    trimmed: list[Version]
    masked: list[Version]
    markers: list[Version]


def visible(versions: Collection[Version]) -> list[Cell]:
    """The visible cells of a row, in column order. `versions` come in any order."""
    puts: dict[bytes, int] = {}
    markers: dict[bytes, int] = {}
    for column, timestamp, is_marker in versions:
        newest = markers if is_marker else puts
        if timestamp > newest.get(column, 0):
            newest[column] = timestamp
    return [Cell(column, ts) for column, ts in sorted(puts.items()) if ts > markers.get(column, 0)]


def masks(versions: Collection[Version], columns: Collection[bytes]) -> list[Cell]:
    """Those of the columns that have a marker and are not visible, in column order, each at its largest marker."""
    shown = {cell.column for cell in visible(versions)}
    markers: dict[bytes, int] = {}
    for column, timestamp, is_marker in versions:
        if is_marker and column not in shown:
            markers[column] = max(timestamp, markers.get(column, 0))
    return [Cell(column, markers[column]) for column in sorted({*columns} & markers.keys())]


def garbage(versions: Collection[Version], keep: int | None, now_ms: int, purge_window_ms: int) -> Garbage:
    """The cells that a row can lose without changing its first `keep` visible columns, now or by any write that is not
    older than the purge window.
    """
    cells = visible(versions)
    kept = set(cells[:keep])
    shown = set(cells)
    drop = Garbage([], [], [])
    for version in versions:
        cell = Cell(version.column, version.timestamp)
        if version.is_marker:
            if now_ms - version.timestamp > purge_window_ms:
                drop.markers.append(version)
        elif cell not in shown:
            drop.masked.append(version)
        elif cell not in kept:
            drop.trimmed.append(version)
    return drop
