"""A made-up social graph as actions: skewed as real ones are, and the same for the same seed."""

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from feedstore.domain import Action, DeletePin, Follow, Followee, Pin, SavePin, Unfollow

_Value = TypeVar("_Value")

BOARDS_EACH = 3
_SKEW = 0.9
"""How skewed popularity and activity are: the weight of the n-th is (n + 10) ** -_SKEW, near Zipf's law."""
_WARM_UP = 0.05
"""This first share of the actions is saves only: there must be users and boards to follow."""
_FOLLOWS, _UNFOLLOWS, _DELETIONS = 0.45, 0.04, 0.01
"""Their shares of the actions after that; all others are saved pins."""
_OF_BOARDS = 0.15
"""The share of the follows that are of boards."""


@dataclass(frozen=True)
class Shape:
    """The shape of a graph. users: at least 2. actions: how many."""

    users: int
    actions: int
    seed: int

    def __post_init__(self) -> None:
        if self.users < 2:
            raise ValueError(f"users: expected at least 2, got {self.users}")
        if self.actions < 1:
            raise ValueError(f"actions: expected at least 1, got {self.actions}")


def actions(shape: Shape, from_ms: int, until_ms: int) -> Iterator[Action]:
    """The actions, in order. Pins are dated evenly from one time to the other."""
    rng = random.Random(shape.seed)  # noqa: S311 - one seed must always give the same graph
    popular = _Skewed(rng, shape.users)
    active = _Skewed(rng, shape.users)
    edges: list[tuple[int, Followee]] = []
    pins: list[int] = []
    saved = 0
    for number in range(shape.actions):
        kind = 1.0 if number < _WARM_UP * shape.actions else rng.random()
        if kind < _FOLLOWS:
            follower = active.pick()
            followed = popular.pick()
            if follower == followed:
                followed = followed % shape.users + 1
            followee = Followee("user", followed)
            if rng.random() < _OF_BOARDS:
                followee = Followee("board", _board(rng, followed))
            edges.append((follower, followee))
            yield Follow(follower, followee)
        elif kind < _FOLLOWS + _UNFOLLOWS and edges:
            yield Unfollow(*_taken(rng, edges))
        elif kind < _FOLLOWS + _UNFOLLOWS + _DELETIONS and pins:
            yield DeletePin(_taken(rng, pins))
        else:
            saved += 1
            owner = active.pick()
            created_ms = from_ms + (until_ms - from_ms) * number // shape.actions
            pins.append(saved)
            yield SavePin(Pin(saved, owner, _board(rng, owner), created_ms))


def _board(rng: random.Random, owner: int) -> int:
    return owner * BOARDS_EACH + rng.randrange(BOARDS_EACH)


def _taken(rng: random.Random, values: list[_Value]) -> _Value:
    """Removes one of the values at random and returns it."""
    place = rng.randrange(len(values))
    values[place], values[-1] = values[-1], values[place]
    return values.pop()


class _Skewed:
    """Picks users 1..count, a few of them much more often than most."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self._rng = rng
        self._weights: Sequence[float] = list(accumulate((rank + 10) ** -_SKEW for rank in range(count)))
        self._users = list(range(1, count + 1))
        rng.shuffle(self._users)

    def pick(self) -> int:
        return self._users[bisect(self._weights, self._rng.random() * self._weights[-1])]
