"""The follow store's port: the source of truth that every feed is derived from.

Each record lives on the shard of the id that it is looked up by, and an action's transaction touches one shard: its
own record and its outbox row. The handlers write the records on other shards later, through `index`: the follower
index of a followee, the pin indexes of an owner and of a board.

Every call that takes many keys costs at most one round trip for each shard involved (and for each page). Reads are
fresh snapshots on the primary: what was committed before the call is seen (rule 4). `tests/follows` runs this
contract against every adapter, with one shard and with three.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from feedstore.domain import Action, Edge, Followee, Pin, PinDeleted, PinSaved, RecordedAction
from feedstore.errors import MisconfiguredError, NeverError, NotNowError, PortError
from feedstore.follows.arranging import Arrange, LineKey, PinAt, Result, Run, Start, Way

MAX_PAGE = 1_000
"""The most rows of a page."""


class FollowStoreError(PortError):
    """The follow store failed. Subclasses say what the caller should do."""


class FollowStoreUnavailableError(FollowStoreError, NotNowError):
    """Not now: repeat the whole call later. If `record` raised this, an action may have been committed or not; with an
    idempotency key the repetition has no second effect.
    """


class UnsafeStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """Settings of a database could lose commits: nothing is recorded until an operator has changed them. The message
    names each setting.
    """


class ClockStepError(FollowStoreUnavailableError):
    """The clock of a database is far ahead of what other clocks say: nothing is stamped by it until it is set, or
    until other clocks agree with it. offset_ms: how far ahead it is.
    """

    def __init__(self, message: str, offset_ms: int) -> None:
        super().__init__(message)
        self.offset_ms = offset_ms


class WrongStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """A database is missing, is another shard, or has the tables of a later version."""


class OutdatedStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """A database has the tables of an earlier version: migrate them."""


def refuse_version(where: object, version: int, latest: int) -> None:
    """Raises OutdatedStoreError, WrongStoreError unless the tables of a database are of this program's version."""
    said = f"{where}: its tables have version {version}, this program needs {latest}"
    if version < latest:
        raise OutdatedStoreError(f"{said}: migrate it")
    if version > latest:
        raise WrongStoreError(f"{said}: update the program")


class ActionRefusedError(FollowStoreError, NeverError):
    """Never: this action contradicts what is stored. `reason` is a stable word, the message is for people.

    Reasons: `board_of_another_owner`, `pin_differs`, `pin_deleted`, `pin_unknown`, `pin_in_the_future`, `key_reused`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Request(NamedTuple):
    """A request to record an action. key: 1..128 printable characters, unique to the request. Repeated with the same
    key within the purge window, it has no second effect and gets the first answer, a refusal too.
    """

    action: Action
    key: str | None = None


ROW_ACTIONS: Final = 2_000
ROW_BYTES: Final = 250_000
"""A row of the outbox has at most so many actions, and at most so many bytes if it has more than one."""

_recorded: Final[msgspec.json.Decoder[list[RecordedAction]]] = msgspec.json.Decoder(list[RecordedAction])


class OutboxRow(NamedTuple):
    """Actions that one transaction recorded and that are not relayed yet. (shard, id) identifies them.

    committed_ms: when they committed.
    number: how many they are.
    body: the recorded actions as JSON, with commas between them, as they were written. A newer program may have
        recorded a kind that this one does not know: it is relayed unchanged.
    """

    shard: int
    id: int
    committed_ms: int
    number: int
    body: bytes

    @property
    def actions(self) -> list[RecordedAction]:
        """The body, decoded. Raises msgspec.MsgspecError or InvalidValueError if this program does not know one of
        them.
        """
        return _recorded.decode(b"[%s]" % self.body)


def actions_in(rows: Iterable[OutboxRow]) -> list[RecordedAction]:
    """The actions of rows, in their order. Raises what `OutboxRow.actions` raises."""
    return [action for row in rows for action in row.actions]


class Backlog(NamedTuple):
    """Rows of the outbox that are not relayed, and the actions in them. oldest_ms: when the oldest committed; None:
    there is none.
    """

    rows: int
    actions: int
    oldest_ms: int | None


class Follower(NamedTuple):
    """A row of a followee's follower index. active: False for an ended edge."""

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


class Merged(NamedTuple):
    """The pins of several followees together, those created at or after a time."""

    followees: Sequence[Followee]
    created_from_ms: int = 0


class RefillTimes(NamedTuple):
    """Times of the refills of one user's feed, in one cluster or in all. asked_ms: of the latest request.
    served_before_ms: requests before this time are done.
    """

    asked_ms: int
    served_before_ms: int


class Between(NamedTuple):
    """Bounds of the store's time, in ms, both inclusive."""

    earliest_ms: int
    latest_ms: int


class Reconciled(NamedTuple):
    """What a part of `reconcile` found. rows: how many were compared. edges, pins, boards: records that were brought
    back; without writing, a pin counts for each of its lines. index_rows: rows of the indexes that were written.
    disputed: (board, its owner, the owner of a pin on it) of
    boards that a second owner saved on while a shard did not know the first; nothing was changed there.
    """

    rows: int
    edges: int = 0
    pins: int = 0
    boards: int = 0
    index_rows: int = 0
    disputed: tuple[tuple[int, int, int], ...] = ()


class RecordCounts(NamedTuple):
    """Numbers of records in the store, over all shards, without those of the canaries. edges_tombstoned: ended edges.
    pins: all, deleted ones included. outbox_unrelayed: actions that are not relayed, of the canaries too.
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
        """The shards that the expansion of an action needs. Asks none of them."""
        ...

    def now(self, shard: int | None = None) -> int:
        """The clock of one shard. Without a shard, the store's time: the earliest of the clocks of all shards."""
        ...

    def about_now(self) -> Between:
        """Bounds of the store's time, without waiting for its shards: their clocks at their last answers, plus the time
        that has passed since on this machine. A shard that never answered is left out.

        After a shard's clock has jumped, the bounds are wrong until its next answer.

        Raises:
            FollowStoreUnavailableError: no shard has answered since the store was opened.
        """
        ...

    # Recording
    # ------------------------------------------------------------------------------------------------------------

    def record(self, requests: Sequence[Request]) -> list[RecordedAction | ActionRefusedError]:
        """Records actions, each along with its place in the outbox, in one transaction: both or neither; durable when
        this returns (rule 11).

        The answers have the order of the requests. A refusal is an answer, not an exception: it does not stop the
        others. Requests on one shard may share a transaction, and take effect in the order given.

        Times are stamped inside the transaction. Follows and unfollows get `max(now, last + 1)` of their follower's
        clock, across all edges (rule 2), even if the edge is already in that state. If a pin is saved again with the
        same values, or deleted again, the answer is the first record of it, without a new outbox row. A pin is refused
        on another owner's board, with other values than before, after its deletion, or if it is dated more than
        `domain.MAX_SKEW_MS` ahead; the deletion of an unknown pin is refused too. A board belongs to the owner of the
        first pin that claimed it, and its record is there before that pin commits. If the pin is refused after its
        claim (because it differs, for example), the board stays with that owner.

        Raises:
            FollowStoreUnavailableError: some were recorded, others not.
            InvalidValueError: an invalid key; nothing was recorded.
        """
        ...

    def redate(self, action: RecordedAction) -> RecordedAction | None:
        """Gives an action that waited too long a new time and a new outbox row, in one transaction (rule 8).

        An edge gets a new tick of its follower's clock if `action` is still its latest; a pin a new saved_ms, and a
        deletion a new deleted_ms, if the record is still as `action` says; a refill is requested again unless it was
        requested later. If a newer action has replaced this one, nothing is written and None is returned.
        """
        ...

    def ask_refill(self, users: Iterable[int], cluster: str | None, not_again_within_ms: int) -> int:
        """Records a RefillAsked for each user, as an outbox row like any action; returns the latest commit time.

        Users with the same request less than `not_again_within_ms` ago are left out (0: none is). If no user is left,
        the returned time is the store's now.
        """
        ...

    def refill_times(self, keys: Sequence[tuple[int, str | None]]) -> dict[tuple[int, str | None], RefillTimes]:
        """The refills of these (user, cluster) pairs. Pairs without a request, or with an expired one, are left out."""
        ...

    def mark_refills_served(self, served: Mapping[tuple[int, str | None], int]) -> None:
        """Notes that a refill of (user, cluster) was published, and that it read the store after all requests before a
        time: those are done. Marking twice is fine; pairs without a request are ignored.
        """
        ...

    # The outbox
    # -----------------------------------------------------------------------------------------------------------

    def unrelayed(self, limit: int, shard: int | None = None) -> list[OutboxRow]:
        """Outbox rows that are not marked relayed, oldest first within a shard: as many as it takes to have `limit`
        actions. With a shard, its rows only, and no other shard is asked. Without one, those of all shards, which take
        turns: none starves.
        """
        ...

    def mark_relayed(self, rows: Sequence[OutboxRow]) -> None:
        """Marks rows as published; only the shards of these rows are asked. Marking twice is fine."""
        ...

    def relay_again(self) -> bool:
        """Marks every outbox row that is left as not relayed, and every refill as not published: for a queue that was
        lost with its messages. Returns whether the outbox still has all its rows; False if some have expired, or if
        that is unknown.

        If it is interrupted, some are marked: do it again. Relaying a row twice is harmless (rule 1).
        """
        ...

    def backlog(self, shard: int | None = None) -> Backlog:
        """The rows that are not marked relayed, of one shard or of all. Cheap: it may be asked every second."""
        ...

    def settled_ms(self) -> int:
        """A store time T such that every action committed before T is marked relayed, and no commit stamped before T
        can still appear. A tick carries it (rule 10). The minimum over the shards.

        If everything is relayed, each call moves it by at least a millisecond, even while the clock of a shard that was
        once ahead has not caught up with it.
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
        """Writes the indexes; durable when it returns. A shard writes few rows in one transaction, or many in several.

        An edge is upserted into its followee's follower index, unless the row there is newer; ended edges stay as rows.
        A pin is upserted into the indexes of its owner and its board; the latest saved_ms wins, and a deletion stays
        marked. A deletion marks its pin in both, even if the pin is not there yet, and takes it from the order of its
        board in the transaction that marks it there.

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

        By key set, never by offset. tombstones: with ended edges; otherwise only active ones. Fewer than `limit`
        (1..MAX_PAGE) means the end. `followees` are at most MAX_PAGE, all different.
        """
        ...

    def edges(self, keys: Sequence[tuple[int, Followee]]) -> dict[tuple[int, Followee], Edge]:
        """The edges of these (follower, followee) pairs, from the followers' own shards: the source of truth."""
        ...

    def following(self, follower: int, changed_since_ms: int | None = None) -> list[Edge]:
        """The active edges of a follower; with `changed_since_ms` also those that ended (committed) at or after that
        time.
        """
        ...

    def following_after(self, follower: int, after: Followee | None, limit: int) -> list[Edge]:
        """A page of the active edges of a follower in the order of their followees, after a given one. Fewer than
        `limit` (1..MAX_PAGE) means the end.
        """
        ...

    def following_of(self, followers: Sequence[int], after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        """A page of the active edges of several followers in the order (follower, followee), after a given place. Fewer
        than `limit` (1..MAX_PAGE) means the end. `followers` are at most MAX_PAGE.
        """
        ...

    def unfollowed_after(self, follower: int, since_ms: int, after: Followee | None, limit: int) -> list[Edge]:
        """A page of the ended edges of a follower that committed at or after a time, in the order of their followees,
        after a given one. Fewer than `limit` (1..MAX_PAGE) means the end.
        """
        ...

    def changed_edges(self, keys: Sequence[tuple[int, Followee]], since_ms: int) -> list[Edge]:
        """Of the edges of these (follower, followee) pairs, those whose latest action committed at or after a time,
        active or ended.
        """
        ...

    def newest_pins(
        self, followees: Sequence[Followee], limit: int, saved_before_ms: int | None = None
    ) -> dict[Followee, list[PinState]]:
        """For each followee the newest `limit` pins in the index, by (created_ms descending, pin ascending), without
        deleted ones; with `saved_before_ms` only those saved before that time.
        """
        ...

    def newest_pins_merged(self, wanted: Sequence[Merged], limit: int) -> list[list[PinState]]:
        """For each of these the newest `limit` distinct pins of all its followees together, in feed order, without
        deleted ones.

        For thousands of followees it costs about as much as the rows that it returns, not followees x limit. It takes a
        few rounds, the same for all that is wanted: the first few pins of each followee, then more of those followees
        that may have one among the newest. All that is returned is in memory at once, and twice as much meanwhile.
        """
        ...

    def pins_saved_since(
        self, followees: Sequence[Followee], since_ms: int, after: tuple[Followee, int, int] | None, limit: int
    ) -> list[tuple[Followee, PinState]]:
        """A page of the pins of several followees with saved_ms >= `since_ms`, in the order (followee, saved_ms, pin),
        after a given place, without deleted ones. Fewer than `limit` (1..MAX_PAGE) means the end. `followees` are
        at most MAX_PAGE, all different.
        """
        ...

    def pins(self, pin_ids: Sequence[int]) -> dict[int, PinState]:
        """The records of pins, deleted ones included, from the pins' own shards: the source of truth. Unknown ids are
        left out.
        """
        ...

    def deletions(self, pin_ids: Sequence[int]) -> dict[int, int]:
        """When each of these pins was deleted, from the pins' own records. Pins that are not deleted, or unknown, are
        left out.
        """
        ...

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        """The owner of each board that has a record."""
        ...

    def boards_of(self, owners: Sequence[int], after: tuple[int, int] | None, limit: int) -> list[tuple[int, int]]:
        """A page of the boards of several owners as (owner, board), ascending, after a given place; it asks every
        shard. A board is listed before the first pin on it commits. Fewer than `limit` (1..MAX_PAGE) means
        the end. `owners` are at most MAX_PAGE.
        """
        ...

    # Boards in their own order
    # --------------------------------------------------------------------------------------------------------

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        """The next pins of a board from a start, as one statement sees them: up to `limit` that are placed, and up to
        `limit` that are not placed, out of the next `look` lines; and where the `marked` pins are.
        """
        ...

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        """Where these pins of a board are. Those without a line are left out. At most MAX_PAGE keys."""
        ...

    def arrange(self, board: int, named: Sequence[PinState], decide: Arrange[Result], *, synced: bool = True) -> Result:
        """Changes the places of pins of a board in one transaction, durable when this returns: decides on what it
        reads, and writes that. Transactions on one board take effect one after the other.

        named: records of pins of the board. A line of theirs that is missing, as its handler is behind, is entered
            first.
        synced: if not, a store in a file leaves it to the next synced transaction, or to `sync_arranged`, to make it
            outlive the machine. A machine that fails before may undo it, and all later ones that were not synced. The
            process may die at any time.
        """
        ...

    def sync_arranged(self, board: int) -> None:
        """When this returns, changes of a board that were made without a sync survive a loss of power."""
        ...

    # Verify, operate
    # --------------------------------------------------------------------------------------------------------

    def next_arranged_board(self, after: int) -> int | None:
        """The smallest id, larger than `after`, of a board with placed pins; it asks every shard. None: no more."""
        ...

    def all_edges_after(self, after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        """A page of the active edges of all users in the order (follower, followee), after a given place. Fewer than
        `limit` (1..MAX_PAGE) means the end. Memory is bounded by the page, however much one user follows.
        """
        ...

    def pins_after(self, shard: int, pin: int, limit: int) -> list[PinState]:
        """A page of one shard's pins, deleted ones included, ascending by id, after a given id (0: from the start).
        Fewer than `limit` (1..MAX_PAGE) means the end. A walk over every shard passes each pin that was committed
        before it began.
        """
        ...

    def reconcile(self, *, write: bool) -> Iterator[Reconciled]:
        """Compares each row with what other rows say of the same edge or pin, some thousand rows at a time.

        The store keeps an edge with its follower and with its followee, and a pin by itself, with its owner and with
        its board. Of two such rows the later one is right, and the other is written again; write: False only counts.
        Afterwards they agree, even if a shard was brought back from an older copy. What a lost shard alone knew stays
        lost. Rows of actions that are not expanded yet are counted too; to write them early changes nothing. Memory is
        bounded by a page.

        Raises:
            FollowStoreUnavailableError: some may be written; begin again.
        """
        ...

    def expire(self, purge_window_ms: int, limit: int) -> int:
        """Drops rows that are older than the window and not needed any more: ended edges (by their timestamp) and
        deleted pins in the indexes, relayed outbox rows, idempotency keys and the times of refills; at most `limit`
        rows a call, where an outbox row counts as the actions in it, and the last is dropped whole. Returns how many,
        at least `limit` if there may be more. The own records of edges and deleted pins stay.
        """
        ...

    def bring_back(self, to_ms: int) -> dict[int, int]:
        """Lets the time of shards continue from `to_ms`, if it is ahead of that, because a clock was ahead; returns by
        how much each was. The caller knows that `to_ms` is right, and that no process records meanwhile.

        The clocks of followers, edges and pins keep the times that were stamped. So later actions on an edge still win
        over earlier ones (rule 2), and windows that reach into the past include all of it. Times that would make the
        store forget, or wait, count as `to_ms` from now on: those of outbox rows and of idempotency keys. Refills that
        were asked for or done later are forgotten, so that they are done again.

        Raises:
            FollowStoreUnavailableError: some shards were brought back; do it again.
        """
        ...

    def counts(self) -> RecordCounts: ...

    def close(self) -> None: ...
