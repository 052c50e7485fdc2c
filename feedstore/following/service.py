"""The calls of a web tier: pages of feeds, actions, and who follows what.

`services.open_service` makes one from a `feed.toml`. It is thread-safe and shares no state: a program may have two of
them.

What may be raised, sorted by what the caller should do:
- `InvalidValueError`, `MalformedCursorError` (both ValueError): the request is wrong; it will never be right.
- `ActionRefusedError`: the action contradicts what is stored; its `reason` is a stable word.
- `UnavailableError`, with its subclass `DeadlineExceededError`: no page now.
- `FollowStoreUnavailableError`: not now. An action may have been recorded or not: try again with the same key.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar, cast

import msgspec

from feedstore.domain import (
    MAX_ID,
    Action,
    DeletePin,
    Edge,
    Follow,
    Followed,
    Followee,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    SavePin,
    Unfollow,
    Unfollowed,
    check_id,
    refuse_reserved,
)
from feedstore.errors import NotNowError
from feedstore.following import FEEDS, Cursor, Page, encode_cursor, relations, row_key
from feedstore.following.pages import FeedPages, FeedSize, worst
from feedstore.following.presence import Presence, presence
from feedstore.following.refills import Refills
from feedstore.following.relations import FollowersPage, FollowingPage
from feedstore.follows.pin_source import PinSource
from feedstore.follows.port import ActionRefusedError, Request
from feedstore.follows.store import FollowStore
from feedstore.replicas.breaker import State
from feedstore.replicas.health import ReadCounters
from feedstore.replicas.replicas import Replicas

MORE_READS_MAX = 2
"""The most further pages that one page of pins reads to replace deleted pins."""

R = TypeVar("R", bound=RecordedAction)


class PinsPage(msgspec.Struct, frozen=True):
    """A part of a feed with the pins themselves, newest first.

    pins: those that are not deleted, at most as many as were asked for. A short page does not mean the end; only
    `cursor is None` does.
    cursor: where the next page begins; good for `page` as well.
    served_by, behind_ms: as on a Page. After several reads: the cluster of the first, and the worst `behind_ms` of all.
    """

    pins: list[Pin]
    cursor: str | None
    served_by: str
    behind_ms: int | None


class ClusterLine(msgspec.Struct, frozen=True):
    """The state of a cluster, as the reads of this process see it. breaker: `closed` if pages are read from the
    cluster; `open` if they are not, because reads failed; `half-open` if a probe tests whether it is back. is_lagging:
    whether readers prefer another cluster because this one is far behind. behind_ms: every action that was committed
    more than this many ms ago has landed there. watermark_ms: every action that was committed before this time has
    landed there. p95_ms: 95 % of its recent reads took at most this long; null for a cluster in files. Each number is
    null if it is unknown.
    """

    name: str
    breaker: State
    is_lagging: bool
    behind_ms: int | None
    watermark_ms: int | None
    p95_ms: float | None


class FeedService:
    """Thread-safe.

    pins: where the pins of a page come from. cap: how many entries of a feed a reader can reach. refill_again_ms: the
    least time between two refills of a feed that ends early. within_s: how long a page may take if the caller gives no
    deadline. clock: in s, the same one as the replicas'. close: releases what this was made from.

    Deadlines are times of the clock, which is `time.monotonic` except in tests. They bound the reads of the clusters;
    the follow store has time-outs of its own.
    """

    def __init__(
        self,
        replicas: Replicas,
        follows: FollowStore,
        pins: PinSource,
        *,
        cap: int,
        refill_again_ms: int,
        within_s: float,
        clock: Callable[[], float],
        close: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._pages = FeedPages(replicas, cap)
        self._follows = follows
        self._pins = pins
        self._refills = Refills(follows, refill_again_ms, clock)
        self._cap = cap
        self._within_s = within_s
        self._clock = clock
        self._close = close
        self._counting = threading.Lock()
        self._served: Counter[str] = Counter()

    # Pages
    # ------------------------------------------------------------------------------------------------------------

    def page(self, user: int, limit: int = 25, cursor: str | None = None, deadline_s: float | None = None) -> Page:
        """A page of ids and times: up to `limit` (1..MAX_PAGE) entries, from the top or from where another page ended.

        Pages neither repeat nor skip an entry that was there when the walk began, even if the feed grows at its top or
        another cluster serves a page. A pin that was deleted a moment ago may still be there.

        If the feed ends below its cap and the user follows something, a refill is asked for on another thread (rule 9),
        at a bounded rate (`refills`). Deleted pins make feeds shorter, nothing else refills these, and only a walk to
        the end shows it.

        Raises:
            InvalidValueError: `user` is no id, or `limit` is out of range.
            MalformedCursorError: the cursor is damaged or another user's.
            UnavailableError: no cluster answered; DeadlineExceededError: in time.
        """
        page = self._pages.page(user, limit, cursor, deadline_s)
        with self._counting:
            self._served[page.served_by] += 1
        if page.cursor is None and page.returned < self._cap:
            self._refills.ask(user)
        return page

    def pins_page(
        self, user: int, limit: int = 25, cursor: str | None = None, deadline_s: float | None = None
    ) -> PinsPage:
        """A page of pins, from the catalog of pins if there is one, else from the follow store.

        Pins that are deleted, or have no record, are left out. Others are read in their place, with at most
        `MORE_READS_MAX` further reads: a page is short only if the feed ends, if hundreds of pins in a row are gone, or
        if the next entries cannot be read now. In each case its cursor says where to continue.

        Raises:
            NotNowError: the pins cannot be looked up; `page` may still answer. Without a catalog, this is a
                FollowStoreUnavailableError.
            InvalidValueError, MalformedCursorError, UnavailableError: as `page`.
        """
        deadline_s = self._until(deadline_s)
        page = self.page(user, limit, cursor, deadline_s)
        served_by = page.served_by
        found = self._pins.look_up(page.pins, deadline_s)
        behind_ms: list[int | None] = []
        pins: list[Pin] = []
        reads_left = MORE_READS_MAX
        while True:
            behind_ms += [page.behind_ms, found.behind_ms]
            taken = _take(found.pins, limit - len(pins), pins)
            if taken < len(page.columns):
                following: str | None = _cursor_after(user, page, taken)
                break
            following = page.cursor
            if following is None or len(pins) == limit or not reads_left:
                break
            reads_left -= 1
            try:
                page = self.page(user, limit, following, deadline_s)
                found = self._pins.look_up(page.pins, deadline_s)
            except NotNowError:
                break
        return PinsPage(pins, following, served_by, worst(behind_ms))

    def presence(self, user: int, pin: int, deadline_s: float | None = None) -> Presence | None:
        """Why a pin is in a feed, or is not; None if the pin was never saved.

        Raises InvalidValueError, FollowStoreUnavailableError.
        """
        return presence(self._follows, self._replicas, user, pin, self._until(deadline_s))

    def feed_size(self, user: int, deadline_s: float | None = None) -> FeedSize:
        """How many entries a walk would show. Reads them all, up to the cap. Raises the errors of `page`."""
        return self._pages.size(user, deadline_s)

    # Actions
    # ------------------------------------------------------------------------------------------------------------
    # Each action is durable when its call returns. A call may have a key: 1..128 printable characters, unique to the
    # request. If a call with the same key comes again within the purge window, nothing is done twice, and the first
    # answer is given again, even if it was a refusal. Each raises ActionRefusedError, FollowStoreUnavailableError, and
    # InvalidValueError if the key or an id is invalid.

    def follow(self, follower: int, followee: Followee, key: str | None = None) -> Followed:
        """Follows a user or a board. Following again only gives the edge a new time."""
        return self._one(Follow(follower, followee), key, Followed)

    def unfollow(self, follower: int, followee: Followee, key: str | None = None) -> Unfollowed:
        """Unfollows a user or a board; succeeds even if it was not followed."""
        return self._one(Unfollow(follower, followee), key, Unfollowed)

    def save_pin(self, pin: Pin, key: str | None = None, *, is_dated: bool = True) -> PinSaved:
        """Saves a pin. Saving it again changes nothing; with other values, or after its deletion, it is refused.
        is_dated: False if its time is only meant for a pin that is not saved yet; see `Request`.
        """
        return self._one(SavePin(pin), key, PinSaved, is_dated=is_dated)

    def delete_pin(self, pin: int, key: str | None = None) -> PinDeleted:
        """Deletes a pin for good. An unknown pin is refused."""
        return self._one(DeletePin(pin), key, PinDeleted)

    def pin(self, pin: int) -> Pin | None:
        """The record of a pin, deleted or not; None if it was never saved. Raises FollowStoreUnavailableError and
        InvalidValueError.
        """
        check_id("pin", pin)
        state = self._follows.pins([pin]).get(pin)
        return None if state is None else state.pin

    def record(self, requests: Sequence[Request]) -> list[RecordedAction | ActionRefusedError]:
        """Records many actions at once, as `FollowStore.record` does. A refusal is returned in the list and does not
        stop the others. Raises InvalidValueError if an action names an id of the canaries; then nothing is recorded.
        """
        for request in requests:
            refuse_reserved(request.action)
        return self._follows.record(requests)

    # Who follows what
    # -----------------------------------------------------------------------------------------------------------
    # Each raises FollowStoreUnavailableError, InvalidValueError and, where there is a cursor, MalformedCursorError.

    def follows(self, follower: int, followee: Followee) -> bool:
        """Whether a user follows the followee now. Sees everything that was recorded before the call."""
        return followee in self.followed(follower, [followee])

    def followed(self, follower: int, among: Sequence[Followee]) -> dict[Followee, Edge]:
        """Which of some followees a user follows now, with their edges; one query. As fresh as `follows`."""
        check_id("follower", follower)
        edges = self._follows.edges([(follower, followee) for followee in among])
        return {followee: edge for (_, followee), edge in edges.items() if edge.active}

    def following(self, user: int, limit: int = 100, cursor: str | None = None) -> FollowingPage:
        """A page of up to `limit` (1..MAX_RELATIONS) of what a user follows now: boards, then users, ids ascending."""
        return relations.following(self._follows, user, limit, cursor)

    def followers(self, followee: Followee, limit: int = 100, cursor: str | None = None) -> FollowersPage:
        """A page of up to `limit` (1..MAX_RELATIONS) of who follows a user or a board, by ascending id. They come from
        an index that the expander writes, so a follow of a moment ago may be missing.
        """
        return relations.followers(self._follows, followee, limit, cursor)

    # Operating
    # ----------------------------------------------------------------------------------------------------------------

    def clusters(self) -> list[ClusterLine]:
        """The states of the clusters, in the order of preference. Asks none of them."""
        return [
            ClusterLine(
                each.name,
                each.breaker,
                each.is_lagging,
                self._replicas.behind_ms(each.name),
                each.watermark_ms,
                None if each.p95_s is None else 1_000 * each.p95_s,
            )
            for each in self._replicas.status()
        ]

    def answers(self, deadline_s: float | None = None) -> None:
        """Makes a minimal read, and returns once some cluster has answered it. The follow store is not asked: all
        servers share it, and pages do not need it.

        Raises UnavailableError.
        """
        self._replicas.read(FEEDS, row_key(MAX_ID), None, 1, deadline_s)

    def pages_served(self) -> dict[str, int]:
        """How many pages each cluster has served since this was opened."""
        with self._counting:
            return dict(self._served)

    def counters(self) -> ReadCounters:
        """Reads, hedges, failovers and probes since this was opened."""
        return self._replicas.counters()

    def close(self) -> None:
        """Records the refills that were asked for, and closes. Closing twice is fine; any other call after it raises an
        UnavailableError or a FollowStoreUnavailableError.
        """
        self._refills.close()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _until(self, deadline_s: float | None) -> float:
        return self._clock() + self._within_s if deadline_s is None else deadline_s

    def _one(self, action: Action, key: str | None, kind: type[R], *, is_dated: bool = True) -> R:
        refuse_reserved(action)
        [answer] = self._follows.record([Request(action, key, is_dated)])
        if isinstance(answer, ActionRefusedError):
            raise answer
        assert isinstance(answer, kind)
        return answer


def _take(known: Sequence[Pin | None], wanted: int, pins: list[Pin]) -> int:
    """Adds up to `wanted` pins that are not deleted to `pins`. Returns how many items of `known` were used for that."""
    # On nearly every page no pin is deleted.
    live = cast("Sequence[Pin]", known) if all(known) else [pin for pin in known if pin is not None]
    if len(live) <= wanted:
        pins += live
        return len(known)
    for taken, pin in enumerate(known):
        if not wanted:
            return taken
        if pin is not None:
            pins.append(pin)
            wanted -= 1
    return len(known)


def _cursor_after(user: int, page: Page, taken: int) -> str:
    """The cursor of a page that begins after the first `taken` entries of this one."""
    return encode_cursor(user, Cursor(page.returned - len(page.columns) + taken, page.columns[taken - 1]))
