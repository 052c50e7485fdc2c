"""Verify compares every feed of every cluster with what the follow store says it must hold.

A finding is reported only if no action that may still be on its way to the cluster explains it: all of its reasons
committed before a time up to which everything has landed there. So verify may run while actions are recorded, with or
without a running worker. The kinds of findings are defined in docs/recovering.md.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from feedstore.domain import MAX_ID, Edge, Followee, Pin
from feedstore.following import entries_of, row_key, rows_ascending
from feedstore.follows.port import MAX_PAGE, PinState
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from feedstore.widecolumn import Cell, DamagedError, WideColumnStore
from workers.following.expected import Expected

SUSPECTS_AT_ONCE = 200
"""Once this many users differ at first sight, they are looked at closely."""

ROWS_AT_ONCE = 10
"""The most feeds that are read at once for a close look. A busy feed may have only new entries after some seconds, so
its second look follows soon after its first.
"""

USERS_AT_ONCE = 1_000
"""Progress is reported after this many users."""

T = TypeVar("T")

Kind = Literal["missing", "masked", "extra", "displaced", "differs", "unknown user", "damaged"]

Landed = Callable[[], Mapping[str, int]]
"""Returns a store time for each cluster such that everything that committed before it has landed there."""


class Finding(NamedTuple):
    """A wrong or missing entry in one row of one cluster; or a damaged cluster: then user, pin and times are 0.

    user: the user of the feed; for a displaced entry, the id in the key of its row.
    created_ms: the time in the cluster, or the time that must be there.
    ts: the timestamp of a visible cell; of a masked entry's marker; or, for a missing entry, of the edge that delivers
        it.
    why: the action or the marker that explains the finding, in words for people.
    """

    user: int
    cluster: str
    kind: Kind
    pin: int
    created_ms: int
    ts: int
    row: bytes
    why: str

    def same_as(self) -> tuple[object, ...]:
        """The part of a finding that stays the same in a second look."""
        return self[:-1]


class UserRange(NamedTuple):
    """The users with ids from one to another, both included. If that is a single user, their row is read without a
    scan; entries of theirs in displaced rows are only found with those of others.
    """

    first: int
    last: int


EVERYBODY = (UserRange(1, 2**64 - 1),)
"""Includes numbers that are no valid ids: row keys have room for them."""


class Seen(NamedTuple):
    """The progress of a look.

    users, entries, suspects: how many so far. Entries are those that the feeds must hold; suspects are users whose
        feeds differ at first sight. up_to: all users up to this one are done. findings: since the last report.
    """

    users: int
    entries: int
    suspects: int
    up_to: int
    findings: list[Finding]


class Verifier:
    """Compares feeds with the follow store. It only reads. Memory is bounded by the rows and feeds of a few users, and
    a cache (`Expected`).

    clusters: the tables of the feeds by cluster name. landed: is called before rows are looked at closely.
    """

    def __init__(self, follows: FollowStore, clusters: Mapping[str, WideColumnStore], cap: int, landed: Landed) -> None:
        self._follows = follows
        self._clusters = dict(clusters)
        self._cap = cap
        self._landed = landed
        self._users = self._entries = self._suspects = 0
        self._wanted = 0
        """How many entries the feed that was last looked at closely must hold."""
        self._damage: list[Finding] = []

    def look(self, spans: Sequence[UserRange] = EVERYBODY, after_user: int = 0) -> Iterator[Seen]:
        """Looks at every feed of the users in `spans`, which ascend, with ids larger than `after_user`.

        A cluster that is damaged is left out from then on.

        Raises UnavailableError, FollowStoreUnavailableError, QueueUnavailableError: continue after the last `up_to`.
        """
        self._users = self._entries = self._suspects = 0
        for first, last in spans:
            if last > after_user:
                yield from self._look(UserRange(max(first, after_user + 1), last))

    def again(self, findings: Iterable[Finding]) -> list[Finding]:
        """Looks again at the rows of earlier findings, in all clusters; returns the findings of now."""
        rows = {(finding.cluster, finding.row) for finding in findings if finding.kind == "displaced"}
        users = {finding.user for finding in findings if finding.kind not in ("displaced", "damaged")}
        found = [finding for part in _parts(sorted(users), sorted(rows)) for finding in self._close_look(*part)]
        return [*self._newly_damaged(), *found]

    def _look(self, span: UserRange) -> Iterator[Seen]:
        if span.first == span.last:
            self._users += 1
            self._suspects += 1
            found = self._believed([span.first], [])
            self._entries += self._wanted
            yield self._seen(span.last, found)
            return
        streams = {name: _Stream(name, store, span, self._damage) for name, store in self._clusters.items()}
        users: dict[int, None] = {}
        displaced: list[tuple[str, bytes]] = []
        told = self._users
        expected = Expected(self._follows, self._cap)
        for user, wanted in expected.all(span.first - 1, span.last):
            for name, stream in streams.items():
                # Feeds of users that follow nothing must be empty.
                users.update(dict.fromkeys(stream.skip_to(user)))
                # Rows and feeds have the same order, so that equal feeds are equal lists.
                if stream.take(user)[: self._cap] != wanted and not stream.is_damaged:
                    users[user] = None
                displaced += [(name, row) for row in stream.displaced()]
            self._users += 1
            self._entries += len(wanted)
            if len(users) + len(displaced) >= SUSPECTS_AT_ONCE or self._users - told >= USERS_AT_ONCE:
                told = self._users
                yield self._seen(user, self._settle(users, displaced))
        for name, stream in streams.items():
            for user in stream.skip_to(MAX_ID + 1):
                users[user] = None
                displaced += [(name, row) for row in stream.displaced()]
                if len(users) + len(displaced) >= SUSPECTS_AT_ONCE:
                    # Not a place to continue from: users before this one are still to come from other clusters.
                    yield self._seen(0, self._settle(users, displaced))
            displaced += [(name, row) for row in stream.displaced()]
        yield self._seen(span.last, self._settle(users, displaced))

    def _settle(self, users: dict[int, None], displaced: list[tuple[str, bytes]]) -> list[Finding]:
        """Looks at suspects closely, and empties both arguments."""
        self._suspects += len(users)
        for finding in self._damage:
            self._clusters.pop(finding.cluster, None)
        found = [finding for part in _parts(list(users), displaced) for finding in self._believed(*part)]
        users.clear()
        displaced.clear()
        return found

    def _newly_damaged(self) -> list[Finding]:
        found, self._damage = self._damage, []
        return found

    def _seen(self, up_to: int, findings: list[Finding]) -> Seen:
        return Seen(self._users, self._entries, self._suspects, up_to, [*self._newly_damaged(), *findings])

    def _rows(self, cluster: str, rows: Sequence[bytes]) -> list[list[Cell]] | None:
        return self._ask(cluster, lambda store: store.cells_of(rows))

    def _ask(self, cluster: str, ask: Callable[[WideColumnStore], T]) -> T | None:
        """Asks a cluster and returns its answer; None if it is damaged, which is noted."""
        store = self._clusters.get(cluster)
        if store is None:
            return None
        try:
            return ask(store)
        except DamagedError as error:
            del self._clusters[cluster]
            self._damage.append(_damaged(cluster, error))
            return None

    def _believed(self, users: Sequence[int], displaced: Sequence[tuple[str, bytes]]) -> list[Finding]:
        """The findings that two looks agree on, so that repairs made meanwhile cause none."""
        first = self._close_look(users, displaced)
        if not first:
            return []
        known = {finding.same_as() for finding in first}
        rows = [(each.cluster, each.row) for each in first if each.kind == "displaced"]
        again = self._close_look(
            list(dict.fromkeys(each.user for each in first if each.kind != "displaced")), list(dict.fromkeys(rows))
        )
        return [finding for finding in again if finding.same_as() in known]

    def _close_look(self, users: Sequence[int], displaced: Sequence[tuple[str, bytes]]) -> list[Finding]:
        if not users and not displaced:
            return []
        # Asked before the rows are read, so that what committed before these times is in the rows.
        before_ms = self._landed()
        found: list[Finding] = []
        for name, row in displaced:
            found += _displaced(name, row, (self._rows(name, [row]) or [[]])[0])
        rows = [row_key(user) for user in users]
        read = {name: self._rows(name, rows) for name in list(self._clusters)} if users else {}
        for number, user in enumerate(users):
            shown = {name: each[number] for name, each in read.items() if each is not None}
            found += self._judge(user, shown, before_ms)
        return found

    def _judge(self, user: int, read: Mapping[str, Sequence[Cell]], before_ms: Mapping[str, int]) -> Iterator[Finding]:
        """The findings about a user's feed. read: the row as each cluster shows it."""
        # Read after the rows, so that everything that a row shows has been recorded.
        wanted = Expected(self._follows, self._cap).of(user)
        self._wanted = len(wanted)
        cells = {
            name: {cell.column: cell.timestamp for cell in self._shown(each, wanted)} for name, each in read.items()
        }
        held = {*wanted}
        differing = {column for shown in cells.values() for column in held ^ shown.keys()}
        if not differing:
            return
        truth = _Truth(self._follows, user, differing)
        for name, shown in cells.items():
            absent = [column for column in wanted if column not in shown]
            strays = [Cell(column, ts) for column, ts in shown.items() if column not in held]
            since = before_ms.get(name, 0)
            if absent:
                yield from self._absent(truth, name, wanted, absent, since)
            if strays:
                yield from _stray(truth, name, strays, since)

    def _shown(self, cells: Sequence[Cell], wanted: Sequence[bytes]) -> Sequence[Cell]:
        """The cells of a row that can be in a page. A row may have thousands of others below a full feed, until the
        next compaction.
        """
        if len(wanted) < self._cap:
            return cells
        return cells[: max(self._cap, bisect_right(cells, wanted[-1], key=attrgetter("column")))]

    def _absent(
        self, truth: "_Truth", cluster: str, wanted: Sequence[bytes], absent: Sequence[bytes], since_ms: int
    ) -> Iterator[Finding]:
        """Finds entries that the feed must hold and does not show, unless an action on its way explains it."""
        settled = {column: ts for column in absent if (ts := truth.settled_ts(column, since_ms)) is not None}
        if not settled:
            return
        left = truth.left_since(since_ms)
        if left:
            # An unfollow brings older entries into reach. Until it has landed with its refill, the row need not hold
            # these.
            reach = {*Expected(self._follows, self._cap).with_also(wanted, left)}
            settled = {column: ts for column, ts in settled.items() if column in reach}
        row = row_key(truth.user)
        masked = self._ask(cluster, lambda store: store.masks(row, list(settled)))
        if masked is None:
            return
        masks = {cell.column: cell.timestamp for cell in masked}
        for column, ts in settled.items():
            pin, created_ms = _pin(column)
            marker = masks.get(column, 0)
            why = truth.delivered_by(column, ts)
            if marker >= ts:
                why = f"a marker of {marker} hides it: {why}"
                yield Finding(truth.user, cluster, "masked", pin, created_ms, marker, row, why)
            else:
                yield Finding(truth.user, cluster, "missing", pin, created_ms, ts, row, why)


def _parts(
    users: Sequence[int], displaced: Sequence[tuple[str, bytes]]
) -> Iterator[tuple[Sequence[int], Sequence[tuple[str, bytes]]]]:
    """Divides what is looked at closely, so that two looks at the same row are not far apart."""
    if displaced:
        yield [], displaced
    yield from ((some, []) for some in chunks(users, ROWS_AT_ONCE))


def _stray(truth: "_Truth", cluster: str, strays: Sequence[Cell], since_ms: int) -> Iterator[Finding]:
    """Finds entries that a row shows and the feed must not hold, unless an action on its way explains it."""
    row = row_key(truth.user)
    for column, ts in strays:
        judged = truth.stray(column, since_ms)
        if judged is not None:
            kind, why = judged
            yield Finding(truth.user, cluster, kind, *_pin(column), ts, row, why)


def _displaced(cluster: str, row: bytes, cells: Sequence[Cell]) -> Iterator[Finding]:
    user = int.from_bytes(row[1:])
    for column, ts in cells:
        why = f"it is in row {row.hex()}, and the feed of user {user} is another row"
        yield Finding(user, cluster, "displaced", *_pin(column), ts, row, why)


def _damaged(cluster: str, error: DamagedError) -> Finding:
    return Finding(0, cluster, "damaged", 0, 0, 0, b"", str(error))


def _pin(column: bytes) -> tuple[int, int]:
    """The pin and the creation time of a column."""
    entry = entries_of([column])[0]
    return entry.pin, entry.created_ms


class _Truth:
    """The follow store's answers about some columns of one user's row. Read once, except changes since a time."""

    def __init__(self, follows: FollowStore, user: int, some: Iterable[bytes]) -> None:
        self.user = user
        self._follows = follows
        ordered = sorted(some)
        self.pins_of = dict(zip(ordered, entries_of(ordered), strict=True))
        ids = list({entry.pin: None for entry in self.pins_of.values() if 1 <= entry.pin <= MAX_ID})
        self._pins: dict[int, PinState] = {}
        self._edges: dict[Followee, Edge] = {}
        for each in chunks(ids, MAX_PAGE):
            found = follows.pins(each)
            self._pins |= found
            keys = list({(user, each): None for state in found.values() for each in state.pin.followees()})
            self._edges |= {edge.followee: edge for edge in follows.edges(keys).values()}
        self._changed: dict[int, set[Followee]] = {}
        self._known: bool | None = None

    def settled_ts(self, column: bytes, since_ms: int) -> int | None:
        """The timestamp of the latest edge that certainly delivers an entry: pin and edge have not changed since a
        time. None if there is none.
        """
        state = self._state(column)
        if state is None or state.deleted_ms is not None or state.saved_ms >= since_ms:
            return None
        return max(
            (edge.ts for edge in self._active(state.pin) if edge.followee not in self._changed_since(since_ms)),
            default=None,
        )

    def delivered_by(self, column: bytes, ts: int) -> str:
        state = self._state(column)
        edges = [edge for edge in self._active(state.pin) if edge.ts == ts] if state is not None else []
        return f"user {self.user} follows {edges[0].followee} since {ts}" if edges else f"followed since {ts}"

    def left_since(self, since_ms: int) -> list[Followee]:
        """The followees that the user has unfollowed since a time."""
        found: list[Followee] = []
        while page := self._follows.unfollowed_after(self.user, since_ms, found[-1] if found else None, MAX_PAGE):
            found += [edge.followee for edge in page]
        return found

    def stray(self, column: bytes, since_ms: int) -> tuple[Kind, str] | None:
        """The kind and reason of the finding about an entry that a row shows and the feed must not hold; None if the
        entry may be there, or is on its way out.
        """
        entry = self.pins_of[column]
        state = self._pins.get(entry.pin)
        if state is None:
            return self._kind("extra"), f"the follow store knows no pin {entry.pin}"
        if state.pin.created_ms != entry.created_ms:
            return self._kind("differs"), f"pin {entry.pin} is of {state.pin.created_ms}"
        if state.deleted_ms is None:
            why = self._uncovered(state.pin, since_ms)
        else:
            why = f"pin {entry.pin} was deleted at {state.deleted_ms}" if state.deleted_ms < since_ms else None
        return None if why is None else (self._kind("extra"), why)

    def _uncovered(self, pin: Pin, since_ms: int) -> str | None:
        """Why nothing brings a pin into the feed; None if something does, or did a moment ago."""
        followees = pin.followees()
        if self._active(pin) or any(each in self._changed_since(since_ms) for each in followees):
            return None
        ended = [self._edges[each] for each in followees if each in self._edges]
        if ended:
            last = max(ended, key=lambda edge: edge.ts)
            return f"user {self.user} unfollowed {last.followee} at {last.ts}"
        return f"user {self.user} never followed {' or '.join(map(str, followees))}"

    def _kind(self, kind: Kind) -> Kind:
        if self._known is None:
            follows, user = self._follows, self.user  # whether the user ever followed anything
            ever = self._edges or follows.following_after(user, None, 1) or follows.unfollowed_after(user, 0, None, 1)
            self._known = bool(ever)
        return kind if self._known else "unknown user"

    def _state(self, column: bytes) -> PinState | None:
        return self._pins.get(self.pins_of[column].pin)

    def _active(self, pin: Pin) -> list[Edge]:
        edges = (self._edges.get(followee) for followee in pin.followees())
        return [edge for edge in edges if edge is not None and edge.active]

    def _changed_since(self, since_ms: int) -> set[Followee]:
        """Which followees of these pins the user followed or unfollowed at or after a time."""
        if since_ms not in self._changed:
            keys = [(self.user, followee) for followee in self._edges]
            changed: set[Followee] = set()
            for some in chunks(keys, MAX_PAGE):
                changed.update(edge.followee for edge in self._follows.changed_edges(some, since_ms))
            self._changed[since_ms] = changed
        return self._changed[since_ms]


class _Stream:
    """One cluster's rows, users ascending, read in step with another sequence of users. If the cluster is damaged, the
    rows end, and the damage is noted.
    """

    def __init__(self, name: str, store: WideColumnStore, span: UserRange, damage: list[Finding]) -> None:
        self._name = name
        self._rows = rows_ascending(store, span.first - 1, span.last)
        self._damage = damage
        self._displaced: list[bytes] = []
        self.is_damaged = False
        self._next: tuple[int, list[bytes]] | None = None
        self._step()

    def skip_to(self, user: int) -> Iterator[int]:
        """Passes over the users before `user`, and yields them."""
        while self._next is not None and self._next[0] < user:
            yield self._next[0]
            self._step()

    def take(self, user: int) -> list[bytes]:
        """The columns of this user's feed; empty if there are none."""
        if self._next is None or self._next[0] != user:
            return []
        found = self._next[1]
        self._step()
        return found

    def displaced(self) -> list[bytes]:
        """The displaced rows that were met since the last call."""
        found, self._displaced = self._displaced, []
        return found

    def _step(self) -> None:
        self._next = None
        try:
            for row, shown in self._rows:
                user = int.from_bytes(row[1:])
                if 1 <= user <= MAX_ID and row == row_key(user):
                    self._next = user, shown
                    return
                self._displaced.append(row)
        except DamagedError as error:
            self.is_damaged = True
            self._damage.append(_damaged(self._name, error))
