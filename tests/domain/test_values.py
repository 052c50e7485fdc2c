"""Values refuse bad input when they are made, and name the field and the value."""

from collections.abc import Callable

import msgspec
import pytest

from feedstore.domain import (
    MAX_ID,
    DeletePin,
    Edge,
    Follow,
    Followed,
    Followee,
    InvalidValueError,
    Pin,
    PinDeleted,
    PinSaved,
    RefillAsked,
    SavePin,
    Unfollow,
    board,
    user,
)

PIN = Pin(1, 2, 3, 1_341_100_972_000)

BAD_IDS: list[object] = [0, -1, MAX_ID + 1, 2**64, True, 1.0, "1", None, b"1"]


@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("user", user),
        ("board", board),
        ("follower", lambda bad: Follow(bad, user(2))),
        ("follower", lambda bad: Unfollow(bad, board(2))),
        ("follower", lambda bad: Edge(bad, user(2), 1, active=True)),
        ("ts", lambda bad: Edge(1, user(2), bad, active=True)),
        ("ts", lambda bad: Followed(1, user(2), bad, 1)),
        ("committed_ms", lambda bad: Followed(1, user(2), 1, bad)),
        ("committed_ms", lambda bad: PinSaved(PIN, bad)),
        ("committed_ms", lambda bad: PinDeleted(PIN, bad)),
        ("pin", DeletePin),
        ("pin", lambda bad: Pin(bad, 2, 3, 4)),
        ("owner", lambda bad: Pin(1, bad, 3, 4)),
        ("board", lambda bad: Pin(1, 2, bad, 4)),
        ("created_ms", lambda bad: Pin(1, 2, 3, bad)),
        ("user", lambda bad: RefillAsked(bad, None, 1)),
    ],
)
def test_an_id_or_time_that_is_no_positive_63_bit_integer_is_refused(
    field: str, make: Callable[[object], object], bad: object
):
    with pytest.raises(InvalidValueError) as refused:
        make(bad)
    assert refused.value.field == field
    assert refused.value.value is bad
    assert field in str(refused.value)
    assert repr(bad) in str(refused.value)


@pytest.mark.parametrize("good", [1, MAX_ID])
def test_the_ends_of_the_range_are_ids(good: int):
    assert Pin(good, good, good, good).pin == good


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidValueError) as refused:
        user("x" * 10_000)  # type: ignore[arg-type]
    assert len(str(refused.value)) < 200


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidValueError, match=r"followee\.kind: expected 'user' or 'board', got 'topic'"):
        Followee("topic", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [Follow, Unfollow, lambda f, t: Edge(f, t, 1, active=True)])
def test_a_self_follow_is_refused(make: Callable[[int, Followee], object]):
    with pytest.raises(InvalidValueError, match="a user other than the follower, got 7"):
        make(7, user(7))
    make(7, board(7))  # a board may have the same number as its follower


def test_a_pin_reaches_the_followers_of_its_owner_and_of_its_board():
    assert PIN.followees() == (user(2), board(3))


def test_values_refuse_what_is_decoded_as_well():
    with pytest.raises(msgspec.ValidationError, match="a user other than the follower"):
        msgspec.json.decode(b'{"type":"follow","follower":7,"followee":{"kind":"user","id":7}}', type=Follow)


def test_values_are_frozen():
    with pytest.raises(AttributeError):
        SavePin(PIN).pin = PIN  # type: ignore[misc]
