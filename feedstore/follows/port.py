"""The follow store's port: the source of truth that every feed is derived from.

Each record lives on the shard of the id that it is looked up by, and an action's transaction touches one shard: its
own record and its outbox row. What other shards need to know (the follower index of a followee, the pin indexes of an
owner and of a board) is written later by the handlers, through `index`.

Every call that takes many keys costs at most one round trip for each shard involved (and for each page). Reads are
fresh snapshots on the primary: what was committed before the call is seen (rule 4). `tests/follows` runs this
contract against every adapter, with one shard and with three.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from feedstore.domain import Action, Edge, Followee, Pin, PinDeleted, PinSaved, RecordedAction

MAX_PAGE = 1_000
"""The most rows that one page holds."""


class FollowStoreError(Exception):
    """The follow store did not do what it was asked to. Subclasses say what the caller should do."""


class FollowStoreUnavailableError(FollowStoreError):
    """Not now: repeat the whole call later. An action whose recording raised this may have been committed or not;
    with an idempotency key the repetition does nothing twice.
    """


class UnsafeStoreError(FollowStoreUnavailableError):
    """A database is set so that it could lose what it has committed: nothing is recorded until somebody has changed it.
    The message names each setting. A process that meets this when it starts should not go on.
    """


class OutdatedStoreError(FollowStoreUnavailableError):
    """A database has the tables of an earlier program: bring them up to date."""


def refuse_version(where: object, version: int, latest: int) -> None:
    """Raises FollowStoreUnavailableError unless the tables of a database are of this program's version."""
    said = f"{where}: its tables have version {version}, this program needs {latest}"
    if version < latest:
        raise OutdatedStoreError(f"{said}: migrate it")
    if version > latest:
        raise FollowStoreUnavailableError(f"{said}: update the program")


class ActionRefusedError(FollowStoreError):
    """Never: this action contradicts what is stored. `reason` is a stable word, the message is for people.

    Reasons: `board_of_another_owner`, `pin_differs`, `pin_deleted`, `pin_unknown`, `pin_in_the_future`, `key_reused`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Request(NamedTuple):
    """An action that somebody asks for. With a `key` (1..128 printable characters, unique to the request), asking again
    does nothing twice and gives the first answer, a refusal too, for as long as the purge window.
    """

    action: Action
    key: str | None = None


_recorded: Final[msgspec.json.Decoder[RecordedAction]] = msgspec.json.Decoder(RecordedAction)


class OutboxRow(NamedTuple):
    """An action that was recorded and is not relayed yet. (shard, id) names it.

    body: the recorded action as JSON, as the program that recorded it wrote it. A newer program may have recorded what
        this one does not know: it is passed on as it is.
    """

    shard: int
    id: int
    body: bytes

    @property
    def action(self) -> RecordedAction:
        """What the body says. Raises msgspec.MsgspecError or InvalidValueError if this program does not know it."""
        return _recorded.decode(self.body)


class Follower(NamedTuple):
    """A line of a followee's follower index. `active` is False for a tombstone."""

    followee: Followee
    follower: int
    ts: int
    active: bool


class PinState(NamedTuple):
    """A pin with the store's times: of its commit (or latest re-dating), and of its deletion (None while it
    lives).
    """

    pin: Pin
    saved_ms: int
    deleted_ms: int | None


class RefillTimes(NamedTuple):
    """The times of the refills of one user's feed in one cluster, or in all: when one was last asked for; those asked
    for before `served_before_ms` are done.
    """

    asked_ms: int
    served_before_ms: int


class Following(NamedTuple):
    """A user with what they follow now (active edges only)."""

    user: int
    edges: list[Edge]


class Between(NamedTuple):
    """Bounds of the store's time, in ms: it is neither before the one nor after the other."""

    earliest_ms: int
    latest_ms: int


class Counts(NamedTuple):
    """How many records stand in the store, over all shards. `pins` are all of them, `pins_deleted` those of them that
    are deleted.
    """

    edges_active: int
    edges_tombstoned: int
    boards: int
    pins: int
    pins_deleted: int
    outbox_unrelayed: int


class FollowStore(Protocol):
    """All shards together. Thread-safe. Times are ms by the store's own clock."""

    def shards(self) -> int:
        """How many shards there are, numbered from 0. Asks none of them."""
        ...

    def shards_of(self, action: RecordedAction) -> frozenset[int]:
        """The shards without which an action cannot be expanded. Asks none of them."""
        ...

    def now(self, shard: int | None = None) -> int:
        """The clock of one shard. Without a shard, the store's time: the earliest of the clocks of all shards."""
        ...

    def about_now(self) -> Between:
        """Bounds of the store's time, for who must not wait for its shards: what their clocks showed when they were
        heard last, and what has passed since on this machine. A shard that was never heard is left out.

        The bounds are wrong for a moment after a shard's clock has jumped, until it is heard again.

        Raises:
            FollowStoreUnavailableError: no shard was heard since the store was opened.
        """
        ...

    # Recording
    # ------------------------------------------------------------------------------------------------------------

    def record(self, requests: Sequence[Request]) -> list[RecordedAction | ActionRefusedError]:
        """Records actions, each with its outbox row in one transaction: both or neither; durable when this returns
        (rule 11).

        The answers stand in the order of the requests. A refusal is an answer, not an exception: it does not stop the
        others. Requests on one shard may share a transaction, and take effect in the order given.

        Times are stamped inside the transaction. Follows and unfollows get `max(now, last + 1)` of their follower's
        clock, on whatever edge (rule 2), also where the edge already stands so. A pin that is saved again with the
        same values, or deleted again, is answered with what was recorded first and gets no new outbox row. A pin on
        somebody else's board, with other values than before, after its deletion, or dated more than
        `domain.MAX_SKEW_MS` ahead is refused; so is the deletion of an unknown pin. A board belongs to the owner of
        the first pin that claimed it, and its record stands before that pin commits; a pin that is refused after its
        claim (as one that differs is) leaves the board to its owner.

        Raises:
            FollowStoreUnavailableError: some were recorded, others not.
            InvalidValueError: a key that cannot be; nothing was recorded.
        """
        ...

    def redate(self, action: RecordedAction) -> RecordedAction | None:
        """Gives an action that waited too long a new time and a new outbox row, in one transaction (rule 8).

        An edge gets a new tick of its follower's clock if `action` is still the latest on it; a pin a new saved_ms, a
        deletion a new deleted_ms, if they still stand as `action` says; a refill is asked for again unless the same was
        asked for later. None, and nothing is written, where a newer action has taken its place.
        """
        ...

    def ask_refill(self, users: Iterable[int], cluster: str | None, not_again_within_ms: int) -> int:
        """Records a RefillAsked for each user, as an outbox row like any action; returns the latest commit time.

        Users for whom the same was asked less than `not_again_within_ms` ago are left out (0 leaves out nobody). With
        nobody left, the time returned is the store's now.
        """
        ...

    def refill_times(self, keys: Sequence[tuple[int, str | None]]) -> dict[tuple[int, str | None], RefillTimes]:
        """What is known of the refills of these (user, cluster) pairs. Pairs of which nothing is known, or nothing any
        more, are left out.
        """
        ...

    def mark_refills_served(self, served: Mapping[tuple[int, str | None], int]) -> None:
        """Notes that a refill of (user, cluster) was published, and that it read the store after each refill that was
        asked for before a time: those need not be done again. Marking twice is fine; pairs of which nothing is known
        are left out.
        """
        ...

    # The outbox
    # -----------------------------------------------------------------------------------------------------------

    def unrelayed(self, limit: int, shard: int | None = None) -> list[OutboxRow]:
        """Up to `limit` outbox rows that were not marked relayed, oldest first within a shard. With a shard, its rows,
        and no other shard is asked. Without one, the rows of all shards, which take turns: none starves.
        """
        ...

    def mark_relayed(self, rows: Sequence[OutboxRow]) -> None:
        """Marks rows as published; only the shards of these rows are asked. Marking twice is fine."""
        ...

    def relay_again(self) -> bool:
        """Marks every outbox row that is left as not relayed, and every refill as not published: for a queue that was
        lost with what it held. Returns whether the outbox has all its rows left; False if some have expired, or if that
        is unknown.

        Interrupted, some are marked: do it again. What is relayed twice does no more (rule 1).
        """
        ...

    def backlog(self) -> int:
        """How many outbox rows are not marked relayed. Cheap: it may be asked every second."""
        ...

    def settled_ms(self) -> int:
        """A store time T such that every action committed before T has been marked relayed, and no commit stamped
        before T can appear any more: what a tick may carry (rule 10). The minimum over the shards.

        With everything relayed it moves on, by a millisecond a call at least, while the clock of a shard that was ahead
        once has not caught up with it.
        """
        ...

    # Index writes: the first step of every handler
    # --------------------------------------------------------------------------

    def index(
        self,
        *,
        edges: Sequence[Edge] = (),
        pins: Sequence[PinSaved] = (),
        deletions: Sequence[PinDeleted] = (),
    ) -> None:
        """Writes the indexes; durable when it returns. One transaction a shard, and none where there is nothing.

        An edge is upserted into its followee's follower index, unless what stands there is newer; tombstones stay as
        rows. A pin is upserted into the indexes of its owner and its board; the latest saved_ms wins, a deletion
        stays marked. A deletion marks its pin in both, whether it stands there yet or not.

        Raises:
            FollowStoreUnavailableError: some may be written; write all again.
        """
        ...

    # Reads of the handlers
    # --------------------------------------------------------------------------------------------------

    def followers(
        self, followees: Sequence[Followee], after: tuple[Followee, int] | None, limit: int, *, tombstones: bool
    ) -> list[Follower]:
        """A page of the follower indexes of several followees, in the order (followee, follower), after a given
        place.

        By key set, never by offset. Without `tombstones`, only active ones. Fewer than `limit` (1..MAX_PAGE) means
        the end. `followees` are at most MAX_PAGE, all different.
        """
        ...

    def edges(self, keys: Sequence[tuple[int, Followee]]) -> dict[tuple[int, Followee], Edge]:
        """What stands on the followers' own shards for these (follower, followee) pairs: the source of truth."""
        ...

    def following(self, follower: int, changed_since_ms: int | None = None) -> list[Edge]:
        """The active edges of a follower; with `changed_since_ms` also the tombstones that committed at or after that
        time.
        """
        ...

    def following_after(self, follower: int, after: Followee | None, limit: int) -> list[Edge]:
        """A page of the active edges of a follower in the order of their followees, after a given one. Fewer than
        `limit` (1..MAX_PAGE) means the end.
        """
        ...

    def unfollowed_after(self, follower: int, since_ms: int, after: Followee | None, limit: int) -> list[Edge]:
        """A page of the tombstones of a follower that committed at or after a time, in the order of their followees,
        after a given one. Fewer than `limit` (1..MAX_PAGE) means the end.
        """
        ...

    def changed_edges(self, keys: Sequence[tuple[int, Followee]], since_ms: int) -> list[Edge]:
        """Of the edges of these (follower, followee) pairs those, active or not, whose latest action committed at or
        after a time.
        """
        ...

    def newest_pins(
        self, followees: Sequence[Followee], limit: int, saved_before_ms: int | None = None
    ) -> dict[Followee, list[PinState]]:
        """For each followee the newest `limit` pins by (created_ms descending, pin ascending) that the index knows
        and has not marked deleted; with `saved_before_ms` only those saved before that time.
        """
        ...

    def newest_pins_merged(self, followees: Sequence[Followee], limit: int, created_from_ms: int = 0) -> list[PinState]:
        """The newest `limit` distinct pins of all these followees together, in feed order; not those marked deleted,
        nor those created before a time.

        For thousands of followees its cost is near that of the rows it returns, not followees x limit. It takes a few
        rounds: the first few pins of each followee, then more of those that may still have one among the newest.
        """
        ...

    def pins_saved_since(
        self, followees: Sequence[Followee], since_ms: int, after: tuple[Followee, int, int] | None, limit: int
    ) -> list[tuple[Followee, PinState]]:
        """A page of the pins of several followees with saved_ms >= `since_ms`, in the order (followee, saved_ms, pin),
        after a given place. Not those marked deleted. Fewer than `limit` (1..MAX_PAGE) means the end. `followees` are
        at most MAX_PAGE, all different.
        """
        ...

    def pins(self, pin_ids: Sequence[int]) -> dict[int, PinState]:
        """The records of pins, deleted ones included, from the pins' own shards: the source of truth. Unknown ids are
        left out.
        """
        ...

    def deletions(self, pin_ids: Sequence[int]) -> dict[int, int]:
        """When each of these pins was deleted, from the pins' own records; those that live, or are unknown, are left
        out.
        """
        ...

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        """The owner of each board that has a record."""
        ...

    def boards_of(self, owners: Sequence[int], after: tuple[int, int] | None, limit: int) -> list[tuple[int, int]]:
        """A page of the boards of several owners as (owner, board), ascending, after a given place; it asks every
        shard. A board is among them from before the first pin on it commits. Fewer than `limit` (1..MAX_PAGE) means
        the end. `owners` are at most MAX_PAGE.
        """
        ...

    # Verify, operate
    # --------------------------------------------------------------------------------------------------------

    def following_page(self, after_user: int, limit: int) -> list[Following]:
        """Up to `limit` (1..MAX_PAGE) users with at least one edge (tombstones count), ids larger than `after_user`,
        ascending.
        """
        ...

    def all_edges_after(self, after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        """A page of the active edges of all users in the order (follower, followee), after a given place. Fewer than
        `limit` (1..MAX_PAGE) means the end. Memory is bounded by the page, however much one user follows.
        """
        ...

    def expire(self, purge_window_ms: int, limit: int) -> int:
        """Drops what nothing can need any more: index tombstones (of edges, by their timestamp, and of pins), relayed
        outbox rows, idempotency keys and the times of refills that are more than the window old; at most `limit` rows
        a call. Returns how many went. Edges' and deleted pins' own records stay.
        """
        ...

    def counts(self) -> Counts: ...

    def close(self) -> None: ...


Covering = Mapping[Followee, int]
"""What a follower follows now: the active edges' timestamps by followee."""


def covering_ts(pin: Pin, covering: Covering) -> int | None:
    """The timestamp under which a follower gets a pin: that of the later of the edges that cover it (rule 3), None if
    none does.
    """
    by_owner, by_board = (covering.get(followee) for followee in pin.followees())
    if by_owner is None or by_board is None:
        return by_owner if by_board is None else by_board
    return max(by_owner, by_board)
