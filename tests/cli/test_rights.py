"""Who may read a home: its own user; another user of the machine gets a sentence."""

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from feedstore import durable
from tests.cli.command import Cli, eventually
from tests.cli.template import run

ANOTHER_USER = 65_534
_AS_ANOTHER = f"""
import encodings.idna, importlib, importlib.metadata, importlib.readers, json, os, pkgutil, sys
import feedstore.app, feedstore.http, workers.app, workers.cli
# Commands load what they need when they run, and another user may not read where this Python is.
for package in (feedstore.app, feedstore.http, workers.app, workers.cli):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
from click.testing import CliRunner
from workers.cli import main
os.setgid({ANOTHER_USER})
os.setuid({ANOTHER_USER})
home, *commands = sys.argv[1:]
for words in commands:
    result = CliRunner().invoke(main, ["--home", home, *words.split()])
    print(json.dumps([words, repr(result.exception), result.exit_code, result.stderr]))
"""
COMMANDS = [
    "status",
    "feed 1",
    "work --until-idle",
    "serve --port 0",
    "replay /dev/null",
    "follow 1 --user 2",
    "verify",
    "rebuild 1",
    "dead list",
    "export --cluster a",
    "schema apply",
    "trim",
    "init",
]


@pytest.fixture
def guarded(cli: Cli) -> Cli:
    cli.change("# tokens =", "tokens =")
    return cli


@pytest.fixture(autouse=True)
def _usual_rights() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_a_home_holds_is_for_its_user_alone(empty: Cli, tmp_path: Path) -> None:
    empty("init")
    action = {"type": "follow", "ts": 1, "follower": 1, "user": 2}
    empty("replay", "-", stdin=json.dumps(action))
    with empty.worker():
        empty("save-pin", 7, "--owner", 2, "--board", 8)
        made = {".db-wal", ".db-shm", ".log", "LOCK", ".lock"}
        eventually(
            lambda: made <= {path.suffix or path.name for path in empty.home.rglob("*")}, "the worker made its files"
        )
        open_to_others = _open_to_others(empty.home)
    empty.work()

    assert open_to_others == _open_to_others(empty.home) == []
    # The process itself leaves the rights of others' files alone.
    (tmp_path / "mine").touch()
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o644


@pytest.mark.parametrize("linked", [True, False])
def test_what_check_says_of_rights_is_what_migrate_mends(filled: Cli, tmp_path: Path, linked: bool) -> None:
    """Data of a home may be on another disk, by a link or by its url."""
    disk = tmp_path / "disk"
    if linked:
        (filled.home / "data").rename(disk)
        (filled.home / "data").symlink_to(disk)
    else:
        disk.mkdir()
        for file in (filled.home / "data").glob("follows.db*"):
            file.rename(disk / file.name)
        filled.set("shards", f'["sqlite:{disk}/follows.db"]')
    disk.chmod(0o755)
    (disk / "follows.db").chmod(0o644)
    assert filled("check", code=2).stdout.count("WRONG rights") == 1

    assert "1 step done" in filled("migrate").stderr

    assert "WRONG" not in filled("check").stdout
    assert filled.feed(1)


def test_a_catalog_of_a_cluster_on_another_disk_has_the_rights_of_the_home(filled: Cli, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    (filled.home / "data" / "b").rename(disk / "b")
    filled.change("rocksdb:data/b", f"rocksdb:{disk}/b")
    filled.add("[catalogs.pins]\n")
    filled.work()
    filled("catalog", "build", "pins", "--cluster", "b")
    for path in (disk / "b.catalog" / "pins").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert filled("check", code=2).stdout.count("WRONG rights") == 1

    filled("migrate")

    assert "WRONG" not in filled("check").stdout
    assert _open_to_others(disk) == []


def _open_to_others(home: Path) -> list[str]:
    found = []
    for path in (home, *home.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # the worker removed it meanwhile
            if path.stat().st_mode & 0o077:
                found.append(str(path))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("closed", ["home", "data", "files"])
def test_another_user_gets_a_sentence(made: Path, closed: str) -> None:
    _close(made, closed)
    try:
        ended = run(_AS_ANOTHER, made, *COMMANDS, env={**os.environ, "HOME": "/nowhere"})
    finally:
        _close(made, "home")

    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(answers) == len(COMMANDS), ended.stderr
    for words, exception, code, stderr in answers:
        assert code in {2, 3}, (words, exception)
        assert stderr.splitlines()[-1].startswith("Error: "), words
        assert str(made) in stderr, words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_file_of_tokens_stays_one_that_its_server_can_read(guarded: Cli) -> None:
    """Else the server keeps the tokens that it knows, and one that is revoked stays valid."""
    file = guarded.home / "tokens.toml"
    guarded("token", "new", "--name", "web", "--scope", "read")
    os.chown(file, ANOTHER_USER, ANOTHER_USER)

    guarded("token", "new", "--name", "other", "--scope", "read")
    guarded("token", "revoke", "web")

    assert "web" not in file.read_text()
    assert (file.stat().st_uid, file.stat().st_gid) == (ANOTHER_USER, ANOTHER_USER)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_what_root_makes_in_the_home_of_another_user_belongs_to_that_user(guarded: Cli) -> None:
    """A look by root must not keep the worker from its clock, or the server from its tokens."""
    for path in (guarded.home, *guarded.home.rglob("*")):
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    for name in ("clock.json", "clock.json.lock"):
        (guarded.home / name).unlink()
    guarded("status")
    guarded("token", "new", "--name", "page", "--scope", "read")
    made = [guarded.home / name for name in ("clock.json", "clock.json.lock", "tokens.toml", "tokens.toml.lock")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(ANOTHER_USER, ANOTHER_USER)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_root_gives_away_the_file_that_it_has_made_and_none_that_was_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, home = tmp_path / "secret", tmp_path / "home"
    secret.touch()
    home.mkdir()
    os.chown(home, ANOTHER_USER, ANOTHER_USER)
    make = os.open

    def swapped(path: Path, flags: int, mode: int) -> int:
        file = make(path, flags, mode)
        path.unlink()
        path.hardlink_to(secret)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", swapped)
        file = durable.opened(home / "lock")
    assert (os.fstat(file).st_uid, secret.stat().st_uid) == (ANOTHER_USER, 0)
    os.close(file)
    for link in (home / "by its name", home / "symbolic"):
        make_link = link.symlink_to if link.name == "symbolic" else link.hardlink_to
        make_link(secret)
        durable.give(link)
        assert secret.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_catalog_that_root_builds_in_the_home_of_another_user_belongs_to_that_user(guarded: Cli) -> None:
    """Its worker must be able to read it, to build the next one, and to remove this one."""
    guarded.add("[catalogs.pins]\n")
    for path in (guarded.home, *guarded.home.rglob("*")):
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    guarded("catalog", "build", "pins")
    directory = guarded.home / "data" / "a.catalog"
    assert len(list(directory.glob("pins/gen-*/generation.json"))) == 1
    made = [directory, *directory.rglob("*")]
    others = [path for path in made if (path.stat().st_uid, path.stat().st_gid) != (ANOTHER_USER, ANOTHER_USER)]
    assert others == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_file_of_tokens_is_not_taken_from_its_owner(guarded: Cli) -> None:
    guarded("token", "new", "--name", "web", "--scope", "read")
    # Other sessions of pytest close the directory that those of all tests are in.
    with tempfile.TemporaryDirectory() as open_to_all:
        home = Path(shutil.move(guarded.home, Path(open_to_all) / "home"))
        _close(home, "data")
        file = home / "tokens.toml"
        for path in (home, home / "tokens.toml.lock"):
            os.chown(path, ANOTHER_USER, ANOTHER_USER)
        os.chown(file, 0, ANOTHER_USER)
        file.chmod(0o640)
        before = file.read_text()

        ended = run(_AS_ANOTHER, home, "token revoke web", env={**os.environ, "HOME": "/nowhere"})

        [_, _, code, stderr] = json.loads(ended.stdout)
        assert (code, file.read_text()) == (2, before), ended.stderr
    assert f"{file}: it would not stay with user 0, group {ANOTHER_USER}: do this as its owner, or as root" in stderr


def _close(home: Path, closed: str) -> None:
    """What another user meets first: the home, the directory with the data, or its files."""
    for path in home.parents:
        if path.owner() == "root" and len(path.parts) > 2:
            path.chmod(0o755)
    home.chmod(0o700 if closed == "home" else 0o755)
    (home / "feed.toml").chmod(0o644 if closed != "home" else 0o600)
    (home / "data").chmod(0o755 if closed == "files" else 0o700)
