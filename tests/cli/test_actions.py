"""follow, unfollow, save-pin, delete-pin, replay."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from feedstore.domain import MAX_ID, RESERVED_FROM, PinSaved
from feedstore.follows.port import actions_in
from tests.cli.command import Cli
from workers.app.replay import MAX_LINE_BYTES


def test_actions_reach_the_feed(cli: Cli) -> None:
    cli("follow", 1, "--user", 2)
    cli("follow", 1, "--board", 31)
    cli("save-pin", 7, "--owner", 2, "--board", 20, "--created-ms", 1_000)
    cli("save-pin", 8, "--owner", 3, "--board", 31, "--created-ms", 2_000)
    cli("save-pin", 9, "--owner", 3, "--board", 30, "--created-ms", 3_000)
    cli.work()
    assert cli.feed(1) == [8, 7]

    cli("unfollow", 1, "--board", 31)
    cli("delete-pin", 7)
    cli("save-pin", 10, "--owner", 2, "--board", 20)
    cli.work()
    assert cli.feed(1) == [10]


def test_a_pin_is_saved_again_with_a_key_and_without_a_time(cli: Cli) -> None:
    words = ("save-pin", 7, "--owner", 2, "--board", 20)
    first = cli.json(*words, "--key", "k")
    assert cli.json(*words, "--key", "k") == cli.json(*words) == first


def test_json_tells_what_was_recorded(cli: Cli) -> None:
    recorded = cli.json("follow", 1, "--user", 2)

    assert recorded.pop("ts") == recorded.pop("committed_ms") > 0
    assert recorded == {"type": "follow", "follower": 1, "followee": {"kind": "user", "id": 2}}
    assert cli.json("save-pin", 7, "--owner", 2, "--board", 20)["type"] == "save_pin"
    assert cli.json("delete-pin", 7)["type"] == "delete_pin"
    assert cli.json("unfollow", 1, "--user", 2)["type"] == "unfollow"


def test_a_key_makes_repetition_harmless(cli: Cli) -> None:
    first = cli.json("follow", 1, "--user", 2, "--key", "k")

    assert cli.json("follow", 1, "--user", 2, "--key", "k") == first
    assert "key_reused" in cli("follow", 1, "--user", 3, "--key", "k", code=1).stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["delete-pin", 404], "pin_unknown"),
        (["save-pin", 1, "--owner", 2, "--board", 20, "--created-ms", 9], "pin_differs"),
        (["save-pin", 9, "--owner", 5, "--board", 20], "board_of_another_owner"),
        (["save-pin", 9, "--owner", 2, "--board", 20, "--created-ms", 10**15], "pin_in_the_future"),
    ],
)
def test_a_refused_action_says_why(filled: Cli, words: list[object], reason: str) -> None:
    assert reason in filled(*words, code=1).stderr
    assert json.loads(filled(*words, "--json", code=1).stdout)["refused"] == reason


@pytest.mark.parametrize(
    "words",
    [
        ["follow", 0, "--user", 2],
        ["follow", 1, "--user", 2**63],
        ["follow", 1],
        ["follow", 1, "--user", 2, "--board", 3],
        ["follow", 1, "--user", 1],
        ["save-pin", 1, "--owner", 2],
        ["follow", 1, "--user", 2, "--key", ""],
    ],
)
def test_a_wrong_command_line_is_usage(cli: Cli, words: list[object]) -> None:
    result = cli(*words, code=2)

    assert "Error: " in result.stderr
    assert not result.stdout


def test_replay_reports_bad_lines_by_number_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    good = {"type": "follow", "ts": 1, "follower": 1, "user": 2}
    pin = {"type": "save_pin", "ts": 1_000, "pin": 1, "owner": 2, "board": 20}
    lines = [
        json.dumps(good),
        "{",
        "[]",
        json.dumps(good | {"type": "like"}),
        json.dumps(good | {"follower": "1"}),
        json.dumps(good | {"follower": 0}),
        json.dumps(good | {"user": 1}),
        json.dumps(good | {"board": 7}),
        json.dumps({"type": "follow", "ts": 1, "follower": 1}),
        json.dumps(pin | {"pad": "x" * MAX_LINE_BYTES}),
        json.dumps(pin | {"pad": "x" * 9 * MAX_LINE_BYTES}),
        "",
        json.dumps({"type": "delete_pin", "ts": 1, "pin": 404}),
        json.dumps(pin),
        json.dumps({"type": "unfollow", "ts": 1, "follower": 1, "board": 20}),
        "\ufffd",
        json.dumps(pin | {"pin": 2, "ts": 1_001}),  # and no newline at the end
    ]
    file = tmp_path / "actions.jsonl"
    file.write_text("\n".join(lines))

    result = cli("replay", file, "--json", code=1)

    assert json.loads(result.stdout) == {"lines": 17, "recorded": 4, "bad": 12}
    reported = {int(line.split(":")[0].removeprefix("line ")) for line in result.stderr.splitlines()}
    assert reported == {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16}
    cli.work()
    assert cli.feed(1) == [2, 1]


def test_replay_gives_every_line_the_same_whatever_the_chunks(cli: Cli) -> None:
    """Lines are cut out of blocks: their numbers and contents do not depend on where the blocks end."""
    lines = [json.dumps({"type": "save_pin", "ts": n, "pin": n, "owner": 2, "board": 20}) for n in range(1, 9_001)]
    lines[4_321] = "no"

    result = cli("replay", "-", "--json", stdin="\n".join(lines) + "\n", code=1)

    assert json.loads(result.stdout) == {"lines": 9_000, "recorded": 8_999, "bad": 1}
    assert result.stderr.startswith("line 4322: not JSON")


def test_a_file_is_recorded_in_few_transactions_in_the_order_of_its_lines(cli: Cli, tmp_path: Path) -> None:
    """Rows are written in the order of their keys; the outbox keeps that of the lines."""
    pins = list(range(1, 20_001))
    random.Random(5).shuffle(pins)
    file = tmp_path / "actions.jsonl"
    lines = [json.dumps({"type": "save_pin", "ts": pin, "pin": pin, "owner": 2, "board": 20}) for pin in pins]
    refused = {"type": "save_pin", "ts": 1, "pin": 20_001, "owner": 3, "board": 20}
    lines.insert(15_000, json.dumps(refused))
    file.write_text("\n".join(lines))

    replayed = cli("replay", file, code=1)

    assert replayed.stderr.startswith("line 15001: board_of_another_owner")
    with cli.ports() as ports:
        rows = ports.follows.unrelayed(20_001)
        assert [action.pin.pin for action in actions_in(rows) if isinstance(action, PinSaved)] == pins
        stored = ports.follows.pins(pins)
        assert {pin: state.pin.created_ms for pin, state in stored.items()} == {pin: pin for pin in pins}
    with closing(sqlite3.connect(cli.home / "data" / "follows.db")) as database:
        (transactions,) = database.execute("SELECT count(DISTINCT committed_ms) FROM outbox").fetchone()
    assert transactions <= 4


def test_rule_2_replayed_follows_get_the_stores_clock_in_the_order_of_the_file(cli: Cli) -> None:
    actions = [
        {"type": "save_pin", "ts": 1_000, "pin": 1, "owner": 2, "board": 20},
        {"type": "unfollow", "ts": 9_000, "follower": 1, "user": 2},
        {"type": "follow", "ts": 1, "follower": 1, "user": 2},
    ]
    with cli.ports() as ports:
        before_ms = ports.follows.now()

    cli("replay", "-", stdin="\n".join(map(json.dumps, actions)))

    with cli.ports() as ports:
        [edge] = ports.follows.following(1)
        assert edge.ts >= before_ms
        assert ports.follows.pins([1])[1].pin.created_ms == 1_000
    cli.work()
    assert cli.feed(1) == [1]


def test_replay_goes_on_from_a_line(cli: Cli) -> None:
    lines = [json.dumps({"type": "follow", "ts": 1, "follower": n, "user": 99}) for n in range(1, 6)]

    result = cli("replay", "-", "--from-line", 4, "--json", stdin="\n".join(lines))

    assert json.loads(result.stdout)["recorded"] == 2
    with cli.ports() as ports:
        assert [each.follower for each in ports.follows.all_edges_after(None, 10)] == [4, 5]


def test_a_replay_from_behind_the_end_of_a_file_is_said(cli: Cli) -> None:
    lines = "".join(f'{{"type":"follow","ts":{n},"follower":1,"user":{n + 1}}}\n' for n in range(1, 4))
    assert "there are only 3 lines" in cli("replay", "-", "--from-line", 5, stdin=lines, code=2).stderr
    assert "0 actions recorded" in cli("replay", "-", "--from-line", 4, stdin=lines).stderr, "one stopped at the end"


def test_a_file_that_is_missing_is_usage(cli: Cli, tmp_path: Path) -> None:
    assert "nowhere.jsonl" in cli("replay", tmp_path / "nowhere.jsonl", code=2).stderr


def test_the_ids_of_the_canaries_are_refused_at_every_door(cli: Cli) -> None:
    first = RESERVED_FROM
    for words in (
        ("follow", first, "--user", 2),
        ("unfollow", 1, "--board", first),
        ("save-pin", 7, "--owner", first, "--board", 3),
        ("delete-pin", MAX_ID),
    ):
        assert "canaries" in cli(*words, code=2).stderr
    lines = [
        {"type": "follow", "ts": 1, "follower": first, "user": 2},
        {"type": "save_pin", "ts": 1, "pin": 7, "owner": 2, "board": MAX_ID},
        {"type": "follow", "ts": 1, "follower": first - 1, "user": first - 2},
    ]
    replayed = cli("replay", "-", stdin="".join(f"{json.dumps(line)}\n" for line in lines), code=1)
    assert replayed.stderr.count("canaries") == 2
    counts = cli.json("status")["counts"]
    assert (counts["edges_active"], counts["pins"]) == (1, 0)
