"""The promises of the port, on every adapter, with one shard and with three."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter

import pytest
from follow_places import NOW, FakeClock, Place, pin, record, saved_at, walked

from feedstore.domain import (
    MAX_SKEW_MS,
    RESERVED_FROM,
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
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.follows.port import (
    ROW_ACTIONS,
    ROW_BYTES,
    ActionRefusedError,
    FollowStoreUnavailableError,
    Merged,
    OutboxRow,
    PinState,
    Request,
    actions_in,
)
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import open_in_memory

DAY = 86_400_000


def ask(store: FollowStore, action: Action, key: str | None = None) -> RecordedAction | str:
    """One answer, a refusal as its reason."""
    (answer,) = store.record([Request(action, key)])
    return answer.reason if isinstance(answer, ActionRefusedError) else answer


def record_each(store: FollowStore, *actions: Action) -> list[RecordedAction]:
    """Records each in a transaction, and in a row of the outbox, of its own."""
    return [recorded for action in actions for recorded in record(store, action)]


def outbox(store: FollowStore) -> list[OutboxRow]:
    return store.unrelayed(10_000)


def outbox_actions(store: FollowStore) -> list[RecordedAction]:
    return actions_in(outbox(store))


def index(store: FollowStore, *pins: Pin, saved_ms: int = NOW) -> None:
    store.index(pins=[PinSaved(each, saved_ms) for each in pins])


def relay_all(store: FollowStore) -> None:
    store.mark_relayed(outbox(store))


# Rule 2: one clock per follower
# --------------------------------------------------------------------------------------------------------------------


def test_rule_2_one_strictly_increasing_clock_per_follower_over_all_edges(store: FollowStore):
    answers = record(
        store, Follow(1, user(2)), Follow(1, board(2)), Unfollow(1, user(2)), Follow(1, user(2)), Follow(3, user(2))
    )
    assert [answer.ts for answer in answers] == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW]
    assert {answer.committed_ms for answer in answers} == {NOW}


def test_rule_2_a_clock_that_goes_backwards_still_gives_larger_timestamps(store: FollowStore, clock: FakeClock):
    (first,) = record(store, Follow(1, user(2)))
    clock.advance(-DAY)
    (second,) = record(store, Unfollow(1, user(2)))
    assert second.ts > first.ts
    assert second.committed_ms >= first.committed_ms


def test_rule_2_a_clock_that_went_on_is_taken_over(store: FollowStore, clock: FakeClock):
    record(store, Follow(1, user(2)), Follow(1, user(3)))
    clock.advance(500)
    assert record(store, Follow(1, user(4)))[0].ts == NOW + 500


def test_rule_2_following_again_gets_a_new_tick(store: FollowStore):
    record(store, Follow(1, user(2)))
    assert record(store, Follow(1, user(2))) == [Followed(1, user(2), NOW + 1, NOW)]
    assert store.following(1) == [Edge(1, user(2), NOW + 1, active=True)]
    assert len(outbox_actions(store)) == 2


def test_rule_2_threads_that_record_for_one_follower_never_share_a_timestamp(shared_place: Place):
    stores = [shared_place.open(), shared_place.open()]

    def work(number: int) -> list[int]:
        mine = []
        for each in range(15):
            batch = [Follow(1, user(2 + each)), Unfollow(1, board(2 + number))]
            mine += [answer.ts for answer in record(stores[number % 2], *batch)]
        return mine

    with ThreadPoolExecutor(6) as pool:
        recorded = list(pool.map(work, range(6)))
    assert all(mine == sorted(mine) for mine in recorded)
    every = sorted(ts for mine in recorded for ts in mine)
    assert every == list(range(NOW, NOW + 6 * 15 * 2))
    in_order = [action.ts for action in actions_in(outbox(stores[0]))]
    assert in_order == every


# Recording
# --------------------------------------------------------------------------------------------------------------------


def test_rule_11_an_action_and_its_outbox_row_stand_together(store: FollowStore):
    answers = record(store, Follow(1, user(2)), SavePin(pin(5)), Unfollow(1, user(2)), SavePin(pin(6)), DeletePin(5))
    assert answers == [
        Followed(1, user(2), NOW, NOW),
        PinSaved(pin(5), NOW),
        Unfollowed(1, user(2), NOW + 1, NOW),
        PinSaved(pin(6), NOW),
        PinDeleted(pin(5), NOW),
    ]
    assert sorted(map(repr, outbox_actions(store))) == sorted(map(repr, answers))
    assert store.edges([(1, user(2)), (1, user(3))]) == {(1, user(2)): Edge(1, user(2), NOW + 1, active=False)}
    assert store.pins([5, 6, 9]) == {5: PinState(pin(5), NOW, NOW), 6: PinState(pin(6), NOW, None)}


def test_recording_nothing(store: FollowStore):
    assert store.record([]) == []
    assert outbox(store) == []


def test_a_refusal_stops_nothing_else(store: FollowStore):
    answers = store.record(
        [Request(DeletePin(9)), Request(Follow(1, user(2))), Request(SavePin(pin(5, created_ms=NOW + DAY)))]
    )
    assert [getattr(answer, "reason", "") for answer in answers] == ["pin_unknown", "", "pin_in_the_future"]
    assert outbox_actions(store) == [Followed(1, user(2), NOW, NOW)]


def test_a_pin_saved_again_is_answered_with_what_was_recorded(store: FollowStore, clock: FakeClock):
    record(store, SavePin(pin(5)))
    clock.advance(10)
    assert record(store, SavePin(pin(5))) == [PinSaved(pin(5), NOW)]
    assert len(outbox_actions(store)) == 1


@pytest.mark.parametrize("other", [pin(5, created_ms=999), pin(5, owner=8, on=80), pin(5, on=71)])
def test_a_pin_never_changes(store: FollowStore, other: Pin):
    record(store, SavePin(pin(5)))
    assert ask(store, SavePin(other)) == "pin_differs"
    assert store.pins([5]) == {5: PinState(pin(5), NOW, None)}
    assert len(outbox_actions(store)) == 1


def test_rule_7_a_deleted_pin_cannot_be_saved_again(store: FollowStore, clock: FakeClock):
    record(store, SavePin(pin(5)))
    clock.advance(3)
    assert record(store, DeletePin(5)) == [PinDeleted(pin(5), NOW + 3)]
    clock.advance(3)
    assert ask(store, SavePin(pin(5))) == "pin_deleted"
    assert record(store, DeletePin(5)) == [PinDeleted(pin(5), NOW + 3)]
    assert len(outbox_actions(store)) == 2


def test_rule_7_a_deletion_gets_the_stores_time_even_where_its_clock_went_back(store: FollowStore, clock: FakeClock):
    record(store, SavePin(pin(5)))
    store.settled_ms()
    clock.advance(-DAY)
    assert record(store, DeletePin(5)) == [PinDeleted(pin(5), NOW)]


def test_an_unknown_pin_cannot_be_deleted(store: FollowStore):
    assert ask(store, DeletePin(5)) == "pin_unknown"
    assert outbox(store) == []


def test_rule_8_a_pin_dated_ahead_is_refused_at_the_door(store: FollowStore):
    assert ask(store, SavePin(pin(5, created_ms=NOW + MAX_SKEW_MS + 1))) == "pin_in_the_future"
    assert isinstance(ask(store, SavePin(pin(5, created_ms=NOW + MAX_SKEW_MS))), PinSaved)


def test_rule_8_a_pin_refused_at_the_door_claims_no_board(store: FollowStore):
    ask(store, SavePin(pin(5, owner=7, on=70, created_ms=NOW + DAY)))
    assert store.board_owners([70]) == {}
    record(store, SavePin(pin(6, owner=8, on=70)))
    assert store.board_owners([70]) == {70: 8}


def test_a_board_belongs_to_the_first_that_saves_on_it(store: FollowStore):
    answers = store.record(
        [Request(SavePin(pin(5, owner=7))), Request(SavePin(pin(6, owner=8))), Request(SavePin(pin(8, owner=7)))]
    )
    assert [getattr(answer, "reason", "") for answer in answers] == ["", "board_of_another_owner", ""]
    assert ask(store, SavePin(pin(9, owner=8))) == "board_of_another_owner"
    assert store.board_owners([70, 71]) == {70: 7}
    assert store.pins([5, 6, 8, 9]).keys() == {5, 8}
    assert len(outbox_actions(store)) == 2


def test_of_two_owners_who_save_on_one_board_at_once_one_wins(shared_place: Place):
    stores = [shared_place.open(), shared_place.open()]
    start = threading.Barrier(2)

    def work(number: int) -> set[int]:
        won = set()
        for on in range(100, 120):
            start.wait()
            if isinstance(ask(stores[number], SavePin(pin(on * 2 + number, owner=number + 1, on=on))), PinSaved):
                won.add(on)
        return won

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(work, (0, 1)))
    assert won[0] | won[1] == set(range(100, 120))
    assert not won[0] & won[1]
    owners = stores[0].board_owners(range(100, 120))
    assert owners == {on: 1 if on in won[0] else 2 for on in range(100, 120)}


def test_a_closed_store_says_so(store: FollowStore):
    store.now()
    store.close()
    store.close()
    for call in (lambda: store.following(1), lambda: record(store, Follow(1, user(2))), store.settled_ms, store.now):
        with pytest.raises(FollowStoreUnavailableError, match="closed"):
            call()


# Idempotency keys
# --------------------------------------------------------------------------------------------------------------------


def test_a_key_gives_the_first_answer_again(store: FollowStore, clock: FakeClock):
    actions: list[Action] = [Follow(1, user(2)), SavePin(pin(5)), Unfollow(1, user(2)), DeletePin(5)]
    first = [ask(store, action, f"key {number}") for number, action in enumerate(actions)]
    clock.advance(1_000)
    again = [ask(store, action, f"key {number}") for number, action in enumerate(actions)]
    assert again == first
    assert len(outbox_actions(store)) == 4
    assert store.following(1) == []


def test_a_key_gives_a_refusal_again_although_it_would_do_now(store: FollowStore, clock: FakeClock):
    requests = [
        (DeletePin(5), "a", "pin_unknown"),
        (SavePin(pin(6, created_ms=NOW + DAY)), "b", "pin_in_the_future"),
    ]
    assert [ask(store, action, key) for action, key, _ in requests] == [reason for _, _, reason in requests]
    record(store, SavePin(pin(5)))
    clock.advance(DAY)
    assert [ask(store, action, key) for action, key, _ in requests] == [reason for _, _, reason in requests]
    assert store.pins([5, 6]) == {5: PinState(pin(5), NOW, None)}


def test_a_pin_that_is_saved_again_without_a_time_keeps_its_first_one(store: FollowStore, clock: FakeClock):
    def save(number: int, key: str | None, *, on: int = 70) -> RecordedAction | str:
        [answer] = store.record([Request(SavePin(pin(number, on=on, created_ms=clock())), key, is_dated=False)])
        clock.advance(1_000)
        return answer.reason if isinstance(answer, ActionRefusedError) else answer

    first = {number: save(number, f"key {number}") for number in range(1, 10)}
    for number, answer in first.items():
        assert save(number, f"key {number}") == save(number, None) == save(number, f"other {number}") == answer
        assert save(number, None, on=71) == "pin_differs"
        assert save(number, f"key {number}", on=71) == "key_reused"
    assert len(outbox_actions(store)) == len(first)


def test_a_pin_without_a_time_that_could_not_be_saved_is_saved_with_its_key_later(
    store: FollowStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    """The shard of a key may have it when that of the pin does not answer. Its server gives each attempt a time."""

    def save(number: int) -> RecordedAction | str:
        [answer] = store.record([Request(SavePin(pin(number, created_ms=clock())), f"key {number}", is_dated=False)])
        return answer.reason if isinstance(answer, ActionRefusedError) else answer

    def fail(*_: object, **__: object) -> None:
        raise FollowStoreUnavailableError("lost")

    for number in range(1, 10):
        with monkeypatch.context() as lost:
            lost.setattr("feedstore.follows.recording.record", fail)
            with pytest.raises(FollowStoreUnavailableError):
                save(number)
        clock.advance(1_000)
        assert save(number) == PinSaved(pin(number, created_ms=clock()), clock())


def test_a_pin_without_a_time_gets_the_stores_if_its_caller_is_ahead_of_it(store: FollowStore, clock: FakeClock):
    """Its client gave no time that could be refused. The clock of a database may be far behind."""
    ahead_ms = NOW + 2 * MAX_SKEW_MS
    requests = [
        Request(
            SavePin(pin(number, on=number, created_ms=ahead_ms)),
            f"key {number}" if number % 2 else None,
            is_dated=False,
        )
        for number in range(1, 10)
    ]
    first = store.record(requests)
    assert first == [PinSaved(pin(number, on=number, created_ms=NOW), NOW) for number in range(1, 10)]
    clock.advance(10 * MAX_SKEW_MS)
    assert store.record(requests) == first


def test_a_shard_whose_clock_is_behind_refuses_no_pin_of_another_one():
    clocks = [FakeClock(), FakeClock(), FakeClock(NOW - 2 * MAX_SKEW_MS)]
    store = FollowStore([open_in_memory(clock)._shards[0] for clock in clocks])
    requests = [Request(SavePin(pin(number, owner=number, on=number, created_ms=NOW))) for number in range(1, 40)]
    answers = store.record(requests)
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, ActionRefusedError) == (store.home(request.action) == 2)
    assert {store.home(request.action) for request in requests} == {0, 1, 2}
    store.close()


def test_a_key_of_an_earlier_program_is_that_of_a_pin_without_a_time(store: FollowStore):
    """Such a program put the time that it gave the pin into the fingerprint."""
    first = ask(store, SavePin(pin(5)), "key")
    assert store.record([Request(SavePin(pin(5)), "key", is_dated=False)]) == [first]


def test_a_key_used_for_another_action_is_refused_on_whatever_shard(store: FollowStore):
    first = ask(store, Follow(1, user(2)), "key")
    for follower in range(2, 12):
        assert ask(store, Follow(follower, user(20)), "key") == "key_reused"
        assert ask(store, SavePin(pin(follower, on=follower)), "key") == "key_reused"
    assert ask(store, Unfollow(1, user(2)), "key") == "key_reused"
    assert ask(store, Follow(1, user(2)), "key") == first
    assert len(outbox_actions(store)) == 1
    assert store.board_owners(range(2, 12)) == {}


def test_a_key_twice_in_a_batch(store: FollowStore):
    answers = store.record(
        [Request(Follow(1, user(2)), "k"), Request(Follow(1, user(2)), "k"), Request(Follow(4, user(2)), "k")]
    )
    assert answers[0] == answers[1] == Followed(1, user(2), NOW, NOW)
    assert isinstance(answers[2], ActionRefusedError)
    assert answers[2].reason == "key_reused"
    assert len(outbox_actions(store)) == 1


def test_an_answer_of_a_newer_program_is_not_now(store: FollowStore, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as newer:
        newer.setattr("feedstore.follows.recording._encode_answer", lambda _: b'{"type":"what is new"}')
        ask(store, Follow(1, user(2)), "key")
    with pytest.raises(FollowStoreUnavailableError, match="the answer under 'key' cannot be read by this program"):
        ask(store, Follow(1, user(2)), "key")


@pytest.mark.parametrize("key", ["", "x" * 129, "a\nb", "\ud800"])
def test_a_key_that_cannot_be_is_refused_before_anything_is_recorded(store: FollowStore, key: str):
    with pytest.raises(InvalidValueError, match="key"):
        store.record([Request(Follow(1, user(2))), Request(Follow(2, user(3)), key)])
    assert outbox(store) == []


def test_a_key_is_forgotten_after_the_window(store: FollowStore, clock: FakeClock):
    ask(store, Follow(1, user(2)), "key")
    clock.advance(DAY)
    store.expire(DAY, 100)
    assert ask(store, Follow(9, user(2)), "key") == "key_reused"
    clock.advance(1)
    store.expire(DAY, 100)
    assert isinstance(ask(store, Follow(9, user(2)), "key"), Followed)


# Giving an action a new time
# --------------------------------------------------------------------------------------------------------------------


def test_rule_8_an_edge_is_given_a_new_tick_while_it_is_its_latest_action(store: FollowStore, clock: FakeClock):
    first, other = record(store, Follow(1, user(2)), Follow(1, user(3)))
    clock.advance(DAY)
    again = store.redate(first)
    assert again == Followed(1, user(2), NOW + DAY, NOW + DAY)
    assert store.edges([(1, user(2))]) == {(1, user(2)): again.edge()}
    assert outbox_actions(store) == [first, other, again]
    assert store.redate(first) is None
    record(store, Unfollow(1, user(3)))
    assert store.redate(other) is None
    assert len(outbox_actions(store)) == 4


def test_rule_8_an_unfollow_is_given_a_new_tick_of_the_same_clock(store: FollowStore):
    _, last, _ = record(store, Follow(1, user(2)), Unfollow(1, user(2)), Follow(1, user(3)))
    assert store.redate(last) == Unfollowed(1, user(2), NOW + 3, NOW)
    assert record(store, Follow(1, user(4)))[0].ts == NOW + 4


def test_rule_8_a_pin_and_a_deletion_are_given_a_new_time_while_they_stand(store: FollowStore, clock: FakeClock):
    (saved,) = record(store, SavePin(pin(5)))
    clock.advance(DAY)
    again = store.redate(saved)
    assert again == PinSaved(pin(5), NOW + DAY)
    assert store.pins([5]) == {5: PinState(pin(5), NOW + DAY, None)}
    assert store.redate(saved) is None
    (deleted,) = record(store, DeletePin(5))
    assert store.redate(again) is None
    clock.advance(DAY)
    assert store.redate(deleted) == PinDeleted(pin(5), NOW + 2 * DAY)
    assert store.pins([5]) == {5: PinState(pin(5), NOW + DAY, NOW + 2 * DAY)}
    assert store.redate(deleted) is None
    assert len(outbox_actions(store)) == 4


def test_rule_8_what_never_stood_is_not_given_a_new_time(store: FollowStore):
    record(store, SavePin(pin(5)))
    for action in (
        Followed(1, user(2), NOW, NOW),
        PinSaved(pin(6), NOW),
        PinSaved(pin(5, created_ms=3), NOW),
        PinDeleted(pin(5), NOW),
    ):
        assert store.redate(action) is None
    assert len(outbox_actions(store)) == 1


def test_rule_8_a_refill_is_given_a_new_time_unless_it_was_asked_for_again(store: FollowStore, clock: FakeClock):
    store.ask_refill([1], "a", 0)
    (first,) = outbox_actions(store)
    clock.advance(5)
    again = store.redate(first)
    assert again == RefillAsked(1, "a", NOW + 5)
    assert store.redate(first) is None
    assert outbox_actions(store) == [first, again]


# Refills
# --------------------------------------------------------------------------------------------------------------------


def test_refills_are_outbox_rows_and_are_not_asked_for_too_often(store: FollowStore, clock: FakeClock):
    assert store.ask_refill([1, 2, 2], "a", 1_000) == NOW
    assert sorted(outbox_actions(store), key=lambda action: action.user) == [
        RefillAsked(1, "a", NOW),
        RefillAsked(2, "a", NOW),
    ]
    clock.advance(999)
    assert store.ask_refill([1, 3], "a", 1_000) == NOW + 999
    assert len(outbox_actions(store)) == 3
    assert store.ask_refill([1, 2, 3], "a", 1_000) == NOW + 999
    assert store.ask_refill([], "a", 1_000) == NOW + 999
    assert len(outbox_actions(store)) == 3
    store.ask_refill([1], None, 1_000)
    store.ask_refill([1], "b", 1_000)
    assert outbox_actions(store).count(RefillAsked(1, None, NOW + 999)) == 1
    assert len(outbox_actions(store)) == 5
    clock.advance(1)
    store.ask_refill([1], "a", 1_000)
    assert len(outbox_actions(store)) == 6


def test_a_refill_without_a_limit_is_asked_for_every_time(store: FollowStore):
    store.ask_refill([1], "a", 0)
    store.ask_refill([1], "a", 0)
    assert len(outbox_actions(store)) == 2


def test_what_is_known_of_refills(store: FollowStore, clock: FakeClock):
    store.ask_refill([1, 2, 3], "a", 0)
    store.ask_refill([1], None, 0)
    clock.advance(5)
    store.ask_refill([2], "a", 0)
    keys = [(1, "a"), (1, None), (2, "a"), (2, "b"), (9, "a")]
    known = {(1, "a"): (NOW, 0), (1, None): (NOW, 0), (2, "a"): (NOW + 5, 0)}
    assert store.refill_times([*keys, (1, "a")]) == known
    store.mark_refills_served({(1, None): NOW, (2, "a"): NOW + 5, (9, "a"): NOW})
    store.mark_refills_served({(2, "a"): NOW + 3})
    served = known | {(1, None): (NOW, NOW), (2, "a"): (NOW + 5, NOW + 5)}
    assert store.refill_times(keys) == served
    clock.advance(1)
    store.ask_refill([2], "a", 0)
    assert store.refill_times(keys) == served | {(2, "a"): (NOW + 6, NOW + 5)}
    store.mark_refills_served({})
    assert store.refill_times([]) == {}


# The outbox
# --------------------------------------------------------------------------------------------------------------------


def test_the_outbox_gives_unmarked_rows_oldest_first(store: FollowStore):
    record_each(store, *(Follow(1, user(each)) for each in range(2, 12)))
    rows = outbox(store)
    assert [action.ts for action in actions_in(rows)] == list(range(NOW, NOW + 10))
    store.mark_relayed(rows[2:5])
    store.mark_relayed(rows[2:3])
    assert outbox(store) == rows[:2] + rows[5:]
    assert store.unrelayed(3) == [*rows[:2], rows[5]]


def test_no_shard_of_the_outbox_starves(store: FollowStore):
    for _ in range(20):
        record_each(store, *(Follow(each, user(99)) for each in range(1, 13)))
    all_shards = {row.shard for row in outbox(store)}
    assert {row.shard for row in store.unrelayed(6)} == all_shards
    # Also where there is room for fewer rows than shards.
    assert {store.unrelayed(1)[0].shard for _ in range(6)} == all_shards
    for shard in all_shards:
        ids = [row.id for row in outbox(store) if row.shard == shard]
        assert ids == sorted(ids)


def test_the_outbox_of_one_shard(store: FollowStore):
    record_each(store, *(Follow(each, user(99)) for each in range(1, 40)))
    rows = outbox(store)
    for shard in range(store.shards()):
        mine = [row for row in rows if row.shard == shard]
        assert store.unrelayed(100, shard) == mine
        assert store.unrelayed(2, shard) == mine[:2]
    assert {row.shard for row in rows} == set(range(store.shards()))


def test_the_time_without_waiting_is_near_the_time(store: FollowStore):
    earliest_ms, latest_ms = store.about_now()
    assert earliest_ms <= latest_ms
    assert max(abs(store.now() - each) for each in (earliest_ms, latest_ms)) < 60_000
    assert store.now() == min(store.now(shard) for shard in range(store.shards()))


def test_what_one_call_records_shares_rows_of_the_outbox(store: FollowStore, clock: FakeClock):
    recorded = record(store, *(Follow(each, user(each + 1)) for each in range(1, 40)), SavePin(pin(5)), DeletePin(5))
    rows = outbox(store)
    assert len(rows) == store.shards()
    assert {action.committed_ms for action in actions_in(rows)} == {NOW}
    assert [row.number for row in rows] == [len(row.actions) for row in rows]
    for row in rows:
        assert row.actions == [each for each in recorded if each in row.actions]
    assert sorted(map(repr, actions_in(rows))) == sorted(map(repr, recorded))
    clock.advance(5)
    record(store, Follow(1, user(3)))
    assert store.backlog() == (store.shards() + 1, 42, NOW)
    assert [store.backlog(shard).rows for shard in range(store.shards())].count(2) == 1
    assert sum(store.backlog(shard).actions for shard in range(store.shards())) == 42
    store.mark_relayed(rows)
    assert store.backlog() == (1, 1, NOW + 5)
    relay_all(store)
    assert store.backlog() == (0, 0, None)


def test_the_only_one_that_asks_may_relay_every_shard(store: FollowStore):
    for _ in range(3):
        assert [store.may_relay(shard) for shard in range(store.shards())] == [True] * store.shards()
    record(store, *(Follow(each, user(99)) for each in range(1, 40)))
    relay_all(store)
    assert all(store.may_relay(shard) for shard in range(store.shards()))


def test_a_refused_action_has_no_place_in_the_outbox(store: FollowStore):
    answers = store.record([Request(Follow(1, user(2))), Request(DeletePin(77)), Request(Follow(1, user(3)))])
    assert isinstance(answers[1], ActionRefusedError)
    assert sorted(map(repr, outbox_actions(store))) == sorted(map(repr, [answers[0], answers[2]]))


def test_rows_of_the_outbox_are_bounded(store: FollowStore):
    largest = 2**63 - 1
    many = ROW_ACTIONS + ROW_BYTES // 100
    record(store, *(Follow(1, board(largest - each)) for each in range(many)))
    rows = outbox(store)
    assert sum(row.number for row in rows) == many
    assert max(row.number for row in rows) <= ROW_ACTIONS
    assert max(len(row.body) for row in rows) <= ROW_BYTES
    assert [action.ts for action in actions_in(rows)] == list(range(NOW, NOW + many))
    # A read takes as many rows as it needs to have so many actions: never the bodies of many rows at once.
    assert store.unrelayed(1) == store.unrelayed(rows[0].number) == rows[:1]
    assert store.unrelayed(rows[0].number + 1) == rows[:2]


def test_outbox_ids_are_never_used_again(store: FollowStore, clock: FakeClock):
    record(store, Follow(1, user(2)))
    (old,) = outbox(store)
    relay_all(store)
    clock.advance(2 * DAY)
    assert store.expire(DAY, 100) == 1
    record(store, Follow(1, user(3)))
    store.mark_relayed([old])
    assert len(outbox_actions(store)) == 1


def test_a_row_that_has_the_id_of_another_one_is_not_marked_in_its_place(store: FollowStore):
    """A shard that fails over to a replica without its last rows gives their ids again."""
    record_each(store, *(Follow(each, user(99)) for each in range(1, 20)))
    rows = sorted(outbox(store))
    store.mark_relayed([row._replace(committed_ms=row.committed_ms - 1) for row in rows])
    assert sorted(outbox(store)) == rows
    store.mark_relayed([rows[0]._replace(committed_ms=0), *rows[1:]])
    assert outbox(store) == rows[:1]


def test_rule_10_settled_is_held_back_by_what_is_not_relayed(store: FollowStore, clock: FakeClock):
    assert store.settled_ms() == NOW
    clock.advance(10)
    record(store, Follow(1, user(2)))
    clock.advance(10)
    record(store, Follow(2, user(3)))
    clock.advance(10)
    assert store.settled_ms() == NOW + 10
    rows = outbox(store)
    store.mark_relayed([row for row in rows if actions_in([row])[0].follower == 1])
    assert store.settled_ms() == NOW + 20
    relay_all(store)
    assert store.settled_ms() == NOW + 30


def test_rule_10_settled_moves_when_nothing_happens(store: FollowStore, clock: FakeClock):
    first = store.settled_ms()
    clock.advance(1_000)
    assert store.settled_ms() == first + 1_000


def test_rule_10_nothing_commits_behind_what_was_settled(store: FollowStore, clock: FakeClock):
    settled = store.settled_ms()
    clock.advance(-DAY)
    for follower in range(1, 10):
        (answer,) = record(store, Follow(follower, user(99)))
        assert answer.committed_ms >= settled
    assert store.settled_ms() == settled


def test_rule_10_time_moves_while_a_clock_that_was_ahead_has_not_caught_up(store: FollowStore, clock: FakeClock):
    clock.advance(400 * DAY)
    (ahead,) = record(store, Follow(1, user(2)))
    store.settled_ms()
    clock.advance(-400 * DAY)
    relay_all(store)
    settled = [store.settled_ms() for _ in range(5)]
    assert settled == sorted(set(settled))
    assert settled[0] >= ahead.committed_ms
    (after,) = record(store, Follow(1, user(3)))
    assert after.committed_ms >= min(settled)
    assert store.settled_ms() <= after.committed_ms
    relay_all(store)
    assert settled[-1] < store.settled_ms() < settled[-1] + 1_000


def test_rule_10_nothing_commits_behind_what_another_connection_settled(shared_place: Place):
    ahead, behind = shared_place.open(), shared_place.open(FakeClock(NOW - DAY))
    settled = ahead.settled_ms()
    for follower in range(1, 10):
        (answer,) = record(behind, Follow(follower, user(99)))
        assert answer.committed_ms >= settled
    assert ahead.settled_ms() == settled
    relay_all(ahead)
    assert settled <= behind.settled_ms() <= settled + 1
    reopened = shared_place.open(FakeClock(NOW - DAY))
    assert record(reopened, Follow(1, user(2)))[0].committed_ms >= settled
    assert reopened.now() >= settled


def test_rule_10_settled_under_interleaved_commits(shared_place: Place):
    """While others commit, every action that becomes visible after a settled time was stamped at or after it."""
    ticking = FakeClock()
    stores = [shared_place.open(ticking), shared_place.open(ticking)]

    def work() -> None:
        for each in range(40):
            ticking.advance(1)
            record(stores[1], Follow(1 + each % 5, user(99)), SavePin(pin(1_000 + each)))

    settled = 0
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not working.done():
            rows = outbox(stores[0])
            assert all(action.committed_ms >= settled for action in actions_in(rows))
            stores[0].mark_relayed(rows)
            now_settled = stores[0].settled_ms()
            assert now_settled >= settled
            settled = now_settled
        working.result()
    assert all(action.committed_ms >= settled for action in actions_in(outbox(stores[0])))


# The follower index
# --------------------------------------------------------------------------------------------------------------------


def test_rule_4_an_index_write_is_seen_by_every_read_that_begins_after_it(shared_place: Place):
    """A follow and a save, on two connections, in every order of their steps: one of them sees the other."""
    handler_of_follow, handler_of_save = shared_place.open(), shared_place.open()
    for first, owner in ((True, 500), (False, 600)):
        saved = PinSaved(pin(owner + 1, owner=owner, on=owner + 2), NOW)
        # Both have read from their connections before: no old snapshot may be kept.
        assert handler_of_follow.newest_pins([user(owner)], 10) == {user(owner): []}
        assert handler_of_save.followers([user(owner)], None, 10, tombstones=False) == []
        steps = [
            lambda owner=owner: handler_of_follow.index(edges=[Edge(1, user(owner), NOW, active=True)]),
            lambda saved=saved: handler_of_save.index(pins=[saved]),
        ]
        for step in steps if first else reversed(steps):
            step()
        assert len(handler_of_follow.newest_pins([user(owner)], 10)[user(owner)]) == 1
        assert len(handler_of_save.followers([user(owner)], None, 10, tombstones=False)) == 1


def test_rule_4_reads_of_the_source_of_truth_are_fresh(shared_place: Place):
    one, other = shared_place.open(), shared_place.open()
    for ts, action in enumerate([Follow(1, user(2)), Unfollow(1, user(2)), Follow(1, user(2))], start=NOW):
        record(one, action)
        assert other.edges([(1, user(2))])[1, user(2)].ts == ts
        assert [edge.ts for edge in other.following(1)] == ([] if isinstance(action, Unfollow) else [ts])
    record(one, SavePin(pin(5)))
    assert other.pins([5])[5].deleted_ms is None
    record(one, DeletePin(5))
    assert other.pins([5])[5].deleted_ms == NOW


def test_many_index_rows_are_written_in_parts_and_all_are_there(
    store: FollowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feedstore.follows.store.INDEXED_AT_ONCE", 2)
    edges = [Edge(follower, user(followee), 5, active=True) for followee in (3, 1, 2) for follower in (9, 8, 7)]
    pins = [pin(number, 7, 70 + number % 3, 1_000 + number) for number in range(5, 0, -1)]
    store.index(edges=edges, pins=[PinSaved(each, NOW) for each in pins], deletions=[PinDeleted(pins[0], NOW)])
    found = store.followers([user(1), user(2), user(3)], None, 100, tombstones=False)
    assert [(row.followee.id, row.follower) for row in found] == [(f, n) for f in (1, 2, 3) for n in (7, 8, 9)]
    assert ids(store.newest_pins([user(7)], 10)[user(7)]) == [4, 3, 2, 1]
    assert [ids(store.newest_pins([board(70 + n)], 10)[board(70 + n)]) for n in range(3)] == [[3], [4, 1], [2]]


def test_the_newest_edge_stands_in_the_index_whatever_the_order(store: FollowStore):
    old, new = Edge(1, user(2), 10, active=True), Edge(1, user(2), 20, active=False)
    store.index(edges=[new])
    store.index(edges=[old])
    assert store.followers([user(2)], None, 10, tombstones=False) == []
    assert store.followers([user(2)], None, 10, tombstones=True) == [(user(2), 1, 20, False)]
    store.index(edges=[Edge(1, user(2), 30, active=True), Edge(1, user(2), 25, active=False)])
    assert store.followers([user(2)], None, 10, tombstones=False) == [(user(2), 1, 30, True)]


def test_pages_of_followers_run_over_followees_and_shards(store: FollowStore):
    followees = [kind(each) for kind in (user, board) for each in range(200, 212)]
    edges = [
        Edge(follower, followee, 1_000 + follower, active=follower % 3 != 0)
        for number, followee in enumerate(followees)
        for follower in range(1, 2 + number)
    ]
    store.index(edges=edges[::2])
    store.index(edges=edges[1::2])
    store.index(edges=[Edge(1, user(999), 5, active=True)])
    for tombstones in (True, False):
        expected = sorted(
            (edge.followee, edge.follower, edge.ts, edge.active) for edge in edges if tombstones or edge.active
        )
        for limit in (1, 7, 1_000):
            page = partial(store.followers, followees[::-1], limit=limit, tombstones=tombstones)
            assert walked(page, attrgetter("followee", "follower")) == expected
    assert store.followers([], None, 5, tombstones=True) == []


def test_a_page_of_followers_starts_after_a_place_that_need_not_stand(store: FollowStore):
    store.index(edges=[Edge(follower, board(8), 10, active=True) for follower in (2, 4, 6)])
    store.index(edges=[Edge(1, user(3), 10, active=True)])

    def after(followee: Followee, follower: int) -> list[int]:
        return [
            line.follower for line in store.followers([board(8), user(3)], (followee, follower), 9, tombstones=True)
        ]

    assert after(board(8), 3) == [4, 6, 1]
    assert after(board(7), 99) == [2, 4, 6, 1]
    assert after(board(9), 0) == [1]
    assert after(user(3), 1) == []


@pytest.mark.parametrize("limit", [0, 1_001])
def test_pages_have_a_limit(store: FollowStore, limit: int):
    with pytest.raises(InvalidValueError, match="limit"):
        store.followers([user(1)], None, limit, tombstones=False)
    with pytest.raises(InvalidValueError, match="limit"):
        store.pins_saved_since([user(1)], 1, None, limit)
    with pytest.raises(InvalidValueError, match="limit"):
        store.boards_of([1], None, limit)
    with pytest.raises(InvalidValueError, match="limit"):
        store.all_edges_after(None, limit)


def test_followees_of_a_page_differ(store: FollowStore):
    with pytest.raises(InvalidValueError, match="followees"):
        store.followers([user(1), user(1)], None, 5, tombstones=False)
    with pytest.raises(InvalidValueError, match="followees"):
        store.pins_saved_since([user(1), user(1)], 1, None, 5)


# The pin indexes
# --------------------------------------------------------------------------------------------------------------------


def ids(states: list[PinState]) -> list[int]:
    return [state.pin.pin for state in states]


def test_newest_pins_come_in_feed_order_ties_by_ascending_pin(store: FollowStore):
    pins = [pin(9, created_ms=50), pin(3, created_ms=50), pin(5, created_ms=70), pin(1, created_ms=10), pin(7, on=71)]
    index(store, *pins)
    found = store.newest_pins([user(7), board(70), board(99)], 4)
    assert {followee: ids(states) for followee, states in found.items()} == {
        user(7): [7, 5, 3, 9],
        board(70): [5, 3, 9, 1],
        board(99): [],
    }
    assert store.newest_pins([board(71)], 4) == {board(71): [PinState(pins[-1], NOW, None)]}


def test_newest_pins_saved_before_a_time(store: FollowStore):
    index(store, pin(1, created_ms=30), saved_ms=100)
    index(store, pin(2, created_ms=20), saved_ms=99)
    index(store, pin(3, created_ms=10), saved_ms=98)
    assert ids(store.newest_pins([user(7)], 5, saved_before_ms=100)[user(7)]) == [2, 3]
    assert ids(store.newest_pins([user(7)], 1, saved_before_ms=99)[user(7)]) == [3]


def test_rule_7_a_deletion_marks_the_index_before_and_after_the_save(store: FollowStore):
    store.index(deletions=[PinDeleted(pin(1), NOW + 9)])
    index(store, pin(1), pin(2), pin(3))
    store.index(deletions=[PinDeleted(pin(2), NOW + 9)])
    index(store, pin(1), pin(2), saved_ms=NOW + 50)
    for followee in (user(7), board(70)):
        assert ids(store.newest_pins([followee], 9)[followee]) == [3]
        assert ids(store.newest_pins_merged([Merged([followee])], 9)[0]) == [3]
        assert [state.pin.pin for _, state in store.pins_saved_since([followee], 1, None, 9)] == [3]


def test_the_latest_saved_time_stands_in_the_index_whatever_the_order(store: FollowStore):
    index(store, pin(1), saved_ms=20)
    index(store, pin(1), saved_ms=10)
    assert store.newest_pins([board(70)], 9) == {board(70): [PinState(pin(1), 20, None)]}
    index(store, pin(1), saved_ms=30)
    assert store.pins_saved_since([board(70)], 30, None, 9) == [(board(70), PinState(pin(1), 30, None))]
    assert store.pins_saved_since([board(70)], 31, None, 9) == []


def test_pages_of_pins_by_the_time_they_were_saved(store: FollowStore):
    saved = {1: 30, 2: 20, 3: 20, 4: 10, 5: 20, 6: 40}
    for each, saved_ms in saved.items():
        index(store, pin(each, created_ms=1_000 - each), saved_ms=saved_ms)
    index(store, pin(9, owner=8, on=80), pin(8, owner=8, on=81), saved_ms=20)
    of_seven = [(user(7), each) for each in (2, 3, 5, 1, 6)]
    of_eight = [(user(8), each) for each in (8, 9)]
    for followees, expected in (
        ([user(7)], of_seven),
        ([user(8), board(80), user(99), user(7)], [(board(80), 9), *of_seven, *of_eight]),
    ):
        for limit in (1, 2, 9):
            found = walked(partial(store.pins_saved_since, followees, 20, limit=limit), saved_at)
            assert [(followee, state.pin.pin) for followee, state in found] == expected
    assert store.pins_saved_since([], 20, None, 9) == []


def test_pages_of_the_boards_of_owners(store: FollowStore):
    owned = [(owner, 100 * owner + each) for owner in (3, 5, 8) for each in range(40)]
    record(store, *(SavePin(pin(each, owner=owner, on=each)) for owner, each in owned))
    for limit in (1, 7, 500):
        assert walked(partial(store.boards_of, [8, 3, 4, 5], limit=limit), tuple) == owned
    assert store.boards_of([5], (3, 999), 2) == [(5, 500), (5, 501)]
    assert store.boards_of([5], (5, 538), 2) == [(5, 539)]
    assert store.boards_of([3], (5, 1), 2) == store.boards_of([4], None, 2) == store.boards_of([], None, 2) == []


def test_newest_pins_merged_are_distinct_and_in_feed_order_over_shards(store: FollowStore):
    pins = [
        pin(each, owner=each % 11 + 1, on=100 + each % 11, created_ms=1_000 + (each * 37) % 400)
        for each in range(1, 600)
    ]
    # One owner has nearly all new pins, another nothing but old ones.
    pins += [pin(5_000 + each, owner=50, on=150, created_ms=2_000 + each // 3) for each in range(200)]
    pins += [pin(9_000 + each, owner=60, on=160, created_ms=1 + each) for each in range(50)]
    index(store, *pins)
    store.index(deletions=[PinDeleted(each, NOW) for each in pins if each.pin % 7 == 0])
    live = sorted((each for each in pins if each.pin % 7), key=lambda each: (-each.created_ms, each.pin))
    owners = {each.owner for each in pins}
    everything = [user(owner) for owner in owners] + [board(100 + each) for each in range(70)]
    for limit in (1, 10, 150, 400, 5_000):
        assert [state.pin for state in store.newest_pins_merged([Merged(everything)], limit)[0]] == live[:limit]
    some = [user(3), board(104), board(150), board(777)]
    of_some = [each for each in live if each.owner == 3 or each.board in (104, 150)]
    for limit in (5, 180, 5_000):
        assert [state.pin for state in store.newest_pins_merged([Merged(some)], limit)[0]] == of_some[:limit]
        assert [state.pin for state in store.newest_pins_merged([Merged(some, 1_200)], limit)[0]] == [
            each for each in of_some if each.created_ms >= 1_200
        ][:limit]
        # Lists that are wanted together do not mix, whatever each of them is limited to and shares with others.
        together = [Merged(everything), Merged([]), Merged(some), Merged(some, 1_200), Merged([user(777)])]
        assert store.newest_pins_merged(together, limit) == [
            store.newest_pins_merged([each], limit)[0] for each in together
        ]
    assert store.newest_pins_merged([Merged([])], 5) == [[]]
    assert store.newest_pins_merged([], 5) == []


# The source of truth
# --------------------------------------------------------------------------------------------------------------------


def test_reads_of_many_keys(store: FollowStore):
    record(store, *(Follow(1 + each % 50, user(1_000 + each)) for each in range(700)))
    record(store, *(SavePin(pin(each, owner=each % 20 + 1, on=100 + each % 20)) for each in range(1, 700)))
    keys = [(1 + each % 50, user(1_000 + each)) for each in range(0, 900, 2)]
    assert store.edges(keys).keys() == {key for key in keys if key[1].id < 1_700}
    assert all((edge.follower, edge.followee) == key for key, edge in store.edges(keys).items())
    assert store.pins(range(600, 800)).keys() == set(range(600, 700))
    assert store.pins([3, 3]) == {3: PinState(pin(3, owner=4, on=103), NOW, None)}
    assert store.board_owners(range(90, 130)) == {100 + each: each + 1 for each in range(20)}
    assert store.edges([]) == store.pins([]) == store.board_owners([]) == {}


def test_what_a_user_follows_and_what_changed(store: FollowStore, clock: FakeClock):
    record(store, Follow(1, user(2)), Follow(1, board(3)), Follow(1, user(4)), Unfollow(1, user(4)))
    clock.advance(100)
    record(store, Unfollow(1, board(3)), Follow(1, user(5)), Follow(9, user(5)))
    active = {(edge.followee, edge.active) for edge in store.following(1)}
    assert active == {(user(2), True), (user(5), True)}
    keys = [(1, followee) for followee in (user(2), board(3), user(4), user(5), user(6))]
    changed = {(edge.follower, edge.followee, edge.active) for edge in store.changed_edges(keys, NOW + 100)}
    assert changed == {(1, board(3), False), (1, user(5), True)}
    assert {edge.followee for edge in store.changed_edges([(9, user(5)), (9, user(2))], NOW)} == {user(5)}
    assert store.changed_edges(keys, NOW + 101) == store.changed_edges([], NOW) == []
    assert store.following(77) == []


def test_a_walk_over_all_edges(store: FollowStore):
    record(store, *(Follow(follower, user(100 + each)) for follower in range(1, 8) for each in range(follower)))
    record(store, Follow(3, board(900)), Unfollow(4, user(101)), Follow(8, user(1)), Unfollow(8, user(1)))
    expected = [edge for follower in range(1, 9) for edge in store.following(follower)]
    for limit in (1, 5, 500):
        assert walked(partial(store.all_edges_after, limit=limit), attrgetter("follower", "followee")) == expected
    assert store.all_edges_after((3, board(899)), 1)[0].followee == board(900)
    with pytest.raises(InvalidValueError, match="limit"):
        store.all_edges_after(None, 0)


def test_a_walk_over_the_pins_of_each_shard(store: FollowStore):
    record(store, *(SavePin(pin(each)) for each in range(40, 10, -1)), DeletePin(12))
    expected = store.pins(range(50))
    for limit in (1, 7, 500):
        states = []
        for shard in range(store.shards()):
            of_shard, after = [], 0
            while page := store.pins_after(shard, after, limit):
                assert len(page) <= limit
                of_shard += page
                after = page[-1].pin.pin
            assert [state.pin.pin for state in of_shard] == sorted(state.pin.pin for state in of_shard)
            states += of_shard
        assert {state.pin.pin: state for state in states} == expected
        assert len(states) == len(expected)
    with pytest.raises(InvalidValueError, match="limit"):
        store.pins_after(0, 0, 1_001)


# Expiry, counts
# --------------------------------------------------------------------------------------------------------------------


def test_tombstones_expire_after_the_window_and_the_edges_own_records_stay(store: FollowStore, clock: FakeClock):
    followed, unfollowed = record(store, Follow(1, user(2)), Unfollow(1, user(3)))
    store.index(edges=[followed.edge(), unfollowed.edge()])
    relay_all(store)
    clock.advance(DAY)
    assert store.expire(DAY, 100) == 0
    clock.advance(2)
    assert store.expire(DAY, 100) == 3
    assert store.expire(DAY, 100) == 0
    assert store.followers([user(2), user(3)], None, 9, tombstones=True) == [(user(2), 1, NOW, True)]
    assert store.edges([(1, user(3))]) == {(1, user(3)): unfollowed.edge()}
    assert record(store, Follow(1, user(3)))[0].ts == NOW + DAY + 2


def test_marked_lines_of_the_pin_index_expire_and_the_pins_own_records_stay(store: FollowStore, clock: FakeClock):
    record(store, SavePin(pin(5)), SavePin(pin(6)), DeletePin(5))
    index(store, pin(5), pin(6))
    store.index(deletions=[PinDeleted(pin(5), NOW)])
    clock.advance(DAY + 1)
    assert store.expire(DAY, 100) == 2
    assert ids(store.newest_pins([user(7)], 9)[user(7)]) == [6]
    assert store.pins([5]) == {5: PinState(pin(5), NOW, NOW)}
    assert ask(store, SavePin(pin(5))) == "pin_deleted"


def test_deletions_are_those_of_the_pins_own_records(store: FollowStore):
    record(store, *(SavePin(pin(each)) for each in range(1, 9)), DeletePin(3), DeletePin(7))
    assert store.deletions([*range(1, 12), 3]) == {3: NOW, 7: NOW}
    assert store.deletions([]) == {}


def test_only_relayed_outbox_rows_expire(store: FollowStore, clock: FakeClock):
    record_each(store, *(Follow(each, user(99)) for each in range(1, 21)))
    rows = outbox(store)
    store.mark_relayed(rows[5:15])
    clock.advance(DAY + 1)
    record(store, Follow(1, user(98)))
    assert store.expire(DAY, 100) == 10
    assert len(outbox_actions(store)) == 11


def test_expiry_takes_at_most_its_limit_a_call(store: FollowStore, clock: FakeClock):
    for each in range(1, 31):
        ask(store, Follow(each, user(99)), f"key {each}")
        store.ask_refill([each], "a", 0)
    relay_all(store)
    clock.advance(DAY + 1)
    gone = []
    while taken := store.expire(DAY, 7):
        gone.append(taken)
    assert max(gone) <= 7
    assert sum(gone) >= 60 + 30 + 30
    assert store.counts().edges_active == 30


def test_a_row_of_many_actions_expires_whole_and_counts_as_they_do(store: FollowStore, clock: FakeClock):
    record(store, *(Follow(1, user(each)) for each in range(2, 12)))
    record(store, *(Follow(1, user(each)) for each in range(2, 12)))
    relay_all(store)
    clock.advance(DAY + 1)
    assert store.expire(DAY, 3) == 10
    assert store.expire(DAY, 30) == 10
    assert store.expire(DAY, 30) == 0
    assert store.relay_again() == (0, False)
    assert outbox(store) == []


def test_counts(store: FollowStore):
    record(store, Follow(1, user(2)), Follow(2, user(3)), Unfollow(2, user(3)), SavePin(pin(5)), SavePin(pin(6)))
    record(store, DeletePin(5))
    assert store.counts()._asdict() == {
        "edges_active": 1,
        "edges_tombstoned": 1,
        "boards": 1,
        "pins": 2,
        "pins_deleted": 1,
        "outbox_unrelayed": 6,
    }
    relay_all(store)
    assert store.counts().outbox_unrelayed == 0


def test_records_of_canaries_are_not_counted(store: FollowStore):
    record(store, Follow(1, user(2)), SavePin(pin(5)))
    before = store.counts()
    largest = 2**63 - 1
    canaries = [Follow(each, user(largest)) for each in (RESERVED_FROM, largest - 1)]
    record(store, SavePin(Pin(largest, largest, largest, 1)), *canaries)
    assert store.counts() == before._replace(outbox_unrelayed=5)


def test_the_largest_ids_and_times(store: FollowStore):
    largest, latest = 2**63 - 1, 2**63 - 2
    record(store, Follow(largest, board(largest)), SavePin(Pin(largest, largest, largest, 1)))
    assert store.following(largest) == [Edge(largest, board(largest), NOW, active=True)]
    store.index(edges=[Edge(largest, board(largest), latest, active=True)])
    index(store, Pin(largest, largest, largest, largest), saved_ms=latest)
    assert store.followers([board(largest)], None, 5, tombstones=False) == [(board(largest), largest, latest, True)]
    assert ids(store.newest_pins([board(largest)], 5)[board(largest)]) == [largest]
    assert ids(store.newest_pins_merged([Merged([board(largest), user(largest)])], 5)[0]) == [largest]
    assert store.all_edges_after((largest - 1, user(largest)), 5)[0].follower == largest


def test_what_a_user_follows_now_comes_in_pages_by_key(store: FollowStore):
    wanted = [*(board(each) for each in range(30, 34)), *(user(each) for each in range(20, 25))]
    record(store, *(Follow(1, each) for each in reversed([*wanted, board(31_000), user(22_000)])))
    record(store, Unfollow(1, board(31_000)), Unfollow(1, user(22_000)), Follow(3, user(2)))
    every = store.following(1)
    assert [edge.followee for edge in every] == wanted
    for limit in (1, 2, 4, 9, 10):
        assert walked(partial(store.following_after, 1, limit=limit), attrgetter("followee")) == every
    assert store.following_after(77, None, 10) == []
    for limit in (0, 1_001):
        with pytest.raises(InvalidValueError):
            store.following_after(1, None, limit)


def test_what_many_users_follow_now_comes_in_pages_by_key(store: FollowStore):
    users = [*range(1, 9), 100, 2**62]
    for each in users[:-1]:
        record(store, *(Follow(each, user(200 + number)) for number in range(each % 4)), Follow(each, board(each)))
    record(store, Follow(77, user(1)), Follow(3, user(9)), Unfollow(3, user(9)))
    every = [edge for each in users for edge in store.following(each)]
    for limit in (1, 2, 3, 7, 1_000):
        page = partial(store.following_of, users[::-1], limit=limit)
        assert walked(page, attrgetter("follower", "followee")) == every
    # A place of a user who is not asked for, or who follows nothing any more.
    assert store.following_of([3, 5], (4, user(1)), 9) == store.following(5)
    assert store.following_of([3, 5], (3, user(2**62)), 9) == store.following(5)
    assert store.following_of([], None, 9) == store.following_of([2**62], None, 9) == []
    for asked, limit in (([1], 0), ([1], 1_001), (range(1, 1_002), 5)):
        with pytest.raises(InvalidValueError):
            store.following_of(list(asked), None, limit)


def test_pages_of_many_hundreds_of_followees_and_of_users_follow_each_other(store: FollowStore):
    followees = [*(board(each) for each in range(1, 400)), *(user(each) for each in range(1, 601))]
    edges = [Edge(1_000 + each.id % 3, each, 5, active=each.id % 5 > 0) for each in followees]
    store.index(edges=edges + [Edge(2_000 + extra, user(300), 5, active=True) for extra in range(400)])
    expected = [each for each in followees if each.id % 5]
    for limit in (300, 1_000):
        page = partial(store.followers, followees, limit=limit, tombstones=False)
        found = walked(page, attrgetter("followee", "follower"))
        assert found == sorted(found, key=lambda line: (line.followee, line.follower))
        assert [line.followee for line in found if line.follower < 2_000] == expected
        assert [line.follower for line in found if line.followee == user(300)] == [*range(2_000, 2_400)]
    users = range(1, 301)
    record(store, *(Follow(each, board(each)) for each in users), *(Follow(each, user(1_000 + each)) for each in users))
    assert store.following_of(list(users), None, 1_000) == [edge for each in users for edge in store.following(each)]


def test_what_a_user_unfollowed_since_a_time_comes_in_pages_by_key(store: FollowStore, clock: FakeClock):
    every = [*(board(each) for each in range(30, 34)), *(user(each) for each in range(20, 25))]
    record(store, *(Follow(1, each) for each in [*every, user(7), user(8)]), Unfollow(1, user(7)))
    clock.advance(10)
    ended = record(store, *(Unfollow(1, each) for each in reversed(every)), Follow(3, user(2)), Unfollow(3, user(2)))
    since_ms = ended[0].committed_ms
    for limit in (1, 2, 4, 9, 10):
        found = walked(partial(store.unfollowed_after, 1, since_ms, limit=limit), attrgetter("followee"))
        assert [edge.followee for edge in found] == every
        assert not any(edge.active for edge in found)
    assert store.unfollowed_after(1, since_ms + 100_000, None, 10) == []
    assert user(7) in {edge.followee for edge in store.unfollowed_after(1, 1, None, 20)}
    with pytest.raises(InvalidValueError):
        store.unfollowed_after(1, 1, None, 0)


# A queue that was lost
# --------------------------------------------------------------------------------------------------------------------


def test_everything_that_is_left_in_the_outbox_is_relayed_again(store: FollowStore, clock: FakeClock):
    assert store.relay_again() == (0, True)
    assert store.unrelayed(10) == []
    record_each(store, *(Follow(follower, user(9)) for follower in range(1, 6)))
    rows = store.unrelayed(10)
    assert not store.has_relayed()
    store.mark_relayed(rows[:1])
    assert store.has_relayed()
    store.mark_relayed(rows)
    assert store.has_relayed()
    clock.ms += 1_000
    late = record(store, Follow(6, user(9)))

    assert store.relay_again() == (6, True)
    assert not store.has_relayed()
    assert store.relay_again() == (6, True)

    again = store.unrelayed(10)
    assert sorted(again) == sorted([*rows, *(row for row in again if row.actions == late)])
    assert (len(again), store.backlog()) == (6, (6, 6, NOW))
    assert store.settled_ms() <= min(action.committed_ms for action in actions_in(rows))
    store.mark_relayed(again)
    assert store.unrelayed(10) == []


def test_what_committed_since_a_time_is_relayed_again(
    store: FollowStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    """Not much of what committed before it: an outbox has the rows of days."""
    old = record_each(store, *(Follow(follower, user(9)) for follower in range(1, 6)))
    store.ask_refill([1], "a", 0)
    store.mark_refills_served({(1, "a"): store.now()})
    clock.ms += 600_000
    since_ms = store.now()
    late = record_each(store, *(Follow(follower, user(9)) for follower in range(11, 16)))
    asked = store.ask_refill([2], "a", 0)
    store.mark_refills_served({(2, "a"): asked + 1})
    relay_all(store)
    monkeypatch.setattr("feedstore.follows.store._MARKED_AT_ONCE", 1)
    store.relay_again(since_ms)

    again = set(actions_in(store.unrelayed(100)))
    assert {*late} <= again
    assert len(again & {*old}) <= store.shards(), "one batch of each shard shows that it is over"
    times = store.refill_times([(1, "a"), (2, "a")])
    assert times[1, "a"].served_before_ms > 0
    assert times[2, "a"].served_before_ms <= asked


def test_relaying_again_says_whether_rows_have_expired(store: FollowStore, clock: FakeClock):
    record(store, *(Follow(follower, user(99)) for follower in range(1, 20)))
    store.mark_relayed(store.unrelayed(100))
    clock.ms += 10 * DAY
    record(store, *(Follow(follower, user(99)) for follower in range(21, 40)))
    while store.expire(5 * DAY, 1_000):
        pass

    assert store.relay_again() == (19, False)

    assert {action.follower for action in actions_in(store.unrelayed(100))} == {*range(21, 40)}


def test_a_refill_that_was_published_is_not_published_once_all_is_relayed_again(store: FollowStore):
    store.ask_refill([1, 2], "a", 0)
    asked = store.refill_times([(1, "a")])[1, "a"].asked_ms
    store.mark_refills_served({(1, "a"): asked + 1})

    store.relay_again()

    assert [times.served_before_ms for times in store.refill_times([(1, "a"), (2, "a")]).values()] == [0, 0]


# A clock that was ahead
# --------------------------------------------------------------------------------------------------------------------


def test_rule_2_a_store_that_is_brought_back_keeps_the_order_of_actions(store: FollowStore, clock: FakeClock):
    before_ms = clock.ms
    clock.advance(400 * DAY)
    store.settled_ms()
    ahead = record(store, *(Follow(follower, user(100)) for follower in range(1, 9)))
    store.ask_refill(range(1, 9), None, 0)
    clock.advance(-400 * DAY + 1_000)

    brought = store.bring_back(clock.ms)

    assert set(brought) == set(range(store.shards()))
    assert all(400 * DAY - 2_000 < ms <= 400 * DAY for ms in brought.values())
    assert before_ms < store.now() == clock.ms
    assert store.bring_back(clock.ms) == {}
    for action in ahead:
        assert isinstance(action, Followed)
        [unfollowed] = record(store, Unfollow(action.follower, user(100)))
        assert isinstance(unfollowed, Unfollowed)
        assert unfollowed.ts > action.ts
        assert unfollowed.committed_ms == clock.ms
        [edge] = store.edges([(action.follower, user(100))]).values()
        assert not edge.active


def test_a_pin_from_a_clock_that_was_ahead_takes_no_other_record_with_it(store: FollowStore, clock: FakeClock):
    """A pin keeps its time. All that commits together with it, and then all of those users, would be ahead again."""
    clock.advance(400 * DAY)
    record(store, SavePin(Pin(1, 2, 3, 1_000)))
    store.settled_ms()
    clock.advance(-400 * DAY + 1_000)
    store.bring_back(clock.ms)
    *followed, deleted = record(store, *(Follow(follower, user(2)) for follower in range(3, 20)), DeletePin(1))
    assert {action.committed_ms for action in followed} == {clock.ms}
    assert isinstance(deleted, PinDeleted)
    assert deleted.committed_ms == clock.ms < deleted.saved_ms


def test_rule_10_a_store_that_is_brought_back_settles_what_it_has_relayed(store: FollowStore, clock: FakeClock):
    clock.advance(400 * DAY)
    record(store, Follow(1, user(100)))
    store.settled_ms()
    clock.advance(-400 * DAY)
    store.bring_back(clock.ms)
    clock.advance(1_000)
    assert store.settled_ms() == clock.ms - 1_000, "what is not relayed counts as of when it was brought back"
    relay_all(store)
    assert store.settled_ms() == clock.ms


def test_a_store_that_is_brought_back_does_refills_again(store: FollowStore, clock: FakeClock):
    clock.advance(400 * DAY)
    store.ask_refill([1], None, 0)
    store.mark_refills_served({(1, None): clock.ms + 1})
    store.settled_ms()
    clock.advance(-400 * DAY)
    store.bring_back(clock.ms)
    relay_all(store)
    store.ask_refill([1], None, DAY)
    assert store.backlog().actions == 1
    assert store.refill_times([(1, None)])[1, None].served_before_ms == 0
