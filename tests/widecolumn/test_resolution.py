"""The pure rules, against what they mean: a trim changes nothing that a reader may see, now or later."""

from hypothesis import given
from hypothesis import strategies as st

from feedstore.widecolumn.resolution import Version, garbage, visible

VERSIONS = st.sets(st.builds(Version, st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(1, 9), st.booleans()))


def put(column: bytes, timestamp: int) -> Version:
    return Version(column, timestamp, is_marker=False)


def marker(column: bytes, timestamp: int) -> Version:
    return Version(column, timestamp, is_marker=True)


def test_garbage_is_sorted_by_reason():
    versions = [put(b"a", 5), put(b"a", 4), put(b"b", 3), marker(b"b", 3), marker(b"b", 2), put(b"c", 1)]
    drop = garbage(versions, keep=1, now_ms=103, purge_window_ms=100)
    assert drop.trimmed == [put(b"c", 1)]
    assert drop.masked == [put(b"a", 4), put(b"b", 3)]
    assert drop.markers == [marker(b"b", 2)]


@given(VERSIONS, st.none() | st.integers(1, 4), st.integers(0, 20), st.integers(0, 10))
def test_a_trim_keeps_the_first_columns_and_nothing_else(
    versions: set[Version], keep: int | None, now_ms: int, window: int
):
    left = versions.difference(*garbage(versions, keep, now_ms, window))
    assert visible(left) == visible(versions)[:keep]


@given(VERSIONS, VERSIONS, st.integers(0, 20), st.integers(0, 10))
def test_a_trim_is_not_seen_by_writes_inside_the_window(
    versions: set[Version], later: set[Version], now_ms: int, window: int
):
    """Without `keep`: a store that was trimmed and one that was not show the same after any later write, if no put is
    older than the window.
    """
    later = {version for version in later if now_ms - version.timestamp <= window}
    left = versions.difference(*garbage(versions, None, now_ms, window))
    assert visible(left | later) == visible(versions | later)
