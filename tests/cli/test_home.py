"""init, feed.toml and its environment, and the lock of a home."""

import errno
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from feedstore.app import config as configuration
from feedstore.errors import ConfigError
from feedstore.metering import Counting
from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.metering.readings import value
from workers import cli as cli_package
from workers.app import home
from workers.app.gauges import QueueGauges
from workers.app.home import HomeBusyError
from workers.cli import main
from workers.cli.session import BUG, Session
from workers.following import metrics


def test_init_makes_a_home_once(empty: Cli) -> None:
    empty("init", "--cap", 7, "--slack", 3)

    assert "cap = 7 " in (empty.home / "feed.toml").read_text()
    assert "slack = 3 " in (empty.home / "feed.toml").read_text()
    before = sorted(str(path) for path in empty.home.rglob("*"))
    assert "there is a home already" in empty("init", code=2).stderr
    assert sorted(str(path) for path in empty.home.rglob("*")) == before


def test_a_system_on_servers_does_not_load_what_clusters_in_files_need() -> None:
    program = (
        "import sys, workers.cli, workers.app.writer_process, feedstore.app.hbase; print('rocksdict' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_the_home_is_named_before_or_after_the_command(cli: Cli, tmp_path: Path) -> None:
    def said(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(words))
        assert result.exit_code == code, result.stderr
        return result

    home, other = str(cli.home), str(tmp_path / "other")
    for words in (
        ["--home", home, "status"],
        ["status", "--home", home],
        ["--home", home, "status", f"--home={home}"],
    ):
        assert f"home      {home}\n" in said(*words).stdout
    said("dead", "list", "--home", home)
    said("dead", "--home", home, "list")
    assert "two homes" in said("--home", home, "status", "--home", other, code=2).stderr
    assert "two homes" in said("dead", "--home", home, "list", "--home", other, code=2).stderr
    said("init", "--home", other)
    said("demo", "--home", other, code=2)
    assert "it may also be given before the command" in said("dead", "list", "--help").stdout


def test_help_groups_every_command_once() -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout

    sections = re.findall(r"^(\w+):\n((?:  .*\n)+)", shown, re.MULTILINE)
    titles = [title for title, _ in sections]
    assert titles[-5:] == ["Run", "Act", "Look", "Repair", "Operate"]
    commands = [line.split()[0] for _, lines in sections[-5:] for line in lines.splitlines() if line[2] != " "]
    names = [each.name for each in pkgutil.iter_modules(cli_package.__path__) if each.name != "__main__"]
    modules = [importlib.import_module(f"workers.cli.{name}") for name in names]
    found = {each for module in modules for each in vars(module).values() if isinstance(each, click.Command)} - {main}
    below = {each for group in found if isinstance(group, click.Group) for each in group.commands.values()}
    assert sorted(commands) == sorted(str(each.name) for each in found - below)


def test_an_interrupted_init_can_be_repeated(empty: Cli) -> None:
    empty("init")
    (empty.home / "feed.toml").unlink()  # it is written last

    empty("init")

    assert empty.json("status")["idle"]


@pytest.mark.parametrize("lost", [["feed.toml"], ["feed.toml", "data/follows.db"]])
def test_a_home_that_lost_its_feed_toml_is_not_taken_for_a_new_one(filled: Cli, lost: list[str]) -> None:
    """With the limits of the default, the next trim could remove what readers may reach."""
    for name in lost:
        (filled.home / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in filled.home.rglob("*.db")}
    assert "bring it back from a copy" in filled("status", code=2).stderr

    said = filled("init", code=2).stderr

    assert "stores of a home are here, and feed.toml is gone: bring it back from a copy" in said
    assert not (filled.home / "feed.toml").exists()
    assert {path: path.stat().st_mtime_ns for path in filled.home.rglob("*.db")} == before


def test_one_action_makes_a_home_one_in_use(cli: Cli) -> None:
    cli("save-pin", 7, "--owner", 2, "--board", 8)
    (cli.home / "feed.toml").unlink()
    assert "stores of a home are here" in cli("init", code=2).stderr


def test_of_several_that_make_a_home_at_once_one_does_and_the_others_change_nothing(empty: Cli) -> None:
    """They would remove each other's files, and leave a home that is damaged."""
    with home.private(), ThreadPoolExecutor(4) as at_once:
        made = [at_once.submit(_made, empty.home) for _ in range(4)]
    said = [each.result() for each in made]
    assert said.count("made") == 1
    others = ("there is a home already", "another feedctl init")
    assert all(each == "made" or any(other in each for other in others) for each in said), said
    empty("check")


def _made(path: Path) -> str:
    try:
        home.create(path, {})
    except (ConfigError, HomeBusyError) as error:
        return str(error)
    return "made"


def test_a_directory_that_is_gone_is_not_taken_for_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.delenv("FEED_HOME", raising=False)
    gone.rmdir()
    result = CliRunner().invoke(main, ["status"])
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: the directory in which this was called: No such file or directory\n",
    )


def test_a_bug_ends_a_command_with_a_status_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own for it is that of what was refused."""
    monkeypatch.setattr(Session, "config", property(lambda _: 1 // 0))
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "status"])
    assert result.exit_code == BUG
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("ZeroDivisionError: integer division or modulo by zero\n")


def test_a_home_that_is_missing_says_how_to_make_one(empty: Cli) -> None:
    for words in (
        ["feed", 1],
        ["status"],
        ["work"],
        ["follow", 1, "--user", 2],
        ["verify"],
        ["trim"],
        ["dead", "list"],
    ):
        result = empty(*words, code=2)
        assert f"feedctl --home {empty.home} init" in result.stderr
        assert not empty.home.exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cap = [", "not valid TOML"),
        ("\x00", "not valid TOML"),
        ("", "feed: expected a table, got nothing"),
    ],
)
def test_a_corrupt_configuration_is_a_clear_error(cli: Cli, text: str, complaint: str) -> None:
    (cli.home / "feed.toml").write_text(text)

    stderr = cli("status", code=2).stderr

    assert complaint in stderr
    assert str(cli.home / "feed.toml") in stderr
    assert "Traceback" not in stderr


def test_feed_home_is_the_default_home(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_HOME", str(cli.home))

    assert CliRunner().invoke(main, ["status"]).exit_code == 0


def test_help_has_examples_for_every_command() -> None:
    assert "Exit codes" in CliRunner().invoke(main, ["--help"]).stdout
    ctx = click.Context(main)
    groups = [([name], main.get_command(ctx, name)) for name in main.list_commands(ctx)]
    for words, command in groups:
        groups += [([*words, name], inner) for name, inner in getattr(command, "commands", {}).items()]
        said = CliRunner().invoke(main, [*words, "--help"]).stdout
        assert "Examples:" in said, words
        assert f"feedctl {words[0]}" in said or f"feedctl --home /srv/feed {words[0]}" in said, words


@pytest.mark.processes
def test_a_second_worker_is_refused_and_told_who_holds_the_home(cli: Cli) -> None:
    with cli.worker() as worker:
        stderr = cli.process("work", code=3).stderr

        assert f"pid {worker.pid}" in stderr
        assert cli.json("status")["worker"] == {"pid": worker.pid, "stopped": None}
    assert cli.json("status")["worker"] is None


@pytest.mark.processes
@pytest.mark.parametrize("words", [("work",), ("serve", "--port", "0")], ids=["work", "serve"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
def test_a_worker_whose_home_is_removed_or_replaced_ends_and_says_so(
    cli: Cli, words: tuple[str, ...], is_replaced: bool
) -> None:
    cli("follow", 1, "--user", 2)
    cli("save-pin", 101, "--owner", 2, "--board", 9)
    with cli.spawn(*words) as worker:
        try:
            eventually(lambda: cli("verify", code=None).exit_code == 0, "the worker has written both clusters")
            aside = cli.home.rename(cli.home.with_name("aside"))
            if is_replaced:
                cli("init")
            _, stderr = worker.communicate(timeout=DEADLINE_S)
        finally:
            worker.kill()

    assert worker.returncode == 2, stderr
    assert f"{cli.home} was removed or replaced" in stderr.decode()
    for left in [Cli(aside), cli] if is_replaced else [Cli(aside)]:
        left.work()
        left("verify")


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system; permission bits would not stop root either")
    path = tmp_path / "mounted"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_read_only_home_is_a_clear_error(mounted: Path) -> None:
    cli = Cli(mounted / "home")
    cli("init")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)

    for words in (["work", "--until-idle"], ["follow", 1, "--user", 2], ["trim"], ["init"]):
        result = cli(*words, code=None)
        assert result.exit_code in (2, 3), words
        assert result.stderr.startswith("Error: "), words
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert words == ["init"] or "ead-only" in result.stderr, result.stderr
    subprocess.run(["mount", "-o", "remount,rw", str(mounted)], check=True)
    cli("follow", 1, "--user", 2)
    cli.work()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(mounted: Path) -> None:
    cli = Cli(mounted / "home")
    cli("init")
    cli("follow", 1, "--user", 2)
    saved = []
    with (mounted / "ballast").open("wb") as ballast:
        while True:
            try:
                ballast.write(bytes(65_536))
                ballast.flush()
            except OSError:
                break
    for pin in range(1, 200):
        result = cli("save-pin", pin, "--owner", 2, "--board", 20, code=None)
        if result.exit_code:
            assert result.exit_code == 3
            assert result.stderr.startswith("Error: ")
            assert "Traceback" not in result.stderr
            break
        saved.append(pin)
    else:
        pytest.fail("the disk did not fill up")

    (mounted / "ballast").unlink()
    cli.work()

    # What was refused may have been committed or not; what was acknowledged is there.
    assert set(saved) <= set(cli.feed(1)) <= {*saved, pin}
    cli("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", 1)
    cli.work()
    assert "no difference" in cli("verify").stderr


@pytest.mark.parametrize("full", [0, 1])
def test_the_disk_of_each_shard_is_watched(
    empty: Cli, mounted: Path, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = ["sqlite:data/f0.db", "sqlite:data/f1.db"]
    shards[full] = f"sqlite:{mounted}/f.db"
    monkeypatch.setenv("FEED_FOLLOWS_SHARDS", json.dumps(shards))
    empty("init")
    empty.set("shards", json.dumps(shards, separators=(",", ":")))
    (mounted / "ballast").write_bytes(bytes(21 << 20))

    status = empty.json("status", code=1)
    [problem] = status["problems"]
    assert re.fullmatch("the disk of the follow store has . MiB left: make room before it is full", problem)
    assert ["the follow store" in disk["store"] for disk in status["disks"]].count(True) == 1

    config = configuration.load(empty.home, os.environ)
    meter = Counting(lambda: 0.0)
    with empty.ports() as ports:
        QueueGauges(replace(ports, meter=meter), config).look()
    assert value(meter, metrics.SIZE, "follows") == 24 << 20
    assert (value(meter, metrics.FREE, "follows") or 0) <= 3 << 20
    assert (value(meter, metrics.SIZE, "queue") or 0) > 24 << 20


def test_too_many_open_files_is_a_clear_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not say which file it was: of a pipe, or of a socket."""

    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("workers.cli.status.look", refused)
    assert cli("status", code=3).stderr == "Error: raise the limit of open files (ulimit -n): Too many open files\n"


@pytest.mark.processes
def test_children_are_of_the_same_program_wherever_a_command_is_started(filled: Cli, tmp_path: Path) -> None:
    """A directory with packages of the same names, such as another checkout, or whatever lies in a shared one."""
    elsewhere = tmp_path / "elsewhere"
    for package in ("feedstore", "workers"):
        (elsewhere / package).mkdir(parents=True)
        (elsewhere / package / "__init__.py").write_text("raise SystemExit('not this one')\n")
    filled("save-pin", 77, "--owner", 2, "--board", 20)
    command = [str(Path(sys.executable).with_name("feedctl")), "--home", str(filled.home), "work", "--until-idle"]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 77 in filled.feed(1)
