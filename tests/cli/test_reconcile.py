"""A shard of the follow store comes back from a copy: reconcile makes the shards agree, repair mends the feeds."""

import json
import random
import shutil
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from feedstore.follows.port import FollowStoreUnavailableError, RecordCounts
from feedstore.follows.store import FollowStore
from tests.cli.command import Cli
from workers.app import wiring
from workers.app.rebuild import pass_over
from workers.following.groups import EXPANDER
from workers.following.topics import ACTIONS

USERS, FOLLOWEES, SHARDS = range(1, 9), range(11, 27), 3


def actions(rng: random.Random, first_pin: int) -> str:
    """Lines for `feedctl replay`: follows, unfollows and pins of few people, each on boards of their own."""
    lines: list[dict[str, object]] = []
    for number in range(first_pin, first_pin + 60):
        owner = rng.choice(FOLLOWEES)
        lines.append({"type": "save_pin", "ts": 1_000 + number, "pin": number, "owner": owner, "board": owner * 10})
        kind, followee = rng.choice([("user", rng.choice(FOLLOWEES)), ("board", rng.choice(FOLLOWEES) * 10)])
        act = rng.choice(["follow", "follow", "follow", "unfollow"])
        lines.append({"type": act, "ts": 1, "follower": rng.choice(USERS), kind: followee})
        if rng.random() < 0.1:
            lines.append({"type": "delete_pin", "ts": 1, "pin": rng.randrange(first_pin, number + 1)})
    return "\n".join(map(json.dumps, lines))


@pytest.fixture
def shards(cli: Cli) -> list[Path]:
    """The files of the home's follow store, which has three shards."""
    paths = [cli.home / "data" / f"follows-{number}.db" for number in range(SHARDS)]
    names = [f"sqlite:data/{path.name}" for path in paths]
    cli.change('shards = ["sqlite:data/follows.db"]', f"shards = {json.dumps(names)}")
    cli("schema", "apply")
    return paths


def replayed(cli: Cli, lines: str) -> None:
    cli("replay", "-", stdin=lines)
    cli.work()


def test_feeds_are_right_again_and_stay_so_after_a_shard_came_back_from_a_copy(cli: Cli, shards: list[Path]):
    rng = random.Random(7)
    replayed(cli, actions(rng, 1))
    copies = [shutil.copy(path, path.with_suffix(".copy")) for path in shards]
    replayed(cli, actions(rng, 101))
    cli("verify")
    shutil.copy(copies[1], shards[1])

    assert "or more would be written" in cli("reconcile", "--dry-run", code=1).stdout
    assert "brought back" in cli("reconcile").stdout
    assert json.loads(cli("reconcile", "--dry-run", "--json").stdout)["written"] is False
    cli("repair")
    replayed(cli, actions(rng, 201))
    cli("verify")
    pins = ({"type": "save_pin", "ts": 1, "pin": 1_000 + who, "owner": who, "board": who * 10} for who in FOLLOWEES)
    replayed(cli, "\n".join(map(json.dumps, pins)))
    cli("verify")


def test_without_it_pins_go_to_the_wrong_feeds(cli: Cli, shards: list[Path]):
    """What the command is for: repair alone mends the feeds only until the next pin."""
    cli("follow", 1, "--user", 11)
    cli.work()
    copies = [shutil.copy(path, path.with_suffix(".copy")) for path in shards]
    for user in USERS:
        cli("follow", user, "--user", 12)
    cli.work()
    for copy, path in list(zip(copies, shards, strict=True))[:2]:
        shutil.copy(copy, path)
    cli("repair")
    cli("save-pin", 500, "--owner", 12, "--board", 120)
    cli.work()
    cli("verify", code=1)
    cli("reconcile")
    cli("repair")
    cli("save-pin", 501, "--owner", 12, "--board", 120)
    cli.work()
    cli("verify")


def test_a_lost_pin_that_is_saved_again_before_the_repair_is_in_the_feeds(cli: Cli) -> None:
    lost = lose_a_pin(cli)

    cli(*lost)
    cli.work()

    assert "no difference" in cli("verify").stderr
    assert "0 entries repaired" in cli("repair").stderr
    assert cli.feed(1) == [8, 7]


def test_a_lost_pin_that_is_saved_again_after_the_repair_needs_another_one(cli: Cli) -> None:
    """The first repair has left markers at the time of the follow, and the pin comes again with that time."""
    lost = lose_a_pin(cli)
    cli("repair")
    assert cli.feed(1) == [7]

    cli(*lost)
    cli.work()

    assert cli.feed(1) == [7]
    assert [(each["kind"], each["pin"]) for each in found(cli)] == [("masked", 8), ("masked", 8)]
    cli("repair")
    assert "no difference" in cli("verify").stderr
    assert cli.feed(1) == [8, 7]
    assert cli.export("a") == cli.export("b")


def lose_a_pin(cli: Cli) -> list[object]:
    """Brings the follow store back from a copy that has pin 7, and not pin 8 that is in the feed of user 1, too. Gives
    the command that had saved pin 8.
    """
    path = cli.home / "data" / "follows.db"
    save_pin: list[object] = ["save-pin", 8, "--owner", 2, "--board", 20, "--created-ms", 2_000]
    cli("follow", 1, "--user", 2)
    cli("save-pin", 7, "--owner", 2, "--board", 20, "--created-ms", 1_000)
    cli.work()
    copy = shutil.copy(path, path.with_suffix(".copy"))
    cli(*save_pin)
    cli.work()
    shutil.copy(copy, path)
    cli("reconcile")
    assert [(each["kind"], each["pin"]) for each in found(cli)] == [("extra", 8), ("extra", 8)]
    return save_pin


def found(cli: Cli) -> list[dict[str, object]]:
    return [json.loads(line) for line in cli("verify", "--json", code=1).stdout.splitlines()[:-1]]


def test_actions_that_were_lost_on_their_way_to_the_expander_come_back(cli: Cli) -> None:
    """As the expander's message says: with their topic they are gone from the queue, and are in no index."""
    cli("save-pin", 7, "--owner", 2, "--board", 8)
    cli("follow", 1, "--user", 2)
    config = configuration.load(cli.home, {})
    with cli.ports(access="write") as ports:
        relay = wiring.relays(ports, config)[0]
        relay.step()
        relay.close()
        assert ports.follows.backlog().actions == 0
        pass_over(ports.queue, ACTIONS, EXPANDER)
    cli.work()
    assert cli.feed(1) == []

    cli("reconcile")
    cli("rebuild", "--all")

    assert cli.feed(1) == [7]
    cli("save-pin", 9, "--owner", 2, "--board", 8)
    cli.work()
    assert cli.feed(1) == [9, 7]
    assert "no difference" in cli("verify").output


def test_a_store_that_is_too_large_to_be_counted_is_compared_all_the_same(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FollowStore) -> RecordCounts:
        raise FollowStoreUnavailableError("timed out")

    replayed(cli, actions(random.Random(7), 1))
    monkeypatch.setattr(FollowStore, "counts", refuse)
    assert "rows compared: no difference" in cli("reconcile").stdout
