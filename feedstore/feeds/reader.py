"""Pages of a feed, read from one replica, and from another one when it must be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feedstore.feeds.pages import Page, page_of, start_of
from feedstore.feeds.progress import Progress, Watermark
from feedstore.widecolumn import UnavailableError, WideColumnStore


@dataclass(frozen=True)
class Replica:
    """One cluster as a reader sees it: the table of the feeds and the table of its progress."""

    name: str
    feeds: WideColumnStore
    progress: WideColumnStore


class FeedReader:
    """Reads pages, one replica after the other, and waits for each. Thread-safe.

    For commands and drills, which have time; a web tier reads through `feedstore.serving`.

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
            InvalidValueError: `user` is no id, or `limit` is out of range.
            MalformedCursorError: the cursor is damaged or another user's.
            UnavailableError: no replica answered.
        """
        start = start_of(user, limit, cursor, self._cap)
        if start.wanted == 0:
            replica, mark = self._replicas[0]
            return page_of(start, (), self._cap, replica.name, mark.behind_ms(_known_ms(mark)))
        failures: list[str] = []
        for replica, mark in self._replicas:
            # Asked first: what lands between the read and the look would count for the page, and not stand on it.
            known_ms = _known_ms(mark)
            try:
                found = replica.feeds.read(start.row, start.after, start.wanted + 1)
            except UnavailableError as error:
                failures.append(f"{replica.name}: {error}")
                continue
            return page_of(start, found, self._cap, replica.name, mark.behind_ms(known_ms))
        raise UnavailableError("no replica answered: " + "; ".join(failures))


def _known_ms(mark: Watermark) -> int | None:
    try:
        return mark.known_ms()
    except UnavailableError:
        return None  # the page is good; how old it may be is not known, and None says so
