"""Pages of feeds, as a web tier asks for them."""

import contextlib

from feedstore.feeds import FeedReader, Page
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError


class Feeds:
    """Reads pages, and has a feed refilled that ended early. Thread-safe.

    refill_again_ms: a feed is refilled for this reason at most once in so long.
    """

    def __init__(self, reader: FeedReader, follows: FollowStore, cap: int, refill_again_ms: int) -> None:
        self._reader = reader
        self._follows = follows
        self._cap = cap
        self._refill_again_ms = refill_again_ms

    def page(self, user: int, limit: int, cursor: str | None = None) -> Page:
        """As `FeedReader.page`; where the feed ends below its cap, a refill of it is asked for (rule 9).

        Deleted pins do not refill the feeds they stood in: a row that lost more of them than the slack ends early,
        and only a walk to its end can tell. Whether the feed is just short is not known here; a refill of a short
        feed is cheap.
        """
        page = self._reader.page(user, limit, cursor)
        if page.cursor is None and page.returned < self._cap:
            # The page is good without it; the next walk asks again.
            with contextlib.suppress(FollowStoreUnavailableError):
                self._follows.ask_refill([user], None, self._refill_again_ms)
        return page
