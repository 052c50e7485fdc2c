"""Pages of feeds and their sizes, from whichever cluster answers; and cursors: where the next page of a feed begins."""

import struct
from collections.abc import Sequence

import msgspec

from feedstore.domain import Entry, InvalidValueError, check_id
from feedstore.domain.cursors import sealed, unsealed
from feedstore.following.layout import FEEDS, entries_of, pins_of, row_key
from feedstore.replicas.replicas import Replicas
from feedstore.widecolumn import MAX_LIMIT

MAX_PAGE = 1_000
"""The most entries that one page holds."""

_CURSOR = struct.Struct(">Q16s")
_USER = struct.Struct(">Q").pack


class Cursor(msgspec.Struct, frozen=True):
    """Where the next page begins. Its body is 24 bytes: returned (8), last (16).

    returned: how many entries the pages so far had, so that the cap applies to all pages together. last: the column of
    the last entry.
    """

    returned: int
    last: bytes


def encode_cursor(user: int, cursor: Cursor) -> str:
    return sealed(_USER(user), _CURSOR.pack(cursor.returned, cursor.last))


def decode_cursor(user: int, text: str) -> Cursor:
    """Decodes a cursor. Raises MalformedCursorError if `text` is not a cursor of this user's feed."""
    check_id("user", user)
    return Cursor(*_CURSOR.unpack(unsealed(_USER(user), text, _CURSOR.size)))


class Page(msgspec.Struct, frozen=True):
    """A part of a feed, newest first.

    columns: the entries as they are stored, at most as many as were asked for. A short page does not mean the end; only
    `cursor is None` does.
    cursor: where the next page begins; None if the feed ends or its cap is reached.
    returned: how many entries this page and those before it had.
    served_by: the replica that answered.
    behind_ms: everything committed longer ago than this has landed in that replica; None if that is unknown.
    """

    columns: Sequence[bytes]
    cursor: str | None
    returned: int
    served_by: str
    behind_ms: int | None

    @property
    def entries(self) -> list[Entry]:
        """The entries of the columns, in the same order, made at each call: only callers that want them pay."""
        return entries_of(self.columns)

    @property
    def pins(self) -> list[bytes]:
        """The ids of the pins, 8 bytes each, big-endian, in the order of the entries."""
        return pins_of(self.columns)


class FeedSize(msgspec.Struct, frozen=True):
    """How many entries of a feed a reader can reach. served_by, behind_ms: as on a page. After several reads: the
    cluster of the first, and the worst `behind_ms` of all.
    """

    entries: int
    served_by: str
    behind_ms: int | None


class FeedPages:
    """Thread-safe. cap: how many entries of a feed a reader can reach, over all pages."""

    def __init__(self, replicas: Replicas, cap: int) -> None:
        self._replicas = replicas
        self._cap = cap

    def page(self, user: int, limit: int, cursor: str | None = None, deadline_s: float | None = None) -> Page:
        """As `FeedService.page`, without refills. deadline_s: a time of the replicas' clock."""
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidValueError("limit", limit, f"1 to {MAX_PAGE}")
        check_id("user", user)
        after: bytes | None = None
        returned = 0
        if cursor is not None:
            before = decode_cursor(user, cursor)
            after, returned = before.last, before.returned
        wanted = min(limit, self._cap - returned)
        if wanted < 1:  # the walk has reached the cap: there is nothing to read
            first = self._replicas.first()
            return Page((), None, returned, first, self._replicas.behind_ms(first))
        # One more entry than wanted shows whether there is a next page, in the same round trip.
        answer = self._replicas.read(FEEDS, row_key(user), after, wanted + 1, deadline_s)
        columns = answer.columns[:wanted]
        returned += len(columns)
        more = len(answer.columns) > wanted and returned < self._cap
        following = encode_cursor(user, Cursor(returned, columns[-1])) if more else None
        return Page(columns, following, returned, answer.served_by, answer.behind_ms)

    def size(self, user: int, deadline_s: float | None = None) -> FeedSize:
        """How many entries a walk would show; reads them all. Raises the errors of `page`."""
        check_id("user", user)
        row, after, entries = row_key(user), None, 0
        served_by = ""
        behind_ms: list[int | None] = []
        while True:
            wanted = min(self._cap - entries, MAX_LIMIT)
            answer = self._replicas.read(FEEDS, row, after, wanted, deadline_s)
            found = len(answer.columns)
            entries += found
            served_by = served_by or answer.served_by
            behind_ms.append(answer.behind_ms)
            if found < wanted or entries == self._cap:
                return FeedSize(entries, served_by, worst(behind_ms))
            after = answer.columns[-1]


def worst(behind_ms: Sequence[int | None]) -> int | None:
    """How far several reads may be behind together: the largest of at least one value; None if one is unknown."""
    known = [each for each in behind_ms if each is not None]
    return max(known) if len(known) == len(behind_ms) else None
