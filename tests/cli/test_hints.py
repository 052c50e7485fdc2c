"""What somebody at a prompt goes by: commands that messages name, the overview, and slips that are refused."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.command import COMMAND_S, Cli
from workers.cli import main, output
from workers.cli.root import SECTIONS


def _said(*words: object) -> str:
    return CliRunner().invoke(main, list(map(str, words))).stderr


def test_commands_in_messages_are_for_the_home_of_the_command(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a command that is copied would be for ./.feed."""
    named = f"feedctl --home {filled.home} work"
    assert _said("--home", filled.home, "follow", 8, "--user", 2).endswith(f": {named}\n")
    assert _said("follow", 8, "--user", 2, "--home", filled.home).endswith(f": {named}\n")
    assert f"first run {named} --until-idle" in _said("--home", filled.home, "verify")
    monkeypatch.setenv("FEED_HOME", str(filled.home))
    assert _said("follow", 8, "--user", 2).endswith(": feedctl work\n"), "the shell has it"


def test_a_home_in_a_copied_command_is_one_word(cli: Cli, tmp_path: Path) -> None:
    spaced = tmp_path / "my home"
    cli.home.rename(spaced)
    said = _said("--home", spaced, "follow", 8, "--user", 2)
    home, command = shlex.split(said.partition("feedctl --home ")[2])
    assert (home, command) == (str(spaced), "work")

    missing = _said("--home", tmp_path / "no home", "status")
    assert shlex.split(missing.partition(" with: ")[2]) == ["feedctl", "--home", str(tmp_path / "no home"), "init"]


@pytest.mark.processes
def test_commands_in_logs_name_the_home_from_the_root_on(filled: Cli) -> None:
    """A log is read elsewhere. Each writer logs in a process of its own."""
    (filled.home / "data" / "b" / "CURRENT").unlink()
    worker = Cli(Path(filled.home.name)).spawn("work", "--until-idle", cwd=filled.home.parent)
    _, stderr = worker.communicate(timeout=COMMAND_S)
    lost = [line["error"] for line in map(_event, stderr.splitlines()) if line.get("event") == "loop.position_lost"]
    assert len(lost) >= 2, "one by the writer, one by the worker"
    assert all(filled.hint("rebuild --all --cluster b") in error for error in lost)


def _event(line: bytes) -> dict[str, str]:
    """{} for a line that is for people."""
    try:
        found: dict[str, str] = json.loads(line)
    except ValueError:
        return {}
    return found


def test_a_process_in_a_message_is_no_command(cli: Cli) -> None:
    assert "feedctl --home" not in cli("clock", "show").stdout


@pytest.mark.parametrize("command", ["", *(name for names in SECTIONS.values() for name in names)])
def test_no_line_of_an_overview_is_cut_off(command: str) -> None:
    said = CliRunner().invoke(main, [*command.split(), "--help"]).stdout
    _, _, commands = said.partition("\nCommands:\n") if command else said.partition("\nRun:\n")
    assert command or commands
    assert not [line for line in commands.splitlines() if line.endswith("...")]


@pytest.mark.parametrize("slip", ["0", "-1", "abc", "", "1_0", "\u0661", "1.0", " 1", str(2**63), "9" * 5_000])
def test_what_is_no_id_is_refused_with_what_an_id_is(cli: Cli, slip: str) -> None:
    said = cli("follow", "--user", 2, "--", slip, code=2).stderr
    assert "expected an id, a whole number from 1 to 2^63-1, got" in said
    assert len(said) < 400


@pytest.mark.parametrize("command", ["show", "retry", "drop"])
def test_a_dead_letter_is_named_by_an_id(cli: Cli, command: str) -> None:
    assert "expected an id, a whole number from 1 to 2^63-1, got 'abc'" in cli("dead", command, "abc", code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("status --max-behind 0s", "expected a duration that is longer than 0, got '0s'"),
        ("feed 1 --cursor zz", "cursor: expected 39 characters, got 2: start again without one"),
        ("work --wait 3s", "--wait needs --until-idle"),
        ("work --metrics a..b:0", "metrics cannot be served at a..b:0"),
        ("top --every 9999999999d", "expected a duration of 100000d at most, got '9999999999d'"),
        ("canary --within 100001d", "expected a duration of 100000d at most, got '100001d'"),
        ("repair --rate nan", "expected a number of entries, 0.001 or more, got 'nan'"),
        ("repair --rate 1e-300", "expected a number of entries, 0.001 or more, got '1e-300'"),
        ("repair --rate x", "expected a number of entries, 0.001 or more, got 'x'"),
        (f"dead list --limit {10**20}", f"{10**20} is not in the range"),
        (f"dead list --after {10**20}", f"{10**20} is not in the range"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_with_what_is_right(cli: Cli, words: str, said: str) -> None:
    assert said in cli(*words.split(), code=2).stderr


def test_a_duration_that_no_clock_can_wait_for_is_refused_in_the_configuration(cli: Cli) -> None:
    cli.set("tick", '"9999999999d"')
    said = cli("work", "--until-idle", code=2).stderr
    assert "worker.tick: expected a duration of 5m at most, got '9999999999d'" in said


def test_a_name_of_a_host_that_is_none_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_HTTP_TOKENS", "tokens.toml")
    cli("token", "new", "--name", "web", "--scope", "read")
    assert "a..b" in cli("serve", "--host", "a..b", "--port", 0, code=2).stderr


def test_a_sentence_that_is_too_long_for_the_screen_is_continued_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "6")
    output.draw(["! 623,289 messages to do for 3.5 min, and no worker runs: feedctl work", "x" * 60, "y", "z"])
    said = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", capsys.readouterr().out).splitlines()
    assert said == ["! 623,289 messages to do for 3.5 min,", "!   and no worker runs: feedctl work", "x" * 39, "y", "z"]


def test_a_misspelt_command_has_a_suggestion() -> None:
    assert "No such command 'stauts'. Did you mean 'status'?" in _said("stauts")
    assert _said("xyzzy").endswith("No such command 'xyzzy'.\n")


def test_without_a_worker_canaries_are_not_sent(cli: Cli) -> None:
    assert f"no worker runs in this home: start {cli.hint('work')}" in cli("canary", code=3).stderr
    assert "no difference" in cli("verify").stderr, "nothing was recorded"
