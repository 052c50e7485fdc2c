"""Pages of feeds and their sizes, from whichever cluster answers."""

import msgspec

from feedstore.domain import check_id
from feedstore.following import FEEDS, Page, page_of, row_key, start_of
from feedstore.replicas.race import Replicas
from feedstore.widecolumn import MAX_LIMIT


class FeedSize(msgspec.Struct, frozen=True):
    """How many entries of a feed a reader can reach. served_by, behind_ms: as on a page."""

    entries: int
    served_by: str
    behind_ms: int | None


class FeedPages:
    """Thread-safe. cap: how many entries of a feed a reader can reach, over all pages."""

    def __init__(self, replicas: Replicas, cap: int) -> None:
        self._replicas = replicas
        self._cap = cap

    def page(self, user: int, limit: int, cursor: str | None = None, deadline_s: float | None = None) -> Page:
        """A page of up to `limit` (1..MAX_PAGE) entries, from the top or from where another page ended.

        Pages neither repeat nor skip an entry that was there when the walk began, while the feed grows at its top; also
        where another cluster serves the next one.

        deadline_s: a time of the replicas' clock.

        Raises:
            InvalidValueError: `user` is no id, or `limit` is out of range.
            MalformedCursorError: the cursor is damaged or another user's.
            UnavailableError: no cluster answered; DeadlineExceededError: in time.
        """
        start = start_of(user, limit, cursor, self._cap)
        if start.wanted == 0:
            first = self._replicas.first()
            return page_of(start, (), self._cap, first, self._replicas.behind_ms(first))
        answer = self._replicas.read(FEEDS, start.row, start.after, start.wanted + 1, deadline_s)
        return page_of(start, answer.columns, self._cap, answer.served_by, answer.behind_ms)

    def size(self, user: int, deadline_s: float | None = None) -> FeedSize:
        """Raises as `page` does."""
        check_id("user", user)
        row, after, entries = row_key(user), None, 0
        while True:
            wanted = min(self._cap - entries, MAX_LIMIT)
            answer = self._replicas.read(FEEDS, row, after, wanted, deadline_s)
            found = len(answer.columns)
            entries += found
            if found < wanted or entries == self._cap:
                return FeedSize(entries, answer.served_by, answer.behind_ms)
            after = answer.columns[-1]
