"""What the follows of a user and the unfollows of a followee cost in memory: nothing that grows with their number."""

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import pytest

from feedstore.domain import Follow, Pin, PinSaved, RefillAsked, SavePin, Unfollowed, user
from feedstore.following import Limits, feed_table
from feedstore.follows import store as follow_store
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import open_in_memory
from tests.widecolumn.memory_store import MemoryStore
from workers.following import covering, expected
from workers.following.backfill import Backfill
from workers.following.messages import Delivery
from workers.following.purge import UNFOLLOWS_AT_ONCE, Purging
from workers.following.verify import UserRange, Verifier

NOW = 1_700_000_000_000
CAP = 50
FEW, MANY = 2_000, 6_000
LIMITS = Limits(CAP, 10, action_age_ms=1_000, delivery_age_ms=1_000, purge_window_ms=4_000)


def refill(follows: FollowStore) -> None:
    def publish(deliveries: Iterable[Delivery]) -> None:
        assert sum(delivery.cells() for delivery in deliveries) == CAP

    Backfill(follows, publish, LIMITS).refill([RefillAsked(1, "a", NOW)], NOW, None)


def look(follows: FollowStore) -> None:
    assert list(verifier(follows).look())[-1].entries == CAP


def look_again(follows: FollowStore) -> None:
    found = [each for seen in verifier(follows).look([UserRange(1, 1)]) for each in seen.findings]
    assert len(found) == CAP


def verifier(follows: FollowStore) -> Verifier:
    feeds = MemoryStore(feed_table(CAP, 10, 1_000))
    return Verifier(follows, {"a": feeds}, CAP, lambda: {"a": 2**62})


@pytest.fixture(scope="module")
def stores() -> Iterator[list[FollowStore]]:
    """One user follows few in one of them, and many in the other."""
    stores = [filled(followees) for followees in (FEW, MANY)]
    yield stores
    for store in stores:
        store.close()


def filled(followees: int) -> FollowStore:
    follows = open_in_memory(lambda: NOW)
    for start in range(0, followees, 1_000):
        some = range(10 + start, 10 + start + 1_000)
        follows.record([Request(Follow(1, user(each))) for each in some])
        saved = follows.record([Request(SavePin(Pin(each, each, each, NOW - each))) for each in some])
        follows.index(pins=[each for each in saved if isinstance(each, PinSaved)])
    return follows


@pytest.mark.long
@pytest.mark.parametrize("work", [refill, look, look_again], ids=lambda each: each.__name__)
def test_memory_does_not_grow_with_what_is_followed(
    stores: list[FollowStore], work: Callable[[FollowStore], None], monkeypatch: pytest.MonkeyPatch
):
    # Caches are bounded, too, by more than these follow.
    monkeypatch.setattr(expected, "_CACHED_COLUMNS", 1_000)
    monkeypatch.setattr(follow_store, "_followee", follow_store._followee.__wrapped__)
    # Threads that other tests have left, and the collector's moment, add to a peak and take nothing from it.
    few, many = stores
    least = min(peak(work, few) for _ in range(3))
    assert any(peak(work, many) < 1.3 * least for _ in range(3))


@pytest.mark.parametrize("boards", [1, 1_000])
def test_memory_does_not_grow_with_the_unfollows_of_a_followee_with_many_pins(
    boards: int, monkeypatch: pytest.MonkeyPatch
):
    pins = 1_000
    monkeypatch.setattr(covering, "KEYS_AT_ONCE", pins)
    follows = open_in_memory(lambda: NOW)
    with closing(follows):
        some = [Pin(each, 2, 1 + each % boards, NOW - each) for each in range(1, pins + 1)]
        saved = follows.record([Request(SavePin(pin)) for pin in some])
        follows.index(pins=[each for each in saved if isinstance(each, PinSaved)])

        def unfollow(number: int) -> Callable[[FollowStore], None]:
            actions = [Unfollowed(each, user(2), NOW, NOW) for each in range(10, 10 + number)]

            def publish(deliveries: Iterable[Delivery]) -> None:
                assert sum(delivery.cells() for delivery in deliveries) == number * pins

            return lambda follows: Purging(follows, publish, LIMITS).unfollow(actions, NOW, None)

        least = min(peak(unfollow(4), follows) for _ in range(3))
        assert any(peak(unfollow(UNFOLLOWS_AT_ONCE), follows) < 1.5 * least for _ in range(3))


def peak(work: Callable[[FollowStore], None], follows: FollowStore) -> int:
    """The most bytes of Python's that the work held at once. The rows are SQLite's, and do not count."""
    work(follows)  # what is made once and stays, as prepared statements
    tracemalloc.start()
    try:
        work(follows)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
