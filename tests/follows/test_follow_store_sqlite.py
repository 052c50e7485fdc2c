"""Errors that only SQLite files can have: missing, foreign, damaged and full files, writers that queue, and crashes."""

import itertools
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from board_tools import BOARD, a_board, shown
from follow_places import NOW, FakeClock
from killed import Recording, check_both_or_neither

from feedstore.boards import Move
from feedstore.domain import Edge, Follow, Followed, Pin, SavePin, board, user
from feedstore.follows import sqlite
from feedstore.follows.port import (
    FollowStoreUnavailableError,
    OutdatedStoreError,
    Request,
    WrongStoreError,
    actions_in,
)
from feedstore.follows.sqlite import SQLiteShard
from feedstore.follows.store import FollowStore
from feedstore.follows.versions import Database, latest, migrations
from feedstore.follows.watched import mix
from feedstore.sqlite_file import SqliteFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "follows.db"


def open_one(path: Path) -> FollowStore:
    return sqlite.open_store([path], FakeClock())


@pytest.fixture
def store(path: Path) -> Iterator[FollowStore]:
    sqlite.create([path])
    with closing(open_one(path)) as store:
        yield store


def follow(store: FollowStore, follower: int) -> None:
    store.record([Request(Follow(follower, board(99)))])


# Files
# --------------------------------------------------------------------------------------------------------------------


def test_opening_creates_nothing(path: Path):
    with pytest.raises(FollowStoreUnavailableError, match=r"follows\.db: no such file"):
        open_one(path)
    assert list(path.parent.iterdir()) == []


def test_creating_again_keeps_what_stands(store: FollowStore, path: Path):
    follow(store, 1)
    sqlite.create([path])
    assert len(store.following(1)) == 1


def test_a_file_without_tables_is_not_migrated(path: Path):
    path.touch()
    assert (sqlite.stored_version(path), sqlite.stamped_ms([path])) == (0, 0)
    with pytest.raises(WrongStoreError, match=r"follows\.db: it has no tables: bring the store back from a copy"):
        open_one(path)


def test_a_file_whose_creation_was_cut_off_has_stamped_nothing_and_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "_claim", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        sqlite.create([path])
    assert sqlite.stamped_ms([path]) == 0
    with pytest.raises(FollowStoreUnavailableError, match="it is no shard, and was opened as shard 0 of 1"):
        open_one(path)


def test_a_file_of_a_newer_program_is_refused(path: Path):
    sqlite.create([path])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    with pytest.raises(FollowStoreUnavailableError, match="version 9999"):
        open_one(path)
    with pytest.raises(FollowStoreUnavailableError, match="version 9999"):
        sqlite.create([path])


@pytest.mark.parametrize("database", ["sqlite", "mysql"])
def test_migrations_are_numbered_without_gaps(database: Database):
    assert [version for version, _ in migrations(database)] == list(range(1, latest(database) + 1))


def test_rows_of_before_hold_one_action_each(path: Path):
    """Actions that wait, or were relayed, when a home is brought up to date."""
    sqlite.create([path], to=5)
    old = [msgspec.json.encode(Followed(each, user(99), NOW, NOW)) for each in (1, 2, 3)]
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany("INSERT INTO outbox VALUES (?, ?, ?)", [(n, NOW, each) for n, each in enumerate(old, 1)])
        connection.execute("INSERT INTO outbox_unrelayed SELECT id FROM outbox WHERE id > 1")
        connection.execute("UPDATE shard_state SET latest_ms = ?, next_outbox_id = 4", (NOW,))
    connection.close()
    with pytest.raises(OutdatedStoreError, match="version 5, this program needs"):
        open_one(path)
    sqlite.create([path])
    store = open_one(path)
    assert store.backlog() == (2, 2, NOW)
    store.record([Request(Follow(each, user(99))) for each in (4, 5)])
    rows = store.unrelayed(10)
    assert [(row.id, row.number) for row in rows] == [(2, 1), (3, 1), (4, 2)]
    assert [row.body for row in rows[:2]] == old[1:]
    assert actions_in(rows) == [Followed(each, user(99), NOW, NOW) for each in (2, 3, 4, 5)]
    store.mark_relayed(rows)
    assert store.relay_again() == (5, True)
    assert store.backlog() == (4, 5, NOW)
    store.close()


def test_threads_that_record_at_once_share_rows_of_the_outbox(store: FollowStore):
    sqlite_file = store._shards[0]._database
    threads = [threading.Thread(target=follow, args=(store, each)) for each in range(1, 9)]
    with sqlite_file.write():  # they wait for their turn
        for thread in threads:
            thread.start()
        while len(sqlite_file._waiting) < 8:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    rows = store.unrelayed(100)
    assert [row.number for row in rows] == [8]
    assert {action.follower for action in actions_in(rows)} == set(range(1, 9))
    follow(store, 9)
    assert [row.id for row in store.unrelayed(100)] == [1, 2]


def test_a_transaction_reads_and_writes_its_rows_in_the_order_of_their_keys(store: FollowStore):
    """In whatever order they are asked for: neighbours are mostly on the page at hand."""
    statements: list[str] = []
    with store._shards[0]._database.write() as connection:
        connection.set_trace_callback(statements.append)
    asked = [7, 3, 9, 1, 8]
    saved = [Request(SavePin(Pin(10 + each, 5, 20 + each, 1_000))) for each in asked]
    store.record([*saved, *(Request(Follow(30 + each, board(99))) for each in asked)])

    for table, offset in {"pins": 10, "boards": 20, "clocks": 30}.items():
        (read,) = (text for text in statements if text.startswith("SELECT") and f"FROM {table} " in text)
        assert keys_in(read.partition(" IN ")[2], offset) == sorted(asked)
    for table, offset in {"pins": 10, "boards": 20, "clocks": 30, "edges": 30}.items():
        written = [text for text in statements if text.startswith(f"INSERT INTO {table} ")]
        keys = [keys_in(text.partition("VALUES ")[2].partition(",")[0], offset) for text in written]
        assert keys == [[each] for each in sorted(asked)]


def keys_in(text: str, offset: int) -> list[int]:
    return [int(number) - offset for number in re.findall(r"\d+", text)]


def test_shards_in_another_order_or_number_are_refused(tmp_path: Path):
    paths = [tmp_path / name for name in "abc"]
    sqlite.create(paths)
    for wrong in (paths[::-1], paths[:2], [*paths, paths[0]]):
        with pytest.raises(FollowStoreUnavailableError, match=r"it is shard \d of 3, .*: follows\.shards must name"):
            sqlite.open_store(wrong, FakeClock())
    with pytest.raises(FollowStoreUnavailableError, match="it is shard 0 of 3"):
        sqlite.create(paths[:1])


def test_another_kind_of_file_is_named(path: Path):
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    for attempt in (lambda: open_one(path), lambda: sqlite.create([path])):
        with pytest.raises(FollowStoreUnavailableError, match=r"follows\.db: file is not a database") as caught:
            attempt()
        assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_damaged_file_is_named(path: Path):
    sqlite.create([path])
    store = open_one(path)
    for each in range(1, 400):
        follow(store, each)
    store.close()
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * (path.stat().st_size - 3 * 4096))
    store = open_one(path)
    with pytest.raises(FollowStoreUnavailableError, match=r"follows\.db: .*malformed"):
        store.counts()
    store.close()


def test_a_copy_is_put_in_the_place_of_a_file_that_was_killed_as_its_error_says(path: Path, tmp_path: Path):
    """SQLite would take the log that the killed process left for that of the copy, and mix the two."""
    sqlite.create([path])
    store = open_one(path)
    store.record([Request(Follow(each, board(99))) for each in range(1, 200)])
    store.close()
    copy = path.read_bytes()
    store = open_one(path)
    store.record([Request(Follow(each, board(99))) for each in range(200, 1_500)])
    store.close()  # what was recorded until here is not in the log any more
    store = open_one(path)
    for each in range(1_500, 1_520):
        follow(store, each)
    killed = tmp_path / "killed" / path.name
    killed.parent.mkdir()
    log = killed.with_name(f"{killed.name}-wal")
    log.write_bytes(path.with_name(f"{path.name}-wal").read_bytes())
    killed.write_bytes(copy)
    store.close()
    store = open_one(killed)
    with pytest.raises(WrongStoreError, match=r"bring it back from a copy, after you have removed its -wal and -shm$"):
        store.counts()
    store.close()

    for each in (log, log.with_name(f"{killed.name}-shm")):
        each.unlink(missing_ok=True)
    killed.write_bytes(copy)
    store = open_one(killed)
    assert store.counts().edges_active == 199
    store.close()


def test_a_full_disk_fails_the_call_and_nothing_else(store: FollowStore):
    follow(store, 1)
    writer = store._shards[0]._database._writer
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FollowStoreUnavailableError, match=r"follows\.db: database or disk is full"):
        store.record([Request(Follow(each, board(99))) for each in range(2, 3_000)])
    assert len(store.unrelayed(5_000)) == 1
    assert store.counts().edges_active == 1
    writer.execute(f"PRAGMA max_page_count = {100 * pages}")
    follow(store, 2)
    assert len(store.unrelayed(5_000)) == 2


def test_a_file_that_cannot_be_written(store: FollowStore):
    follow(store, 1)
    writer = store._shards[0]._database._writer
    writer.execute("PRAGMA query_only = 1")
    with pytest.raises(FollowStoreUnavailableError, match=r"follows\.db: attempt to write a readonly database"):
        follow(store, 2)
    assert [edge.follower for edge in store.all_edges_after(None, 10)] == [1]
    writer.execute("PRAGMA query_only = 0")
    follow(store, 2)


def test_rule_11_what_is_acknowledged_is_synced(store: FollowStore):
    follow(store, 1)
    writer = store._shards[0]._database._writer
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)


# Plans
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        sqlite._FOLLOWERS_PAGE,
        sqlite._NEWEST,
        sqlite._SAVED_SINCE,
        sqlite._ACTIVE_EDGES_AFTER,
        sqlite._ENDED_EDGES_AFTER,
        sqlite._BOARDS_OF,
        sqlite._ALL_EDGES_AFTER,
        sqlite._EVERY_FOLLOWER_AFTER,
        sqlite._LINES_OF_PLACE,
        sqlite._LINES_PAST_PLACE,
        sqlite._values(sqlite._FOLLOWER_ROWS, 3, 4),
        sqlite._values(sqlite._LINES, 4, 4),
        *sqlite._EXPIRE,
        *(sqlite._values(text, 3, 4) for text in (sqlite._EDGES,)),
        *(
            sqlite._values(text, 1, 4)
            for text in (sqlite._FOLLOWERS_OF, sqlite._PINS, sqlite._CLOCKS, sqlite._BOARDS, sqlite._KEYS)
        ),
    ],
)
def test_a_page_is_read_by_key_and_never_sorted(path: Path, statement: str):
    sqlite.create([path])
    connection = sqlite3.connect(path)
    plan = [
        row[3]
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?")).fetchall()
    ]
    connection.close()
    assert not [step for step in plan if "TEMP B-TREE" in step], plan
    # Only the keys that are asked for may be scanned.
    scanned = {step for step in plan if step.startswith("SCAN") and "CONSTANT ROW" not in step}
    assert scanned <= {"SCAN w"}, plan


def test_expiry_does_not_look_at_all_that_waits_to_be_relayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few, many = (expiry_effort(tmp_path / f"{rows}.db", rows, monkeypatch) for rows in (1_000, 10_000))
    assert many < 2 * few


def expiry_effort(path: Path, waiting: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of SQLite's instructions an expiry takes while so many rows wait to be relayed."""
    sqlite.create([path])
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = [(number, NOW, b"{}") for number in range(1, waiting + 1)]
        connection.executemany("INSERT INTO outbox (id, committed_ms, body) VALUES (?, ?, ?)", rows)
        connection.executemany("INSERT INTO outbox_unrelayed (id) VALUES (?)", [row[:1] for row in rows])
    instructions = itertools.count()
    connect = SqliteFile.connect

    def counted(file: SqliteFile, cache_kib: int | None = None) -> sqlite3.Connection:
        made = connect(file, cache_kib)
        made.set_progress_handler(lambda: next(instructions) < 0, 1)
        return made

    with monkeypatch.context() as patched, closing(open_one(path)) as store:
        patched.setattr(SqliteFile, "connect", counted)
        assert store.expire(1, 1_000) == 0
    return next(instructions)


# Writers
# --------------------------------------------------------------------------------------------------------------------


def recording(paths: list[Path]) -> Recording:
    return Recording("sqlite", f"sqlite.open_store([*map(Path, places)], lambda: {NOW})", paths)


@pytest.mark.processes
def test_processes_take_turns(path: Path):
    sqlite.create([path])
    children = [recording([path]).started(child, 30) for child in (1, 2)]
    assert [len(child.communicate()[0].split()) for child in children] == [30, 30]
    assert [child.returncode for child in children] == [0, 0]
    store = open_one(path)
    rows = store.unrelayed(5_000)
    assert len({row.id for row in rows}) == len(rows) == 2 * 30
    assert sum(row.number for row in rows) == len(set(actions_in(rows))) == 2 * 30 * 16
    store.close()


@pytest.mark.processes
@pytest.mark.parametrize("shards", [1, 3])
def test_rule_11_a_killed_process_leaves_both_or_neither(tmp_path: Path, shards: int):
    """An edge, its clock, its key and its outbox row are stored together, and all acknowledged actions are stored."""
    paths = [tmp_path / str(number) for number in range(shards)]
    sqlite.create(paths)
    acknowledged = recording(paths).killed()
    with closing(sqlite.open_store(paths, FakeClock())) as store:
        check_both_or_neither(store, acknowledged)


# Sequences of boards
# --------------------------------------------------------------------------------------------------------------------


def test_a_label_has_16_bytes_however_often_one_spot_was_dropped_at(store: FollowStore, path: Path):
    boards = a_board(store, 300)
    for pin in range(1, 299):
        boards.reorder(Move(BOARD, pin, before=299))
    assert shown(boards) == [300, 299, *range(298, 0, -1)]
    store.close()
    connection = sqlite3.connect(path)
    labels = connection.execute("SELECT DISTINCT typeof(sequence), length(sequence) FROM placed_pins").fetchall()
    placed = connection.execute("SELECT count(*) FROM placed_pins").fetchone()
    connection.close()
    assert labels == [("blob", 16)]
    assert placed[0] >= 298


@pytest.mark.parametrize("label", [10**18, float(10**37), str(10**37), bytes(15), bytes(17), None], ids=repr)
def test_a_label_that_is_not_16_bytes_is_refused(path: Path, label: object):
    sqlite.create([path])
    connection = sqlite3.connect(path)
    row = "INSERT INTO placed_pins (board, sequence, pin, place_ms, created_ms, moved_ms) VALUES (1, ?, 1, 1, 1, 1)"
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(row, (label,))
    connection.execute(row, (bytes(16),))
    connection.close()


def test_a_column_of_decimals_would_take_two_neighbours_for_one():
    """Why labels are bytes: SQLite makes a float of a decimal that is too long for 64 bits."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE labels (number DECIMAL(38, 0), bytes BLOB)")
    for number in (10**37, 10**37 + 1):
        connection.execute("INSERT INTO labels VALUES (?, ?)", (str(number), number.to_bytes(16, "big")))
    found = connection.execute("SELECT count(DISTINCT number), count(DISTINCT bytes), max(typeof(number)) FROM labels")
    assert found.fetchone() == (1, 2, "real")
    connection.close()


# Routing
# --------------------------------------------------------------------------------------------------------------------


def test_where_records_stand_never_changes():
    assert [mix(each) for each in (1, 2, 2**63 - 1)] == [
        6238072747940578789,
        15839785061582574730,
        6514504133438201533,
    ]


@pytest.mark.parametrize("stride", [1, 2, 3, 1_000, 2**20, 3 * 2**32])
def test_strided_ids_spread_over_the_shards(stride: int):
    for shards in (2, 3, 16):
        counts = [0] * shards
        for number in range(1, 1_601):
            counts[mix(number * stride) % shards] += 1
        assert min(counts) > 0.6 * 1_600 / shards


def test_rule_4_what_stopped_between_the_parts_of_the_index_writes_is_written_again(
    store: FollowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feedstore.follows.store.INDEXED_AT_ONCE", 2)
    edges = [Edge(follower, user(1), 5, active=True) for follower in range(2, 7)]
    index, left = SQLiteShard.index_followers, iter([True, True])

    def failing(shard: SQLiteShard, *rows: Any) -> None:
        if not next(left, False):
            raise FollowStoreUnavailableError("away")
        index(shard, *rows)

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteShard, "index_followers", failing)
        with pytest.raises(FollowStoreUnavailableError):
            store.index(edges=edges)
    assert len(store.followers([user(1)], None, 10, tombstones=False)) == 4
    store.index(edges=edges)
    assert len(store.followers([user(1)], None, 10, tombstones=False)) == 5
