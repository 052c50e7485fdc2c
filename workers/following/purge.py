"""The purge after an unfollow (rule 6): the expander lists the pins to remove, and each writer reads the row."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from feedstore.domain import Followee, Pin, Unfollowed, board, user
from feedstore.following import Limits
from feedstore.follows.port import MAX_PAGE
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from workers.following.covering import Covering, covering_now
from workers.following.fanout import Publish
from workers.following.messages import Block, Delivery, Purge

UNFOLLOWS_AT_ONCE = 64
"""The reads of this many unfollows are made together. All pins that they list are in memory at once: up to `cap` older
pins of each followee, and all that were saved within W. Unfollows of the same followee share them.
"""

FOLLOWEES_AT_ONCE = 64
"""The older pins of this many followees are read together, up to `cap` of each."""

_KEYS_AT_ONCE = 10_000


class _List(NamedTuple):
    """The pins that an unfollow removes, by their ids. of_followee: those that its followee's own lists have; all
    unfollows of a followee share the object. overlapping: those that only overlapping edges bring. complete: whether
    these are all pins that the followee ever had.
    """

    of_followee: Mapping[int, Pin]
    overlapping: Mapping[int, Pin]
    complete: bool

    def pins(self) -> Iterator[Pin]:
        return chain(self.of_followee.values(), self.overlapping.values())


class Purging:
    """Handles unfollows: puts markers on everything of the followee that the row holds or may yet receive.

    The cost of an unfollow is that of the pins it lists. Edges are looked up by key: no others of the user are read.
    """

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def unfollow(self, actions: Sequence[Unfollowed], read_ms: int, cluster: str | None) -> None:
        """Publishes each unfollow's purge. The ended edges are in the index."""
        for some in chunks(actions, UNFOLLOWS_AT_ONCE):
            lists = self._lists(some, read_ms)
            # What the follower follows now is read after the lists: pins that another active edge covers stay (rule 5).
            listed = (
                (action.follower, pins.values())
                for action in some
                for pins in (lists[action].of_followee, lists[action].overlapping)
            )
            covering = covering_now(self._follows, listed)
            self._publish(
                delivery
                for action in some
                for delivery in self._purge(action, lists[action], covering[action.follower], read_ms, cluster)
            )

    def _purge(
        self, action: Unfollowed, listed: _List, covering: Covering, read_ms: int, cluster: str | None
    ) -> Iterator[Delivery]:
        pins = [(pin.pin, pin.created_ms) for pin in listed.pins() if covering.ts(pin) is None]
        if listed.complete and not pins:
            return  # nothing to remove, so nothing is uncovered and nothing needs a refill
        parts = list(chunks(pins, self._limits.chunk)) or [[]]
        for number, entries in enumerate(parts, 1):
            markers = [Block([(action.follower, action.ts)], entries)] if entries else []
            purge = Purge(number, len(parts), listed.complete)
            yield Delivery(action, read_ms, markers=markers, purge=purge, cluster=cluster)

    def _lists(self, actions: Sequence[Unfollowed], read_ms: int) -> dict[Unfollowed, _List]:
        """The list of rule 6 for each of these unfollows.

        It holds all pins saved within W: they may still be in flight, whatever their place in the feed. Of the older
        ones, whose deliveries have landed, it holds the newest `cap`, which a backfill in flight may bring. The same is
        listed for each overlapping edge that changed within W, because its backfill may be in flight as well.
        """
        cutoff_ms = max(1, read_ms - self._limits.window_ms)
        cap = self._limits.cap
        followees = list({action.followee: None for action in actions})
        # The older pins are read first: a pin that is re-dated between the two reads is then in both lists, rather than
        # in neither.
        older = self._older(followees, cutoff_ms)
        # If the list holds every older pin of the followee, it also holds those that overlapping edges bring.
        cut = [action for action in actions if len(older[action.followee]) >= cap]
        overlapping = self._overlapping(cut, cutoff_ms)
        brought: dict[Unfollowed, dict[int, Pin]] = {action: {} for action in overlapping}
        also = list({followee: None for of_action in overlapping.values() for followee in of_action})
        for part in chunks(also, FOLLOWEES_AT_ONCE):
            some = self._older(part, cutoff_ms)
            for action, of_action in overlapping.items():
                for followee in of_action:
                    for pin in some.get(followee, ()):
                        if action.followee in pin.followees():
                            brought[action][pin.pin] = pin
        of_followee = {followee: {pin.pin: pin for pin in older[followee]} for followee in followees}
        for followee, pin in self._saved_since(followees, cutoff_ms):
            of_followee[followee][pin.pin] = pin
        lists: dict[Unfollowed, _List] = {}
        for action in actions:
            own = of_followee[action.followee]
            others = {number: pin for number, pin in brought.get(action, {}).items() if number not in own}
            lists[action] = _List(own, others, len(older[action.followee]) < cap)
        return lists

    def _older(self, followees: Sequence[Followee], cutoff_ms: int) -> dict[Followee, list[Pin]]:
        newest = self._follows.newest_pins(followees, self._limits.cap, saved_before_ms=cutoff_ms)
        return {followee: [state.pin for state in states] for followee, states in newest.items()}

    def _saved_since(self, followees: Sequence[Followee], since_ms: int) -> Iterator[tuple[Followee, Pin]]:
        after: tuple[Followee, int, int] | None = None
        while True:
            page = self._follows.pins_saved_since(followees, since_ms, after, MAX_PAGE)
            for followee, state in page:
                yield followee, state.pin
            if len(page) < MAX_PAGE:
                return
            followee, state = page[-1]
            after = (followee, state.saved_ms, state.pin.pin)

    def _overlapping(self, actions: Sequence[Unfollowed], since_ms: int) -> dict[Unfollowed, list[Followee]]:
        """For each unfollow, those followees of the follower's other edges that may bring pins of the same followee and
        whose edges changed since a time: for a board its owner, for a user their boards.
        """
        boards = list({action.followee.id: None for action in actions if action.followee.kind == "board"})
        owners = self._follows.board_owners(boards) if boards else {}
        by_user: defaultdict[int, list[Unfollowed]] = defaultdict(list)
        candidates: list[tuple[Unfollowed, Followee]] = []
        found: dict[Unfollowed, list[Followee]] = {}
        for action in actions:
            if action.followee.kind == "user":
                by_user[action.followee.id].append(action)
            elif action.followee.id in owners:
                candidates.append((action, user(owners[action.followee.id])))
        for owner, board_id in self._boards_of(list(by_user)):
            candidates += [(action, board(board_id)) for action in by_user[owner]]
            if len(candidates) > _KEYS_AT_ONCE:
                self._add_changed(found, candidates, since_ms)
                candidates = []
        self._add_changed(found, candidates, since_ms)
        return found

    def _boards_of(self, owners: Sequence[int]) -> Iterator[tuple[int, int]]:
        after: tuple[int, int] | None = None
        while owners:
            page = self._follows.boards_of(owners, after, MAX_PAGE)
            yield from page
            if len(page) < MAX_PAGE:
                return
            after = page[-1]

    def _add_changed(
        self,
        found: dict[Unfollowed, list[Followee]],
        candidates: Sequence[tuple[Unfollowed, Followee]],
        since_ms: int,
    ) -> None:
        if not candidates:
            return
        keys = list({(action.follower, followee): None for action, followee in candidates})
        changed = {(edge.follower, edge.followee) for edge in self._follows.changed_edges(keys, since_ms)}
        for action, followee in candidates:
            if (action.follower, followee) in changed:
                found.setdefault(action, []).append(followee)
