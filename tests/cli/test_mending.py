"""repair: every kind of finding is mended through the writers; dry runs, the audit log, kills."""

import json
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from feedstore.following import FEEDS, columns, mutations, row_key
from feedstore.widecolumn import Put
from tests.cli.command import Cli, eventually
from tests.cli.test_repair import lose_deliveries

KINDS = ["differs", "displaced", "extra", "masked", "masked", "unknown user"]


def lines(output: str) -> Iterator[dict[str, object]]:
    return (json.loads(line) for line in output.splitlines())


def spoil(cli: Cli, cluster: str = "b", marker_ms: int | None = None) -> None:
    """One fault of every kind that a writer must mend. marker_ms: the time of the highest marker."""
    with cli.ports(access="write") as ports:
        now_ms = ports.follows.now()
        wrong = bytes([row_key(1)[0] ^ 1]) + row_key(1)[1:]
        ports.replicas[cluster].tables[FEEDS].apply(
            [
                mutations.remove([(1, now_ms)], [(6, 1_010)]),
                mutations.remove([(1, marker_ms or now_ms)], [(1, 1_001)]),
                mutations.put([(1, now_ms)], [(7, 1_020), (5, 999)]),
                mutations.put([(404, 1)], [(6, 1_010)]),
                Put([(wrong, 7)], columns([(6, 1_010)])),
            ]
        )


def test_repair_mends_every_kind_and_notes_it(filled: Cli, tmp_path: Path) -> None:
    spoil(filled)
    found = list(lines(filled("verify", "--json", code=1).stdout))[:-1]
    assert sorted(each["kind"] for each in found) == KINDS

    audit = tmp_path / "audit.jsonl"
    done = filled("repair", "--audit", audit)

    assert "6 entries repaired, 0 differences left" in done.stderr
    assert "no difference" in filled("verify").stderr
    assert filled.export("b") == filled.export("a")
    noted = list(lines(audit.read_text()))
    assert {(each["kind"], each["pin"], each["why"]) for each in noted} == {
        (each["kind"], each["pin"], each["why"]) for each in found
    }
    assert all(each["done"] for each in noted)
    before = audit.read_text()
    assert "0 entries repaired, 0 differences left" in filled("repair", "--audit", audit).stderr
    assert audit.read_text() == before


def test_a_dry_run_says_what_it_would_do_and_does_nothing(filled: Cli) -> None:
    spoil(filled)
    before = filled("verify", "--json", code=1).stdout

    said = list(lines(filled("repair", "--dry-run", "--json", code=1).stdout))

    assert sorted(each["kind"] for each in said) == KINDS
    assert {each["done"].split()[0] for each in said} == {"a", "the"}  # type: ignore[attr-defined]
    assert filled("verify", "--json", code=1).stdout == before
    assert not (filled.home / "repairs.jsonl").exists()


def test_what_is_missing_is_refilled_in_its_cluster(filled: Cli) -> None:
    filled("follow", 9, "--user", 2)
    lose_deliveries(filled, "b")
    filled.work()
    assert "0 differences left" in filled("repair", "--cluster", "a").stderr
    assert "5 differences" in filled("verify", code=1).stderr
    assert "0 differences left" in filled("repair", "--users", "1-8").stderr
    assert "5 differences" in filled("verify", code=1).stderr

    assert "5 entries repaired" in filled("repair", "--cluster", "b", "--users", "9").stderr

    assert "no difference" in filled("verify").stderr


def test_one_deletion_is_enough_for_a_gap_after_a_backfill(cli: Cli) -> None:
    """A backfill brings what a reader can reach, and no slack. Both clusters are right by what they were given."""
    cli.set("cap", "3")
    cli.set("slack", "2")
    for pin in range(1, 6):
        cli("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", 1_000 + pin)
    cli.work()
    cli("follow", 1, "--user", 2)
    cli.work()
    cli("delete-pin", 5)
    cli.work()

    found = list(lines(cli("verify", "--json", code=1).stdout))[:-1]

    assert [(each["cluster"], each["kind"], each["pin"]) for each in found] == [
        ("a", "missing", 2),
        ("b", "missing", 2),
    ]
    cli("repair")
    assert "no difference" in cli("verify").stderr
    assert cli.feed(1) == [4, 3, 2]


def test_a_marker_ahead_of_the_clock_is_left_and_said(filled: Cli) -> None:
    with filled.ports() as ports:
        ahead_ms = ports.follows.now() + 3_600_000
    spoil(filled, marker_ms=ahead_ms)

    left = filled("repair", code=1)

    assert f"repair again once that clock is past {ahead_ms} ms" in left.stdout
    assert "1 difference left" in left.stderr
    assert [each.get("pin") for each in lines(filled("verify", "--json", code=1).stdout)] == [1, None]


def test_a_cluster_that_was_not_compared_is_never_called_right(filled: Cli) -> None:
    """Later rounds read only the rows of findings, which may be far from the damage."""
    _flip_a_byte_far_from_everything_else(filled, "b")
    with filled.ports(access="write") as ports:
        ports.replicas["a"].tables[FEEDS].apply([mutations.put([(1, ports.follows.now())], [(7, 1_020)])])
    assert "b  damaged" in filled("verify", code=1).stdout

    done = filled("repair", code=1)

    assert "1 entry repaired, 1 difference left" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("b  damaged: ")
    assert "no difference" in filled("verify", "--cluster", "a").stderr


def test_rebuild_names_what_it_cannot_mend(filled: Cli) -> None:
    spoil(filled)
    left = filled("rebuild", 1, "--cluster", "b", code=1).stderr
    assert f"4 differences left that a refill does not mend: {filled.hint('repair --cluster b --users 1')}" in left
    assert "6 differences left" in filled("rebuild", "--all", code=1).stderr

    began = time.monotonic()
    filled("repair", "--rate", 3)
    assert time.monotonic() - began >= 6 / 3

    # What was removed comes back with a later follow.
    filled("follow", 1, "--board", 30)
    filled("rebuild", "--all")
    assert filled.feed(1)[0] == 7


@pytest.mark.processes
def test_repair_beside_a_running_worker(filled: Cli) -> None:
    spoil(filled)
    with filled.worker():
        assert "0 differences left" in filled.process("repair").stderr
        assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_a_killed_repair_is_finished_by_the_next(filled: Cli) -> None:
    spoil(filled)
    audit = filled.home / "repairs.jsonl"
    process = filled.spawn("repair", "--rate", 1)
    eventually(lambda: process.poll() is not None or (audit.exists() and audit.stat().st_size), "it mends")
    process.kill()
    process.communicate()
    filled.process("repair")
    assert "no difference" in filled("verify").stderr
    assert filled.export("b") == filled.export("a")


@pytest.mark.parametrize("is_emptied", [False, True])
def test_no_empty_follow_store_is_made_under_feeds(filled: Cli, *, is_emptied: bool) -> None:
    """By such a store every feed would be wrong, and a repair would empty them."""
    _lose_follows(filled, is_emptied=is_emptied)

    for command in (("migrate",), ("work", "--until-idle"), ("status",)):
        assert "data/follows.db: it has no tables" in filled(*command, code=2).stderr or not is_emptied
    said = filled("schema", "apply", code=1).stderr

    assert "data/follows.db: missing from the follow store, and there are feeds of it in a and b" in said
    assert filled.hint("schema apply --empty") in said
    assert (filled.home / "data/follows.db").exists() == is_emptied
    assert filled.feed(1), "pages of ids are served"
    filled("schema", "apply", "--empty")
    assert (filled.home / "data/follows.db").exists()


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_missing_follow_store_is_made_if_no_feeds_are_known(cli: Cli, *, is_emptied: bool) -> None:
    _lose_follows(cli, is_emptied=is_emptied)
    assert "its tables are up to date" in cli("schema", "apply").stderr
    cli("follow", 1, "--user", 2)


def test_no_empty_follow_store_is_made_while_a_cluster_that_may_have_feeds_does_not_answer(filled: Cli) -> None:
    _lose_follows(filled, is_emptied=False)
    (filled.home / "data/a").rename(filled.home / "data/c")
    filled.change("rocksdb:data/b", "hbase://127.0.0.1:1/")

    said = filled("schema", "apply", code=3).stderr

    assert "there may be feeds of it in a cluster that does not answer" in said
    assert filled.hint("schema apply --empty") in said
    assert not (filled.home / "data/follows.db").exists()


def _flip_a_byte_far_from_everything_else(cli: Cli, cluster: str) -> None:
    """The middle of the file has nothing but rows with one first byte: no witness and no row of user 1."""
    users = list(islice((user for user in count(500) if row_key(user)[0] == 0x78), 20))
    pins = [(1_000 + n, 2_000 + n) for n in range(999)]
    with cli.ports(access="write") as ports:
        feeds = ports.replicas[cluster].tables[FEEDS]
        feeds.apply([mutations.put([(user, 1) for user in users], pins)])
        feeds.sweep(1)
    file = max((cli.home / "data" / cluster).glob("*.sst"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def _lose_follows(cli: Cli, *, is_emptied: bool) -> None:
    """is_emptied: whether the file is there without what was in it, as a file system may leave it after a crash."""
    for file in (cli.home / "data").glob("follows.db*"):
        file.unlink()
    if is_emptied:
        (cli.home / "data/follows.db").touch()
