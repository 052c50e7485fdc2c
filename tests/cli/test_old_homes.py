"""A home that an earlier version made, with work in every place where it can wait: an upgrade loses none of it.

`homes/457bbbec.tar.xz` was made by commit 457bbbec, whose clock was set to November 2023: tables of version 3, a
message for each action, a delivery for each block, and a note in the cluster for each delivery that is parked.

Users 1, 4 and 5 follow user 2, user 3 follows board 20, and 4 unfollows. Of the pins 1 to 13 on that board, 3 was
deleted. The follow of 5, the unfollow of 4, and pins 11 and 12 are in cluster a; for b, some of that is parked, and the
rest is unread. Pin 13, a follow by user 6, and the deletion of 5 wait in the outbox. One message is among the dead
letters. The limits of the home are so long that nothing in it counts as late.
"""

import tarfile
from pathlib import Path

import pytest

from tests.cli.command import Cli

FEED = [13, 12, 11, 8, 7, 6, 4, 2, 1]
CURSOR = "AcoltmAAAAAAAAAAA3___naEJnv5AAAAAAAAAAY"
"""Behind the first three pins of user 1's feed as it was, which began with pin 8."""


@pytest.fixture
def old(tmp_path: Path) -> Cli:
    with tarfile.open(Path(__file__).parent / "homes" / "457bbbec.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Cli(tmp_path / "home")


def test_until_it_is_migrated_it_is_only_read(old: Cli) -> None:
    for words in (["status"], ["work", "--until-idle"], ["follow", 9, "--user", 2], ["verify"], ["dead", "list"]):
        assert old.hint("migrate") in old(*words, code=2).stderr
    assert old.hint("migrate") in old("check", code=2).stdout
    assert old.feed(1) == [12, 11, 8, 7, 6, 5, 4, 2, 1]


def test_all_that_was_acknowledged_lands_once(old: Cli) -> None:
    old("migrate")
    waits = old.json("status", code=1)["groups"]
    assert waits == {"relay": 3, "expander": 0, "writer-a": 0, "retries-a": 3, "writer-b": 12, "retries-b": 3}

    old.work()

    for cluster in ("a", "b"):
        feeds = {user: [pin for pin, _ in entries] for user, entries in old.export(cluster).items()}
        assert feeds == dict.fromkeys((1, 3, 5, 6), FEED)
        holds = old.json("status", code=1)["clusters"][cluster]["holds"]
        assert set(holds.values()) == {0}
    assert "no difference" in old("verify").stderr
    assert old.json("dead", "list")["reason"] == "malformed"
    assert old.json("status", code=1)["dead_letters"] == 1


def test_its_cursors_lead_on(old: Cli) -> None:
    old("migrate")
    old.work()
    assert [pin for pin, _ in old.json("feed", 1, "--cursor", CURSOR)["entries"]] == [4, 2, 1]
