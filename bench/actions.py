"""Actions as a file of JSON lines: reading them, making them of a trace of activities, and making some where no file is
given.
"""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

START_MS = 1_700_000_000_000
"""When the generated activity begins."""


class Follow(msgspec.Struct, tag_field="type", tag="follow"):
    ts: int
    follower: int
    user: int | None = None
    board: int | None = None


class Unfollow(msgspec.Struct, tag_field="type", tag="unfollow"):
    ts: int
    follower: int
    user: int | None = None
    board: int | None = None


class SavePin(msgspec.Struct, tag_field="type", tag="save_pin"):
    ts: int
    pin: int
    owner: int
    board: int


class DeletePin(msgspec.Struct, tag_field="type", tag="delete_pin"):
    ts: int
    pin: int


Action = Follow | Unfollow | SavePin | DeletePin

_decoder = msgspec.json.Decoder(Action)


def read(path: Path) -> Iterator[Action]:
    with path.open("rb") as lines:
        for line in lines:
            yield _decoder.decode(line)


def generate(size: int, seed: int) -> Iterator[dict[str, Any]]:
    """About `size` actions of users who act on each other, a few of them on many and many on a few.

    The first time that one acts on another, it follows them; every fifth repetition unfollows, and the next follows
    again. Every activity saves a pin, one in a hundred deletes one. Same size and seed: same actions.
    """
    rng = random.Random(seed)
    users = max(100, size // 4)
    following: set[tuple[int, int]] = set()
    latest: dict[int, int] = {}
    repeats = pin = made = 0
    ts = START_MS
    while made < size:
        # Both are skewed, but those who are followed most are not those who save most.
        actor = 1 + int(users * rng.random() ** 2) * 7_919 % users
        popular = latest.get(actor, 0) if rng.random() < 0.3 else 0
        popular = latest[actor] = popular or 1 + int(users * rng.random() ** 3)
        ts += rng.randrange(2_000)
        if actor != popular:
            edge = {"ts": ts, "follower": actor, "user": popular}
            if (actor, popular) not in following:
                following.add((actor, popular))
                yield {"type": "follow", **edge}
                made += 1
            else:
                repeats += 1
                if repeats % 5 == 0:
                    following.discard((actor, popular))
                    yield {"type": "unfollow", **edge}
                    made += 1
        pin += 1
        owner = popular if rng.random() < 0.02 else actor
        yield {"type": "save_pin", "ts": ts, "pin": pin, "owner": owner, "board": owner * 4 + rng.randrange(3)}
        made += 1
        if pin % 100 == 0:
            yield {"type": "delete_pin", "ts": ts, "pin": rng.randrange(1, pin + 1)}
            made += 1


BOARDS = {"RT": 0, "MT": 1, "RE": 2}
"""Which of a user's boards an activity goes to, by its kind."""


def of_activities(lines: Iterable[str], unfollow_every: int) -> Iterator[dict[str, Any]]:
    """What users do in a trace of activities, `actor other seconds kind` in each line (the Higgs dataset's format).

    The first activity of one user on another is a follow, and the `unfollow_every`-th further one, counted over all of
    them, an unfollow, after which the next follows again; 0 for no unfollows. Every activity saves a pin on the board
    that the actor keeps for activities of its kind.
    """
    following: set[tuple[int, int]] = set()
    further = 0
    for pin, line in enumerate(lines, start=1):
        words = line.split()
        actor, other, ts, kind = int(words[0]), int(words[1]), int(words[2]) * 1_000, BOARDS[words[3]]
        edge = {"ts": ts, "follower": actor, "user": other}
        if actor != other and (actor, other) not in following:
            following.add((actor, other))
            yield {"type": "follow", **edge}
        elif actor != other:
            further += 1
            if unfollow_every and further % unfollow_every == 0:
                following.remove((actor, other))
                yield {"type": "unfollow", **edge}
        yield {"type": "save_pin", "ts": ts, "pin": pin, "owner": actor, "board": 4 * actor + kind}


def write_generated(path: Path, size: int) -> None:
    with path.open("w") as out:
        for action in generate(size, seed=1):
            out.write(json.dumps(action, separators=(",", ":")) + "\n")
