"""The two rows of an edge and of a pin, after one of them was lost: on every adapter, with one shard and with three."""

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from follow_places import NOW, FakeClock, pin, record

from feedstore.domain import (
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
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.follows import reconciling, sqlite
from feedstore.follows.port import ActionRefusedError, PinState, Reconciled, Request
from feedstore.follows.store import FollowStore

LATER = NOW + 60_000


def index(store: FollowStore, *recorded: RecordedAction) -> None:
    """What the expander writes."""
    store.index(
        edges=[each.edge() for each in recorded if isinstance(each, Followed | Unfollowed)],
        pins=[each for each in recorded if isinstance(each, PinSaved)],
        deletions=[each for each in recorded if isinstance(each, PinDeleted)],
    )


def reconciled(store: FollowStore, *, write: bool = True) -> Reconciled:
    """The whole walk."""
    parts = list(store.reconcile(write=write))
    return Reconciled(
        rows=sum(part.rows for part in parts),
        edges=sum(part.edges for part in parts),
        pins=sum(part.pins for part in parts),
        boards=sum(part.boards for part in parts),
        index_rows=sum(part.index_rows for part in parts),
        disputed=tuple(each for part in parts for each in part.disputed),
    )


def agrees(store: FollowStore) -> bool:
    found = reconciled(store, write=False)
    return found == Reconciled(found.rows)


def followers(store: FollowStore, *followees: Followee) -> set[tuple[Followee, int]]:
    return {(each.followee, each.follower) for each in store.followers(followees, None, 100, tombstones=False)}


ACTIONS: list[Action] = [
    *(Follow(each, user(each + 1)) for each in range(1, 9)),
    *(Follow(each, board(70)) for each in range(1, 9)),
    Unfollow(2, board(70)),
    *(SavePin(pin(each, created_ms=1_000 + each % 3)) for each in range(1, 9)),
    DeletePin(3),
]


def test_a_store_that_lost_nothing_agrees(store: FollowStore):
    assert reconciled(store) == Reconciled(0)
    index(store, *record(store, *ACTIONS))
    assert agrees(store)
    assert reconciled(store).rows == 16 + 16 + 16 + 8


def test_what_was_never_indexed_is_indexed(store: FollowStore, monkeypatch: pytest.MonkeyPatch):
    """As after a copy that was taken while actions were on their way."""
    monkeypatch.setattr(reconciling, "MAX_PAGE", 3)
    record(store, *ACTIONS)
    assert not agrees(store)
    assert followers(store, user(2), board(70)) == set()
    reconciled(store)
    assert agrees(store)
    assert followers(store, user(2), board(70)) == {
        (user(2), 1),
        *((board(70), each) for each in range(1, 9) if each != 2),
    }
    assert [each.pin.pin for each in store.newest_pins([user(7)], 100)[user(7)]] == [2, 5, 8, 1, 4, 7, 6]


def test_counting_writes_nothing(store: FollowStore):
    record(store, *ACTIONS)
    counted = reconciled(store, write=False)
    assert followers(store, user(2)) == set()
    assert reconciled(store, write=False) == counted
    assert reconciled(store) == counted


def test_a_lost_edge_comes_back_from_its_index(store: FollowStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reconciling, "MAX_PAGE", 2)
    edges = [Edge(each, user(9), LATER + each, active=each != 4) for each in range(1, 8)]
    store.index(edges=edges)
    assert reconciled(store).edges == 7
    assert agrees(store)
    assert store.edges([(each, user(9)) for each in range(1, 8)]) == {
        (edge.follower, edge.followee): edge for edge in edges
    }
    assert store.following(4) == []


def test_rule_2_the_clock_of_a_follower_is_not_behind_an_edge_that_came_back(store: FollowStore):
    store.index(edges=[Edge(1, user(9), LATER, active=True)])
    reconciled(store)
    [again] = record(store, Unfollow(1, user(9)))
    assert isinstance(again, Unfollowed)
    assert again.ts > LATER


def test_of_two_rows_of_an_edge_the_later_one_is_right(store: FollowStore, clock: FakeClock):
    record(store, Follow(1, user(2)), Follow(3, user(2)))
    store.index(edges=[Edge(1, user(2), LATER, active=False), Edge(3, user(2), NOW - 1, active=False)])
    reconciled(store)
    assert agrees(store)
    assert store.following(1) == []
    assert followers(store, user(2)) == {(user(2), 3)}


def test_a_lost_pin_comes_back_with_its_board(store: FollowStore):
    index(store, PinSaved(pin(5), NOW), PinSaved(pin(6), NOW), PinDeleted(pin(6), NOW + 1))
    found = reconciled(store)
    assert (found.pins, found.boards) == (2, 1) or (found.pins, found.boards) == (4, 1)
    assert agrees(store)
    assert store.pins([5])[5] == PinState(pin(5), NOW, None)
    assert store.deletions([5, 6]) == {6: NOW + 1}
    assert store.board_owners([70]) == {70: 7}
    [answer] = store.record([Request(SavePin(pin(9, owner=8)))])
    assert isinstance(answer, ActionRefusedError)


def test_a_lost_deletion_comes_back(store: FollowStore):
    index(store, *record(store, SavePin(pin(5))), PinDeleted(pin(5), LATER))
    reconciled(store)
    assert agrees(store)
    assert store.deletions([5]) == {5: LATER}


def test_a_pin_that_was_saved_again_otherwise_is_only_where_its_record_says(store: FollowStore):
    index(store, PinSaved(pin(5, on=71), NOW - 1))
    index(store, *record(store, SavePin(pin(5, on=70))))
    reconciled(store)
    assert agrees(store)
    found = store.newest_pins([board(71), board(70), user(7)], 9)
    assert {of: [each.pin.pin for each in pins] for of, pins in found.items()} == {
        board(71): [],
        board(70): [5],
        user(7): [5],
    }


def test_a_board_of_two_owners_is_named_and_left(store: FollowStore):
    index(store, *record(store, SavePin(pin(5))), PinSaved(pin(6, owner=8), NOW))
    found = reconciled(store)
    assert found.disputed == ((70, 7, 8),)
    assert store.board_owners([70]) == {70: 7}


def act(rng: random.Random, store: FollowStore, now_ms: int) -> list[RecordedAction]:
    """Some actions of few people; those that are refused are left out."""
    actions: list[Action] = []
    for _ in range(rng.randint(1, 12)):
        follower, number, owner = rng.randint(1, 6), rng.randint(1, 30), rng.randint(1, 3)
        followee = rng.choice([user(rng.randint(11, 16)), board(owner * 10)])
        kind = rng.choices([Follow, Unfollow, SavePin, DeletePin], [4, 2, 4, 1])[0]
        if kind is SavePin:
            actions.append(SavePin(Pin(number, owner, owner * 10, 1_000 + number)))
        elif kind is DeletePin:
            actions.append(DeletePin(number))
        else:
            actions.append(kind(follower, followee))
    answers = store.record([Request(action) for action in actions])
    return [answer for answer in answers if not isinstance(answer, ActionRefusedError)]


@pytest.mark.parametrize("seed", range(12))
def test_rows_agree_after_any_shard_was_brought_back_from_a_copy(tmp_path: Path, seed: int):
    """Copies are taken while actions are on their way; their index rows are written before the copy, after it, or not
    at all.
    """
    rng = random.Random(seed)
    clock = FakeClock()
    paths = [tmp_path / f"{number}.db" for number in range(3)]
    copied = [tmp_path / f"{number}.copy" for number in range(3)]
    lost = rng.sample(range(3), rng.randint(1, 2))
    sqlite.create(paths)
    for moment in ("before", "after"):
        with closing(sqlite.open_store(paths, clock)) as store:
            for _ in range(8):
                recorded = act(rng, store, clock.ms)
                rng.shuffle(recorded)
                index(store, *recorded[: rng.choice([0, len(recorded), len(recorded)])])
                clock.advance(rng.randint(0, 2_000))
        for number in lost:
            if moment == "before":
                shutil.copy(paths[number], copied[number])
            else:
                shutil.copy(copied[number], paths[number])
    with closing(sqlite.open_store(paths, clock)) as store:
        reconciled(store)
        assert agrees(store)
        edges = [edge for follower in range(1, 7) for edge in store.following(follower)]
        everybody = [*map(user, range(11, 17)), *map(board, (10, 20, 30))]
        assert followers(store, *everybody) == {(edge.followee, edge.follower) for edge in edges}
        indexed = {state.pin for states in store.newest_pins(everybody[-3:], 100).values() for state in states}
        assert indexed == {state.pin for state in store.pins(range(1, 31)).values() if state.deleted_ms is None}
