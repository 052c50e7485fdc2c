"""The demonstration: what it says is checked, and it says so where something does not hold."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from click.testing import CliRunner

from feedstore.replicas.watermarks import Watermarks
from feedstore.widecolumn import UnavailableError
from tests.cli.command import FEEDCTL, Cli, eventually
from workers.app import home, replay, wiring
from workers.cli import demo, main
from workers.cli.demonstration import Console, Demo
from workers.cli.session import TryLaterError
from workers.following import synthetic_actions
from workers.following.synthetic_actions import Shape
from workers.following.verify import Finding, Seen, Verifier

CLAIMS = 8


def test_every_promise_holds_on_a_small_graph(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "kept here")

    said = cli("demo", "--users", 60, "--count", 1_500, "--seed", 7)

    assert said.stdout.count("\N{CHECK MARK}") == CLAIMS
    assert "Everything held" in said.stdout
    assert "\\x" not in said.stdout, "no escape of ours is shown as text"
    assert f"kept in {cli.home}: {cli.hint('status')}\n" in said.stderr
    assert "no difference" in cli("verify").stderr
    assert cli.export("a") == cli.export("b") != {}


def test_it_takes_actions_of_ones_own_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "actions.jsonl"
    lines = [
        json.dumps(replay.line(action, 5)) for action in synthetic_actions.actions(Shape(40, 1_200, 3), 1_000, 9_000)
    ]
    file.write_text("\n".join(lines))

    result = CliRunner().invoke(main, ["demo", "--actions", str(file)])

    assert result.exit_code == 0, result.stderr
    assert "1,200 actions recorded" in result.stdout
    assert list((tmp_path / "tmp").glob("feed-demo-*")) == []


@pytest.mark.processes
def test_a_demo_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = {**os.environ, "TMPDIR": str(tmp_path)}
    process = Popen([sys.executable, "-c", FEEDCTL, "demo"], env=temporary, stdout=DEVNULL, stderr=PIPE)
    eventually(lambda: list(tmp_path.glob("feed-demo-*/home/feed.toml")), "the home is there")
    process.terminate()
    _, stderr = process.communicate(timeout=60)

    assert (process.returncode, stderr.splitlines()[-1]) == (3, b"Error: stopped by SIGTERM")
    assert not list(tmp_path.glob("feed-demo-*"))


def test_a_demo_that_is_stopped_while_it_opens_its_clusters_closes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise TryLaterError("stopped by SIGTERM")

    monkeypatch.setattr(Watermarks, "wait", stopped)
    config = home.create(tmp_path / "home", {})
    ports = wiring.open_ports(config, "write")
    with pytest.raises(TryLaterError):
        Demo(config, ports, Console())
    for replica in ports.replicas.values():
        with pytest.raises(UnavailableError, match="closed"):
            replica.progress.scan()


def test_a_demo_that_is_stopped_inside_of_an_import_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except TryLaterError:
            raise KeyError("what the import had noted") from None

    monkeypatch.setattr(demo, "run", importing)
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (3, "Error: stopped by SIGTERM")


def test_boards_of_one_pin_are_not_arranged(tmp_path: Path) -> None:
    file = tmp_path / "actions.jsonl"
    lines = [replay.line(action, 5) for action in synthetic_actions.actions(Shape(40, 1_200, 3), 1_000, 9_000)]
    lines = [line | {"board": 10_000 + line["pin"]} if line["type"] == "save_pin" else line for line in lines]
    file.write_text("\n".join(map(json.dumps, lines)))

    said = Cli(tmp_path / "home")("demo", "--actions", str(file))

    assert "left out: no board" in said.stdout
    assert said.stdout.count("\N{CHECK MARK}") == CLAIMS - 2


def test_a_promise_that_does_not_hold_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Finding(1, "a", "extra", 2, 3, 4, b"", "for no known reason")
    monkeypatch.setattr(Verifier, "look", lambda self: iter([Seen(1, 1, 1, 1, [wrong])]))

    result = Cli(tmp_path / "home")("demo", "--users", 60, "--count", 1_500, "--seed", 7, code=1)

    assert "this does not hold" in result.stderr
    assert "Everything held" not in result.stdout


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([], "no user follows two others and has a feed: give --actions with more, or --users and --count"),
        (
            [
                *({"type": "follow", "ts": 1, "follower": 1, "user": user} for user in (2, 3)),
                {"type": "follow", "ts": 1, "follower": 1, "board": 8},
                {"type": "save_pin", "ts": 1_000, "pin": 7, "owner": 2, "board": 8},
            ],
            "each entry of user 1 comes from several followees: give --actions with more, or --users and --count",
        ),
    ],
)
def test_actions_with_which_nothing_can_be_shown_are_said(
    tmp_path: Path, actions: list[dict[str, object]], said: str
) -> None:
    file = tmp_path / "actions.jsonl"
    file.write_text("\n".join(map(json.dumps, actions)))
    assert said in Cli(tmp_path / "home")("demo", "--actions", file, code=1).stderr


def test_the_graph_is_the_same_for_the_same_seed_and_skewed() -> None:
    shape = Shape(users=500, actions=20_000, seed=1)
    made = list(synthetic_actions.actions(shape, 1, 1_000_000))

    assert made == list(synthetic_actions.actions(shape, 1, 1_000_000))
    assert made != list(synthetic_actions.actions(Shape(500, 20_000, 2), 1, 1_000_000))
    assert len(made) == 20_000
    kinds = Counter(type(action).__name__ for action in made)
    assert set(kinds) == {"Follow", "Unfollow", "SavePin", "DeletePin"}
    owners = Counter(action.pin.owner for action in made if hasattr(action, "pin") and not isinstance(action.pin, int))
    most = sum(count for _, count in owners.most_common(50))
    assert most > 0.2 * sum(owners.values())
