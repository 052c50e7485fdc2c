"""What an unfollow removes (rule 6), split between the expander, which lists, and the writers, which read their own
row.
"""

from collections.abc import Iterator, Sequence

from feedstore.domain import Edge, Followee, Pin, Unfollowed, board
from feedstore.feeds import Limits
from feedstore.follows.port import MAX_PAGE, FollowStore, covering_ts
from workers.handlers.fanout import Publish
from workers.messages import Block, Delivery, Purge


class Purging:
    """Handles unfollows: markers on everything of the followee that the row holds or may yet receive."""

    def __init__(self, follows: FollowStore, publish: Publish, limits: Limits) -> None:
        self._follows = follows
        self._publish = publish
        self._limits = limits

    def unfollow(self, actions: Sequence[Unfollowed], read_ms: int) -> None:
        """Publishes each unfollow's purge. The tombstones are in the index."""
        # Published as they are made, a bounded number at a time: one unfollow's are out after its reads.
        self._publish(delivery for action in actions for delivery in self._purge(action, read_ms))

    def _purge(self, action: Unfollowed, read_ms: int) -> Iterator[Delivery]:
        listed, complete = self._listed(action, read_ms)
        # What F follows now is read after the list: what another active edge covers stays (rule 5).
        covering = {edge.followee: edge.ts for edge in self._follows.following(action.follower)}
        pins = [(pin.pin, pin.created_ms) for pin in listed.values() if covering_ts(pin, covering) is None]
        if complete and not pins:
            return  # nothing to remove, so nothing is uncovered and nothing needs a refill
        chunk = self._limits.chunk
        chunks = [pins[start : start + chunk] for start in range(0, len(pins), chunk)] or [[]]
        for number, entries in enumerate(chunks, 1):
            markers = [Block([(action.follower, action.ts)], entries)] if entries else []
            yield Delivery(action, read_ms, markers=markers, purge=Purge(number, len(chunks), complete))

    def _listed(self, action: Unfollowed, read_ms: int) -> tuple[dict[int, Pin], bool]:
        """The list of rule 6 by pin id, and whether it holds every pin that the followee ever had.

        Pins saved within W may still be in flight, whatever their place in the feed: all of them. Of the older ones,
        whose deliveries have landed, the newest `cap`, which a backfill in flight may bring. The same for each
        overlapping edge that changed within W, because its backfill may be in flight as well.
        """
        cutoff_ms = max(1, read_ms - self._limits.window_ms)
        cap = self._limits.cap
        overlapping = self._overlapping(action, cutoff_ms)
        # The older ones first: a pin that is re-dated between the two reads is in both lists, not in neither.
        older = self._follows.newest_pins([action.followee, *overlapping], cap, saved_before_ms=cutoff_ms)
        listed = {
            state.pin.pin: state.pin
            for states in older.values()
            for state in states
            if action.followee in state.pin.followees()
        }
        listed |= {pin.pin: pin for pin in self._saved_since(action.followee, cutoff_ms)}
        return listed, len(older.get(action.followee, ())) < cap

    def _saved_since(self, followee: Followee, since_ms: int) -> Iterator[Pin]:
        after: tuple[int, int] | None = None
        while True:
            page = self._follows.pins_saved_since(followee, since_ms, after, MAX_PAGE)
            for state in page:
                yield state.pin
            if len(page) < MAX_PAGE:
                return
            after = (page[-1].saved_ms, page[-1].pin.pin)

    def _overlapping(self, action: Unfollowed, since_ms: int) -> list[Followee]:
        """The followees of the follower's other edges that changed since a time and may cover pins of this
        followee.
        """
        changed = [
            edge.followee
            for edge in self._follows.changed_edges(action.follower, since_ms)
            if edge.followee != action.followee
        ]
        if action.followee.kind == "board":
            owner = self._follows.board_owners([action.followee.id]).get(action.followee.id)
            return [followee for followee in changed if followee.kind == "user" and followee.id == owner]
        boards = [followee.id for followee in changed if followee.kind == "board"]
        owners = self._follows.board_owners(boards)
        return [board(board_id) for board_id in boards if owners.get(board_id) == action.followee.id]


def uncovered(pins: Sequence[Pin], followee: Followee, active: Sequence[Edge]) -> list[Pin]:
    """Of the pins that a row holds, those that `followee` covers and no active edge does. Pure."""
    covering = {edge.followee: edge.ts for edge in active}
    return [pin for pin in pins if followee in pin.followees() and covering_ts(pin, covering) is None]
