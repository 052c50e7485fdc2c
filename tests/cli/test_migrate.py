"""feedctl migrate: homes of earlier formats, killed at every step, brought up to date."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from feedstore.app import wiring as feedstore_wiring
from feedstore.clocks import wall_ms
from tests.cli.command import Cli
from tests.cli.template import run
from workers.app import wiring
from workers.app.home import worker_lock
from workers.following.topics import DELIVERIES

# Each undoes what one version brought.
FOLLOWS = {
    6: "ALTER TABLE outbox DROP COLUMN actions; ALTER TABLE outbox_unrelayed DROP COLUMN actions",
    5: "DROP TABLE quiet_boards",
    4: "DROP TABLE placed_pins",
    3: "ALTER TABLE refills DROP COLUMN served_before_ms",
    2: "DROP INDEX boards_owner",
}
QUEUE = (
    "DELETE FROM positions WHERE partition_id IN (SELECT id FROM partitions WHERE topic = 'feed.retries')",
    "DELETE FROM partitions WHERE topic = 'feed.retries'",
    "DROP TABLE dead_letters",
)
_KILLED = """
import os, signal, sys
from workers.app import migrate
from workers.cli import main
steps = int(sys.argv.pop(1))
plan = migrate.plan
def counted(config):
    found = plan(config)
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if steps > len(found):
        return found
    do = found[steps - 1].do
    def dies():
        do()
        os.kill(os.getpid(), signal.SIGKILL)
    return [*found[:steps - 1], found[steps - 1]._replace(do=dies), *found[steps:]]
migrate.plan = counted
main()
"""


def _older(home: Path, version: int) -> None:
    """Makes a home what a program of an earlier version left. 6: before its files were its user's alone."""
    with closing(sqlite3.connect(home / "data" / "follows.db")) as connection:
        for each, undo in FOLLOWS.items():
            if each > version:
                connection.executescript(undo)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    if version < 3:
        with closing(sqlite3.connect(home / "data" / "queue.db")) as connection:
            for statement in QUEUE:
                connection.execute(statement)
            connection.commit()
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _tables(file: Path) -> set[tuple[object, ...]]:
    """The columns and the indexes of a file."""
    with closing(sqlite3.connect(file)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = {(name, *column[1:]) for name in names for column in connection.execute(f"PRAGMA table_info({name})")}
        indexes = {("index", *row) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return columns | indexes | {("version", version)}


def _state(home: Path) -> dict[str, object]:
    return {str(path): (path.stat().st_mode, path.stat().st_size) for path in (home, *home.rglob("*"))}


def _is_up_to_date(cli: Cli, new: Path) -> None:
    for name in ("follows.db", "queue.db"):
        assert _tables(cli.home / "data" / name) == _tables(new / "data" / name)
    cli("check")
    assert [pin for pin, _ in cli.export("a")[1]] == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_a_home_of_an_earlier_program_is_brought_up_to_date(filled: Cli, worked: Path, version: int) -> None:
    _older(filled.home, version)
    before = _state(filled.home)
    if version < 6:
        for words in (["status"], ["work", "--until-idle"], ["follow", 1, "--user", 5]):
            assert filled.hint("migrate") in filled(*words, code=2).stderr
        assert filled.hint("migrate") in filled("check", code=2).stdout

    planned = filled("migrate", "--dry-run").stdout.splitlines()
    lock = filled.home / "worker.lock"
    assert {name: each for name, each in _state(filled.home).items() if name != str(lock)} == {
        name: each for name, each in before.items() if name != str(lock)
    }

    assert filled("migrate").stdout.splitlines() == planned
    assert len(planned) == {1: 8, 2: 7, 3: 4, 4: 3, 5: 2, 6: 1}[version]
    _is_up_to_date(filled, worked)
    assert filled("migrate").stdout == ""
    assert "up to date" in filled("migrate", "--dry-run").stderr
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
@pytest.mark.parametrize("killed_after", range(9))
def test_a_migration_that_is_killed_goes_on_where_it_was(filled: Cli, worked: Path, killed_after: int) -> None:
    _older(filled.home, 1)
    ended = run(_KILLED, killed_after, "--home", filled.home, "migrate")
    assert ended.returncode == -signal.SIGKILL, ended.stderr

    left = filled("migrate").stdout.splitlines()

    assert len(left) == 8 - killed_after
    _is_up_to_date(filled, worked)


@pytest.mark.processes
def test_beside_a_worker_it_refuses(cli: Cli) -> None:
    with cli.worker():
        for words in (["migrate"], ["migrate", "--dry-run"]):
            assert "a worker holds this home" in cli(*words, code=3).stderr


def test_beside_an_earlier_worker_no_command_migrates(filled: Cli) -> None:
    """Its relay would read a row of many actions as one, and bury it."""
    _older(filled.home, 5)
    before = _tables(filled.home / "data" / "follows.db")
    with worker_lock(filled.home):
        for words in (["migrate"], ["schema", "apply"]):
            assert "a worker holds this home" in filled(*words, code=3).stderr
    assert _tables(filled.home / "data" / "follows.db") == before

    filled("schema", "apply")

    with worker_lock(filled.home):
        filled("schema", "apply")


@pytest.mark.parametrize("words", [["schema", "apply"], ["init"]], ids=" ".join)
def test_on_servers_nothing_is_migrated_while_a_writer_or_an_expander_runs(
    filled: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    _older(filled.home, 5)
    before = _tables(filled.home / "data" / "follows.db")
    config = configuration.load(filled.home, {})
    if words == ["init"]:
        # Another home on the same servers: one of files refuses its own.
        (filled.home / "feed.toml").unlink()
        monkeypatch.setattr(feedstore_wiring, "are_files_used", lambda _: False)
    monkeypatch.setattr(wiring, "is_embedded", lambda _: False)
    queue = wiring.open_queue(config, wall_ms)
    with closing(queue.consumer(DELIVERIES, "writer-b")), monkeypatch.context() as patch:
        patch.setattr(wiring, "open_queue", lambda *_: queue)
        said = filled(*words, code=3).stderr
    assert "stop all processes of the home first, the relays too, which this command cannot see" in said
    assert _tables(filled.home / "data" / "follows.db") == before

    filled(*words)


def test_a_home_of_a_newer_program_is_left_alone(cli: Cli) -> None:
    with closing(sqlite3.connect(cli.home / "data" / "follows.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = _tables(cli.home / "data" / "follows.db")

    assert "update the program" in cli("status", code=2).stderr
    assert "update the program" in cli("migrate", code=2).stderr

    assert _tables(cli.home / "data" / "follows.db") == before


def test_a_home_of_an_earlier_program_whose_queue_is_lost_gets_out_of_both(filled: Cli) -> None:
    """Reindex needs a follow store that is up to date, so migrate must not wait for a queue."""
    _older(filled.home, 5)
    for path in (filled.home / "data").glob("queue.db*"):
        path.unlink()
    assert filled.hint("migrate") in filled("reindex", code=2).stderr
    assert "follow store" in filled("migrate", "--dry-run").stdout

    assert filled.hint("reindex") in filled("migrate", code=2).stderr

    filled("reindex")
    filled("migrate")
    filled.work()
    assert "no difference" in filled("verify").stderr
    filled("check")


def test_a_lost_store_is_not_made_by_a_migration(cli: Cli) -> None:
    for name, said in (("queue.db", cli.hint("reindex")), ("follows.db", "bring the store back")):
        (cli.home / "data" / name).rename(cli.home / name)
        assert said in cli("migrate", code=2).stderr
        assert not (cli.home / "data" / name).exists()
        (cli.home / name).rename(cli.home / "data" / name)
