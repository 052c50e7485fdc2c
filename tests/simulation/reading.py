"""A page of one cluster: what a reader makes of it, without what chooses between clusters."""

from typing import cast

from feedstore.following.pages import FeedPages, Page
from feedstore.replicas.replicas import Answer, Replicas
from feedstore.widecolumn import WideColumnStore


def page(feeds: WideColumnStore, user: int, limit: int, cursor: str | None, cap: int) -> Page:
    return FeedPages(cast("Replicas", _One(feeds)), cap).page(user, limit, cursor)


class _One:
    """`Replicas` of a single one."""

    def __init__(self, feeds: WideColumnStore) -> None:
        self._feeds = feeds

    def read(self, table: str, row: bytes, after: bytes | None, limit: int, deadline_s: float | None) -> Answer:
        del table, deadline_s
        return Answer(self._feeds.read(row, after, limit), "one", None)

    def first(self) -> str:
        return "one"

    def behind_ms(self, name: str) -> None:
        """It is not known."""
