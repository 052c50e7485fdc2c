"""Refills and follows of many users, which share their reads."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from feedstore.domain import Follow, Followed, Pin, PinDeleted, PinSaved, RefillAsked, Unfollow, board, user
from feedstore.following import Limits
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import open_in_memory
from workers.following import backfill
from workers.following.backfill import Backfill
from workers.following.messages import Delivery

NOW = 1_700_000_000_000
DAY = 86_400_000
READERS = range(1, 41)
OWNERS = range(101, 121)
LIMITS = Limits(cap=7, slack=2, action_age_ms=DAY, delivery_age_ms=DAY, purge_window_ms=4 * DAY, chunk=3)

Cells = Counter[tuple[object, str | None, int, int, int, int]]


class Counted:
    """A follow store whose calls are counted."""

    def __init__(self, store: FollowStore) -> None:
        self.calls: Counter[str] = Counter()
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.calls[name] += 1
        called: Callable[..., Any] = getattr(self._store, name)
        return called


@pytest.fixture(params=[1, 3], ids=["one_shard", "three_shards"])
def store(request: pytest.FixtureRequest) -> Iterator[FollowStore]:
    """READERS follow some of OWNERS and of their boards; one of them follows nothing any more, one never did."""
    rng = random.Random(3)
    with closing(open_in_memory(lambda: NOW, request.param)) as opened:
        pins = [Pin(each, rng.choice(OWNERS), 201 + each % 30, NOW - rng.randrange(50)) for each in range(1, 300)]
        opened.index(pins=[PinSaved(pin, NOW) for pin in pins])
        for pin in pins[::9]:
            opened.index(deletions=[PinDeleted(pin, NOW)])
        for reader in READERS[:-1]:
            followees = [*map(user, rng.sample(OWNERS, rng.randrange(1, 9))), *map(board, range(201, 201 + reader % 5))]
            opened.record([Request(Follow(reader, each)) for each in followees])
            if reader == READERS[-2]:
                opened.record([Request(Unfollow(reader, each)) for each in followees])
        yield opened


def cells(deliveries: Iterable[Delivery]) -> Cells:
    return Counter(
        (delivery.action, delivery.cluster, follower, ts, pin, created_ms)
        for delivery in deliveries
        for block in delivery.puts
        for follower, ts in block.rows
        for pin, created_ms in block.pins
    )


def refilled(store: FollowStore, *batches: list[RefillAsked]) -> Cells:
    found: Cells = Counter()
    handler = Backfill(store, lambda deliveries: found.update(cells(deliveries)), LIMITS)
    for batch in batches:
        handler.refill(batch, NOW, None)
    return found


@pytest.mark.parametrize("pins_at_once", [1, 40, 20_000])
def test_refills_that_share_their_reads_are_what_each_is_alone(
    store: FollowStore, monkeypatch: pytest.MonkeyPatch, pins_at_once: int
):
    monkeypatch.setattr(backfill, "PINS_AT_ONCE", pins_at_once)
    monkeypatch.setattr(backfill, "CELLS_AT_ONCE", 2 * pins_at_once)
    monkeypatch.setattr(backfill, "MAX_PAGE", 10)
    requests = [RefillAsked(reader, cluster, NOW) for reader in READERS for cluster in ("a", "b")]
    alone = refilled(store, *([each] for each in requests))
    assert refilled(store, requests) == alone
    rows = Counter((action, follower) for action, _, follower, _, _, _ in alone)
    assert len(rows) == 2 * (len(READERS) - 2)
    assert max(rows.values()) == LIMITS.cap


def test_refills_of_many_users_cost_a_few_reads(store: FollowStore):
    counted = Counted(store)
    refilled(counted, [RefillAsked(reader, "a", NOW) for reader in READERS])  # type: ignore[arg-type]
    assert counted.calls == {
        "refill_times": 1,
        "following_of": 1,
        "newest_pins_merged": 1,
        "edges": 1,
        "index": 1,
        "deletions": 1,
    }


def test_follows_of_one_followee_share_its_pins(store: FollowStore):
    edges = [edge for reader in READERS[:-2] for edge in store.following(reader)]
    actions = [Followed(edge.follower, edge.followee, edge.ts, NOW) for edge in edges]
    gone = Followed(READERS[0], user(OWNERS[0]), 1, NOW)
    alone, together = Counter(), Counter()  # type: Cells, Cells
    for action in actions:
        Backfill(store, lambda each: alone.update(cells(each)), LIMITS).follow([action], NOW, None)
    counted = Counted(store)
    Backfill(counted, lambda each: together.update(cells(each)), LIMITS).follow([*actions, gone], NOW, None)  # type: ignore[arg-type]
    assert together == alone
    assert {follower for _, _, follower, _, _, _ in together} == set(READERS[:-2])
    assert counted.calls["edges"] == counted.calls["deletions"] == 1


@pytest.mark.parametrize("few", [1, 3, 6, 7, 50])
def test_followees_with_few_pins_are_read_together_and_the_others_again(
    store: FollowStore, monkeypatch: pytest.MonkeyPatch, few: int
):
    for number in range(1, 9):  # as many as are asked for at first, one less, one more
        store.index(pins=[PinSaved(Pin(1_000 * number + each, 300 + number, 400, NOW), NOW) for each in range(number)])
    followees = [*map(user, [*OWNERS, *range(301, 309)]), *map(board, range(201, 206))]
    recorded = store.record([Request(Follow(500, followee)) for followee in followees])
    actions = [each for each in recorded if isinstance(each, Followed)]
    wanted, found = Counter(), Counter()  # type: Cells, Cells
    for action in actions:
        newest = store.newest_pins([action.followee], LIMITS.cap)[action.followee]
        wanted.update((action, None, 500, action.ts, each.pin.pin, each.pin.created_ms) for each in newest)
    monkeypatch.setattr(backfill, "FEW", few)
    monkeypatch.setattr(backfill, "WITH_FEW_AT_ONCE", 10)
    monkeypatch.setattr(backfill, "FOLLOWEES_AT_ONCE", 2)
    Backfill(store, lambda each: found.update(cells(each)), LIMITS).follow(actions, NOW, None)
    assert len(actions) == len(followees)
    assert found == wanted
