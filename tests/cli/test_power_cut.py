"""A machine loses its power: its files hold what was synced, and nothing has to be rebuilt.

No test can cut the power. Instead the queue's file is kept as it is at the end of each sync, and is put back: what was
written after that is lost. RocksDB syncs each of its writes, so the clusters stay as they are.
"""

import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

import pytest

from feedstore.sqlite_file import SqliteFile
from tests.cli.command import Cli


@pytest.mark.parametrize("seed", range(3))
def test_a_home_continues_after_a_power_cut(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int):
    kept, alone = tmp_path / "kept", threading.RLock()
    write, sync = SqliteFile.write, SqliteFile.sync

    def keep(file: SqliteFile) -> None:
        if file.path.name == "queue.db":
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            for each in file.path.parent.glob("queue.db*"):
                if not each.name.endswith("-shm"):
                    shutil.copy2(each, kept)

    @contextmanager
    def written(file: SqliteFile, *, synced: bool = True) -> Iterator[Connection]:
        with alone:
            with write(file, synced=synced) as connection:
                yield connection
            if synced:
                keep(file)

    def synced(file: SqliteFile) -> None:
        with alone:
            sync(file)
            keep(file)

    rng = random.Random(seed)
    pins = range(1, 20)
    for pin in pins:
        cli("save-pin", pin, "--owner", 2, "--board", 8, "--created-ms", 1_000 + pin)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteFile, "write", written)
        patched.setattr(SqliteFile, "sync", synced)
        for user in rng.sample(range(10, 20), 3):
            cli("follow", user, "--user", 2)
            cli.work()
    for each in (cli.home / "data").glob("queue.db*"):
        each.unlink()
    for each in kept.iterdir():
        shutil.copy2(each, cli.home / "data")

    assert cli.json("status", code=None)["problems"] == []
    cli("follow", 30, "--user", 2)
    cli.work()
    assert cli.feed(30) == [*reversed(pins)]
    cli("verify")
    assert cli.json("status")["problems"] == []
