"""Verify: what it finds, each kind, and what it leaves alone because it may still be on its way."""

from collections.abc import Iterable, Sequence

import pytest

from feedstore.domain import (
    Action,
    DeletePin,
    Follow,
    Followed,
    Followee,
    Pin,
    PinDeleted,
    PinSaved,
    SavePin,
    Unfollow,
    Unfollowed,
    board,
    user,
)
from feedstore.following import columns, feed_table, mutations, row_key
from feedstore.follows.port import Request
from feedstore.widecolumn import Cell, DamagedError, DeleteColumns, Put
from tests.follows.memory_follows import open_in_memory
from tests.widecolumn.memory_store import MemoryStore
from workers.following import verify
from workers.following.verify import Finding, UserRange, Verifier

NOW = 1_700_000_000_000
CAP = 3
Short = tuple[int, str, str, int]


class World:
    """A follow store whose clock is moved by hand, a feed table, and how far it counts as landed."""

    def __init__(self) -> None:
        self.now = NOW
        self.follows = open_in_memory(lambda: self.now)
        self.feeds = MemoryStore(feed_table(CAP, 1, 1_000))
        self.landed_ms = 2**62

    def do(self, *actions: Action) -> list[int]:
        """Records actions, each a second later, enters them into the indexes, and gives their times."""
        times = []
        for action in actions:
            self.now += 1_000
            (done,) = self.follows.record([Request(action)])
            assert isinstance(done, Followed | Unfollowed | PinSaved | PinDeleted), done
            times.append(done.ts if isinstance(done, Followed | Unfollowed) else done.committed_ms)
            self.follows.index(
                edges=[done.edge()] if isinstance(done, Followed | Unfollowed) else [],
                pins=[done] if isinstance(done, PinSaved) else [],
                deletions=[done] if isinstance(done, PinDeleted) else [],
            )
        return times

    def put(self, ts: int, *pins: int, of: int = 1) -> None:
        self.feeds.apply([mutations.put([(of, ts)], [(pin, created(pin)) for pin in pins])])

    def mark(self, ts: int, *pins: int) -> None:
        self.feeds.apply([mutations.remove([(1, ts)], [(pin, created(pin)) for pin in pins])])

    def findings(self, *spans: UserRange) -> list[Finding]:
        verifier = Verifier(self.follows, {"a": self.feeds}, CAP, lambda: {"a": self.landed_ms})
        looked = verifier.look(spans) if spans else verifier.look()
        return [finding for seen in looked for finding in seen.findings]

    def found(self, *spans: UserRange) -> list[Short]:
        return sorted((each.user, each.kind, str(each.pin), each.ts) for each in self.findings(*spans))  # type: ignore[misc]


def created(pin: int) -> int:
    return NOW - 1_000 * pin


def save(number: int, owner: int = 2, on: int | None = None) -> SavePin:
    return SavePin(Pin(number, owner, on or owner * 10, created(number)))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def followed(world: World) -> int:
    """User 1 follows user 2, who has two pins; both have landed. The time of the follow."""
    ts, *_ = world.do(Follow(1, user(2)), save(1), save(2))
    world.put(ts, 1, 2)
    return ts


@pytest.mark.usefixtures("followed")
def test_a_feed_that_is_right(world: World):
    assert world.found() == []


# ---- the kinds


def test_missing_is_what_no_marker_hides(world: World, followed: int):
    world.do(save(3))
    assert world.found() == [(1, "missing", "3", followed)]
    world.mark(followed - 1, 3)
    assert world.found() == [(1, "missing", "3", followed)], "the edge's own time is above this marker"
    assert world.findings()[0].why == f"user 1 follows user 2 since {followed}"


@pytest.mark.parametrize("above", [0, 5_000_000])
def test_masked_is_what_a_marker_hides_at_the_edge_or_above(world: World, followed: int, above: int):
    world.mark(followed + above, 2)
    assert world.found() == [(1, "masked", "2", followed + above)]
    assert f"a marker of {followed + above} hides it" in world.findings()[0].why


def test_extra_is_what_nothing_covers(world: World, followed: int):
    world.do(save(3, owner=5))
    world.put(followed, 3, 99)
    assert [(each.kind, each.pin, each.why) for each in world.findings()] == [
        ("extra", 3, "user 1 never followed user 5 or board 50"),
        ("extra", 99, "the follow store knows no pin 99"),
    ]


def test_extra_after_an_unfollow_or_a_deletion_names_it(world: World, followed: int):
    deleted, left = world.do(DeletePin(1), Unfollow(1, user(2)))
    assert [(each.kind, each.pin, each.why) for each in world.findings()] == [
        ("extra", 1, f"pin 1 was deleted at {deleted}"),
        ("extra", 2, f"user 1 unfollowed user 2 at {left}"),
    ]
    assert world.findings()[0].ts == followed


def test_differs_is_a_pin_at_another_time(world: World, followed: int):
    world.feeds.apply([mutations.put([(1, followed)], [(2, 77)])])
    (finding,) = world.findings()
    assert (finding.kind, finding.pin, finding.created_ms, finding.why) == (
        "differs",
        2,
        77,
        f"pin 2 is of {created(2)}",
    )


def test_unknown_user_is_one_who_never_followed(world: World, followed: int):
    world.put(followed, 1, of=404)
    world.do(Follow(5, user(2)), Unfollow(5, user(2)))
    world.put(1, 1, of=5)
    assert world.found() == [(5, "extra", "1", 1), (404, "unknown user", "1", followed)]


def test_displaced_is_an_entry_in_a_row_of_nobody(world: World, followed: int):
    row = bytes([row_key(1)[0] ^ 1]) + row_key(1)[1:]
    world.feeds.apply([Put([(row, 7)], columns([(1, created(1))]))])
    assert world.found() == [(1, "displaced", "1", 7)]
    assert world.findings()[0].row == row


def test_a_pin_that_no_pin_can_be_is_named(world: World, followed: int):
    world.feeds.apply([Put([(row_key(1), followed)], [b"\xff" * 16, bytes(16)])])
    assert [each.kind for each in world.findings()] == ["extra", "extra"]


def test_a_damaged_cluster_is_named_once_and_the_other_is_looked_at(world: World, followed: int):
    class Damaged(MemoryStore):
        def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterable[tuple[bytes, list[bytes]]]:  # type: ignore[override]
            raise DamagedError("a file is missing")

    damaged = Damaged(feed_table(CAP, 1, 1_000))
    world.do(save(3))
    verifier = Verifier(world.follows, {"a": damaged, "b": world.feeds}, CAP, lambda: {"a": 2**62, "b": 2**62})
    found = [(each.cluster, each.kind, each.pin) for seen in verifier.look() for each in seen.findings]
    assert found == [("a", "damaged", 0), ("b", "missing", 3)]


def test_damage_that_shows_in_a_row_only_is_named_too(world: World, followed: int):
    class Damaged(MemoryStore):
        def cells(self, row: bytes) -> list[Cell]:
            raise DamagedError(f"row {row.hex()} cannot be read")

    damaged = Damaged(feed_table(CAP, 1, 1_000))
    verifier = Verifier(world.follows, {"a": damaged, "b": world.feeds}, CAP, lambda: {"a": 2**62, "b": 2**62})
    assert [(each.cluster, each.kind) for seen in verifier.look() for each in seen.findings] == [("a", "damaged")]


# ---- the cap


def test_what_moves_up_into_a_hole_is_not_extra(world: World):
    """A row keeps more than the cap: with a hole, readers see what comes after it."""
    ts, *_ = world.do(Follow(1, user(2)), *(save(pin) for pin in range(1, CAP + 2)))
    world.put(ts, *range(2, CAP + 2))
    assert world.found() == [(1, "missing", "1", ts)]


def test_what_an_extra_entry_pushes_beyond_the_cap_is_not_missing(world: World):
    ts, *_ = world.do(Follow(1, user(2)), *(save(pin) for pin in range(2, CAP + 2)))
    world.put(ts, *range(1, CAP + 2))
    assert world.found() == [(1, "extra", "1", ts)]


def test_what_an_unfollow_brings_into_reach_is_not_missing_before_its_refill(world: World):
    """The row was cut behind the pins of user 3; those of user 2 come with the refill."""
    far, near, *_ = world.do(Follow(1, user(2)), Follow(1, user(3)), *(save(pin, owner=3) for pin in range(1, CAP + 2)))
    world.do(*(save(pin) for pin in (10, 11)))
    world.put(near, *range(1, CAP + 2))
    (left,) = world.do(Unfollow(1, user(3)))
    world.landed_ms = left
    assert world.found() == []
    world.mark(left, *range(1, CAP + 2))
    assert world.found() == []
    world.landed_ms = left + 1
    assert world.found() == [(1, "missing", "10", far), (1, "missing", "11", far)]


# ---- what is on its way


@pytest.mark.parametrize(
    "action",
    [save(3), Unfollow(1, user(2)), DeletePin(2), Follow(1, board(50)), Follow(7, user(2))],
    ids=lambda action: type(action).__name__,
)
def test_what_an_action_explains_that_has_not_landed_is_no_finding(world: World, followed: int, action: Action):
    world.do(save(4, owner=5))
    (at,) = world.do(action)
    world.landed_ms = at
    assert world.found() == []
    world.landed_ms = at + 1
    assert world.found() != []


def test_what_no_action_explains_is_found_beside_what_is_on_its_way(world: World, followed: int):
    world.do(save(4, owner=5))
    world.landed_ms = world.now + 1
    world.mark(followed, 1)
    world.put(followed, 4)
    world.do(save(3), Follow(1, user(9)), Unfollow(1, board(20)))
    assert world.found() == [(1, "extra", "4", followed), (1, "masked", "1", followed)]


def test_an_entry_under_two_edges_is_settled_if_one_of_them_is(world: World, followed: int):
    world.landed_ms = world.now + 1
    world.mark(followed, 1)
    world.do(Follow(1, board(20)))
    assert world.found() == [(1, "masked", "1", followed)]
    world.do(Unfollow(1, board(20)))
    assert world.found() == [(1, "masked", "1", followed)]
    world.do(Unfollow(1, user(2)))
    assert world.found() == []


def test_a_followed_again_edge_says_nothing_of_what_it_was(world: World, followed: int):
    world.landed_ms = world.now + 1
    world.mark(followed, 1)
    world.do(Unfollow(1, user(2)), Follow(1, user(2)))
    assert world.found() == []


# ---- who is looked at


def test_only_some_users_are_looked_at(world: World, followed: int):
    for reader in (3, 4, 5, 6):
        world.do(Follow(reader, user(2)))
    assert [each[0] for each in world.found()] == [3, 3, 4, 4, 5, 5, 6, 6]
    assert [each[0] for each in world.found(UserRange(4, 4))] == [4, 4]
    assert [each[0] for each in world.found(UserRange(2, 4), UserRange(6, 9))] == [3, 3, 4, 4, 6, 6]


def test_a_look_goes_on_after_a_user(world: World, followed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verify, "SUSPECTS_AT_ONCE", 2)
    for reader in range(3, 9):
        world.do(Follow(reader, user(2)))
    verifier = Verifier(world.follows, {"a": world.feeds}, CAP, lambda: {"a": 2**62})
    looks = list(verifier.look())
    every = [each for seen in looks for each in seen.findings]
    assert len(every) == 12
    for number, seen in enumerate(looks):
        before = [each for earlier in looks[: number + 1] for each in earlier.findings]
        rest = [each for later in verifier.look(after_user=seen.up_to) for each in later.findings]
        assert before + rest == every


def test_a_feed_whose_entries_are_soon_replaced_is_reported(world: World, monkeypatch: pytest.MonkeyPatch):
    """All of a busy user's entries are missing, and new ones come while other users are looked at."""
    readers = [1, *range(3, 42)]
    world.do(*(Follow(reader, user(2)) for reader in readers), save(9), save(8), save(7))
    batches, cells_of = 0, world.feeds.cells_of

    def reading(rows: Sequence[bytes]) -> list[list[Cell]]:
        nonlocal batches
        batches += 1
        if batches == 3:
            world.do(save(6), save(5), save(4))
        return cells_of(rows)

    monkeypatch.setattr(world.feeds, "cells_of", reading)
    assert (1, "missing", "7") in [each[:3] for each in world.found()]


def test_feeds_of_many_followees_are_compared_over_pages(world: World):
    many = range(10, 2_510)
    world.follows.record([Request(Follow(1, user(each))) for each in many])
    world.follows.record([Request(Follow(follower, user(10))) for follower in (3, 4)])
    ts = {Followee("user", each): NOW + place for place, each in enumerate(many)}
    newest = [10, 1_500, 2_509]
    for owner in (*newest, 11):
        saved = world.follows.record([Request(SavePin(Pin(owner, owner, owner, NOW + owner if owner != 11 else 5)))])
        world.follows.index(pins=[each for each in saved if isinstance(each, PinSaved)])
    for owner in newest:
        world.feeds.apply([mutations.put([(1, ts[user(owner)])], [(owner, NOW + owner)])])
    assert [each[:3] for each in world.found()] == [(3, "missing", "10"), (4, "missing", "10")]
    verifier = Verifier(world.follows, {"a": world.feeds}, CAP, lambda: {"a": 2**62})
    assert list(verifier.look())[-1][:2] == (3, CAP + 1 + 1)


def test_markers_alone_make_no_suspect(world: World, followed: int):
    world.feeds.apply([DeleteColumns([(row_key(8), 5)], columns([(1, 1)]))])
    assert world.found() == []
