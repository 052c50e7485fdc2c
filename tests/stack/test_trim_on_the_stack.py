"""The trim as an operator has it: a cap in `feed.toml` that reaches the tables, `feedctl table`, and the real handlers
around rows that were cut.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from deploy.local import Stack
from feedstore.following import FEEDS
from tests.cli.command import Cli
from tests.stack import homes
from tests.stack.own_home import own_home
from tests.widecolumn.hbase_regions import Regions
from workers.app import wiring
from workers.cli.session import Session
from workers.cli.signals import Stop
from workers.cli.work import all_idle, run_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("trim")]

CAP, SLACK = 20, 5
OLD, NEW = 2, 3
"""Two users: every pin of one is older than all of the other's."""
PINS = 300
REFILLED, NOT_REFILLED = 11, 12
"""Two who follow both of them."""
DELETER, OF_A_DELETER = 4, 13
"""One who deletes pins, and one who follows only that one."""


@pytest.fixture(scope="module")
def real(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A home whose cap was changed after it was made, with rows of more than ten times of that."""
    with own_home(stack, tmp_path_factory.mktemp("trim") / "home") as cli:
        cli.set("cap", str(CAP))
        cli.set("slack", str(SLACK))
        assert_the_cap_reaches_the_tables(cli)
        follows = [
            f'{{"type":"follow","ts":1341100000000,"follower":{user},"user":{owner}}}'
            for user in (REFILLED, NOT_REFILLED)
            for owner in (OLD, NEW)
        ]
        pins = [
            f'{{"type":"save_pin","ts":{1_341_100_000_001 + pin},"pin":{pin},"owner":{owner},"board":{owner}}}'
            for owner in (OLD, NEW)
            for pin in range(owner * 1_000, owner * 1_000 + PINS)
        ]
        # A pin that is expanded before the follow would reach the row through the backfill, which brings no more than
        # the page holds.
        for lines in (follows, pins):
            homes.replay(cli, [line.encode() for line in lines])
            cli.process("work", "--until-idle")
        yield cli


def assert_the_cap_reaches_the_tables(cli: Cli) -> None:
    names = ("cap is 1000, expected 20", "slack is 250, expected 5")
    differences = [f"{cluster}: following_feed: trim {name}" for cluster in homes.CLUSTERS for name in names]
    assert cli("schema", "check", code=1).stdout.splitlines() == differences
    said = cli("schema", "apply").stderr.splitlines()
    changed = [each.replace(": ", ": corrected this difference: ", 1) for each in differences]
    assert said == ["follow store: its tables are up to date", *changed]
    assert "no difference" in cli("schema", "check").stderr


def newest(owner: int) -> list[int]:
    last = owner * 1_000 + PINS
    return list(range(last - 1, last - 1 - CAP, -1))


def table(cli: Cli, *words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("table", *words, "--json", code=code).stdout.splitlines()]


def entries(cli: Cli, cluster: str, user: int) -> int:
    """How many puts the row of a user holds, visible or not."""
    return sum(cell["type"] == "Put" for cell in table(cli, "cells", "following_feed", user, "--cluster", cluster))


def cut(cli: Cli) -> None:
    """As `feedctl table flush` and `major-compact --wait`, without starting Java for each."""
    for cluster in homes.config_of(cli).clusters:
        regions = Regions(cluster.url, FEEDS)
        regions.flush()
        regions.compact(major=True)


def test_a_purge_of_all_that_was_kept_ends_in_the_right_page(real: Cli) -> None:
    """The row holds nothing but what goes: every entry of the page comes with the refill."""
    assert {entries(real, cluster, REFILLED) for cluster in homes.CLUSTERS} == {2 * PINS}
    table(real, "flush", "following_feed")
    table(real, "major-compact", "following_feed", "--wait")
    assert {entries(real, cluster, REFILLED) for cluster in homes.CLUSTERS} == {CAP + SLACK}
    assert real.feed(REFILLED) == newest(NEW)

    real("unfollow", REFILLED, "--user", NEW)
    real.process("work", "--until-idle")
    assert real.feed(REFILLED) == newest(OLD)
    cut(real)
    assert real.feed(REFILLED) == newest(OLD)
    assert "no difference" in real("verify").stderr
    assert homes.exported(real, "a") == homes.exported(real, "b")


class NoRefill:
    """A follow store that forgets who is to be refilled: the guard that the next test takes away."""

    def __init__(self, follows: Any) -> None:
        self._follows = follows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._follows, name)

    def ask_refill(self, users: Sequence[int], cluster: str | None, not_again_within_ms: int) -> int:
        return int(self._follows.now())


def test_without_the_refill_the_page_stays_short(real: Cli) -> None:
    """What shows that the trim did cut, and that nothing but the refill brings it back."""
    cut(real)
    real("unfollow", NOT_REFILLED, "--user", NEW)
    with real.ports(access="write") as opened:
        ports = replace(opened, follows=NoRefill(opened.follows))  # type: ignore[arg-type]
        session, worker = Session(real.home, "error"), wiring.worker(ports, homes.config_of(real))
        run_until(session, all_idle(session, ports, worker), ports, worker, Stop())
    assert "missing" in real("verify", code=1).stdout
    assert real.feed(NOT_REFILLED) == []

    real.process("work", "--until-idle")  # a walk that ended below the cap has asked for it
    assert real.feed(NOT_REFILLED) == newest(OLD)
    assert "no difference" in real("verify").stderr


def test_deletions_that_are_in_memory_count_in_a_compaction_that_is_waited_for(real: Cli) -> None:
    """In memory, their markers are out of the trim's sight: it would count what they mask as live."""
    pins = [
        f'{{"type":"save_pin","ts":{1_341_100_000_001 + pin},"pin":{pin},"owner":{DELETER},"board":{DELETER}}}'
        for pin in range(DELETER * 1_000, DELETER * 1_000 + PINS)
    ]
    deletions = [f'{{"type":"delete_pin","ts":1341100010000,"pin":{pin}}}' for pin in newest(DELETER)[: 2 * SLACK]]
    real("follow", OF_A_DELETER, "--user", DELETER)
    cut(real)  # one file, so that HBase does not compact at the next flush, before the deletions
    regions = Regions(homes.config_of(real).cluster("b").url, FEEDS)
    for lines in (pins, deletions):
        regions.flush()
        homes.replay(real, [line.encode() for line in lines])
        real.process("work", "--until-idle")

    table(real, "major-compact", "following_feed", "--cluster", "b", "--wait")

    assert entries(real, "b", OF_A_DELETER) == CAP + SLACK
    assert "no difference" in real("verify", "--users", OF_A_DELETER, "--cluster", "b").stderr


# What no gateway offers.


def test_regions_files_and_memory_are_shown(real: Cli) -> None:
    table(real, "flush", "following_feed", "--cluster", "b")
    found = table(real, "regions", "following_feed", "--cluster", "b")
    assert [each["start_key"] for each in found] == ["", *(f"{first:x}0" for first in range(1, 16))]
    assert {each["is_open"] for each in found} == {True}
    [files] = table(real, "store-files", "following_feed", "--cluster", "b")
    assert (files["regions"], files["store_files"]) == (16, sum(each["store_files"] for each in found))
    assert files["memstore_mb"] == 0
    [shown] = real("table", "store-files", "following_feed", "--cluster", "b").stdout.splitlines()
    assert shown.startswith("b  table ")


def test_one_region_is_compacted_and_moved(real: Cli) -> None:
    [first, *_] = table(real, "regions", "progress", "--cluster", "a")
    table(real, "flush", "progress", "--cluster", "a")
    [done] = table(real, "major-compact", "progress", "--cluster", "a", "--region", first["region"], "--wait")
    assert (done["region"], done["store_files"]) == (first["region"], 1)
    table(real, "compact", "progress", "--cluster", "a", "--wait")
    assert table(real, "move", first["region"], first["server"], "--cluster", "a")[0]["region"] == first["region"]


def test_what_is_not_there_is_named(real: Cli) -> None:
    ended = real("table", "compact", "following_feed", "--cluster", "a", "--region", "nowhere", code=1)
    said = ended.stderr.splitlines()[-1]  # progress comes before it on a busy machine
    assert said.startswith("Error: a: ")
    assert said.endswith(":following_feed has no region nowhere")
    ended = real("table", "move", "nowhere", "no-server", "--cluster", "a", code=1)
    assert ended.stderr.splitlines()[-1] == "Error: a: a server is host,port,startcode, not no-server"


def test_a_trim_in_hbase_is_only_asked_for(real: Cli) -> None:
    assert [line.partition(":")[0] for line in real("trim").stderr.splitlines()] == ["a", "b"]
