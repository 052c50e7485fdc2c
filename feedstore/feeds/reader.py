"""Pages of a feed, read from one replica, and from another one when it must be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from feedstore.domain import Entry, check_id
from feedstore.feeds.cursors import Cursor, decode_cursor, encode_cursor
from feedstore.feeds.layout import entries_of, row_key
from feedstore.feeds.progress import Progress, Watermark
from feedstore.widecolumn import UnavailableError, WideColumnStore

MAX_PAGE = 1_000
"""The most entries that one page holds."""


@dataclass(frozen=True)
class Replica:
    """One cluster as a reader sees it: the table of the feeds and the table of its progress."""

    name: str
    feeds: WideColumnStore
    progress: WideColumnStore


class Page(msgspec.Struct, frozen=True):
    """A part of a feed, newest first.

    entries: at most as many as were asked for. A short page is not an end: only `cursor is None` is.
    cursor: where the next page begins; None where the feed ends, or at its cap.
    returned: how many entries this page and those before it held.
    served_by: the replica that answered.
    behind_ms: everything committed longer ago than this has landed in that replica; None where that is unknown.
    """

    entries: list[Entry]
    cursor: str | None
    returned: int
    served_by: str
    behind_ms: int | None


class FeedReader:
    """Reads pages. Thread-safe.

    replicas: in the order in which they are asked; the next one only when one is unavailable.
    cap: how many entries of a feed a reader can reach, over all pages.
    clock: ms, for `behind_ms`.
    """

    def __init__(self, replicas: Sequence[Replica], cap: int, clock: Callable[[], int]) -> None:
        if not replicas:
            raise ValueError("replicas: expected at least one")
        self._replicas = [(replica, Watermark(Progress(replica.progress), clock)) for replica in replicas]
        self._cap = cap

    def page(self, user: int, limit: int, cursor: str | None = None) -> Page:
        """A page of up to `limit` (1..MAX_PAGE) entries, from the top or from where another page ended.

        Pages neither repeat nor skip an entry that was there when the walk began, while the feed grows at its top.

        Raises:
            InvalidValueError: `user` is no id.
            ValueError: `limit` is out of range.
            MalformedCursorError: the cursor is damaged or another user's.
            UnavailableError: no replica answered.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"limit: expected 1 to {MAX_PAGE}, got {limit}")
        check_id("user", user)
        start = Cursor(0, b"") if cursor is None else decode_cursor(user, cursor)
        wanted = min(limit, self._cap - start.returned)
        if wanted <= 0:
            return Page([], None, start.returned, *self._anyone())
        row = row_key(user)
        failures: list[str] = []
        for replica, mark in self._replicas:
            try:
                # One more than wanted tells whether there is more, in the same round trip.
                found = replica.feeds.read(row, start.last or None, wanted + 1)
            except UnavailableError as error:
                failures.append(f"{replica.name}: {error}")
                continue
            returned = start.returned + min(len(found), wanted)
            more = len(found) > wanted and returned < self._cap
            following = encode_cursor(user, Cursor(returned, found[wanted - 1])) if more else None
            return Page(entries_of(found[:wanted]), following, returned, replica.name, _behind_ms(mark))
        raise UnavailableError("no replica answered: " + "; ".join(failures))

    def _anyone(self) -> tuple[str, int | None]:
        replica, mark = self._replicas[0]
        return replica.name, _behind_ms(mark)


def _behind_ms(mark: Watermark) -> int | None:
    try:
        return mark.behind_ms()
    except UnavailableError:
        return None  # the page is good; how old it may be is not known, and None says so
