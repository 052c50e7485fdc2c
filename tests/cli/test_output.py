"""What a terminal, a pipe and a disk get: escapes are shown, and an output that is closed or full has an end."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import Cli, eventually
from tests.cli.test_repair import damage
from workers.cli import output
from workers.following.topics import ACTIONS
from workers.queue.embedded import open_dead_letters

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\r"
NO_SPACE = Path("/dev/full")
_EXECUTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def _bury(cli: Cli) -> None:
    with closing(open_dead_letters(cli.home / "data" / "queue.db")) as letters:
        letters.bury(ACTIONS, f"expander{EVIL}", f"broken{EVIL}", f"Traceback\n{EVIL}", 1_000, EVIL.encode())


@pytest.mark.parametrize(
    "words",
    [
        ["dead", "list"],
        ["dead", "list", "--json"],
        ["dead", "show", 1],
        ["dead", "show", 1, "--json"],
        ["dead", "retry", 1],
        ["replay", "{evil file}"],
        ["replay", f"/nowhere/{EVIL}"],
        ["feed", EVIL],
        ["feed", 1, "--cursor", EVIL],
        ["export", "--cluster", EVIL],
        ["follow", 1, "--user", 2, "--key", EVIL],
        [EVIL],
        ["status"],
    ],
)
def test_escapes_from_elsewhere_are_shown_and_not_executed(cli: Cli, tmp_path: Path, words: list[object]) -> None:
    _bury(cli)
    file = tmp_path / f"actions{EVIL}.jsonl"
    file.write_text(f'{{"type":"follow","ts":1,"follower":1,"{EVIL}":2}}\n{{"type":"{EVIL}"}}\n{EVIL}\n')

    result = cli(*[file if word == "{evil file}" else word for word in words], code=None)

    for said in (result.stdout, result.stderr):
        assert not _EXECUTED.search(said), repr(said)


def test_a_home_with_escapes_in_its_name_and_its_file_is_shown(tmp_path: Path) -> None:
    cli = Cli(tmp_path / f"home{EVIL}")

    missing = cli("status", code=2).stderr
    cli.home.mkdir()
    (cli.home / "feed.toml").write_text(f'"{EVIL}" = 1\n[[[')
    broken = cli("status", code=2).stderr

    assert "\\x1b]0;owned" in missing
    assert not _EXECUTED.search(missing + broken)


def test_every_command_writes_through_the_place_that_escapes() -> None:
    elsewhere = [
        file.name
        for file in (Path(__file__).parents[2] / "workers" / "cli").glob("*.py")
        if file.name != "output.py" and re.search(r"\bprint\(|click\.echo\(|sys\.std(out|err)\b", file.read_text())
    ]

    assert elsewhere == []


def _shell(cli: Cli, script: str) -> subprocess.CompletedProcess[str]:
    feedctl = f'{sys.executable} -c "from workers.cli import main; main()" --home {cli.home}'
    return subprocess.run(
        ["bash", "-c", script.replace("feedctl", feedctl)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("words", ["export --cluster a", "feed 1", "feed 1 --json", "status"])
def test_an_output_that_is_closed_ends_the_command_quietly(filled: Cli, words: str) -> None:
    process = filled.spawn(*words.split(), text=True)
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=60)

    # Whether it wrote before its reader had gone is a race: then there is nothing to be quiet about.
    assert process.returncode in {141, 0}
    assert "Traceback" not in stderr
    assert "Broken" not in stderr


@pytest.mark.parametrize("words", ["export --cluster a", "status --json", "--help", "--version", "dead list --help"])
def test_what_is_written_after_its_reader_has_gone_is_quiet(filled: Cli, words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    process = filled.spawn(*words.split(), stdout=write)
    os.close(write)

    _, stderr = process.communicate(timeout=60)

    assert (process.returncode, stderr) == (141, b"")


@pytest.mark.processes
def test_a_command_that_is_silent_for_seconds_says_that_it_runs(cli: Cli) -> None:
    ours, its = pty.openpty()
    process = cli.spawn("replay", "-", stdin=subprocess.PIPE, stderr=its)
    os.close(its)
    said = b""
    while b"replay 2 s" not in said:  # it waits for lines, and nothing else ends it
        said += os.read(ours, 4_096)
    process.communicate(timeout=60)
    os.close(ours)

    assert process.returncode == 0


@pytest.mark.parametrize("words", ["export --cluster a", "feed 1", "feed 1 --json", "status --json", "--help"])
def test_an_output_that_is_full_ends_the_command_with_a_sentence(filled: Cli, words: str) -> None:
    with NO_SPACE.open("w") as full:
        process = filled.spawn(*words.split(), stdout=full, text=True)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 3
    assert stderr.splitlines()[-1] == "Error: the output cannot be written: No space left on device"
    assert "Traceback" not in stderr


def test_a_full_stderr_fails_no_command_and_changes_no_exit_code(filled: Cli) -> None:
    with NO_SPACE.open("w") as full:
        fine = filled.spawn("feed", 1, stderr=full, text=True)
        wrong = filled.spawn("export", "--cluster", "c", stderr=full)
    stdout, _ = fine.communicate(timeout=60)
    wrong.communicate(timeout=60)

    assert (fine.returncode, len(stdout.splitlines())) == (0, 6)
    assert wrong.returncode != 0


def test_closed_streams_do_not_lend_their_numbers_to_the_files_of_a_home(filled: Cli) -> None:
    assert _shell(filled, "feedctl feed 1 <&- >&- 2>&-").returncode == 0
    assert _shell(filled, "feedctl export --cluster a >&-").returncode == 0
    assert _shell(filled, "feedctl replay - <&-").returncode == 0
    assert filled.export("a") == filled.export("b")


def test_a_terminal_that_lacks_a_character_gets_its_escape(cli: Cli) -> None:
    """As with LANG=de_DE: then the demonstration, which has a check mark, failed at its first one."""
    home = Cli(cli.home.rename(cli.home.with_name("\N{CHECK MARK}")))
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown, stderr = home.interpreter("status", env=latin, stdin=subprocess.DEVNULL).communicate(timeout=60)
    assert stderr == b""
    assert shown.splitlines()[0].endswith(b"\\u2713")


def test_a_file_whose_name_is_no_text_is_read(cli: Cli, tmp_path: Path) -> None:
    """Also by the process that says what time it is in the home, and with that its own words."""
    (cli.home / "clock.json").unlink()
    name = os.fsdecode(b"actions\xff.jsonl")
    (tmp_path / name).write_text('{"type":"follow","ts":1,"follower":1,"user":2}\n')
    process = cli.spawn("replay", name, cwd=tmp_path, text=True)
    assert process.communicate(timeout=60)[1] == "1 line: 1 action recorded\n"


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_a_terminal_without_colours_gets_none(filled: Cli, environment: dict[str, str]) -> None:
    ours, its = pty.openpty()
    process = filled.spawn("work", "--until-idle", stderr=its, env={**os.environ, **environment})
    os.close(its)
    assert "loop.started" in (said := _all(ours))
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not re.search("\x1b\\[[0-9;]*m", said)
    if environment["TERM"] == "dumb":
        assert "\x1b" not in said


def _all(terminal: int) -> str:
    said = b""
    with contextlib.suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as stream:  # EIO: the other end is closed
        while part := stream.read(4_096):
            said += part
    return said.decode()


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_headings_are_plain_on_a_terminal_without_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    output.heading("A part")
    output.draw(["! trouble"])
    assert "\x1b[1" not in capsys.readouterr().out


def test_a_bar_leaves_room_for_the_numbers_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("workers.cli.output.is_screen", lambda _: True)
    output.ProgressLine("work").show("to do: 1,234", 0.5)
    output.ProgressLine.clear()
    assert "work [#####     ]  50% to do: 1,234" in capsys.readouterr().err


def test_a_token_that_could_not_be_printed_is_not_kept(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_HTTP_TOKENS", "tokens.toml")
    words = ["token", "new", "--name", "web", "--scope", "read"]
    with NO_SPACE.open("w") as full:
        _, stderr = cli.spawn(*words, stdout=full, text=True).communicate(timeout=60)

    assert "the output cannot be written" in stderr
    assert cli(*words).stdout.startswith("feed_"), "its name is free"


def test_a_file_that_cannot_be_written_is_named(filled: Cli) -> None:
    damage(filled, "b")
    said = filled("repair", "--audit", "/dev/full", code=3).stderr.splitlines()[-1]
    assert said == "Error: /dev/full: No space left on device"


def test_replay_names_the_line_to_go_on_with_when_a_signal_stops_it(cli: Cli) -> None:
    for number, recorded, code in ((signal.SIGINT, 3, 130), (signal.SIGTERM, 6, 3)):
        process = cli.spawn("replay", "-", stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b'{"type":"follow","ts":1,"follower":1,"user":2}\n' * 3 + b'{"type"')
        process.stdin.flush()
        eventually(lambda count=recorded: cli.json("status")["groups"]["relay"] == count, "the lines are recorded")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)

        assert process.returncode == code, stderr
        assert b"continue with --from-line 4" in stderr, stderr
        assert b"Traceback" not in stderr


def test_replay_refuses_fields_that_it_does_not_know(cli: Cli) -> None:
    line = '{"type":"follow","ts":1,"follower":1,"user":2,"at":3}'

    said = cli("replay", "-", stdin=line, code=1).stderr

    assert "line 1: at: unknown; there are: type, ts, follower, user, board" in said
    assert cli.json("status")["groups"]["relay"] == 0


def test_a_line_that_is_not_utf8_is_one_bad_line_of_a_replay(cli: Cli) -> None:
    file = cli.home / "history.jsonl"
    good = b'{"type":"follow","ts":1,"follower":1,"user":%d}\n'
    file.write_bytes(good % 2 + b'{"type":"follow","ts":1,"follower":1,"us\xe9r":3}\n' + good % 4)

    said = cli("replay", str(file), code=1).stderr

    assert "line 2: not JSON: it is not UTF-8" in said
    assert "Traceback" not in said
    assert cli.json("status")["groups"]["relay"] == 2
