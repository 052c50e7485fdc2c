"""One shard of the follow store in MySQL or MariaDB.

**Times.** A transaction takes the locks of its keys, then the row of `shard_state` shared, and only then its time; it
holds that row until it is committed. The settling caller takes the row alone: at that moment every time that was ever
stamped is committed or gone, and what is stamped later is not before the time that is left in the row. Transactions do
not wait for each other, only for the moment in which somebody settles; no tick has to run behind, and no clock has to
be right. The row is locked after the keys: a recording that holds it waits for hardly anything else, so that the
settling caller waits for a moment only. It waits longer for a transaction on the order of a board, which reads the
board and takes the lines of more pins while it holds the row (`boards`).

**Keys that do not exist yet** have no row to lock. They are inserted plainly; of two transactions the later fails on
the duplicate and begins again, and then it finds and locks the row.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pymysql

from feedstore.clocks import APART_MAX_MS, step_ms
from feedstore.domain import MAX_ID
from feedstore.follows.arranging import Arrange, LineKey, PinAt, Run, Start, Way
from feedstore.follows.mysql import boards
from feedstore.follows.mysql import statements as sql
from feedstore.follows.mysql.connections import MAX_PACKET, MySQLConnection, MySQLPool, PoolBounds, Reply, meaning
from feedstore.follows.port import Backlog, ClockStepError, RecordCounts, TransactionTooLongError
from feedstore.follows.shard import (
    BoardRow,
    Changes,
    Decide,
    EdgeKey,
    EdgeRow,
    FollowerKey,
    FollowerRow,
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
    reaching,
)
from feedstore.portions import chunks, portions

SETTLE_AGAIN_S: Final = 5.0
"""The pause after a transaction that did not end in time: while a caller waits to be alone, all others wait behind it.
"""

BROUGHT_AT_ONCE: Final = 10_000
"""About how many rows one transaction brings back: a transaction that records waits no longer than that."""

_WALKS_MAX: Final = 20

_FEW: Final = 2
"""The newest pins of up to this many followees are read apart: it takes one statement either way."""

_PAUSE_S: Final = 0.002
_PAUSE_MAX_S: Final = 0.2

_Done = TypeVar("_Done")
_Place = TypeVar("_Place")


class MySQLShard:
    """Implements `Shard`. claims: a pool of one connection, which has the claim to relay. own: the time by this
    process, in ms, which the database's is compared with. clock: replaces the database's.
    """

    def __init__(
        self,
        pool: MySQLPool,
        claims: MySQLPool,
        bounds: PoolBounds,
        own: Callable[[], int],
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._pool = pool
        self._claims = claims
        self._own = own
        self._bounds = bounds
        self._clock = clock
        self._settle_again_s = 0.0

    def now_ms(self) -> int:
        return self._time(self._rows(sql.NOW)[0])

    def look(self, wanted: Wanted) -> tuple[int, Standing]:
        packet = _Reads(wanted, sql.UNLOCKED)
        replies = self._run([*packet.statements, sql.NOW])
        time_ms = self._time(replies[-1].rows[0])
        return time_ms, packet.found(replies, time_ms).standing

    def transact(self, wanted: Wanted, decide: Decide[Result]) -> Result:
        return self._with_connection(lambda connection: self._transact(connection, wanted, decide))

    def _transact(self, connection: MySQLConnection, wanted: Wanted, decide: Decide[Result]) -> Result:
        began_s = time.monotonic()
        packet = _Reads(wanted, sql.LOCKED)
        replies = connection.run(["START TRANSACTION", *packet.statements, sql.STAMP])
        time_ms = self._time(replies[-1].rows[0])
        found = packet.found(replies[1:], time_ms)
        now_ms = max(time_ms, found.latest_ms)
        changes, result = decide(now_ms, found.standing)
        if not any(changes):
            connection.roll_back()
            return result
        self._commit(connection, _writes(changes, now_ms, found), began_s)
        return result

    def _commit(self, connection: MySQLConnection, writes: Iterable[str], began_s: float) -> None:
        """Ends a transaction. Raises FollowStoreUnavailableError if its outcome is unknown, and TransactionTooLongError
        if it took too long.
        """
        *packets, last = portions([*writes, "COMMIT"], len, MAX_PACKET)
        for each in packets:
            connection.run(each)
        took_s = time.monotonic() - began_s
        if took_s >= self._bounds.transaction_s:
            connection.roll_back()
            raise TransactionTooLongError(f"{self._pool.server}: a transaction took {took_s:.1f} s and was aborted")
        try:
            connection.run(last)
        except (pymysql.MySQLError, OSError) as error:
            if connection.open:
                raise  # the server has answered: it did not commit
            self._pool.forget_idle()
            raise self._pool.unavailable(error, "lost while it committed, with an unknown outcome: ") from error

    def settled_ms(self) -> int:
        settled_ms = self._settle()
        oldest_ms = self._rows(sql.OLDEST_UNRELAYED)[0][0]
        return settled_ms if oldest_ms is None else min(settled_ms, int(oldest_ms))

    def _settle(self) -> int:
        """The latest time that was settled: now, unless some transaction takes long."""
        if time.monotonic() >= self._settle_again_s:
            now_ms = None if self._clock is None else self._clock()
            try:
                with self._pool.lend() as connection:
                    settled_ms = connection.run([sql.settle(now_ms, self._own())])[0].last_id
            except (pymysql.MySQLError, OSError) as error:
                # A connection may have died in the pool; the next attempt is as good as a repetition.
                match meaning(error):
                    case "again":
                        self._settle_again_s = time.monotonic() + SETTLE_AGAIN_S
                    case "lost":
                        self._pool.forget_idle()
                    case "full" | "failed":
                        raise self._pool.unavailable(error) from error
            else:
                if settled_ms:
                    return settled_ms
                self.now_ms()  # says why nothing was settled, unless the clock has just been set
        return int(self._rows(sql.LATEST)[0][0])

    def _time(self, row: tuple[Any, ...]) -> int:
        """Never before what was settled, whatever the clock says. row: (settled time, the database's time).

        Raises ClockStepError: the clock has stepped ahead, and so would all that is stamped by it.
        """
        latest_ms, now_ms = int(row[0]), int(row[1]) if self._clock is None else self._clock()
        ahead_ms = step_ms(now_ms, latest_ms, self._own())
        if ahead_ms is not None:
            raise ClockStepError(
                f"{self._pool.server}: its clock is {ahead_ms:,} ms ahead of what this process and those before it"
                " say: set that server's clock. If it is right, start this process again: its own was wrong",
                ahead_ms,
            )
        return max(latest_ms, now_ms)

    # The outbox
    # -----------------------------------------------------------------------------------------------------------

    def refill_times(self, keys: Sequence[tuple[int, str]]) -> list[RefillRow]:
        return [
            (user, cluster.decode(), *times) for user, cluster, *times in self._all(sql.refills(keys, sql.UNLOCKED))
        ]

    def mark_refills_served(self, served: Mapping[tuple[int, str], int]) -> None:
        self._write(sql.mark_refills_served(served))

    def unrelayed(self, limit: int) -> list[UnrelayedRow]:
        return sorted(self._all([sql.unrelayed(limit)]))

    def mark_relayed(self, rows: Sequence[OutboxKey]) -> None:
        self._write(sql.mark_relayed(rows))

    def may_relay(self) -> bool:
        # On a connection that does nothing else. The server has never more to send to it than a number, so it notices
        # that a host is gone as soon as nothing comes from there.
        lock = sql.lock(self._pool.server.lock_name(".relay"))
        return self._with_connection(lambda connection: bool(connection.rows(lock)[0][0]), self._claims)

    def mark_unrelayed(self, before: int, limit: int) -> Marked | None:
        return self._with_connection(lambda connection: self._mark_unrelayed(connection, before, limit))

    def _mark_unrelayed(self, connection: MySQLConnection, before: int, limit: int) -> Marked | None:
        # Locked: a row that expires between the look and the mark would leave its mark behind for good.
        rows = connection.run(["START TRANSACTION", sql.outbox_before(before, limit)])[-1].rows
        if not rows:
            connection.roll_back()
            return None
        for packet in portions([*sql.mark_unrelayed(rows), "COMMIT"], len, MAX_PACKET):
            connection.run(packet)
        return Marked(int(rows[-1][0]), int(rows[-1][1]), sum(int(row[2]) for row in rows))

    def mark_refills_unserved(self, since_ms: int) -> None:
        self._write([sql.mark_refills_unserved(since_ms)])

    def has_relayed(self) -> bool:
        return bool(self._rows(sql.A_RELAYED))

    def outbox_is_whole(self) -> bool:
        # An outbox that is empty has had rows if anything was recorded: records stay.
        return bool(self._rows(sql.OUTBOX_IS_WHOLE)[0][0])

    def backlog(self) -> Backlog:
        [(rows, actions, oldest_ms)] = self._rows(sql.BACKLOG)
        return Backlog(int(rows), int(actions), None if oldest_ms is None else int(oldest_ms))

    # Index writes
    # -----------------------------------------------------------------------------------------------------------

    def index_followers(self, rows: Sequence[FollowerRow]) -> None:
        self._write(sql.index_followers(rows))

    def index_pins(self, rows: Sequence[PinIndexRow]) -> None:
        self._write(itertools.chain(sql.index_pins(rows), boards.drop(deleted_on_boards(rows))))

    # Boards in their own order
    # -----------------------------------------------------------------------------------------------------------

    def board_run(self, board: int, way: Way, start: Start, limit: int, look: int, marked: Sequence[LineKey]) -> Run:
        return boards.run_of(self._rows(boards.board_run(board, way, start, limit, look, marked)), way, limit)

    def board_pins(self, board: int, keys: Sequence[LineKey]) -> list[PinAt]:
        return [boards.pin_at(*row[1:6]) for row in self._all(boards.board_pins(board, keys))]

    def arrange(
        self, board: int, named: Sequence[PinIndexRow], decide: Arrange[Result], *, synced: bool = True
    ) -> Result:
        del synced  # the server syncs each transaction, or as its administrators have decided

        return self._with_connection(lambda connection: self._arrange(connection, board, named, decide))

    def sync_arranged(self) -> None:
        pass

    def _arrange(
        self, connection: MySQLConnection, board: int, named: Sequence[PinIndexRow], decide: Arrange[Result]
    ) -> Result:
        began_s = time.monotonic()
        look = boards.Look(board, [LineKey(row[2], row[3]) for row in named])
        _, lock, *replies = connection.run(["START TRANSACTION", boards.lock(board), *look.statements, sql.STAMP])
        now_ms = self._time(replies[-1].rows[0])
        at = look.found(replies)
        missing = [row for row in named if row[3] not in at]
        first = [] if lock.rows else [boards.insert_lock(board)]
        if first or missing:
            connection.run([*first, *([boards.enter(missing)] if missing else [])])
        at |= {row[3]: PinAt(row[3], row[2], alive=True, sequence=None, moved_ms=0) for row in missing}
        rows = boards.MySQLBoardRows(connection, board, at)
        arranged, result = decide(now_ms, rows)
        if arranged is None or not (missing or any(arranged)):
            connection.roll_back()
            return result
        self._commit(connection, [*rows.writes(arranged), *sql.insert_outbox(arranged.outbox, now_ms)], began_s)
        return result

    # Reads
    # -----------------------------------------------------------------------------------------------------------

    def followers(self, places: Sequence[EdgeKey], limit: int, *, tombstones: bool) -> list[FollowerRow]:
        return self._first(
            places, limit, lambda some, most: self._packed(sql.followers(some, most, tombstones=tombstones), 5)
        )

    def edges(self, keys: Sequence[EdgeKey]) -> list[EdgeRow]:
        return self._all(sql.edges(keys, sql.UNLOCKED))

    def active_edges_after(self, places: Sequence[EdgeKey], limit: int) -> list[EdgeRow]:
        return self._first(places, limit, lambda some, most: self._all([sql.active_edges_after(some, most)]))

    def ended_edges_after(self, follower: int, since_ms: int, after: Place, limit: int) -> list[EdgeRow]:
        return self._all([sql.ended_edges_after(follower, since_ms, after, limit)])

    def newest_pins(self, places: Sequence[NewestFrom], *, saved_before_ms: int) -> list[list[PinRow]]:
        tops = {(each.kind, each.followee): each.limit for each in places if _is_whole(each)}
        # With one or two, the other statement is as cheap.
        whole = self._whole_pins(tops, saved_before_ms) if len(tops) > _FEW else {}
        found: list[list[PinRow] | None] = [
            whole.get((each.kind, each.followee)) if _is_whole(each) else None for each in places
        ]
        rest = [place for place, rows in zip(places, found, strict=True) if rows is None]
        others = iter(self._newest_of_each(rest, saved_before_ms))
        return [
            next(others) if rows is None else rows[: place.limit] for place, rows in zip(places, found, strict=True)
        ]

    def _whole_pins(
        self, limits: Mapping[tuple[int, int], int], saved_before_ms: int
    ) -> dict[tuple[int, int], list[PinRow]]:
        """All pins of those (kind, id) that have few. A statement costs by the places that it asks for, and most
        followees have few pins: reading all pins of some hundred is cheaper than reading the newest of each.

        limits: how many pins of each are wanted. No more rows are read than that.
        """
        found: dict[tuple[int, int], list[PinRow]] = {}
        for some in chunks(sorted(limits), sql.VALUES_A_LIST):
            most = sum(min(sql.WHOLE_ROWS_A_FOLLOWEE, limits[followee]) for followee in some)
            rows = self._packed(sql.packed(sql.whole_pins(some, saved_before_ms, most), sql.WHOLE_COLUMNS), 8)
            # The last one of a full page may have more.
            is_complete = len(rows) < most
            for followee in some:
                if is_complete or followee < rows[-1][:2]:
                    found[followee] = []
            for kind, followee_id, order_ms, pin, owner, board, saved_ms, hidden in rows:
                if not hidden and (kind, followee_id) in found:
                    found[kind, followee_id].append((pin, owner, board, -order_ms, saved_ms, None))
        return found

    def _newest_of_each(self, places: Sequence[NewestFrom], saved_before_ms: int) -> list[list[PinRow]]:
        found: list[list[PinRow]] = []
        for some in sql.newest_chunks(places):
            statement = sql.newest_pins(some, saved_before_ms)
            rows = (
                self._packed(sql.packed(statement, sql.NEWEST_COLUMNS), 6)
                if some[0].limit <= sql.PACKED_ROWS
                else sorted(self._rows(statement))
            )
            of_each: list[list[PinRow]] = [[] for _ in some]
            for place, order_ms, pin, owner, board, saved_ms in rows:
                of_each[place].append((pin, owner, board, -order_ms, saved_ms, None))
            found += of_each
        return found

    def pins_saved_since(self, places: Sequence[SavedFrom], since_ms: int, limit: int) -> list[SavedRow]:
        return self._first(places, limit, lambda some, most: self._all([sql.pins_saved_since(some, since_ms, most)]))

    def pins(self, pins: Sequence[int]) -> list[PinRow]:
        return self._all(sql.pins(pins, sql.UNLOCKED))

    def deletions(self, pins: Sequence[int]) -> dict[int, int]:
        return dict(self._all(sql.deletions(pins)))

    def board_owners(self, boards: Sequence[int]) -> dict[int, int]:
        return dict(self._all(sql.boards(boards, sql.UNLOCKED)))

    def boards_of(self, owners: Sequence[int], after: BoardRow, limit: int) -> list[BoardRow]:
        return self._first(owners, limit, lambda some, most: self._all([sql.boards_of(some, after, most)]))

    def next_arranged_board(self, after: int) -> int | None:
        [(board,)] = self._rows(boards.next_arranged(after))
        return None if board is None else int(board)

    def pins_after(self, pin: int, limit: int) -> list[PinRow]:
        rows = self._packed(sql.pins_after(pin, limit), 6)
        return [(*row, None if deleted_ms < 0 else deleted_ms) for *row, deleted_ms in rows]  # type: ignore[misc]

    def all_edges_after(self, after: EdgeKey, limit: int, *, tombstones: bool) -> list[EdgeRow]:
        return self._all([sql.all_edges_after(after, limit, tombstones=tombstones)])

    def all_followers_after(self, after: FollowerKey, limit: int) -> list[FollowerRow]:
        return self._all([sql.all_followers_after(after, limit)])

    def all_lines_after(self, after: PinIndexKey, limit: int) -> list[PinIndexRow]:
        return self._all([sql.all_lines_after(after, limit)])

    def follower_rows(self, keys: Sequence[FollowerKey]) -> list[FollowerRow]:
        return self._all(sql.follower_rows(keys))

    def lines(self, keys: Sequence[PinIndexKey]) -> list[PinIndexRow]:
        return self._all(sql.lines(keys))

    # Upkeep
    # -----------------------------------------------------------------------------------------------------------

    def expire(self, purge_window_ms: int, limit: int) -> int:
        before_ms = self.now_ms() - purge_window_ms
        gone = 0
        for old, drop in (
            (sql.old_follower_tombstones, sql.drop_follower_tombstones),
            (sql.old_deleted_pins, sql.drop_deleted_pins),
        ):
            rows: list[Any] = self._all([old(before_ms, limit - gone)])
            self._write(drop(rows, before_ms))
            gone += len(rows)
        old_rows = self._old_outbox(before_ms, limit - gone)
        self._write(sql.drop_outbox([number for number, _ in old_rows]))
        gone += sum(actions for _, actions in old_rows)
        for drop_old in (sql.drop_keys, sql.drop_refills):
            gone += sum(reply.affected for reply in self._run([drop_old(before_ms, max(0, limit - gone))]))
        return gone

    def _old_outbox(self, before_ms: int, limit: int) -> list[tuple[int, int]]:
        """The oldest relayed rows of the outbox, (id, number of actions), that committed before a time: as many as it
        takes to have `limit` actions.
        """
        old: list[tuple[int, int]] = []
        after: int | None = 0
        while after is not None and len(old) < limit:
            rows: list[tuple[int, int, int, int]] = self._all([sql.outbox_after(after, limit)])
            old += [(number, count) for number, ms, count, is_relayed in rows if is_relayed and ms < before_ms]
            # Ids ascend nearly as commit times do: what is younger is not looked at. While the queue is away, that may
            # be millions of rows, none of them relayed.
            after = rows[-1][0] if len(rows) == limit and rows[-1][1] < before_ms else None
        return old[: reaching([count for _, count in old], limit)]

    def bring_back(self, to_ms: int) -> int:
        # The time of the shard is set after the first walk: until then it shows that this is unfinished. But rows that
        # users record until then are ahead, and so are those that they record later with such a row: these need further
        # walks. One that finds nothing is the last.
        began_s = time.monotonic()
        ahead_ms = max(int(self._rows(sql.LATEST)[0][0]) - to_ms, self._bring_rows_back(to_ms, began_s))
        if ahead_ms <= 0:
            return 0
        self._write([sql.bring_state_back(to_ms)])
        for _ in range(_WALKS_MAX):
            if not self._bring_rows_back(to_ms, began_s):
                return ahead_ms
        raise self._pool.unavailable(f"rows were ahead again after {_WALKS_MAX} walks: something records many of them")

    def _bring_rows_back(self, to_ms: int, began_s: float) -> int:
        """Brings back the rows that are ahead, in short transactions: a whole table may take longer than a reply may,
        and users wait. Returns by how much the latest row was ahead, or 0. began_s: when it was `to_ms`.

        What users record now by a clock that is right is later than `to_ms`, too, and stays as it is. A row that is
        ahead by no more than clocks may differ does no harm until that time has come.
        """
        ahead_ms = 0
        for dated in sql.DATED:
            end: str | None = dated.first
            while end is not None:
                after = end
                ends = self._rows(sql.portion_end(dated, after, BROUGHT_AT_ONCE))
                end = sql.literal(ends[0][0]) if ends else None
                part = sql.part(dated, after, end)
                found_ms = int(self._rows(sql.latest_in(dated, part))[0][0] or 0)
                later_ms = to_ms + int((time.monotonic() - began_s) * 1_000) + APART_MAX_MS
                if found_ms > later_ms:
                    self._write([dated.back(part, later_ms, to_ms)])
                    ahead_ms = max(ahead_ms, found_ms - to_ms)
        return ahead_ms

    def counts(self) -> RecordCounts:
        return RecordCounts(*map(int, self._rows(sql.COUNTS)[0]))

    def close(self) -> None:
        self._pool.close()
        self._claims.close()

    # Round trips
    # -----------------------------------------------------------------------------------------------------------

    def _rows(self, statement: str) -> Sequence[tuple[Any, ...]]:
        return self._run([statement])[0].rows

    def _all(self, statements: Iterable[str]) -> list[Any]:
        return list(itertools.chain.from_iterable(reply.rows for reply in self._run(list(statements))))

    def _first(
        self, places: Sequence[_Place], limit: int, read: Callable[[Sequence[_Place], int], list[Any]]
    ) -> list[Any]:
        """The first `limit` rows of some places, in their order. read: reads up to a number of rows of some of them."""
        rows: list[Any] = []
        for chunk in chunks(places, sql.VALUES_A_LIST):
            rows += read(chunk, limit - len(rows))
            if len(rows) == limit:
                break
        return rows

    def _packed(self, statement: str, width: int) -> list[tuple[int, ...]]:
        try:
            return sql.unpacked(self._rows(statement)[0], width)
        except ValueError as error:
            raise self._pool.unavailable(f"the server cut a page off: {error}") from error

    def _run(self, statements: Sequence[str]) -> list[Reply]:
        """Independent statements, which may be repeated."""
        return self._with_connection(
            lambda connection: [
                reply for packet in portions(statements, len, MAX_PACKET) for reply in connection.run(packet)
            ]
        )

    def _write(self, statements: Iterable[str]) -> None:
        """One transaction, which may be repeated whether it was committed or not."""
        writes = list(statements)
        if len(writes) > 1:
            writes = ["START TRANSACTION", *writes, "COMMIT"]
        self._run(writes)

    def _with_connection(self, attempt: Callable[[MySQLConnection], _Done], pool: MySQLPool | None = None) -> _Done:
        """Repeats what deadlocked or came too late, for as long as a transaction may take; what failed because its
        connection had died in the pool, once more on a new one.
        """
        pool = pool or self._pool
        deadline_s = time.monotonic() + self._bounds.transaction_s
        pause_s = _PAUSE_S
        while True:
            reused = False
            try:
                with pool.lend() as connection:
                    reused = connection.reused
                    return attempt(connection)
            except (pymysql.MySQLError, OSError) as error:
                means = meaning(error)
                if means == "lost":
                    pool.forget_idle()
                if not (means == "again" or (means == "lost" and reused)) or time.monotonic() >= deadline_s:
                    raise self._pool.unavailable(error) from error
            # Two that collided must not collide again.
            time.sleep(random.uniform(0, pause_s))  # noqa: S311 - jitter needs no secrecy
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


# What a transaction reads
# --------------------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """standing: the stored records; the deciding caller owns them. known: the keys that had records, by kind.
    latest_ms: the latest time that any of these records was written at: the transaction is not earlier. Pins that were
    written under a clock which was far ahead, and was set since, do not count.
    """

    standing: Standing
    known: Standing
    latest_ms: int


class _Reads:
    """The statements that read what is wanted, in the order in which every transaction takes its locks."""

    def __init__(self, wanted: Wanted, lock: str) -> None:
        groups = (
            sql.clocks(wanted.clocks, lock),
            sql.edges(wanted.edges, lock),
            sql.boards(wanted.boards, lock),
            sql.pins(wanted.pins, lock),
            sql.request_keys(wanted.keys, lock),
            sql.refills(wanted.refills, lock),
        )
        self._groups = [list(group) for group in groups]
        self.statements = [statement for group in self._groups for statement in group]

    def found(self, replies: Sequence[Reply], now_ms: int) -> _Found:
        rest = iter(replies)
        clocks, edges, boards, pins, keys, refills = (
            [row for _ in group for row in next(rest).rows] for group in self._groups
        )
        standing = Standing(
            clocks={follower: last_ts for follower, last_ts, _ in clocks},
            edges={row[:3]: row for row in edges},
            boards=dict(boards),
            pins={row[0]: row for row in pins},
            keys={key.decode(): (fingerprint, answer) for key, fingerprint, answer, _ in keys},
            refills={(user, cluster.decode()): asked_ms for user, cluster, asked_ms, _ in refills},
        )
        pins_ms = (max(row[4], row[5] or 0) for row in pins)
        times = (
            *(row[2] for row in clocks),
            *(row[5] for row in edges),
            # `bring_back` leaves them as they are. All that is committed with such a pin would be ahead, and its users.
            *(time_ms for time_ms in pins_ms if time_ms <= now_ms + APART_MAX_MS),
            *(row[3] for row in keys),
            *(row[2] for row in refills),
        )
        return _Found(standing, Standing(*map(dict, standing)), max(times, default=0))  # type: ignore[arg-type]


# What a transaction writes
# --------------------------------------------------------------------------------------------------------------------


def _is_whole(place: NewestFrom) -> bool:
    """Whether it begins at a followee's newest pin, and has no earliest time."""
    return (place.created_ms, place.pin, place.created_from_ms) == (MAX_ID, 0, 0)


def _writes(changes: Changes, now_ms: int, found: _Found) -> Iterator[str]:
    known = found.known
    for new, clocks in _parted(changes.clocks, known.clocks):
        yield from sql.put_clocks(clocks, now_ms, new=new)
    yield from sql.put_edges(changes.edges.values())
    yield from sql.insert_boards(changes.boards.items())
    for new, pins in _parted(changes.pins, known.pins):
        yield from sql.put_pins((row for _, row in pins), new=new)
    for new, keys in _parted(changes.keys, known.keys):
        yield from sql.put_keys(keys, now_ms, new=new)
    for new, refills in _parted(changes.refills, known.refills):
        yield from sql.put_refills(refills, new=new)
    yield from sql.insert_outbox(changes.outbox, now_ms)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _parted(changed: dict[_Key, _Value], known: dict[_Key, Any]) -> Iterator[tuple[bool, list[tuple[_Key, _Value]]]]:
    """The items whose rows were there when they were looked for, and those whose rows were not (True)."""
    for new in (False, True):
        yield new, [item for item in changed.items() if (item[0] not in known) == new]
