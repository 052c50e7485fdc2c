"""What a page is, and how it comes of a row's columns. Pure: the reader of the row is elsewhere."""

from collections.abc import Sequence

import msgspec

from feedstore.domain import Entry, InvalidValueError, check_id
from feedstore.following.cursors import Cursor, decode_cursor, encode_cursor
from feedstore.following.layout import entries_of, pins_of, row_key

MAX_PAGE = 1_000
"""The most entries that one page holds."""


class Page(msgspec.Struct, frozen=True):
    """A part of a feed, newest first.

    columns: at most as many as were asked for, each an entry as it is stored. A short page is not an end: only `cursor
    is None` is.
    cursor: where the next page begins; None where the feed ends, or at its cap.
    returned: how many entries this page and those before it held.
    served_by: the replica that answered.
    behind_ms: everything committed longer ago than this has landed in that replica; None where that is unknown.
    """

    columns: Sequence[bytes]
    cursor: str | None
    returned: int
    served_by: str
    behind_ms: int | None

    @property
    def entries(self) -> list[Entry]:
        """The entries of the columns, in the same order. Made each time: a page costs a caller no more than it looks
        at.
        """
        return entries_of(self.columns)

    @property
    def pins(self) -> Sequence[int]:
        """The pins of the entries, in the same order."""
        return pins_of(self.columns)


class Start(msgspec.Struct, frozen=True):
    """Where a page begins: read `wanted` + 1 columns of `row` after `after`; one more than wanted tells whether there
    is more, in the same round trip.

    wanted: 0 where the walk has reached the cap, and there is nothing to read. returned: by the pages before.
    """

    user: int
    row: bytes
    after: bytes | None
    wanted: int
    returned: int


def start_of(user: int, limit: int, cursor: str | None, cap: int) -> Start:
    """Raises InvalidValueError (`user` is no id, `limit` is out of range) or MalformedCursorError."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidValueError("limit", limit, f"1 to {MAX_PAGE}")
    check_id("user", user)
    if cursor is None:
        return Start(user, row_key(user), None, min(limit, cap), 0)
    before = decode_cursor(user, cursor)
    return Start(user, row_key(user), before.last, max(0, min(limit, cap - before.returned)), before.returned)


def page_of(start: Start, found: Sequence[bytes], cap: int, served_by: str, behind_ms: int | None) -> Page:
    """found: what was read; at most `start.wanted` of it make the page."""
    columns = found[: start.wanted]
    returned = start.returned + len(columns)
    more = len(found) > start.wanted and returned < cap
    following = encode_cursor(start.user, Cursor(returned, columns[-1])) if more else None
    return Page(columns, following, returned, served_by, behind_ms)
