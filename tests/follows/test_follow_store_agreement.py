"""Random histories: a store with one shard, one with three and a plain model of the port say the same."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import mysql_places
import pytest
from follow_places import NOW, FakeClock, saved_at, walked
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from feedstore.domain import (
    MAX_SKEW_MS,
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
    RefillAsked,
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.follows import mysql
from feedstore.follows.port import ActionRefusedError, Follower, Merged, PinState, Request, actions_in
from feedstore.follows.store import FollowStore
from tests.effort import part
from tests.follows.memory_follows import open_in_memory

USERS = range(1, 6)
BOARDS = range(11, 16)
PINS = range(21, 29)
FOLLOWEES = [user(each) for each in USERS] + [board(each) for each in BOARDS]
CLUSTERS = ("a", None)


def feed_order(state: PinState) -> tuple[int, int]:
    return -state.pin.created_ms, state.pin.pin


@dataclass
class Model:
    """The whole store in dictionaries. Answers are recorded actions, and the reasons of refusals."""

    now: int = NOW
    clocks: dict[int, int] = field(default_factory=dict)
    edges: dict[tuple[int, Followee], tuple[Edge, int]] = field(default_factory=dict)
    boards: dict[int, int] = field(default_factory=dict)
    pins: dict[int, PinState] = field(default_factory=dict)
    keys: dict[str, tuple[object, RecordedAction | str, int]] = field(default_factory=dict)
    refills: dict[tuple[int, str | None], int] = field(default_factory=dict)
    outbox: list[RecordedAction] = field(default_factory=list)
    calls: list[list[RecordedAction]] = field(default_factory=list)
    followers: dict[tuple[Followee, int], Edge] = field(default_factory=dict)
    indexed: dict[tuple[Followee, int], PinState] = field(default_factory=dict)

    def record(self, action: Action, key: str | None, is_dated: bool) -> RecordedAction | str:
        asked: object = action
        if isinstance(action, SavePin) and not is_dated:
            asked = action.pin.pin, action.pin.owner, action.pin.board
        if key is not None and key in self.keys:
            stored, answer, _ = self.keys[key]
            return answer if stored == asked or (not is_dated and stored == action) else "key_reused"
        answer = self._record(action, is_dated=is_dated)
        if key is not None:
            self.keys[key] = (asked, answer, self.now)
        return answer

    def _record(self, action: Action, *, is_dated: bool) -> RecordedAction | str:
        match action:
            case Follow(follower, followee) | Unfollow(follower, followee):
                return self._edge(follower, followee, active=isinstance(action, Follow))
            case SavePin(pin):
                return self._save(pin, is_dated=is_dated)
            case DeletePin(pin_id):
                state = self.pins.get(pin_id)
                if state is None:
                    return "pin_unknown"
                return PinDeleted(state.pin, state.deleted_ms) if state.deleted_ms else self._delete(state)

    def _edge(self, follower: int, followee: Followee, *, active: bool) -> RecordedAction:
        ts = self.clocks[follower] = max(self.now, self.clocks.get(follower, 0) + 1)
        self.edges[follower, followee] = (Edge(follower, followee, ts, active), self.now)
        self.outbox.append((Followed if active else Unfollowed)(follower, followee, ts, self.now))
        return self.outbox[-1]

    def _save(self, pin: Pin, *, is_dated: bool) -> RecordedAction | str:
        if is_dated and pin.created_ms > self.now + MAX_SKEW_MS:
            return "pin_in_the_future"
        if self.boards.setdefault(pin.board, pin.owner) != pin.owner:
            return "board_of_another_owner"
        state = self.pins.get(pin.pin)
        if state is None:
            created_ms = pin.created_ms if is_dated else min(pin.created_ms, self.now)
            return self._save_now(Pin(pin.pin, pin.owner, pin.board, created_ms))
        if state.pin != (pin if is_dated else Pin(pin.pin, pin.owner, pin.board, state.pin.created_ms)):
            return "pin_differs"
        return "pin_deleted" if state.deleted_ms else PinSaved(state.pin, state.saved_ms)

    def _save_now(self, pin: Pin) -> RecordedAction:
        self.pins[pin.pin] = PinState(pin, self.now, None)
        self.outbox.append(PinSaved(pin, self.now))
        return self.outbox[-1]

    def _delete(self, state: PinState) -> RecordedAction:
        self.pins[state.pin.pin] = state._replace(deleted_ms=self.now)
        self.outbox.append(PinDeleted(state.pin, self.now))
        return self.outbox[-1]

    def redate(self, action: RecordedAction) -> RecordedAction | None:
        match action:
            case Followed(follower, followee, ts) | Unfollowed(follower, followee, ts):
                edge = self.edges[follower, followee][0]
                return self._edge(follower, followee, active=edge.active) if edge.ts == ts else None
            case PinSaved(pin, saved_ms):
                return self._save_now(pin) if self.pins[pin.pin] == (pin, saved_ms, None) else None
            case PinDeleted(pin, deleted_ms):
                state = self.pins[pin.pin]
                return self._delete(state) if state.deleted_ms == deleted_ms else None
            case RefillAsked(user_id, cluster, asked_ms):
                latest = self.refills.get((user_id, cluster), asked_ms)
                return self.ask(user_id, cluster) if latest <= asked_ms else None

    def ask(self, user_id: int, cluster: str | None) -> RecordedAction:
        self.refills[user_id, cluster] = self.now
        self.outbox.append(RefillAsked(user_id, cluster, self.now))
        return self.outbox[-1]

    def index(self, action: RecordedAction) -> None:
        match action:
            case Followed() | Unfollowed():
                edge = action.edge()
                held = self.followers.setdefault((edge.followee, edge.follower), edge)
                if held.ts < edge.ts:
                    self.followers[edge.followee, edge.follower] = edge
            case PinSaved(pin, saved_ms):
                self._mark(pin, saved_ms, None)
            case PinDeleted(pin, deleted_ms):
                self._mark(pin, 0, deleted_ms)
            case RefillAsked():
                pass

    def _mark(self, pin: Pin, saved_ms: int, deleted_ms: int | None) -> None:
        for followee in pin.followees():
            _, saved, deleted = self.indexed.get((followee, pin.pin), (pin, 0, None))
            latest = max(deleted or 0, deleted_ms or 0) or None
            self.indexed[followee, pin.pin] = PinState(pin, max(saved, saved_ms), latest)

    def end_call(self) -> None:
        """The actions that were recorded since the last call share rows of the outbox."""
        if recorded := self.outbox[sum(map(len, self.calls)) :]:
            self.calls.append(recorded)

    def expire(self, window_ms: int) -> None:
        before = self.now - window_ms
        self.keys = {key: row for key, row in self.keys.items() if row[2] >= before}
        self.refills = {asked: time for asked, time in self.refills.items() if time >= before}
        self.followers = {at: edge for at, edge in self.followers.items() if edge.active or edge.ts >= before}
        self.indexed = {at: state for at, state in self.indexed.items() if (state.deleted_ms or before) >= before}

    def live(self, followee: Followee) -> list[PinState]:
        return [state for (at, _), state in self.indexed.items() if at == followee and state.deleted_ms is None]


def followees_of(follower: int) -> list[Followee]:
    return [followee for followee in FOLLOWEES if followee != user(follower)]


edges = st.sampled_from([(each, followee) for each in USERS for followee in followees_of(each)])
pins = st.builds(
    Pin,
    pin=st.sampled_from(PINS),
    owner=st.sampled_from(USERS[:3]),
    board=st.sampled_from(BOARDS),
    created_ms=st.sampled_from([NOW - 2, NOW - 1, NOW, NOW + MAX_SKEW_MS + 20]),
)
actions: st.SearchStrategy[Action] = st.one_of(
    edges.map(lambda edge: Follow(*edge)),
    edges.map(lambda edge: Unfollow(*edge)),
    pins.map(SavePin),
    pins.map(SavePin),
    st.sampled_from(PINS).map(DeletePin),
)
requests = st.builds(Request, actions, st.sampled_from([None, None, None, "k1", "k2", "k3"]), st.booleans())


class Agreement(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.clock = FakeClock()
        self.model = Model()
        self.stores: list[FollowStore] = [self.open_store(shards) for shards in (1, 3)]
        self.recorded: list[RecordedAction] = []

    def open_store(self, shards: int) -> FollowStore:
        return open_in_memory(self.clock, shards)

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            store.close()

    @rule(ms=st.sampled_from([1, 5, 30]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        self.model.now += ms

    @rule(batch=st.lists(requests, min_size=1, max_size=8))
    def record(self, batch: list[Request]) -> None:
        expected = [self.model.record(*request) for request in batch]
        for store in self.stores:
            answers = [
                answer.reason if isinstance(answer, ActionRefusedError) else answer for answer in store.record(batch)
            ]
            assert answers == expected
        self.recorded += [answer for answer in expected if not isinstance(answer, str)]
        self.model.end_call()

    @rule(data=st.data())
    def redate(self, data: st.DataObject) -> None:
        if self.recorded:
            action = data.draw(st.sampled_from(self.recorded[-12:]))
            again = self.model.redate(action)
            assert [store.redate(action) for store in self.stores] == [again, again]
            if again is not None:
                self.recorded.append(again)
            self.model.end_call()

    @rule(users=st.lists(st.sampled_from(USERS)), cluster=st.sampled_from(CLUSTERS), within=st.sampled_from([0, 6]))
    def ask_refill(self, users: list[int], cluster: str | None, within: int) -> None:
        for each in dict.fromkeys(users):
            asked_ms = self.model.refills.get((each, cluster))
            if asked_ms is None or self.model.now - asked_ms >= within:
                self.recorded.append(self.model.ask(each, cluster))
        for store in self.stores:
            assert store.ask_refill(users, cluster, within) == self.model.now
        self.model.end_call()

    @rule(data=st.data())
    def index_some(self, data: st.DataObject) -> None:
        """Handlers index the actions that they are given, in any order and again."""
        if self.recorded:
            some = data.draw(st.lists(st.sampled_from(self.recorded[-20:]), max_size=6))
            for action in some:
                self.model.index(action)
            for store in self.stores:
                store.index(
                    edges=[action.edge() for action in some if isinstance(action, Followed | Unfollowed)],
                    pins=[action for action in some if isinstance(action, PinSaved)],
                    deletions=[action for action in some if isinstance(action, PinDeleted)],
                )

    @rule(count=st.integers(0, 5))
    def relay(self, count: int) -> None:
        """Relays the actions of the oldest calls: each call has rows of its own, one on each shard."""
        for call in self.model.calls[:count]:
            for store in self.stores:
                left = Counter(call)
                for row in store.unrelayed(1_000):
                    if Counter(row.actions) <= left:
                        left -= Counter(row.actions)
                        store.mark_relayed([row])
                assert not left
            del self.model.outbox[: len(call)]
        del self.model.calls[:count]

    @rule(window_ms=st.sampled_from([0, 10, 40]))
    def expire(self, window_ms: int) -> None:
        self.model.expire(window_ms)
        for store in self.stores:
            while store.expire(window_ms, 4):
                pass

    @rule(limit=st.integers(1, 4), tombstones=st.booleans(), of=st.sets(st.sampled_from(FOLLOWEES)))
    def page_through_followers(self, limit: int, of: set[Followee], *, tombstones: bool) -> None:
        expected = [
            Follower(followee, follower, edge.ts, edge.active)
            for (followee, follower), edge in sorted(self.model.followers.items(), key=lambda line: line[0])
            if followee in of and (edge.active or tombstones)
        ]
        for store in self.stores:
            page = partial(store.followers, list(of), limit=limit, tombstones=tombstones)
            assert walked(page, attrgetter("followee", "follower")) == expected

    @rule(limit=st.integers(1, 5), of=st.sets(st.sampled_from(FOLLOWEES)), before=st.integers(NOW, NOW + 60))
    def read_newest(self, limit: int, of: set[Followee], before: int) -> None:
        by_followee = {followee: sorted(self.model.live(followee), key=feed_order) for followee in of}
        newest = {followee: states[:limit] for followee, states in by_followee.items()}
        saved_before = {
            followee: [state for state in states if state.saved_ms < before][:limit]
            for followee, states in by_followee.items()
        }
        merged = sorted({state.pin.pin for states in by_followee.values() for state in states})
        for store in self.stores:
            assert store.newest_pins(list(of), limit) == newest
            assert store.newest_pins(list(of), limit, saved_before_ms=before) == saved_before
            (of_all,) = store.newest_pins_merged([Merged(list(of))], len(merged) + 1)
            assert sorted(state.pin.pin for state in of_all) == merged
            assert of_all == sorted(of_all, key=feed_order)
            assert store.newest_pins_merged([Merged(list(of))], limit) == [of_all[:limit]]
            each_alone = [Merged([followee]) for followee in of]
            assert store.newest_pins_merged(each_alone, limit) == [newest[followee] for followee in of]

    @rule(since=st.integers(NOW, NOW + 60), limit=st.integers(1, 3), of=st.sets(st.sampled_from(FOLLOWEES)))
    def page_through_saved(self, since: int, limit: int, of: set[Followee]) -> None:
        expected = sorted(
            ((followee, state) for followee in of for state in self.model.live(followee) if state.saved_ms >= since),
            key=lambda each: (each[0], each[1].saved_ms, each[1].pin.pin),
        )
        for store in self.stores:
            assert walked(partial(store.pins_saved_since, list(of), since, limit=limit), saved_at) == expected

    @rule(follower=st.sampled_from(USERS), since=st.integers(NOW, NOW + 60))
    def read_a_user(self, follower: int, since: int) -> None:
        mine = [(edge, ms) for (of, _), (edge, ms) in self.model.edges.items() if of == follower]
        for store in self.stores:
            assert set(store.following(follower)) == {edge for edge, _ in mine if edge.active}
            keys = [(follower, followee) for followee in followees_of(follower)]
            assert set(store.changed_edges(keys, since)) == {edge for edge, ms in mine if ms >= since}

    @invariant()
    def the_truth_is_the_same(self) -> None:
        keys = [(each, followee) for each in USERS for followee in followees_of(each)]
        for store in getattr(self, "stores", ()):
            assert store.edges(keys) == {at: edge for at, (edge, _) in self.model.edges.items()}
            assert store.pins(PINS) == self.model.pins
            assert store.board_owners(BOARDS) == self.model.boards
            assert store.boards_of(USERS, None, 1_000) == sorted(
                (owner, each) for each, owner in self.model.boards.items() if owner in USERS
            )
            assert set(store.all_edges_after(None, 1_000)) == {
                edge for edge, _ in self.model.edges.values() if edge.active
            }
            waiting = actions_in(store.unrelayed(1_000))
            assert sorted(map(repr, waiting)) == sorted(map(repr, self.model.outbox))
            assert store.settled_ms() == min([self.model.now, *(action.committed_ms for action in waiting)])
            counts = store.counts()
            assert counts.edges_active + counts.edges_tombstoned == len(self.model.edges)
            assert counts.outbox_unrelayed == len(waiting)


class MySQLAgreement(Agreement):
    def open_store(self, shards: int) -> FollowStore:
        return mysql.open_store(mysql_places.fresh(shards, "agreement"), self.clock)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=part(100), stateful_step_count=30, deadline=None)

TestMySQLAgreement = pytest.mark.stack(pytest.mark.usefixtures("mariadb")(MySQLAgreement.TestCase))
TestMySQLAgreement.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
