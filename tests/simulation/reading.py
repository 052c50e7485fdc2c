"""A page of one cluster: what a reader makes of it, without what chooses between clusters."""

from feedstore.following.pages import Page, page_of, start_of
from feedstore.widecolumn import WideColumnStore


def page(feeds: WideColumnStore, user: int, limit: int, cursor: str | None, cap: int) -> Page:
    start = start_of(user, limit, cursor, cap)
    found = feeds.read(start.row, start.after, start.wanted + 1) if start.wanted else ()
    return page_of(start, found, cap, "one", None)
