"""The follow store: the source of truth that every feed is derived from.

Each record lives on the shard of the id that it is looked up by, and an action's transaction touches one shard: its
own record and its outbox row. The handlers write the records on other shards later, through `index`: the follower
index of a followee, the pin indexes of an owner and of a board. This module does what goes beyond one shard: routing by
id, merging of pages, and the steps that cross shards. A shard is a port, `shard.Shard`, which each database implements.

Every call that takes many keys costs at most one round trip for each shard involved (and for each page). Reads are
fresh snapshots on the primary: what was committed before the call is seen (rule 4). `tests/follows` runs this
contract against every adapter, with one shard and with three.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeVar, assert_never

from feedstore.background import Background
from feedstore.clocks import APART_MAX_MS
from feedstore.domain import (
    MAX_ID,
    Action,
    DeletePin,
    Edge,
    Follow,
    Followed,
    Followee,
    InvalidValueError,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    RespaceAsked,
    SavePin,
    Unfollow,
    Unfollowed,
)
from feedstore.follows import reconciling, recording
from feedstore.follows.arranging import Arrange, LineKey, PinAt, Result, Run, Start, Way
from feedstore.follows.port import (
    MAX_PAGE,
    ActionRefusedError,
    Backlog,
    Between,
    Follower,
    FollowStoreUnavailableError,
    Merged,
    OutboxRow,
    PinState,
    Reconciled,
    RecordCounts,
    RefillTimes,
    RelayedAgain,
    Request,
)
from feedstore.follows.recording import Answer, Claims, ShardRequest
from feedstore.follows.shard import (
    KIND_CODES,
    KINDS,
    BoardRow,
    Changes,
    EdgeKey,
    EdgeRow,
    FollowerRow,
    Marked,
    NewestFrom,
    OutboxKey,
    PinIndexRow,
    PinRow,
    Place,
    SavedFrom,
    SavedRow,
    Shard,
    Standing,
    Wanted,
    reaching,
)
from feedstore.follows.watched import Shards, boot_s
from feedstore.metering import UNCOUNTED, Meter
from feedstore.portions import chunks
from feedstore.tracing import UNTRACED, Context, Tracer

MAX_KEY = 128
"""The most characters of an idempotency key."""

INDEXED_AT_ONCE: Final = 2_000
"""The most rows of an index that one transaction writes."""

_Decided = TypeVar("_Decided")
_Row = TypeVar("_Row", FollowerRow, EdgeRow, SavedRow, BoardRow, int)


class FollowStore:
    """All shards together. Thread-safe. Times are ms by the store's own clock.

    shards: their number and their order are part of the data, and never change.
    executor: where calls to several shards run in parallel; without one they run in turn. It is shut down with
        the store.
    background: begins a look at a shard while its callers continue. None if asking a shard for its time costs nothing.
    clock: monotonic seconds that also count while the machine is suspended. meter: counts the calls of its shards.
    tracer: begins the traces of actions. An action's row in the outbox carries the context of its trace.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        executor: Executor | None = None,
        background: Background | None = None,
        clock: Callable[[], float] = boot_s,
        meter: Meter = UNCOUNTED,
        tracer: Tracer = UNTRACED,
    ) -> None:
        if not shards:
            raise InvalidValueError("shards", shards, "at least one shard")
        self._shards = list(shards)
        self._all = Shards(shards, executor, clock, background, meter)
        self._tracer = tracer

    def shards(self) -> int:
        """How many shards there are, numbered from 0. Asks none of them."""
        return len(self._all)

    def shards_of(self, action: RecordedAction) -> frozenset[int]:
        """The shards that the expansion of an action needs. Asks none of them."""
        match action:
            case PinSaved(pin):
                return frozenset(map(self._all.shard_of, (pin.pin, pin.owner, pin.board)))
            case PinDeleted(pin):
                return frozenset(map(self._all.shard_of, (pin.owner, pin.board)))
            case Followed() | Unfollowed() | RefillAsked():
                # Follows and refills bring pins, which may be on any shard: only a pin's own record says if it was
                # deleted. An unfollow of many older pins looks for edges that bring the same pins, and the boards of a
                # user may be on any shard. Only the shard of the followee knows how many there are.
                return frozenset(range(len(self._all)))
            case RespaceAsked(board, pin):
                return frozenset(map(self._all.shard_of, (board, pin)))
            case _:
                assert_never(action)

    def now(self, shard: int | None = None) -> int:
        """The clock of one shard. Without a shard, the store's time: the earliest of the clocks of all shards."""
        if shard is not None:
            return self._all.on(shard, lambda each: each.now_ms())
        return min(self._all.on_all(lambda each: each.now_ms()))

    def about_now(self) -> Between:
        """Bounds of the store's time, without waiting for its shards: their clocks at their last answers, plus the time
        that has passed since on this machine. A shard that never answered is left out.

        After a shard's clock has jumped, the bounds are wrong until its next answer.

        Raises FollowStoreUnavailableError: no shard has answered since the store was opened.
        """
        bounds = self._all.between()
        if not bounds:
            raise FollowStoreUnavailableError("no shard has told its time since the store was opened")
        return Between(min(earliest_ms for earliest_ms, _ in bounds), min(latest_ms for _, latest_ms in bounds))

    def now_at_the_latest(self) -> int:
        """The store's time; if a shard is away, the latest that it may be, as in `about_now`. For a hold: any tick of a
        later time follows what its caller has published before (rule 10), and no caller waits for a shard.

        Raises FollowStoreUnavailableError: no shard has answered since the store was opened.
        """
        try:
            return self.now()
        except FollowStoreUnavailableError:
            return self.about_now().latest_ms

    # Recording
    # ------------------------------------------------------------------------------------------------------------

    def record(self, requests: Sequence[Request]) -> list[RecordedAction | ActionRefusedError]:
        """Records actions; durable when this returns (rule 11). An action and its place in the outbox are written in
        one transaction: both or neither.

        The answers have the order of the requests. A refusal is an answer, not an exception: it does not stop the
        others. Requests on one shard may share a transaction, and take effect in the order given.

        Times are stamped inside the transaction. Follows and unfollows get `max(now, last + 1)` of their follower's
        clock, across all edges (rule 2), even if the edge is already in that state. If a pin is saved again with the
        same values, or deleted again, the answer is its first record, and there is no new outbox row. A pin is refused
        on another owner's board, with other values than before, after its deletion, or if it is dated more than
        `domain.MAX_SKEW_MS` ahead of its shard, unless its time was chosen for it (see `Request`); the deletion of an
        unknown pin is refused too. A board belongs to the owner of the first pin that claimed it, and its record
        commits before that pin does. If the pin is refused after its claim (because it differs, for example), the board
        stays with that owner.

        Raises:
            FollowStoreUnavailableError: some were recorded, others not.
            InvalidValueError: an invalid key; nothing was recorded.
        """
        with self._tracer.trace("record"):
            return self._record(requests, self._tracer.context())

    def _record(self, requests: Sequence[Request], trace: Context | None) -> list[Answer]:
        """trace: the context that the actions carry."""
        if len(self._all) == 1:
            items = [_item(*each) for each in enumerate(requests)]
            return self._all.on(0, lambda shard: _record(shard, items, trace, boards_here=True))
        routed: list[tuple[int, ShardRequest]] = []
        entangled: list[tuple[int, ShardRequest]] = []
        for position, request in enumerate(requests):
            action, key, _ = request
            settled_here = key is None and type(action) is not SavePin
            (routed if settled_here else entangled).append((self.home(action), _item(position, request)))
        answers: dict[int, Answer] = {}
        if entangled:
            routed += self._settle_elsewhere(entangled, answers)
            routed.sort(key=lambda each: each[1][0])
        batches: dict[int, list[ShardRequest]] = defaultdict(list)
        for home, item in routed:
            batches[home].append(item)
        for home, recorded in self._all.on_each(batches, lambda shard, mine: _record(shard, mine, trace)).items():
            for item, answer in zip(batches[home], recorded, strict=True):
                answers[item[0]] = answer
        return [answers[position] for position in range(len(requests))]

    def _settle_elsewhere(
        self, routed: Sequence[tuple[int, ShardRequest]], answers: dict[int, Answer]
    ) -> list[tuple[int, ShardRequest]]:
        """Claims each board for its owner, and each idempotency key, on the shard that has it: these are settled before
        anything is recorded. Returns the requests that are still to be recorded; the answers to the others go into
        `answers`.

        The claims commit here: if two requests want the same free board or key, one gets it.
        """
        stored = self._look_elsewhere(routed)
        claims: dict[int, Claims] = defaultdict(lambda: Claims({}, {}))
        left: list[tuple[int, ShardRequest]] = []
        for home, item in routed:
            action, key = item.action, item.key
            if key is not None:
                answer = stored.answer(item)
                if answer is not None:
                    answers[item.position] = answer
                    continue
                stored.fingerprints[key] = item.fingerprint
                where = self._all.shard_of_key(key)
                if where != home:
                    claims[where].keys[key] = item.fingerprint
            if type(action) is SavePin:
                pin = action.pin
                refusal = recording.refused_as_future(pin, stored.latest_ms) if item.is_dated else None
                if refusal is not None:
                    left.append((home, item._replace(refusal=refusal)))
                    continue
                if pin.board not in stored.owners:
                    claims[self._all.shard_of(pin.board)].boards.setdefault(pin.board, pin.owner)
            left.append((home, item))
        for claimed in self._all.on_each(claims, _claim).values():
            stored.owners.update(claimed.boards)
            stored.fingerprints.update(claimed.keys)
        return list(_decided(left, stored, answers))

    def _look_elsewhere(self, routed: Sequence[tuple[int, ShardRequest]]) -> "_Elsewhere":
        looks: dict[int, tuple[set[int], set[str]]] = defaultdict(lambda: (set(), set()))
        for home, (_, action, key, *_) in routed:
            if isinstance(action, SavePin):
                looks[self._all.shard_of(action.pin.board)][0].add(action.pin.board)
            if key is not None:
                looks[home][1].add(key)
                looks[self._all.shard_of_key(key)][1].add(key)
        wanted = {number: Wanted(boards=list(boards), keys=list(keys)) for number, (boards, keys) in looks.items()}
        elsewhere = _Elsewhere()
        for now_ms, standing in self._all.on_each(wanted, lambda shard, mine: shard.look(mine)).values():
            elsewhere.latest_ms = max(elsewhere.latest_ms, now_ms)
            elsewhere.owners.update(standing.boards)
            for key, (fingerprint, answer) in standing.keys.items():
                elsewhere.fingerprints[key] = fingerprint
                if answer is not None:
                    elsewhere.answers[key] = answer
        return elsewhere

    def redate(self, action: RecordedAction) -> RecordedAction | None:
        """Gives an action that waited too long a new time and a new outbox row, in one transaction (rule 8).

        An edge gets a new time of its follower's clock if `action` is still its latest. A pin gets a new saved_ms, and
        a deletion a new deleted_ms, if the record is still as `action` says. A refill is requested again unless it was
        requested later. If a newer action has replaced this one, nothing is written and None is returned.
        """
        wanted = recording.wanted_to_redate(action)
        trace = self._tracer.context()

        def decide(now_ms: int, standing: Standing) -> tuple[Changes, RecordedAction | None]:
            return _carrying(trace, recording.redate(action, now_ms, standing))

        return self._all.on(self.home(action), lambda shard: shard.transact(wanted, decide))

    def ask_refill(self, users: Iterable[int], cluster: str | None, not_again_within_ms: int) -> int:
        """Records a RefillAsked for each user, as an outbox row like any action; returns the latest commit time.

        Users with the same request less than `not_again_within_ms` ago are left out; 0 leaves out none. If no user is
        left, the returned time is the store's now.
        """
        trace = self._tracer.context()

        def ask(shard: Shard, asked: list[int]) -> int | None:
            def decide(now_ms: int, standing: Standing) -> tuple[Changes, int | None]:
                return _carrying(trace, recording.ask_refills(asked, cluster, not_again_within_ms, now_ms, standing))

            return shard.transact(Wanted(refills=[(user, cluster or "") for user in asked]), decide)

        asked = self._all.on_those_of(dict.fromkeys(users), lambda user: user, ask)
        return max((time for time in asked if time is not None), default=None) or self.now()

    def refill_times(self, keys: Sequence[tuple[int, str | None]]) -> dict[tuple[int, str | None], RefillTimes]:
        """The refills of these (user, cluster) pairs. Pairs without a request, or with an expired one, are left out."""
        asked = [(user, cluster or "") for user, cluster in dict.fromkeys(keys)]
        found = self._all.on_those_of(asked, itemgetter(0), lambda shard, mine: shard.refill_times(mine))
        return {
            (user, cluster or None): RefillTimes(asked_ms, served_before_ms)
            for user, cluster, asked_ms, served_before_ms in itertools.chain.from_iterable(found)
        }

    def mark_refills_served(self, served: Mapping[tuple[int, str | None], int]) -> None:
        """Marks refills of (user, cluster) that were requested before a time as done, because a refill was published
        that read the store after that time. Marking twice is fine; pairs without a request are ignored.
        """
        marks = {(user, cluster or ""): before_ms for (user, cluster), before_ms in served.items()}
        self._all.on_those_of(
            marks, itemgetter(0), lambda shard, mine: shard.mark_refills_served({key: marks[key] for key in mine})
        )

    # The outbox
    # -----------------------------------------------------------------------------------------------------------

    def unrelayed(self, limit: int, shard: int | None = None) -> list[OutboxRow]:
        """Outbox rows that are not marked relayed, oldest first within a shard: as many as it takes to have `limit`
        actions. With a shard, only its rows, and no other shard is asked. Without one, the rows of all shards in turn,
        so that none starves.
        """
        every = dict.fromkeys(self._all.in_turns() if shard is None else [shard], limit)
        found = self._all.on_each(every, lambda each, mine: each.unrelayed(mine))
        queues = [[OutboxRow(number, *row) for row in found[number]] for number in every]
        taking_turns = [row for rows in itertools.zip_longest(*queues) for row in rows if row is not None]
        return taking_turns[: reaching([row.number for row in taking_turns], limit)]

    def mark_relayed(self, rows: Sequence[OutboxRow]) -> None:
        """Marks rows as published; only the shards of these rows are asked. Marking twice is fine. A row that has the
        id of one of these, and was committed at another time, is another row: it is not marked.
        """
        marks: dict[int, list[OutboxKey]] = defaultdict(list)
        for row in rows:
            marks[row.shard].append((row.id, row.committed_ms))
        self._all.on_each(marks, lambda shard, mine: shard.mark_relayed(mine))

    def may_relay(self, shard: int) -> bool:
        """Whether this store is the one that relays a shard now, if several processes on any hosts would. Ask each time
        before something is relayed, and every few seconds to keep the claim.

        The store that got True has the claim until it is closed, its process dies, or it has not asked for half a
        minute (its host is gone, for example). Then the first that asks gets it. For a moment two may have it: relaying
        a row twice is harmless (rule 1). A store in files knows no other processes, and says True.
        """
        return self._all.on(shard, lambda each: each.may_relay())

    def relay_again(self, since_ms: int = 0) -> RelayedAgain:
        """Marks every row of the outbox that committed at or after a time, and some rows before it, as not relayed, and
        refills that were requested since as not published. Call it if the queue has lost messages. A relay that runs
        may have relayed some of the rows before this returns.

        If it is interrupted, only some are marked: call it again. Relaying a row twice is harmless (rule 1).
        """

        def mark(shard: Shard) -> RelayedAgain:
            actions = 0
            marked: Marked | None = Marked(_PAST_IDS, since_ms, 0)
            while marked is not None and marked.committed_ms >= since_ms - _OUT_OF_ORDER_MS:
                marked = shard.mark_unrelayed(marked.first_id, _MARKED_AT_ONCE)
                actions += 0 if marked is None else marked.actions
            shard.mark_refills_unserved(since_ms)
            return RelayedAgain(actions, shard.outbox_is_whole())

        shards = self._all.on_all(mark)
        return RelayedAgain(sum(each.actions for each in shards), all(each.is_whole for each in shards))

    def has_relayed(self) -> bool:
        """Whether the first row of the outbox of any shard is marked relayed. Raises FollowStoreUnavailableError:
        shards are away, and no other has such a row.
        """
        away: FollowStoreUnavailableError | None = None
        for number in range(self.shards()):
            try:
                if self._all.on(number, lambda each: each.has_relayed()):
                    return True
            except FollowStoreUnavailableError as error:
                away = error
        if away is not None:
            raise away
        return False

    def backlog(self, shard: int | None = None) -> Backlog:
        """The rows that are not marked relayed, of one shard or of all. The shard counts them, which takes a second for
        some millions: ask it every few seconds at most.
        """
        if shard is not None:
            return self._all.on(shard, lambda each: each.backlog())
        rows, actions, oldest = zip(*self._all.on_all(lambda each: each.backlog()), strict=True)
        return Backlog(sum(rows), sum(actions), min((each for each in oldest if each is not None), default=None))

    def settled_ms(self) -> int:
        """A store time T such that every action committed before T is marked relayed, and no commit stamped before T
        can still appear. A tick carries it (rule 10). The minimum over the shards.

        If everything is relayed, each call moves it by at least a millisecond, even while a shard's clock is behind its
        own stamps because it was ahead once.
        """
        return min(self._all.on_all(lambda shard: shard.settled_ms()))

    # Index writes: the first step of every handler
    # -----------------------------------------------------------------------------------------------------------

    def index(
        self,
        *,
        edges: Sequence[Edge] = (),
        pins: Sequence[PinSaved] = (),
        deletions: Sequence[PinDeleted] = (),
    ) -> None:
        """Writes the indexes; durable when it returns. A shard writes a few rows in one transaction, many in several.

        An edge is upserted into its followee's follower index, unless the row there is newer; ended edges stay as rows.
        A pin is upserted into the indexes of its owner and its board; the latest saved_ms wins, and a deletion stays
        marked. A deletion marks its pin in both, even if the pin is not there yet. The transaction that marks it in the
        index of its board also takes it out of the board's order.

        Raises FollowStoreUnavailableError: some may be written; write all again.
        """
        followers: list[FollowerRow] = [
            (KIND_CODES[edge.followee.kind], edge.followee.id, edge.follower, edge.ts, int(edge.active))
            for edge in edges
        ]
        states = [
            *((saved.pin, saved.committed_ms, None) for saved in pins),
            *((deleted.pin, 0, deleted.committed_ms) for deleted in deletions),
        ]
        lines: list[PinIndexRow] = []
        for pin, saved_ms, deleted_ms in states:
            number, owner, board, created_ms = pin.pin, pin.owner, pin.board, pin.created_ms
            lines.append((_BOARD, board, created_ms, number, owner, board, saved_ms, deleted_ms))
            lines.append((_USER, owner, created_ms, number, owner, board, saved_ms, deleted_ms))
        edges_of, pins_of = self._all.by_shard(followers, itemgetter(1)), self._all.by_shard(lines, itemgetter(1))
        work = {number: (edges_of.get(number, []), pins_of.get(number, [])) for number in {**edges_of, **pins_of}}
        self._all.on_each(work, lambda shard, mine: _index(shard, *mine))

    # Reads of the handlers
    # -----------------------------------------------------------------------------------------------------------

    def followers(
        self, followees: Sequence[Followee], after: tuple[Followee, int] | None, limit: int, *, tombstones: bool
    ) -> list[Follower]:
        """A page of the follower indexes of several followees, in the order (followee, follower), after a given
        place.

        Pages go by key, never by offset. tombstones: whether ended edges are included. Fewer than `limit` (1..MAX_PAGE)
        means the end. `followees` are at most MAX_PAGE, all different.
        """
        _check_page(limit)
        named = _places(followees)
        first = ((-1, 0), 0) if after is None else ((KIND_CODES[after[0].kind], after[0].id), after[1])
        places: dict[int, list[EdgeKey]] = defaultdict(list)
        for place in sorted(named):
            if place >= first[0]:
                places[self._all.shard_of(place[1])].append((first[1] if place == first[0] else 0, *place))
        pages = self._all.on_each(places, lambda shard, mine: shard.followers(mine, limit, tombstones=tombstones))
        return [
            Follower(followee, follower, ts, active == 1)
            for place, rows in itertools.groupby(_merged(pages.values(), limit), itemgetter(0, 1))
            for followee in (named[place],)
            for _, _, follower, ts, active in rows
        ]

    def edges(self, keys: Sequence[tuple[int, Followee]]) -> dict[tuple[int, Followee], Edge]:
        """The edges of these (follower, followee) pairs, from the followers' own shards: the source of truth."""
        asked = _edge_keys(keys)
        edges: dict[tuple[int, Followee], Edge] = {}
        for follower, kind, followee_id, ts, active, _ in self._edge_rows(asked):
            followee = asked[follower, kind, followee_id]
            edges[follower, followee] = Edge(follower, followee, ts, bool(active))
        return edges

    def following(self, follower: int) -> list[Edge]:
        """The active edges of a follower: all pages of `following_after` together."""
        edges: list[Edge] = []
        while page := self.following_after(follower, edges[-1].followee if edges else None, MAX_PAGE):
            edges += page
        return edges

    def following_after(self, follower: int, after: Followee | None, limit: int) -> list[Edge]:
        """As `following_of` a single follower."""
        return self.following_of([follower], None if after is None else (follower, after), limit)

    def following_of(self, followers: Sequence[int], after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        """A page of the active edges of several followers in the order (follower, followee), after a given place. Fewer
        than `limit` (1..MAX_PAGE) means the end. `followers` are at most MAX_PAGE.
        """
        _check_page(limit)
        if len(followers) > MAX_PAGE:
            raise InvalidValueError("followers", len(followers), f"at most {MAX_PAGE} followers")
        first = (0, -1, 0) if after is None else (after[0], KIND_CODES[after[1].kind], after[1].id)
        places = [first if each == first[0] else (each, -1, 0) for each in sorted(set(followers)) if each >= first[0]]
        pages = self._all.on_those_of(places, itemgetter(0), lambda shard, mine: shard.active_edges_after(mine, limit))
        return [_edge(row) for row in _merged(pages, limit)]

    def unfollowed_after(self, follower: int, since_ms: int, after: Followee | None, limit: int) -> list[Edge]:
        """A page of the ended edges of a follower that committed at or after a time, in the order of their followees,
        after a given one. Fewer than `limit` (1..MAX_PAGE) means the end.
        """
        _check_page(limit)
        place = (-1, 0) if after is None else (KIND_CODES[after.kind], after.id)
        home = self._all.shard_of(follower)
        rows = self._all.on(home, lambda shard: shard.ended_edges_after(follower, since_ms, place, limit))
        return [_edge(row) for row in rows]

    def changed_edges(self, keys: Sequence[tuple[int, Followee]], since_ms: int) -> list[Edge]:
        """Edges, active or ended, of these (follower, followee) whose latest action committed at or after a time."""
        return [_edge(row) for row in self._edge_rows(_edge_keys(keys)) if row[5] >= since_ms]

    def _edge_rows(self, keys: Iterable[EdgeKey]) -> Iterator[EdgeRow]:
        found = self._all.on_those_of(keys, itemgetter(0), lambda shard, mine: shard.edges(mine))
        return itertools.chain.from_iterable(found)

    def newest_pins(
        self, followees: Sequence[Followee], limit: int, saved_before_ms: int | None = None
    ) -> dict[Followee, list[PinState]]:
        """For each followee the newest `limit` pins in the index, by (created_ms descending, pin ascending), without
        deleted ones; with `saved_before_ms` only those saved before that time.
        """
        _check_limit(limit)
        named = {_from_newest(followee, limit): followee for followee in followees}
        rows = self._newest(named, saved_before_ms)
        return {named[place]: [_pin_state(row) for row in rows[place]] for place in named}

    def newest_pins_merged(self, wanted: Sequence[Merged], limit: int) -> list[list[PinState]]:
        """For each request, the newest `limit` distinct pins of all its followees together, in feed order, without
        deleted ones.

        For thousands of followees it costs about as much as the rows that it returns, not followees x limit. It takes a
        few rounds, shared by all requests: first a few pins of each followee, then more of those followees that may
        have one among the newest. The whole result is in memory at once, and twice its size during the call.
        """
        _check_limit(limit)
        merges = [_Merge(each, limit) for each in wanted]
        # If several requests want the same pins of a followee, these are read once.
        while places := {place: None for merge in merges for place in merge.places}:
            found = self._newest(places)
            for merge in merges:
                merge.add(found)
        return [[_pin_state(row) for row in merge.newest] for merge in merges]

    def _newest(
        self, places: Iterable[NewestFrom], saved_before_ms: int | None = None
    ) -> dict[NewestFrom, list[PinRow]]:
        def read(shard: Shard, mine: list[NewestFrom]) -> list[list[PinRow]]:
            return shard.newest_pins(mine, saved_before_ms=MAX_ID if saved_before_ms is None else saved_before_ms)

        by_shard = self._all.by_shard(places, itemgetter(1))
        found = self._all.on_each(by_shard, read)
        return {
            place: rows for number, mine in by_shard.items() for place, rows in zip(mine, found[number], strict=True)
        }

    def pins_saved_since(
        self, followees: Sequence[Followee], since_ms: int, after: tuple[Followee, int, int] | None, limit: int
    ) -> list[tuple[Followee, PinState]]:
        """A page of the pins of several followees with saved_ms >= `since_ms`, in the order (followee, saved_ms, pin),
        after a given place, without deleted ones. Fewer than `limit` (1..MAX_PAGE) means the end. `followees` are
        at most MAX_PAGE, all different.
        """
        _check_page(limit)
        named = _places(followees)
        first = ((-1, 0), (0, 0)) if after is None else ((KIND_CODES[after[0].kind], after[0].id), after[1:])
        places: dict[int, list[SavedFrom]] = defaultdict(list)
        for place in sorted(named):
            if place >= first[0]:
                past = first[1] if place == first[0] else (0, 0)
                places[self._all.shard_of(place[1])].append(SavedFrom(*place, *past))
        pages = self._all.on_each(places, lambda shard, mine: shard.pins_saved_since(mine, since_ms, limit))
        return [
            (named[kind, followee], PinState(Pin(pin, owner, board, created_ms), saved_ms, None))
            for kind, followee, saved_ms, pin, owner, board, created_ms in _merged(pages.values(), limit)
        ]

    def pins(self, pin_ids: Sequence[int]) -> dict[int, PinState]:
        """The records of pins, deleted or not, from their shards: the source of truth. Unknown ids are left out."""
        found = self._all.on_those_of(dict.fromkeys(pin_ids), lambda pin: pin, lambda shard, mine: shard.pins(mine))
        return {row[0]: _pin_state(row) for row in itertools.chain.from_iterable(found)}

    def deletions(self, pin_ids: Sequence[int]) -> dict[int, int]:
        """When each of these pins was deleted, from the pins' own records. Living and unknown pins are left out."""
        pins = dict.fromkeys(pin_ids)
        found = self._all.on_those_of(pins, lambda pin: pin, lambda shard, mine: shard.deletions(mine))
        return {pin: deleted_ms for deletions in found for pin, deleted_ms in deletions.items()}

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        """The owner of each board that has a record."""
        asked = dict.fromkeys(boards)
        found = self._all.on_those_of(asked, lambda board: board, lambda shard, mine: shard.board_owners(mine))
        owners = {board: owner for owned in found for board, owner in owned.items()}
        return {board: owners[board] for board in boards if board in owners}

    def boards_of(self, owners: Sequence[int], after: tuple[int, int] | None, limit: int) -> list[tuple[int, int]]:
        """A page of the boards of several owners as (owner, board), ascending, after a given place; it asks every
        shard. A board is listed before the first pin on it commits. Fewer than `limit` (1..MAX_PAGE) means
        the end. `owners` are at most MAX_PAGE.
        """
        _check_page(limit)
        if len(owners) > MAX_PAGE:
            raise InvalidValueError("owners", len(owners), f"at most {MAX_PAGE} owners")
        place = after or (0, 0)
        left = [owner for owner in sorted(set(owners)) if owner >= place[0]]
        return list(_merged(self._all.on_all(lambda shard: shard.boards_of(left, place, limit)), limit)) if left else []

    # Boards in their own order
    # -----------------------------------------------------------------------------------------------------------

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        """Reads the next pins of a board from a start, and where the `marked` pins are, in one statement. It returns up
        to `limit` pins that are placed, and up to `limit` of the next `look` lines whose pins are not placed.
        """
        return self._all.on(
            self._all.shard_of(board), lambda shard: shard.board_run(board, way, start, limit, look, marked)
        )

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        """Where these pins of a board are. Those without a line are left out. At most MAX_PAGE keys."""
        if len(keys) > MAX_PAGE:
            raise InvalidValueError("keys", len(keys), f"at most {MAX_PAGE} pins")
        return self._all.on(self._all.shard_of(board), lambda shard: shard.board_pins(board, keys))

    def arrange(self, board: int, named: Sequence[PinState], decide: Arrange[Result], *, synced: bool = True) -> Result:
        """Changes the places of pins of a board in one transaction, durable when this returns. `decide` gets the
        board's rows as the transaction sees them, and says what is written. Transactions on one board take effect one
        after the other.

        named: records of pins of the board. If a line of one is still missing, because its handler is behind, it is
            entered first.
        synced: if False, a store in a file is durable only against the death of its process. The change survives a
            failure of the machine once a later transaction is synced, or `sync_arranged` has returned. A machine that
            fails before may undo it, together with all later changes that were not synced.
        """
        lines: list[PinIndexRow] = [
            (_BOARD, board, each.pin.created_ms, each.pin.pin, each.pin.owner, board, each.saved_ms, None)
            for each in named
        ]
        return self._all.on(self._all.shard_of(board), lambda shard: shard.arrange(board, lines, decide, synced=synced))

    def sync_arranged(self, board: int) -> None:
        """Makes the changes of a board that were made without a sync durable: they survive a loss of power."""
        self._all.on(self._all.shard_of(board), lambda shard: shard.sync_arranged())

    # Verify, operate
    # -----------------------------------------------------------------------------------------------------------

    def next_arranged_board(self, after: int) -> int | None:
        """The smallest id, larger than `after`, of a board with placed pins; it asks every shard. None: no more."""
        found = self._all.on_all(lambda shard: shard.next_arranged_board(after))
        return min((board for board in found if board is not None), default=None)

    def all_edges_after(self, after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        """A page of the active edges of all users in the order (follower, followee), after a given place. Fewer than
        `limit` (1..MAX_PAGE) means the end. Memory is bounded by the page, however much one user follows.
        """
        _check_page(limit)
        place = (0, -1, 0) if after is None else (after[0], KIND_CODES[after[1].kind], after[1].id)
        pages = self._all.on_all(lambda shard: shard.all_edges_after(place, limit, tombstones=False))
        return [_edge(row) for row in _merged(pages, limit)]

    def pins_after(self, shard: int, pin: int, limit: int) -> list[PinState]:
        """A page of one shard's pins, deleted ones included, ascending by id, after a given id (0: from the start).
        Fewer than `limit` (1..MAX_PAGE) means the end. A walk over all shards passes each pin that committed before it.
        """
        _check_page(limit)
        return [_pin_state(row) for row in self._all.on(shard, lambda each: each.pins_after(pin, limit))]

    def reconcile(self, *, write: bool) -> Iterator[Reconciled]:
        """Compares each row with what other rows say of the same edge or pin, some thousand rows at a time.

        The store keeps an edge with its follower and with its followee, and a pin by itself, with its owner and with
        its board. Of two such rows the later one is right, and the other is written again. Afterwards they agree, even
        if a shard was brought back from an older copy. What only a lost shard knew stays lost. Rows of actions that are
        not expanded yet are counted too; writing them early does no harm. Memory is bounded by a page.

        write: False only counts.

        Raises FollowStoreUnavailableError: some may be written; begin again.
        """
        return reconciling.walk(self._all, write=write)

    def expire(self, purge_window_ms: int, limit: int) -> int:
        """Drops rows that are older than the window and not needed any more: ended edges (by their timestamp) and
        deleted pins in the indexes, relayed outbox rows, idempotency keys and the times of refills. The own records of
        edges and deleted pins stay.

        It drops about `limit` rows at most: an outbox row counts as the actions in it, and the last one is dropped
        whole. Returns how many were dropped, at least `limit` if there may be more.
        """
        gone = 0
        for number in self._all.in_turns():
            if gone < limit:
                [dropped] = self._all.on_each(
                    {number: limit - gone}, lambda shard, left: shard.expire(purge_window_ms, left)
                ).values()
                gone += dropped
        return gone

    def bring_back(self, to_ms: int) -> dict[int, int]:
        """Sets the time of shards back to `to_ms` if it is ahead of that, because a clock was ahead. Returns by how
        many ms each shard was ahead. The caller knows that `to_ms` is right, and that nothing relays or expands. Users
        may record meanwhile: what is ahead then is brought back, too. A large shard on a server may take minutes.

        The clocks of followers, edges and pins keep the times that were stamped. So later actions on an edge still win
        over earlier ones (rule 2), and windows that reach into the past include all of it. Later times of outbox rows
        and of idempotency keys become `to_ms`, because with them the store would forget, or wait. Refills that were
        asked for or done later are forgotten, so that they are done again.

        Raises FollowStoreUnavailableError: some shards were brought back; do it again.
        """
        ahead = {number: self._all.on(number, lambda each: each.bring_back(to_ms)) for number in range(len(self._all))}
        return {number: ms for number, ms in ahead.items() if ms}

    def counts(self) -> RecordCounts:
        return RecordCounts(*map(sum, zip(*self._all.on_all(lambda shard: shard.counts()), strict=True)))

    def close(self) -> None:
        self._all.close()

    # Routing
    # -----------------------------------------------------------------------------------------------------------

    def home(self, action: Action | RecordedAction) -> int:
        """The number of the shard that an action is recorded on."""
        if len(self._all) == 1:
            return 0
        return self._all.shard_of(_home_id(action))


def _home_id(action: Action | RecordedAction) -> int:
    """The id that an action's own record is looked up by."""
    match action:
        case Follow() | Unfollow() | Followed() | Unfollowed():
            return action.follower
        case SavePin() | PinSaved() | PinDeleted():
            return action.pin.pin
        case DeletePin():
            return action.pin
        case RefillAsked():
            return action.user
        case RespaceAsked():
            return action.board
        case _:
            assert_never(action)


class _Elsewhere:
    """What a batch needs to know from shards other than those of its actions' own records.

    latest_ms: the latest of their clocks. If a pin is dated too far ahead even of that, it claims no board. Otherwise
    the shard of its own record decides: a shard whose clock is behind refuses no pin of another one.
    """

    def __init__(self) -> None:
        self.latest_ms = 0
        self.owners: dict[int, int] = {}
        self.fingerprints: dict[str, bytes] = {}
        self.answers: dict[str, bytes] = {}

    def answer(self, item: ShardRequest) -> Answer | None:
        """The answer that is stored under the item's key; a refusal if the key belongs to another action; else None."""
        key = item.key
        assert key is not None
        if not item.has(self.fingerprints.get(key, item.fingerprint)):
            return recording.key_reused(key)
        answer = self.answers.get(key)
        return None if answer is None else recording.decode_answer(key, answer)


def _decided(
    routed: Iterable[tuple[int, ShardRequest]], stored: _Elsewhere, answers: dict[int, Answer]
) -> Iterator[tuple[int, ShardRequest]]:
    """Yields the items that are still to be recorded, once the claims are made. A refused item without a key is
    answered here; one with a key is passed on, so that the refusal is kept under the key.
    """
    for home, item in routed:
        action, key = item.action, item.key
        if key is not None and not item.has(stored.fingerprints[key]):
            answers[item.position] = recording.key_reused(key)
            continue
        refusal = item.refusal
        if refusal is None and isinstance(action, SavePin):
            owner = stored.owners[action.pin.board]
            if owner != action.pin.owner:
                refusal = recording.foreign_board(action.pin, owner)
        if refusal is None:
            yield home, item
        elif key is None:
            answers[item.position] = refusal
        else:
            yield home, item._replace(refusal=refusal)


def _item(position: int, request: Request) -> ShardRequest:
    action, key, is_dated = request
    if key is None:
        return ShardRequest(position, action, is_dated=is_dated)
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise InvalidValueError("key", key, f"1 to {MAX_KEY} printable characters")
    asked = recording.fingerprint(action, is_dated=is_dated)
    return ShardRequest(position, action, key, asked, is_dated=is_dated)


def _record(
    shard: Shard, items: Sequence[ShardRequest], trace: Context | None, *, boards_here: bool = False
) -> list[Answer]:
    def decide(now_ms: int, standing: Standing) -> tuple[Changes, list[Answer]]:
        return _carrying(trace, recording.record(items, now_ms, standing, boards_here=boards_here))

    return shard.transact(recording.wanted_by(items, boards=boards_here), decide)


def _carrying(trace: Context | None, decided: tuple[Changes, _Decided]) -> tuple[Changes, _Decided]:
    """The same changes, with the context of a trace in each action for the outbox."""
    if trace is None:
        return decided
    changes, result = decided
    return changes._replace(outbox=[recording.with_trace(action, trace) for action in changes.outbox]), result


def _index(shard: Shard, followers: list[FollowerRow], pins: list[PinIndexRow]) -> None:
    """Writes the rows in the order of the indexes, some in each transaction. In this order a page of an index is
    written by one transaction, or by two, however many there are. Users who record or drop pins meanwhile wait for some
    of the rows, not for all.
    """
    for key in _INDEX_ORDER:
        followers.sort(key=key)
        pins.sort(key=key)
    for some in chunks(followers, INDEXED_AT_ONCE):
        shard.index_followers(some)
    for lines in chunks(pins, INDEXED_AT_ONCE):
        shard.index_pins(lines)


def _claim(shard: Shard, claims: Claims) -> Claims:
    return shard.transact(
        Wanted(boards=list(claims.boards), keys=list(claims.keys)),
        lambda _, standing: recording.claim(claims, standing),
    )


# Rows and values
# --------------------------------------------------------------------------------------------------------------------

_USER: Final = KIND_CODES["user"]
_BOARD: Final = KIND_CODES["board"]
_MARKED_AT_ONCE: Final = 10_000
"""The most rows of the outbox that one transaction marks: a transaction that records waits no longer than that."""
_PAST_IDS: Final = 2**63 - 1
"""Above the id of any row of the outbox."""
_OUT_OF_ORDER_MS: Final = 60_000 + APART_MAX_MS
"""The times of rows may differ from the order of their ids by this much: a transaction ends sooner, and a longer step
of a database's clock is noticed.
"""
_INDEX_ORDER: Final = (itemgetter(2), itemgetter(1), itemgetter(0))
"""Rows of an index are sorted by one number of their key at a time, the last number first. This takes half as long as
sorting by all numbers at once.
"""
_FIRST_CHUNK: Final = 3


@lru_cache(maxsize=8_192)
def _followee(kind: int, followee: int) -> Followee:
    return Followee(KINDS[kind], followee)


def _edge(row: EdgeRow) -> Edge:
    follower, kind, followee, ts, active, _ = row
    return Edge(follower, _followee(kind, followee), ts, bool(active))


def _pin_state(row: PinRow) -> PinState:
    pin, owner, board, created_ms, saved_ms, deleted_ms = row
    return PinState(Pin(pin, owner, board, created_ms), saved_ms, deleted_ms)


def _edge_keys(keys: Iterable[tuple[int, Followee]]) -> dict[EdgeKey, Followee]:
    return {(follower, KIND_CODES[followee.kind], followee.id): followee for follower, followee in keys}


def _places(followees: Sequence[Followee]) -> dict[Place, Followee]:
    named = {(KIND_CODES[followee.kind], followee.id): followee for followee in followees}
    if len(followees) > MAX_PAGE or len(named) < len(followees):
        raise InvalidValueError("followees", len(followees), f"at most {MAX_PAGE} followees, all different")
    return named


def _from_newest(followee: Followee, limit: int, created_from_ms: int = 0) -> NewestFrom:
    return NewestFrom(KIND_CODES[followee.kind], followee.id, MAX_ID, 0, created_from_ms, limit)


class _Merge:
    """Finds the newest distinct pins of several followees together. places: where to read next; if there are none,
    `newest` is complete, in feed order.
    """

    def __init__(self, wanted: Merged, limit: int) -> None:
        self.newest: list[PinRow] = []
        followees = dict.fromkeys(wanted.followees)
        # First a few pins of each followee, then more of those that may still have one among the newest.
        self._chunk = min(limit, max(_FIRST_CHUNK, 2 * limit // max(1, len(followees))))
        self._limit = limit
        self.places = [_from_newest(followee, self._chunk, wanted.created_from_ms) for followee in followees]

    def add(self, found: Mapping[NewestFrom, list[PinRow]]) -> None:
        """Takes the rows that were read at its places."""
        if not self.places:
            return
        pins = {row[0]: row for row in self.newest}
        for place in self.places:
            for row in found[place]:
                pins[row[0]] = row
        newest = sorted(pins.values(), key=itemgetter(0))
        newest.sort(key=itemgetter(3), reverse=True)  # stable: pins of equal times stay in order
        self.newest = newest[: self._limit]
        last = self.newest[-1] if len(self.newest) == self._limit else None
        chunk, self._chunk = self._chunk, min(self._limit, 4 * self._chunk)
        self.places = [
            place._replace(
                created_ms=rows[-1][3],
                pin=rows[-1][0],
                created_from_ms=place.created_from_ms if last is None else max(place.created_from_ms, last[3]),
                limit=self._chunk,
            )
            for place in self.places
            for rows in [found[place]]
            if len(rows) == chunk and (last is None or (-rows[-1][3], rows[-1][0]) < (-last[3], last[0]))
        ]


def _merged(pages: Iterable[Sequence[_Row]], limit: int) -> Sequence[_Row]:
    """The first rows of sorted pages."""
    lists = list(pages)
    return lists[0] if len(lists) == 1 else sorted(itertools.chain.from_iterable(lists))[:limit]


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidValueError("limit", limit, "at least 1")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidValueError("limit", limit, f"1 to {MAX_PAGE} rows")
