"""The follow store over shards: routing by id, merging of pages, and the steps that cross shards."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache, partial
from operator import itemgetter
from typing import Final, TypeVar, assert_never

import msgspec

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
    NewestFrom,
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
from feedstore.follows.watched import Background, Shards, boot_s
from feedstore.metering import UNCOUNTED, Meter
from feedstore.tracing import UNTRACED, Context, Tracer

MAX_KEY = 128
"""The most characters of an idempotency key."""

INDEXED_AT_ONCE: Final = 2_000
"""How many rows of an index one transaction writes."""

_Result = TypeVar("_Result")
_Decided = TypeVar("_Decided")
_Row = TypeVar("_Row", FollowerRow, EdgeRow, SavedRow, BoardRow, int)


class ShardedFollowStore:
    """Implements `FollowStore`. The number and the order of the shards are part of the data.

    executor: where calls to several shards run in parallel; without one they run in turn. It is shut down with
        the store.
    background: how a shard is looked at while its callers continue. None: asking a shard for its time costs nothing.
    clock: monotonic seconds that also count while the machine is suspended. meter: counts the calls of its shards.
    tracer: where the traces of actions begin; their contexts go into the outbox with them.
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
        return len(self._all)

    def shards_of(self, action: RecordedAction) -> frozenset[int]:
        match action:
            case PinSaved(pin):
                return frozenset(map(self._all.shard_of, (pin.pin, pin.owner, pin.board)))
            case PinDeleted(pin):
                return frozenset(map(self._all.shard_of, (pin.owner, pin.board)))
            case Unfollowed(follower, followee):
                return frozenset(map(self._all.shard_of, (follower, followee.id)))
            case Followed() | RefillAsked():
                # The pins that they bring may be on any shard, and their own records say which were deleted.
                return frozenset(range(len(self._all)))
            case RespaceAsked(board, pin):
                return frozenset(map(self._all.shard_of, (board, pin)))
            case _:
                assert_never(action)

    def now(self, shard: int | None = None) -> int:
        if shard is not None:
            return self._all.on(shard, lambda each: each.now_ms())
        return min(self._all.on_all(lambda each: each.now_ms()))

    def about_now(self) -> Between:
        bounds = self._all.between()
        if not bounds:
            raise FollowStoreUnavailableError("no shard has told its time since the store was opened")
        return Between(min(earliest_ms for earliest_ms, _ in bounds), min(latest_ms for _, latest_ms in bounds))

    # Recording
    # ------------------------------------------------------------------------------------------------------------

    def record(self, requests: Sequence[Request]) -> list[Answer]:
        with self._tracer.trace("record"):
            return self._record(requests, self._tracer.context())

    def _record(self, requests: Sequence[Request], trace: Context | None) -> list[Answer]:
        """trace: what the actions carry."""
        if len(self._all) == 1:
            items = [_item(*each) for each in enumerate(requests)]
            return self._all.on(0, lambda shard: _record(shard, items, trace, boards_here=True))
        routed: list[tuple[int, ShardRequest]] = []
        entangled: list[tuple[int, ShardRequest]] = []
        for position, request in enumerate(requests):
            action, key = request
            settled_here = key is None and type(action) is not SavePin
            (routed if settled_here else entangled).append((self._home(action), _item(position, request)))
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
        """Resolves what depends on other shards before recording: claims the owner of each board and each idempotency
        key on the shard that has it. Returns the requests still to record; answers for the others go into `answers`.

        The claims commit here: if two requests want a free board or key, one gets it.
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
                refusal = recording.refused_as_future(pin, stored.now_ms)
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
        for home, (_, action, key, _, _) in routed:
            if isinstance(action, SavePin):
                looks[self._all.shard_of(action.pin.board)][0].add(action.pin.board)
            if key is not None:
                looks[home][1].add(key)
                looks[self._all.shard_of_key(key)][1].add(key)
        wanted = {number: Wanted(boards=list(boards), keys=list(keys)) for number, (boards, keys) in looks.items()}
        elsewhere = _Elsewhere()
        for now_ms, standing in self._all.on_each(wanted, lambda shard, mine: shard.look(mine)).values():
            elsewhere.now_ms = min(elsewhere.now_ms, now_ms)
            elsewhere.owners.update(standing.boards)
            for key, (fingerprint, answer) in standing.keys.items():
                elsewhere.fingerprints[key] = fingerprint
                if answer is not None:
                    elsewhere.answers[key] = answer
        return elsewhere

    def redate(self, action: RecordedAction) -> RecordedAction | None:
        wanted = recording.wanted_to_redate(action)
        trace = self._tracer.context()

        def decide(now_ms: int, standing: Standing) -> tuple[Changes, RecordedAction | None]:
            return _carrying(trace, recording.redate(action, now_ms, standing))

        return self._all.on(self._home(action), lambda shard: shard.transact(wanted, decide))

    def ask_refill(self, users: Iterable[int], cluster: str | None, not_again_within_ms: int) -> int:
        trace = self._tracer.context()

        def ask(shard: Shard, asked: list[int]) -> int | None:
            def decide(now_ms: int, standing: Standing) -> tuple[Changes, int | None]:
                return _carrying(trace, recording.ask_refills(asked, cluster, not_again_within_ms, now_ms, standing))

            return shard.transact(Wanted(refills=[(user, cluster or "") for user in asked]), decide)

        asked = self._all.on_each(self._all.by_shard(dict.fromkeys(users), lambda user: user), ask)
        return max((time for time in asked.values() if time is not None), default=None) or self.now()

    def refill_times(self, keys: Sequence[tuple[int, str | None]]) -> dict[tuple[int, str | None], RefillTimes]:
        asked = [(user, cluster or "") for user, cluster in dict.fromkeys(keys)]
        found = self._all.on_each(
            self._all.by_shard(asked, itemgetter(0)), lambda shard, mine: shard.refill_times(mine)
        )
        return {
            (user, cluster or None): RefillTimes(asked_ms, served_before_ms)
            for user, cluster, asked_ms, served_before_ms in itertools.chain.from_iterable(found.values())
        }

    def mark_refills_served(self, served: Mapping[tuple[int, str | None], int]) -> None:
        marks = {(user, cluster or ""): before_ms for (user, cluster), before_ms in served.items()}
        self._all.on_each(
            self._all.by_shard(marks, itemgetter(0)),
            lambda shard, mine: shard.mark_refills_served({key: marks[key] for key in mine}),
        )

    # The outbox
    # -----------------------------------------------------------------------------------------------------------

    def unrelayed(self, limit: int, shard: int | None = None) -> list[OutboxRow]:
        every = dict.fromkeys(self._all.in_turns() if shard is None else [shard], limit)
        found = self._all.on_each(every, lambda each, mine: each.unrelayed(mine))
        queues = [[OutboxRow(number, *row) for row in found[number]] for number in every]
        taking_turns = [row for rows in itertools.zip_longest(*queues) for row in rows if row is not None]
        return taking_turns[: reaching([row.number for row in taking_turns], limit)]

    def mark_relayed(self, rows: Sequence[OutboxRow]) -> None:
        marks: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            marks[row.shard].append(row.id)
        self._all.on_each(marks, lambda shard, mine: shard.mark_relayed(mine))

    def relay_again(self) -> bool:
        def mark(shard: Shard) -> bool:
            last: int | None = 0
            while last is not None:
                last = shard.mark_unrelayed(last, _MARKED_AT_ONCE)
            shard.mark_refills_unserved()
            return shard.outbox_is_whole()

        return all(self._all.on_all(mark))

    def backlog(self, shard: int | None = None) -> Backlog:
        if shard is not None:
            return self._all.on(shard, lambda each: each.backlog())
        rows, actions, oldest = zip(*self._all.on_all(lambda each: each.backlog()), strict=True)
        return Backlog(sum(rows), sum(actions), min((each for each in oldest if each is not None), default=None))

    def settled_ms(self) -> int:
        return min(self._all.on_all(lambda shard: shard.settled_ms()))

    # Index writes
    # -----------------------------------------------------------------------------------------------------------

    def index(
        self,
        *,
        edges: Sequence[Edge] = (),
        pins: Sequence[PinSaved] = (),
        deletions: Sequence[PinDeleted] = (),
    ) -> None:
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
        asked = _edge_keys(keys)
        edges: dict[tuple[int, Followee], Edge] = {}
        for follower, kind, followee_id, ts, active, _ in self._edge_rows(asked):
            followee = asked[follower, kind, followee_id]
            edges[follower, followee] = Edge(follower, followee, ts, bool(active))
        return edges

    def following(self, follower: int, changed_since_ms: int | None = None) -> list[Edge]:
        rows = self._all.on(
            self._all.shard_of(follower),
            lambda shard: shard.active_edges(follower, or_changed_since_ms=changed_since_ms),
        )
        return [_edge(row) for row in rows]

    def following_after(self, follower: int, after: Followee | None, limit: int) -> list[Edge]:
        _check_page(limit)
        place = (follower, -1, 0) if after is None else (follower, KIND_CODES[after.kind], after.id)
        rows = self._all.on(self._all.shard_of(follower), lambda shard: shard.active_edges_after([place], limit))
        return [_edge(row) for row in rows]

    def following_of(self, followers: Sequence[int], after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        _check_page(limit)
        if len(followers) > MAX_PAGE:
            raise InvalidValueError("followers", len(followers), f"at most {MAX_PAGE} followers")
        first = (0, -1, 0) if after is None else (after[0], KIND_CODES[after[1].kind], after[1].id)
        places = [first if each == first[0] else (each, -1, 0) for each in sorted(set(followers)) if each >= first[0]]
        pages = self._all.on_each(
            self._all.by_shard(places, itemgetter(0)), lambda shard, mine: shard.active_edges_after(mine, limit)
        )
        return [_edge(row) for row in _merged(pages.values(), limit)]

    def unfollowed_after(self, follower: int, since_ms: int, after: Followee | None, limit: int) -> list[Edge]:
        _check_page(limit)
        place = (-1, 0) if after is None else (KIND_CODES[after.kind], after.id)
        home = self._all.shard_of(follower)
        rows = self._all.on(home, lambda shard: shard.ended_edges_after(follower, since_ms, place, limit))
        return [_edge(row) for row in rows]

    def changed_edges(self, keys: Sequence[tuple[int, Followee]], since_ms: int) -> list[Edge]:
        return [_edge(row) for row in self._edge_rows(_edge_keys(keys)) if row[5] >= since_ms]

    def _edge_rows(self, keys: Iterable[EdgeKey]) -> Iterator[EdgeRow]:
        found = self._all.on_each(self._all.by_shard(keys, itemgetter(0)), lambda shard, mine: shard.edges(mine))
        return itertools.chain.from_iterable(found.values())

    def newest_pins(
        self, followees: Sequence[Followee], limit: int, saved_before_ms: int | None = None
    ) -> dict[Followee, list[PinState]]:
        _check_limit(limit)
        named = {_from_newest(followee, limit): followee for followee in followees}
        rows = self._newest(named, saved_before_ms)
        return {named[place]: [_pin_state(row) for row in rows[place]] for place in named}

    def newest_pins_merged(self, wanted: Sequence[Merged], limit: int) -> list[list[PinState]]:
        _check_limit(limit)
        merges = [_Merge(each, limit) for each in wanted]
        # What several of them want of the same followee is read once.
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
        found = self._all.on_each(
            self._all.by_shard(dict.fromkeys(pin_ids), lambda pin: pin), lambda shard, mine: shard.pins(mine)
        )
        return {row[0]: _pin_state(row) for row in itertools.chain.from_iterable(found.values())}

    def deletions(self, pin_ids: Sequence[int]) -> dict[int, int]:
        by_shard = self._all.by_shard(dict.fromkeys(pin_ids), lambda pin: pin)
        found = self._all.on_each(by_shard, lambda shard, mine: shard.deletions(mine))
        return {pin: deleted_ms for deletions in found.values() for pin, deleted_ms in deletions.items()}

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        found = self._all.on_each(
            self._all.by_shard(dict.fromkeys(boards), lambda board: board), lambda shard, mine: shard.board_owners(mine)
        )
        owners = {board: owner for owned in found.values() for board, owner in owned.items()}
        return {board: owners[board] for board in boards if board in owners}

    def boards_of(self, owners: Sequence[int], after: tuple[int, int] | None, limit: int) -> list[tuple[int, int]]:
        _check_page(limit)
        if len(owners) > MAX_PAGE:
            raise InvalidValueError("owners", len(owners), f"at most {MAX_PAGE} owners")
        place = after or (0, 0)
        left = [owner for owner in sorted(set(owners)) if owner >= place[0]]
        return list(_merged(self._all.on_all(lambda shard: shard.boards_of(left, place, limit)), limit)) if left else []

    # Boards in their own order
    # -----------------------------------------------------------------------------------------------------------

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        return self._all.on(
            self._all.shard_of(board), lambda shard: shard.board_run(board, way, start, limit, look, marked)
        )

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        if len(keys) > MAX_PAGE:
            raise InvalidValueError("keys", len(keys), f"at most {MAX_PAGE} pins")
        return self._all.on(self._all.shard_of(board), lambda shard: shard.board_pins(board, keys))

    def arrange(self, board: int, named: Sequence[PinState], decide: Arrange[Result], *, synced: bool = True) -> Result:
        lines: list[PinIndexRow] = [
            (_BOARD, board, each.pin.created_ms, each.pin.pin, each.pin.owner, board, each.saved_ms, None)
            for each in named
        ]
        return self._all.on(self._all.shard_of(board), lambda shard: shard.arrange(board, lines, decide, synced=synced))

    def sync_arranged(self, board: int) -> None:
        self._all.on(self._all.shard_of(board), lambda shard: shard.sync_arranged())

    # Verify, operate
    # -----------------------------------------------------------------------------------------------------------

    def next_arranged_board(self, after: int) -> int | None:
        found = self._all.on_all(lambda shard: shard.next_arranged_board(after))
        return min((board for board in found if board is not None), default=None)

    def all_edges_after(self, after: tuple[int, Followee] | None, limit: int) -> list[Edge]:
        _check_page(limit)
        place = (0, -1, 0) if after is None else (after[0], KIND_CODES[after[1].kind], after[1].id)
        pages = self._all.on_all(lambda shard: shard.all_active_edges_after(place, limit))
        return [_edge(row) for row in _merged(pages, limit)]

    def pins_after(self, shard: int, pin: int, limit: int) -> list[PinState]:
        _check_page(limit)
        return [_pin_state(row) for row in self._all.on(shard, lambda each: each.pins_after(pin, limit))]

    def reconcile(self, *, write: bool) -> Iterator[Reconciled]:
        return reconciling.walk(self._all, write=write)

    def expire(self, purge_window_ms: int, limit: int) -> int:
        gone = 0
        for number in self._all.in_turns():
            if gone < limit:
                gone += self._all.on(number, partial(_expire, purge_window_ms, limit - gone))
        return gone

    def bring_back(self, to_ms: int) -> dict[int, int]:
        ahead = {number: self._all.on(number, lambda each: each.bring_back(to_ms)) for number in range(len(self._all))}
        return {number: ms for number, ms in ahead.items() if ms}

    def counts(self) -> RecordCounts:
        return RecordCounts(*map(sum, zip(*self._all.on_all(lambda shard: shard.counts()), strict=True)))

    def close(self) -> None:
        self._all.close()

    # Routing
    # -----------------------------------------------------------------------------------------------------------

    def _home(self, action: Action | RecordedAction) -> int:
        """The shard of an action's own record."""
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
    """The records on other shards than an action's own, as far as a batch needs them."""

    def __init__(self) -> None:
        self.now_ms = MAX_ID
        self.owners: dict[int, int] = {}
        self.fingerprints: dict[str, bytes] = {}
        self.answers: dict[str, bytes] = {}

    def answer(self, item: ShardRequest) -> Answer | None:
        """The first answer under the item's key, a refusal where the key is another action's, or None."""
        key = item.key
        assert key is not None
        if self.fingerprints.get(key, item.fingerprint) != item.fingerprint:
            return recording.key_reused(key)
        answer = self.answers.get(key)
        return None if answer is None else _decode(recording.decode_answer, answer, f"the answer under {key!r}")


def _decided(
    routed: Iterable[tuple[int, ShardRequest]], stored: _Elsewhere, answers: dict[int, Answer]
) -> Iterator[tuple[int, ShardRequest]]:
    """Once the claims are made: the items that are still to be recorded. Refusals are passed on only if a key must keep
    them.
    """
    for home, item in routed:
        action, key = item.action, item.key
        if key is not None and stored.fingerprints[key] != item.fingerprint:
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
    action, key = request
    if key is None:
        return ShardRequest(position, action)
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise InvalidValueError("key", key, f"1 to {MAX_KEY} printable characters")
    return ShardRequest(position, action, key, recording.fingerprint(action))


def _record(
    shard: Shard, items: Sequence[ShardRequest], trace: Context | None, *, boards_here: bool = False
) -> list[Answer]:
    def decide(now_ms: int, standing: Standing) -> tuple[Changes, list[Answer]]:
        return _carrying(trace, recording.record(items, now_ms, standing, boards_here=boards_here))

    return shard.transact(recording.wanted_by(items, boards=boards_here), decide)


def _carrying(trace: Context | None, decided: tuple[Changes, _Decided]) -> tuple[Changes, _Decided]:
    """The changes that were decided, with the context of a trace in each action of their outbox."""
    if trace is None:
        return decided
    changes, result = decided
    return changes._replace(outbox=[recording.with_trace(action, trace) for action in changes.outbox]), result


def _index(shard: Shard, followers: list[FollowerRow], pins: list[PinIndexRow]) -> None:
    """Writes the rows in the order of the indexes. A page of an index is then written in one transaction, or in two,
    however many there are; and people who record or drop pins meanwhile wait for a part of the rows, not for all.
    """
    for key in _INDEX_ORDER:
        followers.sort(key=key)
        pins.sort(key=key)
    for start in range(0, len(followers), INDEXED_AT_ONCE):
        shard.index_followers(followers[start : start + INDEXED_AT_ONCE])
    for start in range(0, len(pins), INDEXED_AT_ONCE):
        shard.index_pins(pins[start : start + INDEXED_AT_ONCE])


def _expire(purge_window_ms: int, limit: int, shard: Shard) -> int:
    return shard.expire(purge_window_ms, limit)


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
"""How many rows of the outbox one transaction marks: who records waits no longer for it."""
_INDEX_ORDER: Final = (itemgetter(2), itemgetter(1), itemgetter(0))
"""How rows of an index are sorted: by one number after the other, the last one first. That takes half of the time that
sorting by all of them at once does.
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
    """Finds the newest distinct pins of several followees together. places: where to read next; none: `newest` has
    them, in feed order.
    """

    def __init__(self, wanted: Merged, limit: int) -> None:
        self.newest: list[PinRow] = []
        followees = dict.fromkeys(wanted.followees)
        # A few of each at first, then more of those that may still have one among the newest.
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
        newest.sort(key=itemgetter(3), reverse=True)  # it keeps the order of what is equal
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


def _decode(decode: Callable[[bytes], _Result], body: bytes, what: str) -> _Result:
    try:
        return decode(body)
    except (msgspec.MsgspecError, InvalidValueError) as error:
        raise FollowStoreUnavailableError(f"{what} cannot be read by this program: {error}") from error


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidValueError("limit", limit, "at least 1")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidValueError("limit", limit, f"1 to {MAX_PAGE} rows")
