"""The follow store in SQLite: one file for each shard, or memory.

    sqlite.create([Path("data/follows.db")])
    store = sqlite.open_store([Path("data/follows.db")], clock)

A shard is chosen by a hash of an id: the number and the order of a store's files never change.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple

from feedstore.domain import RESERVED_FROM
from feedstore.follows import sqlite_boards
from feedstore.follows.arranging import Arrange, LineKey, PinAt, Run, Start, Way
from feedstore.follows.port import Backlog, FollowStoreUnavailableError, RecordCounts, WrongStoreError
from feedstore.follows.shard import (
    KIND_CODES,
    BoardRow,
    Changes,
    Decide,
    EdgeKey,
    EdgeRow,
    FollowerKey,
    FollowerRow,
    KeyRow,
    Marked,
    NewestFrom,
    OutboxKey,
    PinIndexKey,
    PinIndexRow,
    PinRow,
    Place,
    RefillRow,
    Result,
    SavedFrom,
    SavedRow,
    Standing,
    UnrelayedRow,
    Wanted,
    deleted_on_boards,
    outbox_rows,
    reaching,
)
from feedstore.follows.store import FollowStore
from feedstore.follows.versions import latest, lost, migrations, refuse_shard, refuse_version
from feedstore.metering import UNCOUNTED, Meter
from feedstore.portions import chunks
from feedstore.sqlite_file import SqliteFile, Use
from feedstore.tracing import UNTRACED, Tracer

Clock = Callable[[], int]
"""The time in ms since 1970. It may jump, and differ between processes; what a shard stamps still never goes back."""

USE: Final = Use(
    ".turn",
    unavailable=FollowStoreUnavailableError,
    damaged=lambda message: WrongStoreError(
        f"{message}: bring it back from a copy, after you have removed its -wal and -shm"
    ),
    closed=FollowStoreUnavailableError,
    writer_cache_kib=16_384,  # what one transaction of index writes changes
    reader_cache_kib=4_096,
    log_bytes=64 << 20,  # the indexes are written all over the file
)

_BOARD: Final = KIND_CODES["board"]


def create(paths: Sequence[Path], to: int | None = None) -> None:
    """Creates the files of a store, or brings older ones up to date: each migration that a file lacks is one
    transaction. Repeating it changes nothing. to: the version that the tables get; None: this program's.

    Raises FollowStoreUnavailableError: a file is no shard, another one, newer than this program, or cannot be written.
    """
    for shard, path in enumerate(paths):
        SqliteFile.make(path, USE, partial(_migrate, path, (shard, len(paths)), to))


def stored_version(path: Path) -> int:
    """The version of the tables in a file; 0 if there is no such file, or none in it. Raises
    FollowStoreUnavailableError.
    """
    if not path.is_file():
        return 0
    with closing(SqliteFile(path, USE)) as file, file.read() as connection:
        return _version_of(connection)


def lacking(path: Path) -> list[int]:
    """The versions of the tables that a file lacks, ascending.

    Raises FollowStoreUnavailableError: it is missing, another file, without tables, newer than this program, or cannot
    be read.
    """
    if not path.is_file():
        raise lost(path, "no such file")
    version = stored_version(path)
    if not 0 < version <= latest("sqlite"):
        refuse_version(path, version, "sqlite")
    return [each for each, _ in migrations("sqlite") if each > version]


def open_store(paths: Sequence[Path], clock: Clock, meter: Meter = UNCOUNTED, tracer: Tracer = UNTRACED) -> FollowStore:
    """Opens a store that was created.

    Raises FollowStoreUnavailableError: a file is missing, something else, not this shard, or not up to date.
    """
    shards: list[SQLiteShard] = []
    with ExitStack() as opened:
        for number, path in enumerate(paths):
            if not path.is_file():
                raise lost(path, "no such file")
            file = opened.enter_context(closing(SqliteFile(path, USE)))
            with file.read() as connection:
                refuse_version(path, _version_of(connection), "sqlite")
                _check(path, (number, len(paths)), connection)
            shards.append(SQLiteShard(file, clock))
        opened.pop_all()
    return FollowStore(shards, meter=meter, tracer=tracer)


def stamped_ms(paths: Sequence[Path]) -> int:
    """The latest time that any of a store's files has stamped or settled; 0 if all are missing. Writes nothing.

    Raises FollowStoreUnavailableError.
    """
    latest_ms = 0
    for path in filter(stored_version, paths):
        with closing(SqliteFile(path, USE)) as file, file.read() as connection:
            (stamped_ms,) = connection.execute("SELECT coalesce(max(latest_ms), 0) FROM shard_state").fetchone()
        latest_ms = max(latest_ms, stamped_ms)
    return latest_ms


def _version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _migrate(path: Path, mine: tuple[int, int], to: int | None, connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    stored = _version_of(connection)
    if stored > latest("sqlite"):
        raise sqlite3.DatabaseError(f"it has version {stored}, this program knows {latest('sqlite')}")
    for version, script in migrations("sqlite"):
        if stored < version <= (latest("sqlite") if to is None else to):
            connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {version}; COMMIT;")
    connection.execute("BEGIN IMMEDIATE")
    _claim(path, mine, connection)
    connection.execute("COMMIT")


def _claim(path: Path, mine: tuple[int, int], connection: sqlite3.Connection) -> None:
    """Makes a new database a shard. mine: its number, and how many shards there are."""
    connection.execute(
        "INSERT INTO shard_state (only, shard, shards, latest_ms, next_outbox_id) VALUES (1, ?, ?, 0, 1)"
        " ON CONFLICT (only) DO NOTHING",
        mine,
    )
    _check(path, mine, connection)


def _check(path: Path, mine: tuple[int, int], connection: sqlite3.Connection) -> None:
    refuse_shard(path, connection.execute("SELECT shard, shards FROM shard_state").fetchone(), mine)


# Statements that take many keys
# --------------------------------------------------------------------------------------------------------------------
# Bound keys are faster than json_each. There are few sizes, so that the same few statements stay prepared.

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@cache
def _values(template: str, width: int, size: int) -> str:
    row = f"({', '.join('?' * width)})" if width > 1 else "?"
    return template.format(", ".join([row] * size))


def _select_many(connection: sqlite3.Connection, template: str, width: int, keys: Sequence[Any]) -> Iterator[Any]:
    """The rows that a statement finds for many keys, chunk by chunk. Its `{}` is where the keys go. The last chunk is
    filled up with nulls, which match nothing.
    """
    for chunk in chunks(keys, _SIZES[-1]):
        statement, bound = _bound(template, width, chunk)
        yield from connection.execute(statement, bound).fetchall()


def _first_of_many(
    connection: sqlite3.Connection, template: str, named: tuple[int, ...], keys: Sequence[int], limit: int
) -> list[Any]:
    """The first `limit` rows that a statement finds for many keys. Its `{}` is where the keys go; they ascend as its
    rows do. `named` is bound before the keys, and the limit behind them.
    """
    rows: list[Any] = []
    for chunk in chunks(keys, _SIZES[-1]):
        statement, bound = _bound(template, 1, chunk)
        rows += connection.execute(statement, (*named, *bound, limit - len(rows))).fetchall()
        if len(rows) == limit:
            break
    return rows


def _bound(template: str, width: int, chunk: Sequence[Any]) -> tuple[str, list[Any]]:
    size = next(size for size in _SIZES if size >= len(chunk))
    bound = list(itertools.chain.from_iterable(chunk)) if width > 1 else list(chunk)
    bound.extend([None] * (size * width - len(bound)))
    return _values(template, width, size), bound


_EDGES: Final = (
    "WITH wanted (follower, kind, followee) AS (VALUES {})"
    " SELECT e.follower, e.kind, e.followee, e.ts, e.active, e.committed_ms FROM wanted AS w CROSS JOIN edges AS e"
    " ON e.follower = w.follower AND e.kind = w.kind AND e.followee = w.followee"
)
_PINS: Final = "SELECT pin, owner, board, created_ms, saved_ms, deleted_ms FROM pins WHERE pin IN ({})"
_PINS_AFTER: Final = (
    "SELECT pin, owner, board, created_ms, saved_ms, deleted_ms FROM pins WHERE pin > ? ORDER BY pin LIMIT ?"
)
_DELETIONS: Final = "SELECT pin, deleted_ms FROM pins WHERE pin IN ({}) AND deleted_ms IS NOT NULL"
_CLOCKS: Final = "SELECT follower, last_ts FROM clocks WHERE follower IN ({})"
_BOARDS: Final = "SELECT board, owner FROM boards WHERE board IN ({})"
_KEYS: Final = "SELECT key, fingerprint, answer FROM keys WHERE key IN ({})"
_REFILLS: Final = (
    "WITH wanted (user, cluster) AS (VALUES {}) SELECT r.user, r.cluster, r.asked_ms, r.served_before_ms"
    " FROM wanted AS w CROSS JOIN refills AS r ON r.user = w.user AND r.cluster = w.cluster"
)


def _standing(connection: sqlite3.Connection, wanted: Wanted) -> Standing:
    """The stored records. Each table is read in the order of its keys, and is written in it too: so the next row is
    mostly on the same page.
    """
    keys: dict[str, KeyRow] = {
        key: (fingerprint, answer) for key, fingerprint, answer in _select_many(connection, _KEYS, 1, wanted.keys)
    }
    return Standing(
        clocks=dict(_select_many(connection, _CLOCKS, 1, sorted(wanted.clocks))),
        edges={row[:3]: row for row in _select_many(connection, _EDGES, 3, wanted.edges)},
        boards=dict(_select_many(connection, _BOARDS, 1, sorted(wanted.boards))),
        pins={row[0]: row for row in _select_many(connection, _PINS, 1, sorted(wanted.pins))},
        keys=keys,
        refills={
            (user, cluster): asked_ms
            for user, cluster, asked_ms, _ in _select_many(connection, _REFILLS, 2, wanted.refills)
        },
    )


# Writes
# --------------------------------------------------------------------------------------------------------------------

_PUT_AT_ONCE: Final = 16
"""How many rows one statement writes. Each statement hands the interpreter to other threads and must get it back."""


def _put(connection: sqlite3.Connection, template: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
    """Writes rows of `width` columns, in their order. The `{}` of the statement is where they go."""
    whole = len(rows) - len(rows) % _PUT_AT_ONCE
    flat = itertools.chain.from_iterable
    connection.executemany(
        _values(template, width, _PUT_AT_ONCE),
        [tuple(flat(rows[start : start + _PUT_AT_ONCE])) for start in range(0, whole, _PUT_AT_ONCE)],
    )
    connection.executemany(_values(template, width, 1), rows[whole:])


_PUT_CLOCK: Final = (
    "INSERT INTO clocks (follower, last_ts) VALUES {} ON CONFLICT (follower) DO UPDATE SET last_ts = excluded.last_ts"
)
_PUT_EDGE: Final = (
    "INSERT INTO edges (follower, kind, followee, ts, active, committed_ms) VALUES {}"
    " ON CONFLICT (follower, kind, followee)"
    " DO UPDATE SET ts = excluded.ts, active = excluded.active, committed_ms = excluded.committed_ms"
)
_PUT_BOARD: Final = "INSERT INTO boards (board, owner) VALUES {}"
_PUT_PIN: Final = (
    "INSERT INTO pins (pin, owner, board, created_ms, saved_ms, deleted_ms) VALUES {}"
    " ON CONFLICT (pin) DO UPDATE SET saved_ms = excluded.saved_ms, deleted_ms = excluded.deleted_ms"
)
_PUT_KEY: Final = (
    "INSERT INTO keys (key, fingerprint, answer, committed_ms) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET answer = excluded.answer"
)
_PUT_REFILL: Final = (
    "INSERT INTO refills (user, cluster, asked_ms) VALUES (?, ?, ?)"
    " ON CONFLICT (user, cluster) DO UPDATE SET asked_ms = excluded.asked_ms"
)
_MARK_SERVED: Final = "UPDATE refills SET served_before_ms = max(served_before_ms, ?) WHERE user = ? AND cluster = ?"
_PUT_OUTBOX: Final = "INSERT INTO outbox (id, committed_ms, actions, body) VALUES (?, ?, ?, ?)"
_PUT_UNRELAYED: Final = "INSERT INTO outbox_unrelayed (id, actions) VALUES (?, ?)"
_MARK_RELAYED: Final = (
    "DELETE FROM outbox_unrelayed WHERE id = ?1 AND EXISTS (SELECT 1 FROM outbox WHERE id = ?1 AND committed_ms = ?2)"
)
_PUT_FOLLOWER: Final = (
    "INSERT INTO followers (kind, followee, follower, ts, active) VALUES {}"
    " ON CONFLICT (kind, followee, follower) DO UPDATE SET ts = excluded.ts, active = excluded.active"
    " WHERE excluded.ts > ts"
)
_PUT_PIN_INDEX: Final = (
    "INSERT INTO pin_index (kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms)"
    " VALUES {} ON CONFLICT (kind, followee, created_ms, pin) DO UPDATE SET"
    " saved_ms = max(saved_ms, excluded.saved_ms),"
    " deleted_ms = nullif(max(coalesce(deleted_ms, 0), coalesce(excluded.deleted_ms, 0)), 0)"
    " WHERE excluded.saved_ms > saved_ms OR coalesce(excluded.deleted_ms, 0) > coalesce(deleted_ms, 0)"
)


def _write(connection: sqlite3.Connection, changes: Changes, now_ms: int) -> None:
    """Writes all changes except those of the outbox."""
    if changes.clocks:
        _put(connection, _PUT_CLOCK, 2, sorted(changes.clocks.items()))
        _put(connection, _PUT_EDGE, 6, sorted(changes.edges.values()))
    if changes.boards:
        _put(connection, _PUT_BOARD, 2, sorted(changes.boards.items()))
    if changes.pins:
        _put(connection, _PUT_PIN, 6, sorted(changes.pins.values()))
    if changes.keys:
        connection.executemany(_PUT_KEY, [(key, *row, now_ms) for key, row in changes.keys.items()])
    if changes.refills:
        connection.executemany(_PUT_REFILL, [(*asked, asked_ms) for asked, asked_ms in changes.refills.items()])
    _keep_time(connection, now_ms)


def _keep_time(connection: sqlite3.Connection, now_ms: int) -> None:
    connection.execute("UPDATE shard_state SET latest_ms = ?", (now_ms,))


class _Made(NamedTuple, Generic[Result]):
    """The outcome of a transaction's change: its result, its time, and its encoded actions for the outbox."""

    result: Result
    committed_ms: int
    outbox: Sequence[bytes] = ()


def _put_outbox(connection: sqlite3.Connection, made: Sequence[_Made[Any]]) -> None:
    """Writes the actions of a transaction into the outbox. Those that committed in the same ms share rows."""
    rows = [
        (committed_ms, count, body)
        for committed_ms, some in itertools.groupby((each for each in made if each.outbox), lambda each: each[1])
        for count, body in outbox_rows(itertools.chain.from_iterable(each.outbox for each in some))
    ]
    if not rows:
        return
    (first,) = connection.execute("SELECT next_outbox_id FROM shard_state").fetchone()
    connection.executemany(_PUT_OUTBOX, [(number, *row) for number, row in enumerate(rows, first)])
    connection.executemany(_PUT_UNRELAYED, [(number, count) for number, (_, count, _) in enumerate(rows, first)])
    connection.execute("UPDATE shard_state SET next_outbox_id = ?", (first + len(rows),))


# Reads
# --------------------------------------------------------------------------------------------------------------------

_FOLLOWERS: Final = "SELECT kind, followee, follower, ts, active FROM followers WHERE active >= ? AND kind = ?"
_FOLLOWERS_PAGE: Final = f"{_FOLLOWERS} AND followee = ? AND follower > ? ORDER BY follower LIMIT ?"
# The rows come in the order of the primary key: SQLite walks the ids of a list in their order, and sorts nothing.
_FOLLOWERS_OF: Final = f"{_FOLLOWERS} AND followee IN ({{}}) ORDER BY kind, followee, follower LIMIT ?"
_INDEXED: Final = "SELECT pin, owner, board, created_ms, saved_ms, deleted_ms FROM pin_index"
_NEWEST: Final = (
    f"{_INDEXED} WHERE kind = ? AND followee = ? AND created_ms BETWEEN ? AND ? AND (created_ms < ? OR pin > ?)"
    " AND saved_ms < ? AND deleted_ms IS NULL ORDER BY created_ms DESC, pin LIMIT ?"
)
_SAVED_SINCE: Final = (
    "SELECT kind, followee, saved_ms, pin, owner, board, created_ms FROM pin_index INDEXED BY pin_index_saved"
    " WHERE kind = ? AND followee = ? AND saved_ms >= ? AND (saved_ms > ? OR pin > ?) AND deleted_ms IS NULL"
    " ORDER BY saved_ms, pin LIMIT ?"
)
_BOARDS_OF: Final = (
    "SELECT owner, board FROM boards INDEXED BY boards_owner WHERE owner = ? AND board > ? ORDER BY board LIMIT ?"
)
_EDGE: Final = "SELECT follower, kind, followee, ts, active, committed_ms FROM edges"
_ACTIVE_EDGES_AFTER: Final = (
    f"{_EDGE} WHERE follower = ? AND (kind, followee) > (?, ?) AND active = 1 ORDER BY kind, followee LIMIT ?"
)
_ACTIVE_EDGES_OF: Final = f"{_EDGE} WHERE follower IN ({{}}) AND active = 1 ORDER BY follower, kind, followee LIMIT ?"
_ENDED_EDGES_AFTER: Final = (
    f"{_EDGE} WHERE follower = ? AND (kind, followee) > (?, ?) AND active = 0 AND committed_ms >= ?"
    " ORDER BY kind, followee LIMIT ?"
)
_ALL_EDGES_AFTER: Final = (
    f"{_EDGE} WHERE (follower, kind, followee) > (?, ?, ?) AND active >= ? ORDER BY follower, kind, followee LIMIT ?"
)
_EVERY_FOLLOWER_AFTER: Final = (
    "SELECT kind, followee, follower, ts, active FROM followers WHERE (kind, followee, follower) > (?, ?, ?)"
    " ORDER BY kind, followee, follower LIMIT ?"
)
_LINE: Final = "SELECT kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms FROM pin_index"
# Two statements, because times descend within a followee while the rest of the key ascends: the first reads the rest of
# a followee's lines, the second those of the followees after it.
_LINES_OF_PLACE: Final = (
    f"{_LINE} WHERE kind = ? AND followee = ? AND created_ms <= ?"
    " AND (created_ms < ? OR pin > ?) ORDER BY created_ms DESC, pin LIMIT ?"
)
_LINES_PAST_PLACE: Final = (
    f"{_LINE} WHERE (kind, followee) > (?, ?) ORDER BY kind, followee, created_ms DESC, pin LIMIT ?"
)
_FOLLOWER_ROWS: Final = (
    "WITH wanted (kind, followee, follower) AS (VALUES {})"
    " SELECT f.kind, f.followee, f.follower, f.ts, f.active FROM wanted AS w CROSS JOIN followers AS f"
    " ON f.kind = w.kind AND f.followee = w.followee AND f.follower = w.follower"
)
_LINES: Final = (
    "WITH wanted (kind, followee, created_ms, pin) AS (VALUES {}) SELECT i.kind, i.followee, i.created_ms, i.pin,"
    " i.owner, i.board, i.saved_ms, i.deleted_ms FROM wanted AS w CROSS JOIN pin_index AS i"
    " ON i.kind = w.kind AND i.followee = w.followee AND i.created_ms = w.created_ms AND i.pin = w.pin"
)

_EXPIRE_FOLLOWERS: Final = (
    "DELETE FROM followers WHERE (kind, followee, follower) IN"
    " (SELECT kind, followee, follower FROM followers WHERE active = 0 AND ts < ? ORDER BY ts LIMIT ?)"
)
_EXPIRE_PIN_INDEX: Final = (
    "DELETE FROM pin_index WHERE (kind, followee, created_ms, pin) IN"
    " (SELECT kind, followee, created_ms, pin FROM pin_index WHERE deleted_ms < ? ORDER BY deleted_ms LIMIT ?)"
)
_OUTBOX_FROM_ITS_OLDEST: Final = (
    "SELECT o.id, o.actions, o.committed_ms, u.id IS NULL FROM outbox AS o"
    " LEFT JOIN outbox_unrelayed AS u ON u.id = o.id ORDER BY o.id"
)
_EXPIRE_KEYS: Final = (
    "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE committed_ms < ? ORDER BY committed_ms LIMIT ?)"
)
_EXPIRE_REFILLS: Final = (
    "DELETE FROM refills WHERE (user, cluster) IN"
    " (SELECT user, cluster FROM refills WHERE asked_ms < ? ORDER BY asked_ms LIMIT ?)"
)
_EXPIRE: Final = (_EXPIRE_FOLLOWERS, _EXPIRE_PIN_INDEX, _EXPIRE_KEYS, _EXPIRE_REFILLS)
_BRING_BACK: Final = (
    "UPDATE shard_state SET latest_ms = min(latest_ms, :to_ms)",
    "UPDATE outbox SET committed_ms = :to_ms WHERE committed_ms > :to_ms",
    "UPDATE keys SET committed_ms = :to_ms WHERE committed_ms > :to_ms",
    "DELETE FROM refills WHERE max(asked_ms, served_before_ms) > :to_ms",
)
_BACKLOG: Final = (
    "SELECT count(*), coalesce(sum(actions), 0),"
    " (SELECT committed_ms FROM outbox WHERE id = (SELECT min(id) FROM outbox_unrelayed)) FROM outbox_unrelayed"
)
# Counting a whole table is faster than counting the rows that meet a condition.
_COUNTS: Final = """
    SELECT
        (SELECT count(*) FROM edges WHERE active = 1 AND follower < ?1),
        (SELECT count(*) FROM edges WHERE active = 0 AND follower < ?1),
        (SELECT count(*) FROM boards) - (SELECT count(*) FROM boards WHERE board >= ?1),
        (SELECT count(*) FROM pins) - (SELECT count(*) FROM pins WHERE pin >= ?1),
        (SELECT count(*) FROM pins WHERE deleted_ms IS NOT NULL),
        (SELECT coalesce(sum(actions), 0) FROM outbox_unrelayed)
"""


def _old_outbox(connection: sqlite3.Connection, before_ms: int, limit: int) -> list[tuple[int, int]]:
    """The oldest relayed rows of the outbox, (id, number of actions), that committed before a time: as many as it takes
    to have `limit` actions.
    """
    # Ids ascend as commit times do, and rows are stepped through one by one: what is younger is not looked at. While
    # the queue is away, that may be millions of rows, none of them relayed.
    with closing(connection.execute(_OUTBOX_FROM_ITS_OLDEST)) as rows:
        of_before = itertools.takewhile(lambda row: row[2] < before_ms, rows)
        old = [(number, count) for number, count, *_ in itertools.islice((row for row in of_before if row[3]), limit)]
    return old[: reaching([count for _, count in old], limit)]


class SQLiteShard:
    """A Shard in a SQLite database."""

    def __init__(self, database: SqliteFile, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def now_ms(self) -> int:
        with self._database.read() as connection:
            return self._stamp(connection)

    def look(self, wanted: Wanted) -> tuple[int, Standing]:
        with self._database.read() as connection:
            return self._stamp(connection), _standing(connection, wanted)

    def transact(self, wanted: Wanted, decide: Decide[Result]) -> Result:
        def change(connection: sqlite3.Connection) -> _Made[Result]:
            now_ms = self._stamp(connection)
            changes, result = decide(now_ms, _standing(connection, wanted))
            if any(changes):
                _write(connection, changes, now_ms)
            return _Made(result, now_ms, changes.outbox)

        return self._database.write_grouped(change, _put_outbox).result

    def settled_ms(self) -> int:
        # Under the write lock, no other transaction is between its stamp and its commit. The time is stored, so that
        # the next writer stamps nothing before it, whatever its clock says.
        with self._database.write() as connection:
            now_ms = self._stamp(connection)
            if self._clock() < now_ms:
                # The clock was ahead once. Without this step, time would not move until the clock has caught up.
                now_ms += 1
            _keep_time(connection, now_ms)
            oldest = connection.execute(
                "SELECT committed_ms FROM outbox WHERE id = (SELECT min(id) FROM outbox_unrelayed)"
            ).fetchone()
        return now_ms if oldest is None else min(now_ms, oldest[0])

    def _stamp(self, connection: sqlite3.Connection) -> int:
        """The transaction's time, never before one that was stamped already. The latest stamp is read from the file:
        another process may have stamped since, or brought the shard back.
        """
        latest_ms: int = connection.execute("SELECT latest_ms FROM shard_state").fetchone()[0]
        return max(self._clock(), latest_ms)

    def _many(self, template: str, width: int, keys: Sequence[Any]) -> list[Any]:
        with self._database.read() as connection:
            return list(_select_many(connection, template, width, keys))

    def refill_times(self, keys: Sequence[tuple[int, str]]) -> list[RefillRow]:
        return self._many(_REFILLS, 2, keys)

    def mark_refills_served(self, served: Mapping[tuple[int, str], int]) -> None:
        with self._database.write() as connection:
            connection.executemany(_MARK_SERVED, [(before_ms, *key) for key, before_ms in served.items()])

    def unrelayed(self, limit: int) -> list[UnrelayedRow]:
        counts = self._database.rows("SELECT actions FROM outbox_unrelayed ORDER BY id LIMIT ?", (limit,))
        if not counts:  # usual: a relay asks all the time
            return []
        # No more bodies than it takes: they are large.
        return self._database.rows(
            "SELECT o.id, o.committed_ms, u.actions, o.body FROM outbox_unrelayed AS u"
            " CROSS JOIN outbox AS o ON o.id = u.id ORDER BY u.id LIMIT ?",
            (reaching([count for (count,) in counts], limit),),
        )

    def mark_relayed(self, rows: Sequence[OutboxKey]) -> None:
        with self._database.write() as connection:
            connection.executemany(_MARK_RELAYED, rows)

    def may_relay(self) -> bool:
        return True

    def mark_unrelayed(self, before: int, limit: int) -> Marked | None:
        with self._database.write() as connection:
            rows = connection.execute(
                "SELECT id, actions, committed_ms FROM outbox WHERE id < ? ORDER BY id DESC LIMIT ?", (before, limit)
            ).fetchall()
            connection.executemany(f"{_PUT_UNRELAYED} ON CONFLICT DO NOTHING", [row[:2] for row in rows])
        return Marked(rows[-1][0], rows[-1][2], sum(row[1] for row in rows)) if rows else None

    def mark_refills_unserved(self, since_ms: int) -> None:
        with self._database.write() as connection:
            connection.execute("UPDATE refills SET served_before_ms = ?1 WHERE served_before_ms > ?1", (since_ms,))

    def has_relayed(self) -> bool:
        return bool(
            self._database.rows(
                "SELECT 1 FROM outbox WHERE id = (SELECT min(id) FROM outbox)"
                " AND id NOT IN (SELECT id FROM outbox_unrelayed)"
            )
        )

    def outbox_is_whole(self) -> bool:
        whole: int = self._database.rows(
            "SELECT next_outbox_id = 1 OR EXISTS (SELECT 1 FROM outbox WHERE id = 1) FROM shard_state"
        )[0][0]
        return bool(whole)

    def backlog(self) -> Backlog:
        return Backlog(*self._database.rows(_BACKLOG)[0])

    def index_followers(self, rows: Sequence[FollowerRow]) -> None:
        with self._database.write() as connection:
            _put(connection, _PUT_FOLLOWER, 5, rows)

    def index_pins(self, rows: Sequence[PinIndexRow]) -> None:
        with self._database.write() as connection:
            _put(connection, _PUT_PIN_INDEX, 8, rows)
            sqlite_boards.drop(connection, deleted_on_boards(rows))
            sqlite_boards.end_quiet(connection, (row[1] for row in rows if row[0] == _BOARD))

    def followers(self, places: Sequence[EdgeKey], limit: int, *, tombstones: bool) -> list[FollowerRow]:
        active = int(not tombstones)
        rows: list[FollowerRow] = []
        with self._database.read() as connection:
            for (kind, from_first), some in itertools.groupby(places, lambda place: (place[1], place[0] == 0)):
                if len(rows) == limit:
                    break
                if from_first:
                    followees = [followee for _, _, followee in some]
                    rows += _first_of_many(connection, _FOLLOWERS_OF, (active, kind), followees, limit - len(rows))
                else:
                    for follower, _, followee in some:
                        bound = (active, kind, followee, follower, limit - len(rows))
                        rows += connection.execute(_FOLLOWERS_PAGE, bound).fetchall()
        return rows

    def edges(self, keys: Sequence[EdgeKey]) -> list[EdgeRow]:
        return self._many(_EDGES, 3, keys)

    def active_edges_after(self, places: Sequence[EdgeKey], limit: int) -> list[EdgeRow]:
        rows: list[EdgeRow] = []
        with self._database.read() as connection:
            for from_first, some in itertools.groupby(places, lambda place: place[1] < 0):
                if len(rows) == limit:
                    break
                if from_first:
                    followers = [follower for follower, _, _ in some]
                    rows += _first_of_many(connection, _ACTIVE_EDGES_OF, (), followers, limit - len(rows))
                else:
                    for place in some:
                        rows += connection.execute(_ACTIVE_EDGES_AFTER, (*place, limit - len(rows))).fetchall()
        return rows

    def ended_edges_after(self, follower: int, since_ms: int, after: Place, limit: int) -> list[EdgeRow]:
        return self._database.rows(_ENDED_EDGES_AFTER, (follower, *after, since_ms, limit))

    def newest_pins(self, places: Sequence[NewestFrom], *, saved_before_ms: int) -> list[list[PinRow]]:
        with self._database.read() as connection:
            execute = connection.cursor().execute
            return [
                execute(
                    _NEWEST, (kind, followee, created_from_ms, created, created, pin, saved_before_ms, limit)
                ).fetchall()
                for kind, followee, created, pin, created_from_ms, limit in places
            ]

    def pins_saved_since(self, places: Sequence[SavedFrom], since_ms: int, limit: int) -> list[SavedRow]:
        rows: list[SavedRow] = []
        with self._database.read() as connection:
            for kind, followee, saved_ms, pin in places:
                bound = (kind, followee, max(since_ms, saved_ms), saved_ms, pin, limit - len(rows))
                rows += connection.execute(_SAVED_SINCE, bound).fetchall()
                if len(rows) == limit:
                    break
        return rows

    def pins(self, pins: Sequence[int]) -> list[PinRow]:
        return self._many(_PINS, 1, pins)

    def deletions(self, pins: Sequence[int]) -> dict[int, int]:
        return dict(self._many(_DELETIONS, 1, pins))

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        return dict(self._many(_BOARDS, 1, boards))

    def boards_of(self, owners: Sequence[int], after: BoardRow, limit: int) -> list[BoardRow]:
        rows: list[BoardRow] = []
        with self._database.read() as connection:
            for owner in owners:
                bound = (owner, after[1] if owner == after[0] else 0, limit - len(rows))
                rows += connection.execute(_BOARDS_OF, bound).fetchall()
                if len(rows) == limit:
                    break
        return rows

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        with self._database.read() as connection:
            return sqlite_boards.run(connection, board, way, start, limit, look, marked)

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        with self._database.read() as connection:
            return list(sqlite_boards.pins(connection, board, keys))

    def arrange(
        self, board: int, named: Sequence[PinIndexRow], decide: Arrange[Result], *, synced: bool = True
    ) -> Result:
        def change(connection: sqlite3.Connection) -> _Made[Result]:
            rows = sqlite_boards.SQLiteBoardRows(connection, board)
            entered = rows.enter(named)
            now_ms = self._stamp(connection)
            arranged, result = decide(now_ms, rows)
            if arranged is None:
                sqlite_boards.remove(connection, entered)
                return _Made(result, now_ms)
            sqlite_boards.write(connection, board, arranged.placed, arranged.dropped)
            if arranged.outbox:
                _keep_time(connection, now_ms)
            return _Made(result, now_ms, arranged.outbox)

        if synced:
            return self._database.write_grouped(change, _put_outbox).result
        with self._database.write(synced=False) as connection:
            made = change(connection)
            _put_outbox(connection, [made])
        return made.result

    def sync_arranged(self) -> None:
        self._database.sync()

    def next_arranged_board(self, after: int) -> int | None:
        [(board,)] = self._database.rows("SELECT min(board) FROM placed_pins WHERE board > ?", (after,))
        return None if board is None else int(board)

    def pins_after(self, pin: int, limit: int) -> list[PinRow]:
        return self._database.rows(_PINS_AFTER, (pin, limit))

    def all_edges_after(self, after: EdgeKey, limit: int, *, tombstones: bool) -> list[EdgeRow]:
        return self._database.rows(_ALL_EDGES_AFTER, (*after, int(not tombstones), limit))

    def all_followers_after(self, after: FollowerKey, limit: int) -> list[FollowerRow]:
        return self._database.rows(_EVERY_FOLLOWER_AFTER, (*after, limit))

    def all_lines_after(self, after: PinIndexKey, limit: int) -> list[PinIndexRow]:
        kind, followee, created_ms, pin = after
        of_place = (kind, followee, created_ms, created_ms, pin, limit)
        with self._database.read() as connection:
            rows: list[PinIndexRow] = connection.execute(_LINES_OF_PLACE, of_place).fetchall()
            rows += connection.execute(_LINES_PAST_PLACE, (kind, followee, limit - len(rows))).fetchall()
        return rows

    def follower_rows(self, keys: Sequence[FollowerKey]) -> list[FollowerRow]:
        return self._many(_FOLLOWER_ROWS, 3, keys)

    def lines(self, keys: Sequence[PinIndexKey]) -> list[PinIndexRow]:
        return self._many(_LINES, 4, keys)

    def expire(self, purge_window_ms: int, limit: int) -> int:
        gone = 0
        with self._database.write() as connection:
            before_ms = self._stamp(connection) - purge_window_ms
            for statement in _EXPIRE:
                gone += connection.execute(statement, (before_ms, limit - gone)).rowcount
            old = _old_outbox(connection, before_ms, limit - gone)
            connection.executemany("DELETE FROM outbox WHERE id = ?", [row[:1] for row in old])
        return gone + sum(count for _, count in old)

    def bring_back(self, to_ms: int) -> int:
        with self._database.write() as connection:
            latest_ms: int = connection.execute("SELECT latest_ms FROM shard_state").fetchone()[0]
            if latest_ms <= to_ms:
                return 0
            for statement in _BRING_BACK:
                connection.execute(statement, {"to_ms": to_ms})
        return latest_ms - to_ms

    def counts(self) -> RecordCounts:
        return RecordCounts(*self._database.rows(_COUNTS, (RESERVED_FROM,))[0])

    def close(self) -> None:
        self._database.close()
