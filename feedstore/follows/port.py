"""What callers of `store.FollowStore` give it and get from it, and what it raises."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from feedstore.domain import Action, Followee, Pin, RecordedAction
from feedstore.errors import MisconfiguredError, NeverError, NotNowError, PortError

MAX_PAGE = 1_000
"""The most rows of a page."""


class FollowStoreError(PortError):
    """The follow store failed. Subclasses say what the caller should do."""


class FollowStoreUnavailableError(FollowStoreError, NotNowError):
    """Not now: repeat the whole call later. If `record` raised this, an action may have been committed or not; with an
    idempotency key the repetition has no second effect.
    """


class UnsafeStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """Settings of a database could lose commits: nothing is recorded until they are changed. The message names them."""


class ClockStepError(FollowStoreUnavailableError):
    """The clock of a database is far ahead of what other clocks say: nothing is stamped by it until it is set, or
    until other clocks agree with it. The shard is not away: what needs no time can be read. offset_ms: how far ahead it
    is.
    """

    def __init__(self, message: str, offset_ms: int) -> None:
        super().__init__(message)
        self.offset_ms = offset_ms


class TransactionTooLongError(FollowStoreUnavailableError):
    """A transaction lasted too long and was undone. The database may be slow now; or there is more in this transaction
    than can ever be done in time. A caller that may leave the work out does so instead of repeating it without end.
    """


class WrongStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """A database is missing, damaged, another shard, or has the tables of a later version."""


class OutdatedStoreError(FollowStoreUnavailableError, MisconfiguredError):
    """A database has the tables of an earlier version: migrate them."""


class ActionRefusedError(FollowStoreError, NeverError):
    """Never: this action contradicts what is stored. `reason` is a stable word, the message is for people.

    Reasons: `board_of_another_owner`, `pin_differs`, `pin_deleted`, `pin_unknown`, `pin_in_the_future`, `key_reused`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Request(NamedTuple):
    """A request to record an action. key: 1..128 printable characters, unique to the request. A request that is
    repeated with its key within the purge window has no second effect and gets the first answer, even if that was a
    refusal. is_dated: False if the client gave no time for the pin, and the caller has chosen one: then a pin that is
    saved already keeps its own time, a repetition with a key may have another one, and a time that is ahead of the
    store's becomes the store's.
    """

    action: Action
    key: str | None = None
    is_dated: bool = True


ROW_ACTIONS: Final = 2_000
ROW_BYTES: Final = 250_000
"""The most actions in a row of the outbox, and the most bytes in a row of more than one action."""

_recorded: Final[msgspec.json.Decoder[list[RecordedAction]]] = msgspec.json.Decoder(list[RecordedAction])


class OutboxRow(NamedTuple):
    """Actions that one transaction recorded and that are not relayed yet. (shard, id) identifies them, together with
    committed_ms: a shard that failed over to a replica without its last rows gives their ids again.

    number: how many actions there are in it.
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
        """The body, decoded. Raises msgspec.MsgspecError or InvalidValueError if this program does not know one."""
        return _recorded.decode(b"[%s]" % self.body)


def actions_in(rows: Iterable[OutboxRow]) -> list[RecordedAction]:
    """The actions of rows, in their order. Raises what `OutboxRow.actions` raises."""
    return [action for row in rows for action in row.actions]


class Backlog(NamedTuple):
    """How many outbox rows are not relayed, and how many actions are in them. oldest_ms: when the oldest committed."""

    rows: int
    actions: int
    oldest_ms: int | None


class RelayedAgain(NamedTuple):
    """What is relayed again. actions: how many. is_whole: whether the outbox still has all its rows, of any time; False
    if some have expired, or if that is unknown.
    """

    actions: int
    is_whole: bool


class Follower(NamedTuple):
    """A row of a followee's follower index. active: False for an ended edge."""

    followee: Followee
    follower: int
    ts: int
    active: bool


class PinState(NamedTuple):
    """A pin with the store's times: of its commit (or re-dating), and of its deletion (None while it lives)."""

    pin: Pin
    saved_ms: int
    deleted_ms: int | None


class Merged(NamedTuple):
    """Asks for the pins of several followees together that were created at or after a time."""

    followees: Sequence[Followee]
    created_from_ms: int = 0


class RefillTimes(NamedTuple):
    """Times of the refills of one user's feed, in one cluster or in all. asked_ms: when one was last requested.
    served_before_ms: all that were requested before this time are done.
    """

    asked_ms: int
    served_before_ms: int


class Between(NamedTuple):
    """Bounds of the store's time, in ms, both inclusive."""

    earliest_ms: int
    latest_ms: int


class Reconciled(NamedTuple):
    """What a part of `reconcile` found.

    rows: how many were compared.
    edges, pins, boards: how many records were brought back. Without writing, a pin counts once for each of its lines.
    index_rows: how many rows of the indexes were written.
    disputed: boards that a second owner saved on while a shard did not know the first, each as (board, its owner, the
        owner of a pin on it). Nothing was changed there.
    """

    rows: int
    edges: int = 0
    pins: int = 0
    boards: int = 0
    index_rows: int = 0
    disputed: tuple[tuple[int, int, int], ...] = ()


class RecordCounts(NamedTuple):
    """Numbers of records in the store, over all shards, without those of the canaries. edges_tombstoned: ended edges.
    pins: all, deleted ones included. outbox_unrelayed: actions that are not relayed, those of the canaries included.
    """

    edges_active: int
    edges_tombstoned: int
    boards: int
    pins: int
    pins_deleted: int
    outbox_unrelayed: int
