"""Rows of hbase:meta, as regions."""

from itertools import permutations

from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.regions import SERVER, STATE, TableRegion, bounds, regions

TABLE = b"feeds:following_feed"
S1, S2 = Address("h1", 16020), Address("h2", 16020)


def row(start: bytes, time: int = 1) -> bytes:
    return b"%b,%b,%d.0123456789abcdef0123456789abcdef." % (TABLE, start, time)


def values(state: bytes, server: bytes | None = b"h1:16020") -> dict[bytes, bytes]:
    return {STATE: state} if server is None else {STATE: state, SERVER: server}


def test_the_regions_of_a_table():
    found = [(row(b""), values(b"OPEN")), (row(b"\x40"), values(b"OPEN", b"h2:16020"))]
    assert regions(TABLE, found) == [TableRegion(b"", row(b""), S1), TableRegion(b"\x40", row(b"\x40"), S2)]


def test_a_row_may_have_any_bytes():
    start = b",\x00.,1"
    assert regions(TABLE, [(row(start), values(b"OPEN"))]) == [TableRegion(start, row(start), S1)]


def test_a_region_that_is_not_open_has_no_server():
    """It keeps its place, or its rows would be asked of the region before it."""
    found = [(row(b"a"), values(b"OPENING")), (row(b"b"), values(b"OPEN", None)), (row(b"c"), {})]
    assert [(each.start, each.server) for each in regions(TABLE, found)] == [(b"a", None), (b"b", None), (b"c", None)]


def test_of_a_region_that_was_split_the_halves_count():
    there = [(row(b""), values(b"SPLIT")), (row(b"", 2), values(b"OPEN")), (row(b"m", 2), values(b"OPEN", b"h2:16020"))]
    for found in permutations(there):
        assert regions(TABLE, found) == [TableRegion(b"", row(b"", 2), S1), TableRegion(b"m", row(b"m", 2), S2)]


def test_where_they_are_in_the_catalog():
    assert bounds(TABLE) == (TABLE + b",,", TABLE + b" ,,")
