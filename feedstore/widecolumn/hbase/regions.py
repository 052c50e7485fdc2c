"""Where the rows of a table are, as HBase's catalog of regions (hbase:meta) has it.

A row of it is a region: `TABLE,START,TIME.HASH.`, with its server and its state. Its rows sort by these parts.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from feedstore.widecolumn.hbase.addresses import Address

CATALOG: Final = b"hbase:meta"
FAMILY: Final = b"info"
SERVER: Final = b"server"
STATE: Final = b"state"
_OPEN: Final = b"OPEN"


class TableRegion(NamedTuple):
    """A region. start: its first row. name: as the catalog has it. server: what serves it; None if that is unknown, or
    the region is not open.
    """

    start: bytes
    name: bytes
    server: Address | None


def bounds(table: bytes) -> tuple[bytes, bytes]:
    """The first key of the regions of a table in the catalog, and one behind the last."""
    return table + b",,", table + b" ,,"


def regions(table: bytes, found: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> list[TableRegion]:
    """The regions of a table in the order of their rows, one for each start. found: rows of the catalog, with their
    values.

    After a split, the catalog has a region and its halves for a while, and the first half has the same start as the
    region: the one that is open counts.
    """
    by_start: dict[bytes, TableRegion] = {}
    for name, values in found:
        start = name[len(table) + 1 : name.rindex(b",")]
        is_open = values.get(STATE) == _OPEN and SERVER in values
        if is_open or start not in by_start:
            by_start[start] = TableRegion(start, name, _server(values[SERVER]) if is_open else None)
    return sorted(by_start.values())


def _server(text: bytes) -> Address:
    host, _, port = text.decode().rpartition(":")
    return Address(host, int(port))
