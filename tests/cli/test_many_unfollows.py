"""A user who unfollows thousands in one go, while others do as always."""

import json

import pytest

from tests.cli.command import Cli

FOLLOWED = range(1_000, 4_500)
KEPT = FOLLOWED[-1]


@pytest.mark.processes
def test_thousands_of_unfollows_at_once_leave_what_is_followed_in_every_feed(cli: Cli) -> None:
    pins = [
        {"type": "save_pin", "ts": 1_341_100_000_000 + each, "pin": each, "owner": each, "board": each}
        for each in FOLLOWED
    ]
    follows = [{"type": "follow", "ts": 1, "follower": 1, "user": each} for each in FOLLOWED]
    others = [{"type": "follow", "ts": 1, "follower": 2, "user": each} for each in (FOLLOWED[0], KEPT)]
    replay(cli, [*pins, *follows, *others])
    cli.process("work", "--until-idle")

    unfollows = [{"type": "unfollow", "ts": 2, "follower": 1, "user": each} for each in FOLLOWED if each != KEPT]
    new = {"type": "save_pin", "ts": 1_341_200_000_000, "pin": 9_001, "owner": FOLLOWED[0], "board": FOLLOWED[0]}
    replay(cli, [*unfollows[:1_700], new, *unfollows[1_700:]])
    cli.process("work", "--until-idle")

    assert json.loads(cli("verify", "--json").stdout)["differences"] == 0
    assert entries(cli, 1) == [KEPT]
    assert entries(cli, 2) == [9_001, KEPT, FOLLOWED[0]]


def replay(cli: Cli, actions: list[dict[str, object]]) -> None:
    cli("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))


def entries(cli: Cli, user: int) -> list[int]:
    return [pin for pin, _ in cli.json("feed", user)["entries"]]
