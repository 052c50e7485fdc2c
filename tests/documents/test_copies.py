"""The command that takes a copy of a follow store in a file, as the documents have it."""

import itertools
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

from feedstore.domain import Follow, user
from feedstore.follows import sqlite
from feedstore.follows.port import Request

ROOT = Path(__file__).parents[2]
PAGES_AT_ONCE = 100
"""So many pages the shell of SQLite copies in one step. Others may write between two steps."""


def test_a_copy_is_complete_although_a_worker_writes_all_the_time(tmp_path: Path) -> None:
    path, copy = tmp_path / "follows.db", tmp_path / "copy.db"
    *statements, backup = _documented()
    assert backup == ".backup follows-copy.db"
    sqlite.create([path])
    clock = itertools.count(1_000)
    with closing(sqlite.open_store([path], clock.__next__)) as store:
        for first in range(1, 20_001, 2_000):
            store.record([Request(Follow(follower, user(99_999))) for follower in range(first, first + 2_000)])
        steps = 0

        def worker_writes(_status: int, _remaining: int, _total: int) -> None:
            nonlocal steps
            steps += 1
            store.settled_ms()
            assert steps < 100, "it begins again and again"

        with closing(sqlite3.connect(path, isolation_level=None)) as shell, closing(sqlite3.connect(copy)) as target:
            for statement in statements:
                shell.execute(statement).fetchall()
            shell.backup(target, pages=PAGES_AT_ONCE, progress=worker_writes, sleep=0)
        assert steps > 3, "the store is large enough"
    with closing(sqlite.open_store([copy], clock.__next__)) as copied:
        assert copied.counts().edges_active == 20_000


def _documented() -> list[str]:
    """The arguments of the command, after the name of the file."""
    text = (ROOT / "docs" / "recovering.md").read_text("utf-8")
    (command,) = re.findall(r"sqlite3 \.feed/data/follows\.db [^`\n]+", text)
    return shlex.split(command)[2:]
