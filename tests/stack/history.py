"""What pages may show, by a record of acknowledged actions and their times that is kept outside the system."""

import itertools
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from feedstore.domain import Entry, Followed, PinDeleted, PinSaved, Unfollowed


@dataclass(frozen=True)
class Shown:
    """A page that a user was shown.

    asked_ms, came_ms: around it, by the machine's clock. after: the entry that the page before it ended with. is_last:
    the feed ends with it.
    """

    user: int
    asked_ms: int
    came_ms: int
    after: Entry | None
    entries: Sequence[Entry]
    is_last: bool
    served_by: str
    behind_ms: int | None


class Wrong(NamedTuple):
    """A page that shows another state than any that it admits. missing: must be on it. extra: must not."""

    page: Shown
    missing: Sequence[Entry]
    extra: Sequence[Entry]


@dataclass
class _Life:
    entry: Entry
    owner: int
    saved_ms: int
    deleted_ms: int | None = None


class History:
    """Thread-safe. Users are followed, boards are not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pins: dict[int, _Life] = {}
        self._edges: defaultdict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)

    def saved(self, done: PinSaved) -> None:
        self.saved_at(done.pin.pin, done.pin.created_ms, done.pin.owner, done.committed_ms)

    def saved_at(self, pin: int, created_ms: int, owner: int, committed_ms: int) -> None:
        with self._lock:
            self._pins[pin] = _Life(Entry(pin, created_ms), owner, committed_ms)

    def deleted(self, done: PinDeleted) -> None:
        with self._lock:
            self._pins[done.pin.pin].deleted_ms = done.committed_ms

    def edge(self, done: Followed | Unfollowed) -> None:
        with self._lock:
            self._edges[done.follower, done.followee.id].append((done.committed_ms, isinstance(done, Followed)))

    def wrong(self, pages: Iterable[Shown]) -> list[Wrong]:
        """The pages that show a state older than they admit, or one that never was (rule 10).

        A page that was asked for at `asked_ms` and says `behind_ms` shows everything that was committed before
        `asked_ms - behind_ms`; of what was committed from then on until it came, it may show any part. Asked for once
        every action is acknowledged: what was on its way looks like something that never was.
        """
        with self._lock:
            lives = sorted(self._pins.values(), key=lambda life: _order(life.entry))
            orders = [_order(life.entry) for life in lives]
            found = []
            for page in pages:
                first = 0 if page.after is None else bisect_right(orders, _order(page.after))
                last = len(lives)
                if not page.is_last:
                    last = bisect_right(orders, _order(page.entries[-1])) if page.entries else first
                must, may = set(), set()
                for life in lives[first:last]:
                    stood, changed = self._stood(page, life)
                    if stood and not changed:
                        must.add(life.entry)
                    if stood or changed:
                        may.add(life.entry)
                shown = set(page.entries)
                if must - shown or shown - may or len(shown) < len(page.entries):
                    found.append(Wrong(page, sorted(must - shown, key=_order), sorted(shown - may, key=_order)))
            return found

    def _stood(self, page: Shown, life: _Life) -> tuple[bool, bool]:
        """Whether an entry stood in the feed at the time that a page admits, and whether that changed until it came."""
        since_ms = 0 if page.behind_ms is None else page.asked_ms - page.behind_ms
        edges = self._edges[page.user, life.owner]
        follows = False
        for at_ms, active in edges:
            if at_ms < since_ms:
                follows = active
        deleted_ms = life.deleted_ms
        stood = follows and life.saved_ms < since_ms and (deleted_ms is None or deleted_ms >= since_ms)
        times = [life.saved_ms, *(at_ms for at_ms, _ in edges)]
        if deleted_ms is not None:
            times.append(deleted_ms)
        return stood, any(since_ms <= at_ms <= page.came_ms for at_ms in times)


def is_in_order(entries: Sequence[Entry]) -> bool:
    """Whether they come as in a feed, each once."""
    orders = [_order(entry) for entry in entries]
    return all(one < other for one, other in itertools.pairwise(orders))


def _order(entry: Entry) -> tuple[int, int]:
    """Newest first, ties by ascending pin."""
    return -entry.created_ms, entry.pin
