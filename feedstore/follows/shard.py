"""The port of one shard of the follow store: plain rows, whole batches, no rules.

The rules are in `recording` and `store` and are the same for every database. A shard only keeps rows, and promises what
needs the database: that transactions are atomic, that reads are fresh, and what `settled_ms` says. Each method costs
one round trip, or a fixed number of them, however many keys it is given. Every failure of the database raises
FollowStoreUnavailableError.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from feedstore.domain import FolloweeKind
from feedstore.follows.arranging import Arrange, LineKey, PinAt, Run, Start, Way
from feedstore.follows.port import ROW_ACTIONS, ROW_BYTES, Backlog, RecordCounts
from feedstore.portions import portions

KIND_CODES: Final[dict[FolloweeKind, int]] = {"board": 0, "user": 1}
"""The code of each kind of followee in rows. The codes sort as followees do."""

KINDS: Final[tuple[FolloweeKind, FolloweeKind]] = ("board", "user")
"""The kind of each code."""

Place = tuple[int, int]
"""(kind, followee)."""

EdgeKey = tuple[int, int, int]
"""(follower, kind, followee)."""

EdgeRow = tuple[int, int, int, int, int, int]
"""(follower, kind, followee, ts, active, committed_ms)."""

FollowerKey = tuple[int, int, int]
"""(kind, followee, follower)."""

FollowerRow = tuple[int, int, int, int, int]
"""(kind, followee, follower, ts, active)."""

PinRow = tuple[int, int, int, int, int, int | None]
"""(pin, owner, board, created_ms, saved_ms, deleted_ms)."""

PinIndexKey = tuple[int, int, int, int]
"""(kind, followee, created_ms, pin)."""

PinIndexRow = tuple[int, int, int, int, int, int, int, int | None]
"""(kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms)."""

SavedRow = tuple[int, int, int, int, int, int, int]
"""(kind, followee, saved_ms, pin, owner, board, created_ms)."""

BoardRow = tuple[int, int]
"""(owner, board)."""

KeyRow = tuple[bytes, bytes | None]
"""(fingerprint of the action, its encoded answer): without an answer, the key is only claimed."""


def deleted_on_boards(pins: Sequence[PinIndexRow]) -> list[tuple[int, int]]:
    """(board, pin) of each row that marks a pin of a board deleted: such a pin loses its place as well."""
    board = KIND_CODES["board"]
    return [(row[1], row[3]) for row in pins if row[0] == board and row[7] is not None]


UnrelayedRow = tuple[int, int, int, bytes]
"""(id, committed_ms, number of actions, body) of a row of the outbox."""

OutboxKey = tuple[int, int]
"""(id, committed_ms). A shard that fails over to a replica without its last rows gives their ids to other rows."""


def outbox_rows(actions: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the rows of the outbox that hold these encoded actions, in order, each as (number of actions, body)."""
    for some in portions(actions, lambda action: len(action) + 1, ROW_BYTES, ROW_ACTIONS):
        yield len(some), b",".join(some)


def reaching(counts: Sequence[int], limit: int) -> int:
    """How many rows, from the first, it takes to have `limit` actions; all rows if they have fewer."""
    before = itertools.accumulate(counts, initial=0)
    return sum(taken < limit for taken, _ in zip(before, counts, strict=False))


RefillRow = tuple[int, str, int, int]
"""(user, cluster, asked_ms, served_before_ms)."""


class NewestFrom(NamedTuple):
    """The next `limit` of a followee's pins in feed order, after this pin, that were created at or after a time."""

    kind: int
    followee: int
    created_ms: int
    pin: int
    created_from_ms: int
    limit: int


class SavedFrom(NamedTuple):
    """A place in a followee's pins, in the order (saved_ms, pin): after this pin."""

    kind: int
    followee: int
    saved_ms: int
    pin: int


class Wanted(NamedTuple):
    """The keys of the records that a transaction, or a look, reads."""

    clocks: Sequence[int] = ()
    edges: Sequence[EdgeKey] = ()
    boards: Sequence[int] = ()
    pins: Sequence[int] = ()
    keys: Sequence[str] = ()
    refills: Sequence[tuple[int, str]] = ()


class Standing(NamedTuple):
    """The records of the wanted keys; keys without a record are left out."""

    clocks: dict[int, int]
    edges: dict[EdgeKey, EdgeRow]
    boards: dict[int, int]
    pins: dict[int, PinRow]
    keys: dict[str, KeyRow]
    refills: dict[tuple[int, str], int]


class Changes(NamedTuple):
    """The writes of a transaction: each record replaces the one under its key. `outbox`: encoded actions in order."""

    clocks: dict[int, int]
    edges: dict[EdgeKey, EdgeRow]
    boards: dict[int, int]
    pins: dict[int, PinRow]
    keys: dict[str, KeyRow]
    refills: dict[tuple[int, str], int]
    outbox: list[bytes]

    @classmethod
    def none(cls) -> "Changes":
        return cls({}, {}, {}, {}, {}, {}, [])


Result = TypeVar("Result")

Decide = Callable[[int, Standing], tuple[Changes, Result]]
"""Gets the transaction's time and the stored records. Returns the changes to write, and a result. It runs again if the
transaction is repeated. The Standing is its own to change.
"""


class Marked(NamedTuple):
    """Outbox rows that were marked: the id and the commit time of the first of them, and how many actions they hold."""

    first_id: int
    committed_ms: int
    actions: int


class Shard(Protocol):
    """Thread-safe."""

    def now_ms(self) -> int:
        """The time by this shard's clock. A stamped time is ahead of it for no longer than a transaction lasts."""

    def look(self, wanted: Wanted) -> tuple[int, Standing]:
        """The shard's time and the stored records, without locks."""

    def transact(self, wanted: Wanted, decide: Decide[Result]) -> Result:
        """Reads what is wanted under locks, decides, and writes the changes: one transaction, durable when this
        returns.

        The time that `decide` gets is stamped under the locks: of two transactions that want a key in common, the
        later never gets an earlier time. With no changes, nothing is written.
        """

    def settled_ms(self) -> int:
        """The largest T such that all outbox rows stamped before T are relayed, and no commit before T can appear."""

    def refill_times(self, keys: Sequence[tuple[int, str]]) -> list[RefillRow]:
        """The refills of these (user, cluster) pairs, in any order; those without a request are left out."""

    def mark_refills_served(self, served: Mapping[tuple[int, str], int]) -> None:
        """Notes before which times the refills of existing rows are done. A row with a larger time keeps it."""

    def unrelayed(self, limit: int) -> list[UnrelayedRow]:
        """The oldest rows that are not marked relayed, ascending by id: as many as it takes to have `limit` actions."""

    def mark_relayed(self, rows: Sequence[OutboxKey]) -> None:
        """Marks rows as published. A row with the same id and another time is another row, and stays as it is."""

    def may_relay(self) -> bool:
        """As `FollowStore.may_relay`. A shard in a file always says True."""

    def mark_unrelayed(self, before: int, limit: int) -> Marked | None:
        """Marks up to `limit` outbox rows with ids below `before` as not relayed, the latest ones. None if there is
        none.
        """

    def mark_refills_unserved(self, since_ms: int) -> None:
        """Marks refills that were requested at or after a time as not published."""

    def has_relayed(self) -> bool:
        """Whether the first row that is left in the outbox is marked relayed. Rows are relayed in the order of their
        ids, so if any is marked, the first one is. Not all are looked at: a store that was filled before the first
        relay began may have millions.
        """

    def outbox_is_whole(self) -> bool:
        """Whether the first row that the outbox ever had is still in it, or it never had any."""

    def backlog(self) -> Backlog:
        """The rows that are not marked relayed."""

    def index_followers(self, rows: Sequence[FollowerRow]) -> None:
        """Upserts in one transaction. Of two rows of a follower the one with the later ts wins."""

    def index_pins(self, rows: Sequence[PinIndexRow]) -> None:
        """Upserts in one transaction. Of two rows of a pin the larger saved_ms wins, and the larger deleted_ms, each by
        itself. If a row of a board is marked deleted, the row of its placed pin is removed with it.
        """

    def followers(self, places: Sequence[EdgeKey], limit: int, *, tombstones: bool) -> list[FollowerRow]:
        """The first `limit` rows of the follower indexes of several followees: in the order of `places`, ascending by
        follower within each.

        places: (follower, kind, followee), ascending by (kind, followee). Each gives its rows after it.
        """

    def edges(self, keys: Sequence[EdgeKey]) -> list[EdgeRow]:
        """The edges with these keys that exist, in any order."""

    def active_edges_after(self, places: Sequence[EdgeKey], limit: int) -> list[EdgeRow]:
        """The first `limit` active edges of several followers: in the order of `places`, ascending by edge key within
        each.

        places: edge keys whose followers ascend. Each gives that follower's edges past that key.
        """

    def ended_edges_after(self, follower: int, since_ms: int, after: Place, limit: int) -> list[EdgeRow]:
        """The first `limit` tombstones of a follower past a place, ascending by edge key, among those that committed at
        or after a time.
        """

    def newest_pins(self, places: Sequence[NewestFrom], *, saved_before_ms: int) -> list[list[PinRow]]:
        """For each place, its pins that are not marked deleted and were saved before a time."""

    def pins_saved_since(self, places: Sequence[SavedFrom], since_ms: int, limit: int) -> list[SavedRow]:
        """The first `limit` pins that were saved at or after a time, without those marked deleted: in the order of
        `places`, ascending by (saved_ms, pin) within each.
        """

    def pins(self, pins: Sequence[int]) -> list[PinRow]:
        """The pins with these ids that exist, in any order."""

    def deletions(self, pins: Sequence[int]) -> dict[int, int]:
        """deleted_ms by pin; pins without one are left out."""

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]: ...

    def boards_of(self, owners: Sequence[int], after: BoardRow, limit: int) -> list[BoardRow]:
        """The first `limit` boards of these owners past a place, ascending. `owners` ascend."""

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        """As `FollowStore.board_run`, in one statement."""

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        """As `FollowStore.board_pins`."""

    def arrange(
        self, board: int, named: Sequence[PinIndexRow], decide: Arrange[Result], *, synced: bool = True
    ) -> Result:
        """As `FollowStore.arrange`. Locks are taken in this order: board, lines, placed pins, state of the shard."""

    def sync_arranged(self) -> None:
        """As `FollowStore.sync_arranged`."""

    def next_arranged_board(self, after: int) -> int | None:
        """As `FollowStore.next_arranged_board`, for the boards of this shard."""

    def pins_after(self, pin: int, limit: int) -> list[PinRow]:
        """The first `limit` pins past an id, ascending."""

    def all_edges_after(self, after: EdgeKey, limit: int, *, tombstones: bool) -> list[EdgeRow]:
        """The first `limit` edges past a place, ascending by edge key. tombstones: whether ended ones are included."""

    def all_followers_after(self, after: FollowerKey, limit: int) -> list[FollowerRow]:
        """The first `limit` rows of the follower indexes past a place, tombstones included, ascending by their key."""

    def all_lines_after(self, after: PinIndexKey, limit: int) -> list[PinIndexRow]:
        """The first `limit` lines of the pin indexes past a place, those marked deleted included: ascending by kind and
        followee, the latest created_ms first within each, ascending by pin.
        """

    def follower_rows(self, keys: Sequence[FollowerKey]) -> list[FollowerRow]:
        """The rows of the follower indexes with these keys that exist, in any order."""

    def lines(self, keys: Sequence[PinIndexKey]) -> list[PinIndexRow]:
        """The lines of the pin indexes with these keys that exist, in any order."""

    def expire(self, purge_window_ms: int, limit: int) -> int:
        """As `FollowStore.expire`."""

    def bring_back(self, to_ms: int) -> int:
        """As `FollowStore.bring_back`. Returns by how many ms the shard was ahead, or 0. It may be called again."""

    def counts(self) -> RecordCounts: ...

    def close(self) -> None: ...
