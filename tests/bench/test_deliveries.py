"""The model that the baselines are fed from."""

from bench.actions import Action, DeletePin, Follow, SavePin, Unfollow
from bench.deliveries import derive


def delivered(*actions: Action, cap: int = 1_000) -> list[tuple[int, int]]:
    made = derive(actions, cap)
    return list(zip(made.users, made.pins, strict=True))


def test_a_follow_delivers_the_newest_pins_up_to_the_cap() -> None:
    pins = [SavePin(ts=pin, pin=pin, owner=1, board=10) for pin in (1, 2, 3)]
    assert delivered(*pins, Follow(ts=4, follower=9, user=1), cap=2) == [(9, 3), (9, 2)]


def test_a_pin_reaches_followers_of_its_owner_and_of_its_board_once() -> None:
    follows = [
        Follow(ts=1, follower=7, user=1),
        Follow(ts=1, follower=7, board=10),
        Follow(ts=1, follower=8, board=10),
        Follow(ts=1, follower=9, user=2),
    ]
    assert delivered(*follows, SavePin(ts=2, pin=5, owner=1, board=10)) == [(7, 5), (8, 5)]


def test_what_was_unfollowed_or_deleted_is_not_delivered() -> None:
    assert (
        delivered(
            Follow(ts=1, follower=7, user=1),
            Unfollow(ts=2, follower=7, user=1),
            SavePin(ts=3, pin=5, owner=1, board=10),
            DeletePin(ts=4, pin=5),
            Follow(ts=5, follower=7, user=1),
        )
        == []
    )


def test_groups_are_the_actions_and_a_full_sample_holds_them_all() -> None:
    made = derive(
        [
            Follow(ts=1, follower=7, user=1),
            SavePin(ts=2, pin=5, owner=1, board=10),
            SavePin(ts=3, pin=6, owner=1, board=10),
            Follow(ts=4, follower=8, user=1),
        ]
    )
    assert [len(group) for group in made.groups()] == [1, 1, 2]
    assert made.sample(len(made)) == list(made.groups())
