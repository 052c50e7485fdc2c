"""Verify: what it says beside a running worker, and what it holds."""

import pytest

from feedstore.domain import Follow, Pin, PinSaved, SavePin, user
from feedstore.feeds import feed_table, mutations
from feedstore.follows import sqlite
from feedstore.follows.port import FollowStore, Request
from feedstore.widecolumn.memory import MemoryStore
from workers.verify import Difference, Verifier

NOW = 1_700_000_000_000
CAP = 3


@pytest.fixture
def follows() -> FollowStore:
    return sqlite.open_store([":memory:"], lambda: NOW)


@pytest.fixture
def feeds() -> MemoryStore:
    return MemoryStore(feed_table(CAP, 1, 1_000))


@pytest.fixture
def verifier(follows: FollowStore, feeds: MemoryStore) -> Verifier:
    return Verifier(follows, {"a": feeds}, CAP)


def save(follows: FollowStore, number: int, owner: int = 2) -> None:
    saved = follows.record([Request(SavePin(Pin(number, owner, owner, NOW + number)))])
    follows.index(pins=[each for each in saved if isinstance(each, PinSaved)])


def land(feeds: MemoryStore, *pins: int) -> None:
    feeds.apply([mutations.put([(1, NOW)], [(pin, NOW + pin) for pin in pins])])


def suspects(verifier: Verifier) -> list[int]:
    return verifier.look(lambda _users, _entries: None).suspects


def test_a_later_look_knows_what_has_come_since_the_first(follows: FollowStore, feeds: MemoryStore, verifier: Verifier):
    follows.record([Request(Follow(1, user(2)))])
    for pin in range(1, CAP + 1):
        save(follows, pin)
    land(feeds, *range(2, CAP + 1))
    assert suspects(verifier) == [1]
    assert list(verifier.differences([1])) == [Difference(1, "a", "missing", 1, NOW + 1)]
    # A newer pin pushes the one that was missing out of the feed, and lands.
    save(follows, CAP + 1)
    land(feeds, CAP + 1)
    assert list(verifier.differences([1])) == []


def test_feeds_of_many_followees_are_compared_over_pages(follows: FollowStore, feeds: MemoryStore, verifier: Verifier):
    many = range(10, 2_510)
    follows.record([Request(Follow(1, user(each))) for each in many])
    follows.record([Request(Follow(follower, user(10))) for follower in (3, 4)])
    newest = [10, 1_500, 2_509]
    for owner in (*newest, 11):
        save(follows, 5 if owner == 11 else owner + 100, owner)
    land(feeds, *(owner + 100 for owner in newest))
    assert suspects(verifier) == [3, 4]
    assert list(verifier.differences([1, 3])) == [Difference(3, "a", "missing", 110, NOW + 110)]
    look = verifier.look(lambda _users, _entries: None)
    assert (look.users, look.entries) == (3, CAP + 1 + 1)
