"""Verify: the clusters against each other and against what the follow store says that every feed must hold."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from feedstore.domain import Edge, Followee
from feedstore.feeds import columns, entries_of, feeds_ascending, row_key
from feedstore.follows.port import MAX_PAGE, FollowStore
from feedstore.widecolumn import WideColumnStore

USERS_AT_ONCE = 200
"""After how many users progress is told, and what was read of the follow store is read again."""

FOLLOWEES_AT_ONCE = 64
"""How many followees' newest pins are read together, up to `cap` of each."""

MAX_SUSPECTS = 100_000
"""How many users that differ at first sight are looked at again; with more, a cluster needs a rebuild, not a list."""

_CACHED_COLUMNS = 200_000

Kind = Literal["missing", "extra", "differs"]


class Difference(NamedTuple):
    """One entry of one feed in one cluster that is not as it must be.

    missing: the feed must hold it and does not. extra: it holds it and must not. differs: it holds the pin at another
    creation time. created_ms is the time that stands in the cluster, or for a missing one that must stand there.
    """

    user: int
    cluster: str
    kind: Kind
    pin: int
    created_ms: int


@dataclass(frozen=True)
class Look:
    """What one pass over everything saw: users, and entries that the follow store expects; how many users differ, and
    the first MAX_SUSPECTS of them.
    """

    users: int
    entries: int
    found: int
    suspects: list[int]


class Verifier:
    """Compares. Reads only; memory is bounded by MAX_SUSPECTS ids and one cache of _CACHED_COLUMNS columns.

    clusters: the tables of the feeds by cluster name.
    """

    def __init__(self, follows: FollowStore, clusters: Mapping[str, WideColumnStore], cap: int) -> None:
        self._follows = follows
        self._clusters = clusters
        self._cap = cap

    def look(self, progress: Callable[[int, int], None]) -> Look:
        """Streams every feed of every cluster beside what it must be. progress: told how many
        users and entries were compared.

        Work in flight makes differences that pass: look at the suspects again once it has landed.

        Raises:
            UnavailableError, FollowStoreUnavailableError: begin again.
        """
        streams = [_Stream(feeds_ascending(store, self._cap)) for store in self._clusters.values()]
        users = entries = 0
        suspects = _Suspects()
        for user, wanted in _Expected(self._follows, self._cap).all():
            for stream in streams:
                # Feeds of users that the follow store does not know: they follow nobody, and must be empty.
                suspects.add(*stream.skip_to(user))
            users += 1
            entries += len(wanted)
            # The order of a row is the order of a feed, so that equal feeds are equal lists.
            if any(stream.take(user) != wanted for stream in streams):
                suspects.add(user)
            if users % USERS_AT_ONCE == 0:
                progress(users, entries)
        for stream in streams:
            for user in stream.rest():
                suspects.add(user)
        progress(users, entries)
        return Look(users, entries, suspects.found, suspects.first)

    def differences(self, users: Sequence[int]) -> Iterator[Difference]:
        """Reads the feeds of some users again, and what they must hold, and names every difference.

        What is committed or lands between the two reads of a feed makes a difference too: where work is in flight, ask
        twice, with all watermarks passed in between, and believe what differs both times.
        """
        for start in range(0, len(users), USERS_AT_ONCE):
            # Read anew: what an earlier look has seen was right at its time.
            expected = _Expected(self._follows, self._cap)
            for user in users[start : start + USERS_AT_ONCE]:
                wanted = expected.of(user)
                for name, store in self._clusters.items():
                    yield from _compare(user, name, wanted, store.read(row_key(user), None, self._cap))


def _compare(user: int, cluster: str, wanted: Sequence[bytes], found: Sequence[bytes]) -> Iterator[Difference]:
    missing = {entry.pin: entry.created_ms for entry in entries_of(sorted(set(wanted) - set(found)))}
    extra = {entry.pin: entry.created_ms for entry in entries_of(sorted(set(found) - set(wanted)))}
    for pin, created_ms in missing.items():
        if pin not in extra:
            yield Difference(user, cluster, "missing", pin, created_ms)
    for pin, created_ms in extra.items():
        yield Difference(user, cluster, "differs" if pin in missing else "extra", pin, created_ms)


class _Suspects:
    """Users that differ, nearly ascending; each counts once. Memory is bounded."""

    def __init__(self) -> None:
        self.found = 0
        self.first: list[int] = []
        self._known: set[int] = set()

    def add(self, *users: int) -> None:
        for user in users:
            if user not in self._known:
                self.found += 1
                if len(self.first) < MAX_SUSPECTS:
                    self.first.append(user)
                    self._known.add(user)


class _Stream:
    """One cluster's feeds, users ascending, read in step with another order of users."""

    def __init__(self, feeds: Iterator[tuple[int, list[bytes]]]) -> None:
        self._feeds = feeds
        self._next = next(feeds, None)

    def skip_to(self, user: int) -> Iterator[int]:
        """Passes over the users before this one, and yields them."""
        while self._next is not None and self._next[0] < user:
            yield self._next[0]
            self._next = next(self._feeds, None)

    def take(self, user: int) -> list[bytes]:
        """The columns of this user's feed; empty where it has none."""
        if self._next is None or self._next[0] != user:
            return []
        found = self._next[1]
        self._next = next(self._feeds, None)
        return found

    def rest(self) -> Iterator[int]:
        while self._next is not None:
            yield self._next[0]
            self._next = next(self._feeds, None)


class _Expected:
    """What feeds must hold: the newest `cap` pins of what is followed now, as columns.

    Edges come a page at a time, and each page is merged into the newest columns of its user: memory is bounded by
    `cap`, the page and the cache, however much one user follows. The cache holds each followee's newest pins as they
    were at some moment since this was made.
    """

    def __init__(self, follows: FollowStore, cap: int) -> None:
        self._follows = follows
        self._cap = cap
        self._cache: OrderedDict[Followee, list[bytes]] = OrderedDict()
        self._cached = 0

    def all(self) -> Iterator[tuple[int, list[bytes]]]:
        """Every user that follows anything, ascending, with their feed."""
        return self._merged(self._every_edge())

    def of(self, user: int) -> list[bytes]:
        return next((columns for _, columns in self._merged(self._edges_of(user))), [])

    def _every_edge(self) -> Iterator[list[Edge]]:
        after: tuple[int, Followee] | None = None
        while page := self._follows.all_edges_after(after, MAX_PAGE):
            yield page
            after = (page[-1].follower, page[-1].followee)

    def _edges_of(self, user: int) -> Iterator[list[Edge]]:
        after: Followee | None = None
        while page := self._follows.following_after(user, after, MAX_PAGE):
            yield page
            after = page[-1].followee

    def _merged(self, pages: Iterator[list[Edge]]) -> Iterator[tuple[int, list[bytes]]]:
        """The feeds of the followers of these edges, which come in the order of their followers."""
        user, newest = 0, list[bytes]()
        for page in pages:
            for start in range(0, len(page), FOLLOWEES_AT_ONCE):
                edges = page[start : start + FOLLOWEES_AT_ONCE]
                self._load(edges)
                for follower, group in groupby(edges, key=attrgetter("follower")):
                    if follower != user:
                        if user:
                            yield user, newest
                        user, newest = follower, []
                    newest = self._with(newest, [self._cache[edge.followee] for edge in group])
                self._trim()
        if user:
            yield user, newest

    def _with(self, newest: list[bytes], lists: Sequence[list[bytes]]) -> list[bytes]:
        if not newest and len(lists) == 1:
            return lists[0]
        return sorted(set(chain(newest, *lists)))[: self._cap]

    def _load(self, edges: Sequence[Edge]) -> None:
        unknown: dict[Followee, None] = {}
        for edge in edges:
            if edge.followee in self._cache:
                self._cache.move_to_end(edge.followee)
            else:
                unknown[edge.followee] = None
        if not unknown:
            return
        newest = self._follows.newest_pins(list(unknown), self._cap)
        for followee in unknown:
            found = columns([(state.pin.pin, state.pin.created_ms) for state in newest.get(followee, [])])
            self._cache[followee] = found
            self._cached += 1 + len(found)

    def _trim(self) -> None:
        while self._cached > _CACHED_COLUMNS:
            _, dropped = self._cache.popitem(last=False)
            self._cached -= 1 + len(dropped)
