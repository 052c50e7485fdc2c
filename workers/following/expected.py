"""The feeds as they must be according to the follow store: the newest `cap` pins of all active follows, as columns."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter

from feedstore.domain import MAX_ID, Edge, Followee
from feedstore.following import columns, entries_of
from feedstore.follows.port import MAX_PAGE, Merged, PinState
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks

FOLLOWEES_AT_ONCE = 64
"""The newest pins of this many followees are read together, up to `cap` of each. If a user follows more, the follow
store merges their pins.
"""

_CACHED_COLUMNS = 200_000


class Expected:
    """Reads the expected feeds. Edges come a page at a time, and each page is merged into the newest columns of its
    user: memory is bounded by `cap`, the page and the cache, however much one user follows. The cache holds followees'
    newest pins as they were at some moment since this object was made.
    """

    def __init__(self, follows: FollowStore, cap: int) -> None:
        self._follows = follows
        self._cap = cap
        self._cache: OrderedDict[Followee, list[bytes]] = OrderedDict()
        self._cached = 0

    def all(self, after_user: int = 0, until_user: int = MAX_ID) -> Iterator[tuple[int, list[bytes]]]:
        """Yields every user that follows anything, ascending, with their feed; only ids larger than `after_user` and up
        to `until_user`.
        """
        return self._merged(_every_edge(self._follows, after_user, until_user))

    def of(self, user: int) -> list[bytes]:
        return next((found for _, found in self._merged(self._edges_of(user))), [])

    def with_also(self, newest: Sequence[bytes], followees: Sequence[Followee]) -> list[bytes]:
        """A feed as it would be with more followees. newest: the feed without them."""
        found = list(newest)
        for some in chunks(followees, MAX_PAGE):
            found = self._with(found, [self._newest_of(some, found)])
        return found

    def _edges_of(self, user: int) -> Iterator[list[Edge]]:
        after: Followee | None = None
        while page := self._follows.following_after(user, after, MAX_PAGE):
            yield page
            if len(page) < MAX_PAGE:
                return
            after = page[-1].followee

    def _merged(self, pages: Iterator[list[Edge]]) -> Iterator[tuple[int, list[bytes]]]:
        """Yields the feeds of these edges' followers. The edges come in the order of their followers."""
        user, newest = 0, list[bytes]()
        for page in pages:
            for few in self._loaded(page):
                for follower, group in groupby(few, key=attrgetter("follower")):
                    if follower != user:
                        if user:
                            yield user, newest
                        user, newest = follower, []
                    newest = self._with(newest, self._lists([edge.followee for edge in group], newest))
        if user:
            yield user, newest

    def _loaded(self, page: Sequence[Edge]) -> Iterator[Sequence[Edge]]:
        """Yields the page in parts: all edges of a user who follows many, or edges of other users, whose followees are
        then in the cache.
        """
        few: list[Edge] = []
        for _, group in groupby(page, key=attrgetter("follower")):
            edges = list(group)
            if len(few) + len(edges) > FOLLOWEES_AT_ONCE and few:
                yield self._load(few)
                few = []
            if len(edges) > FOLLOWEES_AT_ONCE:
                yield edges
            else:
                few += edges
        if few:
            yield self._load(few)

    def _lists(self, followees: Sequence[Followee], newest: Sequence[bytes]) -> list[list[bytes]]:
        if len(followees) > FOLLOWEES_AT_ONCE:
            return [self._newest_of(followees, newest)]
        return [self._cache[followee] for followee in followees]

    def _newest_of(self, followees: Sequence[Followee], newest: Sequence[bytes]) -> list[bytes]:
        """The newest columns of many followees together. Columns older than the last of a full list are left out."""
        created_from_ms = entries_of(newest[-1:])[0].created_ms if len(newest) == self._cap else 0
        (found,) = self._follows.newest_pins_merged([Merged(followees, created_from_ms)], self._cap)
        return _columns(found)

    def _with(self, newest: list[bytes], lists: Sequence[list[bytes]]) -> list[bytes]:
        if not newest and len(lists) == 1:
            return lists[0]
        return sorted(set(chain(newest, *lists)))[: self._cap]

    def _load(self, edges: Sequence[Edge]) -> Sequence[Edge]:
        """Returns the same edges, after their followees were read into the cache; they stay until the next call."""
        self._trim()
        unknown: dict[Followee, None] = {}
        for edge in edges:
            if edge.followee in self._cache:
                self._cache.move_to_end(edge.followee)
            else:
                unknown[edge.followee] = None
        if unknown:
            newest = self._follows.newest_pins(list(unknown), self._cap)
            for followee in unknown:
                found = _columns(newest.get(followee, []))
                self._cache[followee] = found
                self._cached += 1 + len(found)
        return edges

    def _trim(self) -> None:
        while self._cached > _CACHED_COLUMNS:
            _, dropped = self._cache.popitem(last=False)
            self._cached -= 1 + len(dropped)


def followers(follows: FollowStore) -> Iterator[list[int]]:
    """Yields every user that follows anything, ascending, up to MAX_PAGE at once."""
    edges = chain.from_iterable(_every_edge(follows, 0, MAX_ID))
    users = (user for user, _ in groupby(edges, key=attrgetter("follower")))
    while page := list(islice(users, MAX_PAGE)):
        yield page


def _every_edge(follows: FollowStore, after_user: int, until_user: int) -> Iterator[list[Edge]]:
    after: tuple[int, Followee] | None = (after_user, Followee("user", MAX_ID)) if after_user else None
    while page := follows.all_edges_after(after, MAX_PAGE):
        if page[-1].follower > until_user:
            yield [edge for edge in page if edge.follower <= until_user]
            return
        yield page
        after = (page[-1].follower, page[-1].followee)


def _columns(states: Sequence[PinState]) -> list[bytes]:
    return columns([(state.pin.pin, state.pin.created_ms) for state in states])
