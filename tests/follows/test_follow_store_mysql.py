"""Errors that only a database behind a network can have: other transactions in between, connections that end, servers
that have changed, and times under all of that.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import mysql_places
import pymysql
import pytest
from board_tools import BOARD, a_board, asked, relay, shown
from follow_places import NOW, FakeClock
from killed import Recording, check_both_or_neither
from pymysql.constants import ER

from feedstore.boards import Boards, Move
from feedstore.domain import Edge, Follow, Followed, Pin, PinDeleted, PinSaved, SavePin, board, user
from feedstore.follows import mysql
from feedstore.follows.mysql import shard as mysql_shard
from feedstore.follows.mysql import statements
from feedstore.follows.mysql.connections import Meaning, MySQLConnection, PoolBounds, Reply, meaning
from feedstore.follows.port import (
    FollowStoreUnavailableError,
    OutdatedStoreError,
    Request,
    TransactionTooLongError,
    WrongStoreError,
    actions_in,
)
from feedstore.follows.shard import Changes, NewestFrom, SavedFrom, Standing, Wanted
from feedstore.follows.store import FollowStore
from feedstore.follows.versions import latest
from workers.boards import Respacing

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("mysql"), pytest.mark.usefixtures("mariadb")]

Opener = Callable[..., FollowStore]
DAY_MS = 86_400_000


@pytest.fixture
def where() -> mysql.MySQLServer:
    """An empty store of one shard."""
    return mysql_places.fresh(1)[0]


@pytest.fixture
def open_one(where: mysql.MySQLServer) -> Iterator[Opener]:
    opened: list[FollowStore] = []

    def opener(bounds: PoolBounds | None = None, clock: Callable[[], int] | None = None) -> FollowStore:
        opened.append(mysql.open_store([where], clock or FakeClock(), bounds))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def raw(where: mysql.MySQLServer) -> Iterator[MySQLConnection]:
    """A connection that belongs to no store."""
    connection = mysql_places.connect(where)
    yield connection
    connection.close()


def shard_of(store: FollowStore) -> mysql.MySQLShard:
    return store._shards[0]


def follow(store: FollowStore, follower: int) -> Followed:
    (answer,) = store.record([Request(Follow(follower, board(99)))])
    return answer


def nothing(_: int, standing: Standing) -> tuple[Changes, Standing]:
    return Changes.none(), standing


# The outbox
# --------------------------------------------------------------------------------------------------------------------


def test_a_row_that_is_marked_again_just_before_it_expires_leaves_no_mark_behind(
    open_one: Opener, monkeypatch: pytest.MonkeyPatch
):
    """Its time would stay the oldest that is not relayed, and no watermark would move any more."""
    clock = FakeClock()
    store, other = open_one(clock=clock), open_one(clock=clock)
    follow(store, 1)
    store.mark_relayed(store.unrelayed(10))
    clock.advance(10 * DAY_MS)
    drop = statements.drop_outbox

    def dropped(ids: Sequence[int]) -> Iterator[str]:
        assert other.relay_again().actions == 1
        return drop(ids)

    monkeypatch.setattr(statements, "drop_outbox", dropped)
    assert store.expire(DAY_MS, 100) == 1
    assert (store.backlog().actions, store.unrelayed(10)) == (0, [])
    assert store.settled_ms() == clock.ms


def test_no_row_expires_while_it_is_marked_again(
    open_one: Opener, raw: MySQLConnection, monkeypatch: pytest.MonkeyPatch
):
    store = open_one()
    follow(store, 1)
    mark, refused = statements.mark_unrelayed, []

    def marked(rows: Sequence[tuple[int, int, int]]) -> Iterator[str]:
        with pytest.raises(pymysql.OperationalError) as caught:
            raw.run(["SELECT id FROM outbox FOR UPDATE NOWAIT"])
        refused.append(caught)
        return mark(rows)

    monkeypatch.setattr(statements, "mark_unrelayed", marked)
    assert store.relay_again().actions == 1
    assert len(refused) == 1
    raw.run(["SELECT id FROM outbox FOR UPDATE NOWAIT"])


# Rule 4: fresh snapshots
# --------------------------------------------------------------------------------------------------------------------


def test_rule_4_every_read_on_one_connection_sees_what_another_has_committed_meanwhile(
    open_one: Opener, raw: MySQLConnection
):
    store = open_one(PoolBounds(connections=1))
    place = (user(7), None, 10)
    assert store.followers([place[0]], None, 10, tombstones=True) == []
    with shard_of(store)._pool.lend() as only:
        thread = only.rows("SELECT CONNECTION_ID()")[0][0]
    raw.run(["START TRANSACTION", *statements.index_followers([(1, 7, 1, 50, 1)])])
    assert store.followers([place[0]], None, 10, tombstones=True) == []
    raw.run(["COMMIT"])
    assert store.followers([place[0]], None, 10, tombstones=True) == [(user(7), 1, 50, True)]
    raw.run(statements.index_followers([(1, 7, 1, 60, 0)]))
    assert store.followers([place[0]], None, 10, tombstones=True) == [(user(7), 1, 60, False)]
    with shard_of(store)._pool.lend() as only:
        assert only.rows("SELECT CONNECTION_ID()")[0][0] == thread, "all of it went through one connection"


def test_rule_4_no_call_leaves_a_transaction_open(open_one: Opener):
    store = open_one()
    follow(store, 1)
    store.index(edges=[Edge(1, board(99), NOW, active=True)])
    store.index(pins=[PinSaved(Pin(5, 7, 70, 1), NOW)])
    store.newest_pins([user(7)], 5)
    store.mark_relayed(store.unrelayed(5))
    shard_of(store).transact(Wanted(clocks=[1]), nothing)
    store.settled_ms()
    store.expire(0, 10)
    assert [each.in_transaction for each in shard_of(store)._pool._idle] == [False]
    with shard_of(store)._pool.lend() as connection:
        connection.run(["START TRANSACTION"])
    assert not shard_of(store)._pool._idle, "one that was left open is closed"


# Transactions at the same time
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.alone  # it looks at the time
def test_transactions_on_other_keys_do_not_wait_for_each_other(open_one: Opener):
    store, other = open_one(), open_one()

    def decide(now_ms: int, _: Standing) -> tuple[Changes, int]:
        follow(other, 2)
        changes = Changes.none()
        changes.outbox.append(b"{}")
        return changes, now_ms

    began_s = time.monotonic()
    assert shard_of(store).transact(Wanted(clocks=[1]), decide) == NOW
    assert time.monotonic() - began_s < 1


def test_what_did_not_stand_and_does_when_it_is_written_is_decided_again(open_one: Opener):
    """Of two that create one record the later begins again, and sees it."""
    store, other = open_one(), open_one()
    saw: list[dict[int, int]] = []

    def decide(now_ms: int, standing: Standing) -> tuple[Changes, None]:
        saw.append(dict(standing.boards))
        if len(saw) == 1:
            other.record([Request(SavePin(Pin(5, 8, 70, 1)))])
        changes = Changes.none()
        if 70 not in standing.boards:
            changes.boards[70] = 7
        return changes, None

    shard_of(store).transact(Wanted(boards=[70]), decide)
    assert saw == [{}, {70: 8}]
    assert store.board_owners([70]) == {70: 8}


@pytest.mark.alone  # it looks at a counter of the whole server
def test_a_deadlock_is_decided_again(open_one: Opener, raw: MySQLConnection, monkeypatch: pytest.MonkeyPatch):
    errors: list[object] = []

    def meant(error: BaseException) -> Meaning:
        errors.append(error.args[0])
        return meaning(error)

    monkeypatch.setattr(mysql_shard, "meaning", meant)
    store = open_one(clock=FakeClock(NOW + 5))
    for follower in (1, 2):
        follow(store, follower)
    lock = "SELECT * FROM clocks WHERE follower = {} FOR UPDATE"
    # The transaction that has written less is the victim.
    raw.run(["START TRANSACTION", *statements.put_edges([(9, 0, each, 1, 1, 1) for each in range(1, 50)])])
    raw.run([lock.format(2)])
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(store.record, [Request(Follow(follower, board(3))) for follower in (1, 2)])
        until(lambda: waiting(raw))
        raw.run([lock.format(1)])
        raw.run(["ROLLBACK"])
    assert ER.LOCK_DEADLOCK in errors
    assert [answer.ts for answer in recording.result()] == [NOW + 6, NOW + 6]
    assert store.backlog().actions == 4


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def waiting(connection: MySQLConnection) -> bool:
    """By a counter of the server itself, which every user may read."""
    ((_, value),) = connection.rows("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
    return int(value) > 0


def test_a_lock_that_is_never_given_is_given_up(open_one: Opener, raw: MySQLConnection):
    store = open_one(PoolBounds(lock_wait_s=1, transaction_s=1.0))
    follow(store, 1)
    raw.run(["START TRANSACTION", "SELECT * FROM clocks WHERE follower = 1 FOR UPDATE"])
    with pytest.raises(FollowStoreUnavailableError, match="Lock wait timeout exceeded"):
        follow(store, 1)
    raw.run(["ROLLBACK"])
    follow(store, 1)
    assert store.backlog().actions == 2


def test_a_relay_waits_for_no_action_that_is_being_recorded(open_one: Opener, raw: MySQLConnection):
    # Of a small table, a server reads every row rather than those that are asked for, and waits for locks on the way.
    store = open_one(PoolBounds(lock_wait_s=1, transaction_s=1.0))
    for follower in (1, 2, 3):
        follow(store, follower)
    rows = store.unrelayed(10)
    raw.run(["START TRANSACTION", *statements.insert_outbox([b"{}"], NOW)])
    store.mark_relayed(rows)
    raw.run(["ROLLBACK"])
    assert store.backlog().actions == 0


def test_an_outbox_expires_while_actions_are_recorded(open_one: Opener, raw: MySQLConnection):
    clock = FakeClock()
    store = open_one(PoolBounds(lock_wait_s=1, transaction_s=1.0), clock)
    for follower in (1, 2, 3):
        follow(store, follower)
    store.mark_relayed(store.unrelayed(10))
    clock.advance(10)
    raw.run(["START TRANSACTION", *statements.insert_outbox([b"{}"], NOW)])
    assert store.expire(1, 10) == 3
    raw.run(["ROLLBACK"])


def test_expiry_does_not_look_at_all_that_waits_to_be_relayed(open_one: Opener, raw: MySQLConnection):
    store = open_one()
    waiting = [f"({number}, {NOW}, 1)" for number in range(1, 3_001)]
    raw.run([f"INSERT INTO outbox_unrelayed (id, committed_ms, actions) VALUES {', '.join(waiting)}"])
    raw.run(["INSERT INTO outbox (id, committed_ms, actions, body) SELECT *, '{}' FROM outbox_unrelayed"])

    def looked_at() -> int:
        return sum(int(count) for _, count in raw.rows("SHOW GLOBAL STATUS LIKE 'Handler\\_read\\_%'"))

    before = looked_at()
    assert store.expire(1, 100) == 0
    assert looked_at() - before < 1_000


# Rule 10: settled times
# --------------------------------------------------------------------------------------------------------------------


def test_rule_10_nothing_settles_past_a_transaction_that_is_open(open_one: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mysql_shard, "SETTLE_AGAIN_S", 0.0)
    clock = FakeClock()
    store, other = open_one(clock=clock), open_one(clock=clock)
    assert other.settled_ms() == NOW
    clock.advance(10)
    seen: list[int] = []

    def decide(now_ms: int, _: Standing) -> tuple[Changes, int]:
        # It is stamped, and not committed.
        clock.advance(1_000)
        seen.append(other.settled_ms())
        changes = Changes.none()
        changes.outbox.append(b"{}")
        return changes, now_ms

    assert shard_of(store).transact(Wanted(), decide) == NOW + 10
    assert seen == [NOW]
    assert other.settled_ms() == NOW + 10, "its row is not relayed yet"
    shard_of(other).mark_relayed([row[:2] for row in shard_of(other).unrelayed(10)])
    assert other.settled_ms() == NOW + 1_010


@pytest.mark.alone  # it looks at the time
def test_rule_10_who_settles_makes_room_after_a_transaction_that_lasts(open_one: Opener, raw: MySQLConnection):
    store = open_one()
    settled_ms = store.settled_ms()
    raw.run(["START TRANSACTION", statements.STAMP])
    began_s = time.monotonic()
    assert [store.settled_ms() for _ in range(5)] == [settled_ms] * 5
    assert time.monotonic() - began_s < 1.9, "only the first of them waited"
    follow(store, 1)
    raw.run(["ROLLBACK"])


def test_rule_10_late_commits_do_not_fall_behind_the_relay(open_one: Opener, raw: MySQLConnection):
    store = open_one()
    body = store_body(store)
    raw.run(["START TRANSACTION", statements.STAMP, *statements.insert_outbox([body, body], NOW)])
    follow(store, 1)
    store.mark_relayed(store.unrelayed(10))
    assert store.unrelayed(10) == []
    raw.run(["COMMIT"])
    rows = store.unrelayed(10)
    assert [row.number for row in rows] == [2]
    assert store.settled_ms() == NOW


def store_body(store: FollowStore) -> bytes:
    follow(store, 77)
    ((*_, body),) = shard_of(store).unrelayed(10)
    store.mark_relayed(store.unrelayed(10))
    return body


def test_times_of_a_record_never_go_back_whatever_the_clocks(open_one: Opener):
    ahead, behind = open_one(clock=FakeClock(NOW + 9_000)), open_one()
    first = follow(ahead, 1)
    assert follow(behind, 1).committed_ms == first.committed_ms
    assert follow(behind, 2).committed_ms == NOW, "another record has its own"


def test_the_time_is_the_databases(where: mysql.MySQLServer):
    store = mysql.open_store([where])
    before_ms = time.time_ns() // 1_000_000
    assert abs(store.now() - before_ms) < 60_000
    assert abs(follow(store, 1).committed_ms - before_ms) < 60_000
    assert abs(store.settled_ms() - before_ms) < 60_000
    store.close()


# Transactions that take too long
# --------------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted(open_one: Opener):
    store = open_one(PoolBounds(transaction_s=0.05))

    def decide(_: int, standing: Standing) -> tuple[Changes, None]:
        time.sleep(0.06)
        changes = Changes.none()
        changes.boards[1] = 2
        return changes, None

    with pytest.raises(TransactionTooLongError, match=r"a transaction took \d+\.\d s and was aborted"):
        shard_of(store).transact(Wanted(boards=[1]), decide)
    assert store.board_owners([1]) == {}


def test_re_spacing_drops_a_request_whose_transaction_takes_too_long(open_one: Opener):
    """The worker would try it again without end, and pass on no tick. The next drop asks again."""
    store = open_one()
    boards = a_board(store)
    while not asked(store):
        boards.reorder(Move(BOARD, shown(boards)[-1], before=shown(boards)[1]))
    before = shown(boards)
    narrow = boards.check(BOARD, None).narrow
    assert narrow

    Respacing(Boards(open_one(PoolBounds(transaction_s=0.000_001))), time.monotonic).respace(asked(store))
    assert boards.check(BOARD, None).narrow == narrow
    relay(store)
    boards.reorder(Move(BOARD, before[-1], before=before[1]))
    Respacing(boards, time.monotonic).respace(asked(store))
    assert boards.check(BOARD, None).narrow == []


def test_the_server_aborts_a_transaction_whose_client_has_stopped(open_one: Opener):
    stopped, store = open_one(PoolBounds(transaction_s=1.0)), open_one()
    follow(store, 1)

    with shard_of(stopped)._pool.lend() as connection:
        connection.run(["START TRANSACTION", *statements.clocks([1], statements.LOCKED), statements.STAMP])
        # It waits for the lock: longer than the other one may be idle.
        follow(store, 1)
        with pytest.raises(pymysql.MySQLError):
            connection.run(["COMMIT"])
    assert store.backlog().actions == 2
    assert store.settled_ms() == NOW


# Connections that end
# --------------------------------------------------------------------------------------------------------------------


def kill_all(raw: MySQLConnection) -> int:
    """How many there were. One that was killed before may be listed for a while."""
    mine = raw.rows("SELECT CONNECTION_ID(), DATABASE()")[0]
    others = raw.rows(
        f"SELECT id FROM information_schema.processlist WHERE db = '{mine[1]}' AND id <> {mine[0]}"
        " AND command <> 'Killed'"
    )
    for (each,) in others:
        raw.run([f"KILL CONNECTION {each}"])
    return len(others)


def test_a_connection_that_is_killed_in_a_transaction_leaves_nothing(open_one: Opener, raw: MySQLConnection):
    store = open_one()

    def decide(_: int, standing: Standing) -> tuple[Changes, None]:
        assert kill_all(raw) > 0
        changes = Changes.none()
        changes.boards[1] = 2
        changes.outbox.append(b"{}")
        return changes, None

    with pytest.raises(FollowStoreUnavailableError, match="unknown outcome"):
        shard_of(store).transact(Wanted(boards=[1]), decide)
    assert shard_of(store).unrelayed(10) == []
    assert store.board_owners([1]) == {}
    follow(store, 1)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_drop_whose_outcome_is_unknown_can_be_repeated(
    open_one: Opener, raw: MySQLConnection, monkeypatch: pytest.MonkeyPatch, is_committed: bool
):
    """The connection ends before the commit, or between the commit and its answer: the caller cannot tell which."""
    store = open_one()
    boards = a_board(store)
    move = Move(BOARD, 2, before=6, after=5)
    run = MySQLConnection.run
    breaks = [move]

    def breaking(connection: MySQLConnection, statements: Sequence[str]) -> list[Reply]:
        if statements[-1] != "COMMIT" or not breaks:
            return run(connection, statements)
        breaks.clear()
        if is_committed:
            run(connection, statements)
        assert kill_all(raw) > 0
        return run(connection, statements)

    monkeypatch.setattr(MySQLConnection, "run", breaking)
    with pytest.raises(FollowStoreUnavailableError, match="unknown outcome"):
        boards.reorder(move)
    assert shown(boards) == ([6, 2, 5, 4, 3, 1] if is_committed else [6, 5, 4, 3, 2, 1])
    assert boards.reorder(move).changed is not is_committed
    assert shown(boards) == [6, 2, 5, 4, 3, 1]
    assert not boards.reorder(move).changed


def test_connections_that_died_in_the_pool_are_replaced(open_one: Opener, raw: MySQLConnection):
    store = open_one()
    for work in (
        lambda: store.following(1),
        lambda: follow(store, 1),
        lambda: store.index(edges=[Edge(1, user(2), 3, active=True), Edge(1, user(2), 4, active=False)]),
        store.settled_ms,
        store.now,
    ):
        with shard_of(store)._pool.lend(), shard_of(store)._pool.lend():
            pass
        assert kill_all(raw) == 2
        work()
    assert store.backlog().actions == 1


@pytest.mark.parametrize(("since", "ago_s"), [("idle_since_s", 6), ("opened_s", 61)])
def test_connections_that_were_idle_or_open_for_long_are_not_used_again(open_one: Opener, since: str, ago_s: float):
    """The server closes the idle ones; and it may be a replica by now, which only a new connection notices."""
    store = open_one()
    pool = shard_of(store)._pool
    store.now()
    (old,) = pool._idle
    setattr(old, since, getattr(old, since) - ago_s)
    store.now()
    assert not old.open
    assert pool._idle


def test_the_connection_of_a_relay_is_kept(open_one: Opener):
    """The shard would be given up with it."""
    store, other = open_one(), open_one()
    assert store.may_relay(0)
    (claim,) = shard_of(store)._claims._idle
    claim.opened_s -= 61
    assert store.may_relay(0)
    assert claim.open
    assert not other.may_relay(0)


def test_a_pool_has_a_limit(open_one: Opener):
    store = open_one(PoolBounds(connections=1, transaction_s=0.05))
    with (
        shard_of(store)._pool.lend(),
        pytest.raises(FollowStoreUnavailableError, match="all 1 connections are in use"),
    ):
        store.now()
    store.now()


def test_a_server_that_is_away(where: mysql.MySQLServer, unused_port: int):
    away = mysql.MySQLServer("127.0.0.1", unused_port, "feed", "follows", tls="off")
    for attempt in (lambda: mysql.open_store([away]), lambda: mysql.create([away])):
        with pytest.raises(FollowStoreUnavailableError, match=rf"mysql://feed@127\.0\.0\.1:{unused_port}/follows: "):
            attempt()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Who relays
# --------------------------------------------------------------------------------------------------------------------


def test_one_store_at_a_time_may_relay_and_after_its_end_another_one_may(open_one: Opener):
    first, second = open_one(), open_one()
    for _ in range(3):
        assert (first.may_relay(0), second.may_relay(0)) == (True, False)
    first.close()
    with pytest.raises(FollowStoreUnavailableError, match="closed"):
        first.may_relay(0)
    until(lambda: second.may_relay(0))
    assert not open_one().may_relay(0)


def test_each_shard_has_a_relay_of_its_own():
    servers = mysql_places.fresh(3)
    stores = [mysql.open_store(servers) for _ in range(3)]
    try:
        assert [store.may_relay(shard) for shard, store in enumerate(stores)] == [True] * 3
        assert [[store.may_relay(shard) for shard in range(3)] for store in stores] == [
            [True, False, False],
            [False, True, False],
            [False, False, True],
        ]
    finally:
        for store in stores:
            store.close()


def test_a_store_that_asks_no_more_may_not_relay_for_ever(open_one: Opener):
    """As if its host had lost its power: no word comes from it, and its connection stays open."""
    silent, other = open_one(PoolBounds(claim_s=1.0)), open_one()
    assert silent.may_relay(0)
    until(lambda: other.may_relay(0))
    assert not silent.may_relay(0)


def test_a_store_whose_connection_has_ended_asks_for_its_shard_again(open_one: Opener, raw: MySQLConnection):
    first, second = open_one(), open_one()
    assert first.may_relay(0)
    assert kill_all(raw) > 0
    until(lambda: second.may_relay(0))
    assert not first.may_relay(0)
    assert kill_all(raw) > 0
    until(lambda: first.may_relay(0))
    assert not second.may_relay(0)


def test_a_relay_takes_one_connection_and_leaves_those_of_others(open_one: Opener):
    store = open_one(PoolBounds(connections=1, transaction_s=0.05))
    with shard_of(store)._pool.lend():
        assert store.may_relay(0)
    store.now()


def test_databases_with_long_names_have_relays_of_their_own():
    longest = [mysql_places.server(f"{mysql_places.PREFIX}_".ljust(63, "x") + each) for each in "ab"]
    stores: list[FollowStore] = []
    try:
        for each in longest:
            mysql.create([each])
            stores.append(mysql.open_store([each]))
        assert [store.may_relay(0) for store in stores] == [True, True]
    finally:
        for store in stores:
            store.close()
        for each in longest:
            mysql_places.drop(each)


@pytest.mark.parametrize("shards", [1, 3])
def test_rule_11_a_killed_process_leaves_both_or_neither(shards: int):
    """An edge, its key and its outbox row are stored together, and all acknowledged actions are stored."""
    databases = mysql_places.fresh(shards)
    opened = "mysql.open_store([mysql.server(url, Path(), os.environ) for url in places])"
    acknowledged = Recording("mysql", opened, databases, FEED_MYSQL_PASSWORD=databases[0].password).killed()
    # A call that settles waits until the server has noticed the death: the transaction that had begun is committed or
    # gone.
    for each in databases:
        raw = mysql_places.connect(each)
        raw.run([statements.settle(None, int(time.time() * 1_000))])
        raw.close()
    with closing(mysql.open_store(databases)) as store:
        check_both_or_neither(store, acknowledged)


# Tables
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def new() -> Iterator[list[mysql.MySQLServer]]:
    """Databases that are not there."""
    databases = [mysql_places.server(f"{mysql_places.PREFIX}_new_{number}") for number in range(3)]
    yield databases
    for each in databases:
        mysql_places.drop(each)


def test_opening_creates_nothing(new: list[mysql.MySQLServer]):
    with pytest.raises(FollowStoreUnavailableError, match="Unknown database"):
        mysql.open_store(new)


def test_missing_is_what_has_no_tables_yet(new: list[mysql.MySQLServer], unused_port: int):
    mysql.create(new[:1])
    empty = mysql_places.connect(new[0].without_database())
    empty.run([f"CREATE DATABASE `{new[1].database}`"])
    empty.close()
    assert [mysql.stored_version(each) for each in new] == [latest("mysql"), 0, 0]
    away = mysql.MySQLServer("127.0.0.1", unused_port, "feed", "follows", tls="off")
    with pytest.raises(FollowStoreUnavailableError, match=rf"127\.0\.0\.1:{unused_port}"):
        mysql.stored_version(away)


def test_creating_again_and_at_once_keeps_what_stands(new: list[mysql.MySQLServer]):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(mysql.create, [new[:1]] * 3))
    store = mysql.open_store(new[:1])
    follow(store, 1)
    mysql.create(new[:1])
    assert len(store.following(1)) == 1
    store.close()


def test_a_migration_that_was_cut_off_is_done_again(new: list[mysql.MySQLServer]):
    mysql.create(new[:1])
    connection = mysql_places.connect(new[0])
    connection.run(["DELETE FROM schema_versions", "DROP TABLE refills", "DROP TABLE outbox"])
    with pytest.raises(FollowStoreUnavailableError, match="it has no tables"):
        mysql.open_store(new[:1])
    mysql.create(new[:1])
    mysql.open_store(new[:1]).close()
    connection.close()


def test_rows_of_before_hold_one_action_each(new: list[mysql.MySQLServer]):
    """Actions that wait, or were relayed, when a database is brought up to date."""
    mysql.create(new[:1])
    connection = mysql_places.connect(new[0])
    last = latest("mysql")
    connection.run(
        [
            f"DELETE FROM schema_versions WHERE version = {last}",
            "ALTER TABLE outbox DROP COLUMN actions, MODIFY COLUMN body VARBINARY(4096) NOT NULL",
            "ALTER TABLE outbox_unrelayed DROP COLUMN actions",
        ]
    )
    old = [msgspec.json.encode(Followed(each, user(99), NOW, NOW)) for each in (1, 2, 3)]
    for each in old:
        connection.run([f"INSERT INTO outbox (committed_ms, body) VALUES ({NOW}, X'{each.hex()}')"])
    connection.run(["INSERT INTO outbox_unrelayed (id, committed_ms) SELECT id, committed_ms FROM outbox"])
    with pytest.raises(OutdatedStoreError):
        mysql.open_store(new[:1])
    assert mysql.stored_version(new[0]) == latest("mysql") - 1
    mysql.create(new[:1])
    mysql.create(new[:1])
    assert mysql.stored_version(new[0]) == latest("mysql")
    store = mysql.open_store(new[:1], FakeClock())
    assert store.backlog() == (3, 3, NOW)
    store.record([Request(Follow(each, user(99))) for each in (4, 5)])
    rows = store.unrelayed(10)
    assert [row.number for row in rows] == [1, 1, 1, 2]
    assert [row.body for row in rows[:3]] == old
    assert actions_in(rows) == [Followed(each, user(99), NOW, NOW) for each in (1, 2, 3, 4, 5)]
    store.mark_relayed(rows)
    assert store.relay_again() == (5, True)
    assert store.backlog() == (4, 5, NOW)
    store.close()
    connection.close()


def test_a_database_of_a_newer_program_is_refused(new: list[mysql.MySQLServer]):
    mysql.create(new[:1])
    connection = mysql_places.connect(new[0])
    connection.run(["INSERT INTO schema_versions (version) VALUES (9999)"])
    connection.close()
    for attempt in (mysql.open_store, mysql.create):
        with pytest.raises(FollowStoreUnavailableError, match="version 9999"):
            attempt(new[:1])


def test_shards_in_another_order_or_number_are_refused(new: list[mysql.MySQLServer]):
    mysql.create(new)
    for wrong in (new[::-1], new[:2], [*new, new[0]]):
        with pytest.raises(FollowStoreUnavailableError, match=r"it is shard \d of 3, and was opened as shard"):
            mysql.open_store(wrong)
    with pytest.raises(FollowStoreUnavailableError, match="it is shard 0 of 3"):
        mysql.create(new[:1])


def test_a_running_store_notices_that_a_name_leads_to_another_shard(new: list[mysql.MySQLServer]):
    """The server behind it was replaced by that of another shard: what is recorded there would be lost to both."""
    mysql.create(new[:2])
    store = mysql.open_store(new[:2], FakeClock(), PoolBounds(life_s=0.0))
    follower = next(each for each in range(1, 99) if store.home(Follow(each, board(99))) == 0)
    follow(store, follower)
    raw = mysql_places.connect(new[0])
    raw.run(["UPDATE shard_state SET shard = 1"])
    wrong = "it is shard 1 of 2, and was opened as shard 0 of 2"
    shard = shard_of(store)
    for call in (
        lambda: follow(store, follower),
        lambda: shard.index_followers([(1, 7, 1, 50, 1)]),
        lambda: shard.unrelayed(10),
        shard.settled_ms,
        shard.may_relay,
    ):
        with pytest.raises(WrongStoreError, match=wrong):
            call()
    raw.run(["UPDATE shard_state SET shard = 0"])
    assert (shard.backlog().actions, shard.may_relay()) == (1, True)
    assert shard.followers([(0, 1, 7)], 10, tombstones=True) == []
    raw.close()
    store.close()


# Plans
# --------------------------------------------------------------------------------------------------------------------

KEYS = range(1, 2_000)
EDGE_KEYS = [(each, 1, each + 1) for each in KEYS]
NEWEST = [NewestFrom(1, each, 2**62, 0, 1, 5) for each in KEYS]
PARTS = [
    (each, statements.part(each, each.first, statements.literal(b"key 10" if each.table == "request_keys" else 50)))
    for each in statements.DATED
]
SAVED = [SavedFrom(1, each, 0, 0) for each in range(3, 900)]


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        *((text, "PRIMARY") for text in statements.clocks(KEYS, "")),
        *((text, "PRIMARY") for text in statements.edges(EDGE_KEYS, "")),
        *((text, "PRIMARY") for text in statements.boards(KEYS, "")),
        *((text, "PRIMARY") for text in statements.pins(KEYS, "")),
        *((text, "PRIMARY") for text in statements.deletions(KEYS)),
        *((text, "PRIMARY") for text in statements.request_keys(map(str, KEYS), "")),
        *((text, "PRIMARY") for text in statements.refills([(each, "a") for each in KEYS], "")),
        *((text, "PRIMARY") for text in statements.mark_relayed([(each, NOW) for each in KEYS])),
        *((text, "PRIMARY") for text in statements.drop_outbox(KEYS)),
        *((text, "PRIMARY") for text in statements.drop_follower_tombstones([(1, *key) for key in EDGE_KEYS], 5)),
        *((text, "PRIMARY") for text in statements.drop_deleted_pins([(1, *key, 1) for key in EDGE_KEYS], 5)),
        (statements.followers([(5, 0, 8), (0, 1, 9), (0, 1, 10)], 5, tombstones=False), "PRIMARY"),
        (statements.newest_pins(NEWEST, 9), "PRIMARY"),
        (statements.whole_pins([(each % 2, each) for each in range(1, 900)], 9, 50), "PRIMARY"),
        (statements.pins_saved_since([SavedFrom(1, 2, 3, 4), *SAVED], 1, 5), "pin_index_saved"),
        (statements.boards_of([2, *range(3, 50)], (2, 7), 5), "boards_owner"),
        (statements.active_edges_after([(1, 0, 2), (2, -1, 0), (3, -1, 0)], 3), "PRIMARY"),
        (statements.ended_edges_after(1, 5, (0, 2), 3), "PRIMARY"),
        (statements.all_edges_after((1, 0, 2), 3, tombstones=False), "PRIMARY"),
        (statements.all_edges_after((1, 0, 2), 3, tombstones=True), "PRIMARY"),
        (statements.all_followers_after((1, 5, 2), 3), "PRIMARY"),
        (statements.all_lines_after((1, 5, 900, 2), 3), "PRIMARY"),
        *((text, "PRIMARY") for text in statements.follower_rows(EDGE_KEYS)),
        *((text, "PRIMARY") for text in statements.lines([(*key, 5) for key in EDGE_KEYS])),
        (statements.unrelayed(5), "PRIMARY"),
        (statements.outbox_after(7, 5), "PRIMARY"),
        (statements.old_follower_tombstones(5, 5), "PRIMARY"),
        (statements.old_deleted_pins(5, 5), "PRIMARY"),
        *((statements.portion_end(each, each.first, 5), "PRIMARY") for each in statements.DATED),
        *((statements.latest_in(each, part), "PRIMARY") for each, part in PARTS),
        *((each.back(part, 9, 9), "PRIMARY") for each, part in PARTS),
        (statements.drop_keys(5, 5), "request_keys_committed"),
        (statements.drop_refills(5, 5), "refills_asked"),
    ],
)
def test_rows_are_found_by_key_and_never_sorted(filled: MySQLConnection, statement: str, index: str):
    with filled._raw.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {statement}")
        # Without a table: a single key that is not there.
        plan = [row for row in cursor.fetchall() if not str(row["table"]).startswith("<") and row["table"]]
    for step in plan:
        assert step["key"] == index, step
        assert "filesort" not in (step["Extra"] or ""), step
        # The tables that are read from the beginning: the outbox, up to a limit.
        in_order = step["table"] in ("u", "o")
        assert step["type"] in ("range", "eq_ref", "const", "ref") or (in_order and step["type"] == "index"), step


@pytest.fixture(scope="module")
def filled() -> Iterator[MySQLConnection]:
    """So many rows that plans matter."""
    (where,) = mysql_places.fresh(1, "plans")
    store = mysql.open_store([where], FakeClock())
    store.record([Request(Follow(each, user(each + 1)), f"key {each}") for each in range(1, 2_001)])
    store.record([Request(SavePin(Pin(each, each % 50 + 1, each % 50 + 1, each))) for each in range(1, 2_001)])
    store.index(edges=[Edge(each, user(each % 10 + 1), each, active=each % 2 == 0) for each in range(11, 2_001)])
    store.index(pins=[PinSaved(Pin(each, each % 50 + 1, each % 50 + 1, each), each) for each in range(1, 2_001)])
    store.index(deletions=[PinDeleted(Pin(each, 60, 60, each), each) for each in range(1, 2_001)])
    store.ask_refill(range(1, 2_001), "a", 0)
    store.close()
    connection = mysql_places.connect(where)
    connection.run(
        [
            *["INSERT INTO outbox (committed_ms, body) SELECT committed_ms, X'7B7D' FROM clocks"] * 3,
            "INSERT IGNORE INTO outbox_unrelayed (id, committed_ms) SELECT id, committed_ms FROM outbox",
        ]
    )
    connection.run([f"ANALYZE TABLE {', '.join(mysql_places.TABLES)}"])
    yield connection
    connection.close()


def test_a_page_that_the_server_cut_off_is_noticed(open_one: Opener):
    store = open_one()
    store.index(edges=[Edge(each, user(7), each, active=True) for each in range(8, 400)])
    with shard_of(store)._pool.lend() as connection:
        connection.run(["SET SESSION group_concat_max_len = 1000"])
    with pytest.raises(FollowStoreUnavailableError, match="cut a page off"):
        store.followers([user(7)], None, 1_000, tombstones=False)


def test_more_rows_than_one_packet_holds(open_one: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mysql_shard, "MAX_PACKET", 5_000)
    store = open_one()
    store.record([Request(Follow(each, user(9_000)), f"key {each}") for each in range(1, 1_500)])
    rows = store.unrelayed(5_000)
    assert [action.follower for action in actions_in(rows)] == list(range(1, 1_500))
    assert len(store.edges([(each, user(9_000)) for each in range(1, 1_500)])) == 1_499
    store.index(edges=[action.edge() for action in actions_in(rows)])
    assert len(store.followers([user(9_000)], None, 1_000, tombstones=False)) == 1_000
    assert len(store.followers([user(9_000)], (user(9_000), 1_000), 1_000, tombstones=False)) == 499


def test_rows_that_are_too_many_to_pack(open_one: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statements, "PACKED_ROWS", 5)
    store = open_one()
    store.index(pins=[PinSaved(Pin(each, 7, 70, 1_000 - each), NOW) for each in range(1, 30)])
    for limit in (3, 5, 6, 20):
        found = store.newest_pins([user(7), board(70), user(9)], limit)
        assert [state.pin.pin for state in found[user(7)]] == list(range(1, limit + 1))
        assert found[board(70)] == found[user(7)]
        assert found[user(9)] == []


def test_newest_pins_of_followees_with_few_pins_and_with_many(open_one: Opener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statements, "WHOLE_ROWS_A_FOLLOWEE", 2)
    store = open_one()
    of_each = {owner: range(100 * owner, 100 * owner + count) for owner, count in enumerate([0, 3, 1, 9, 0, 2], 1)}
    pins = [Pin(pin, owner, owner, 10_000 - pin) for owner, some in of_each.items() for pin in some]
    store.index(pins=[PinSaved(each, NOW + each.pin) for each in pins])
    for owners in ([1, 2, 3, 4, 5, 6], [3, 1, 2], [5, 6, 1], [4, 2, 6]):
        for limit in (1, 2, 3, 20):
            found = store.newest_pins([kind(owner) for owner in owners for kind in (user, board)], limit)
            for followee, states in found.items():
                assert [state.pin.pin for state in states] == [*of_each[followee.id]][:limit]
            early = store.newest_pins([user(owner) for owner in owners], limit, saved_before_ms=NOW + 402)
            for followee, states in early.items():
                assert [state.pin.pin for state in states] == [pin for pin in of_each[followee.id] if pin < 402][:limit]


def test_newest_pins_next_to_many_that_are_deleted(open_one: Opener, monkeypatch: pytest.MonkeyPatch):
    """They are among the rows that are read, and none of the pins that are found."""
    monkeypatch.setattr(statements, "WHOLE_ROWS_A_FOLLOWEE", 3)
    store = open_one()
    pins = [Pin(100 * owner + each, owner, owner, 1_000 - each) for owner in range(1, 5) for each in range(1, 12)]
    living = {101, 201, 202, 211, 303, 304, 411}
    store.index(pins=[PinSaved(each, NOW) for each in pins])
    store.index(deletions=[PinDeleted(each, NOW + 1) for each in pins if each.pin not in living])
    for limit in (1, 2, 20):
        found = store.newest_pins([kind(owner) for owner in range(1, 5) for kind in (user, board)], limit)
        for followee, states in found.items():
            wanted = [pin for pin in sorted(living) if pin // 100 == followee.id]
            assert [state.pin.pin for state in states] == wanted[:limit]


# A server whose clock steps
# --------------------------------------------------------------------------------------------------------------------


def test_rule_10_a_server_whose_clock_has_stepped_ahead_stamps_and_settles_nothing(where: mysql.MySQLServer) -> None:
    clock = FakeClock()
    store = mysql.open_store([where], clock, None, lambda: NOW)
    store.record([Request(Follow(1, user(2)))])
    settled_ms = store.settled_ms()
    clock.advance(400 * 86_400_000)
    for call in (
        lambda: store.record([Request(Follow(1, user(3)))]),
        store.settled_ms,
        store.now,
        lambda: store.expire(1, 100),
    ):
        with pytest.raises(FollowStoreUnavailableError, match="set that server's clock"):
            call()
    store.close()

    clock.advance(-400 * 86_400_000)
    store = mysql.open_store([where], clock, None, lambda: NOW)
    assert [each.followee for each in store.all_edges_after(None, 10)] == [user(2)]
    assert settled_ms <= store.settled_ms() <= NOW + 10
    [followed] = store.record([Request(Follow(1, user(3)))])
    assert followed.ts <= NOW + 10
    store.close()


TIMES = {
    "shard_state": "latest_ms",
    "outbox": "committed_ms",
    "outbox_unrelayed": "committed_ms",
    "request_keys": "committed_ms",
    "clocks": "committed_ms",
    "edges": "committed_ms",
    "refills": "GREATEST(asked_ms, served_before_ms)",
}


def ahead_of(raw: MySQLConnection, ms: int) -> dict[str, int]:
    """How many rows of each table have a later time."""
    rows = raw.run([f"SELECT COUNT(*) FROM {table} WHERE {time} > {ms}" for table, time in TIMES.items()])
    return {table: reply.rows[0][0] for table, reply in zip(TIMES, rows, strict=True)}


def recorded_ahead(store: FollowStore, clock: FakeClock) -> None:
    """Records something in each table while the clock is a day ahead."""
    clock.advance(DAY_MS)
    store.record([Request(Follow(each % 10 + 1, user(each)), f"key {each}") for each in range(20, 60)])
    for follower in range(10, 20):
        follow(store, follower)
    store.ask_refill(range(1, 31), "a", 0)
    store.mark_refills_served({(each, "a"): clock.ms for each in range(1, 31)})
    store.settled_ms()
    clock.advance(-DAY_MS)


def test_a_shard_is_brought_back_in_portions_and_users_record_meanwhile(
    open_one: Opener, raw: MySQLConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan of all its edges would take longer than a server may take for an answer."""
    monkeypatch.setattr(mysql_shard, "BROUGHT_AT_ONCE", 7)
    clock = FakeClock()
    store, other = open_one(PoolBounds(lock_wait_s=1, transaction_s=1.0), clock), open_one(clock=clock)
    recorded_ahead(store, clock)
    before = ahead_of(raw, clock.ms)
    assert all(before.values())
    raw.run(["START TRANSACTION", "SELECT * FROM edges WHERE follower = 19 FOR UPDATE"])

    with pytest.raises(FollowStoreUnavailableError, match="Lock wait timeout exceeded"):
        store.bring_back(clock.ms)

    follow(other, 18)
    follow(other, 200)
    raw.run(["ROLLBACK"])
    left = ahead_of(raw, clock.ms)
    assert 0 < left["edges"] < before["edges"], "portions are committed one by one"
    assert left["shard_state"] == 1, "it can be seen that this is unfinished"
    assert store.bring_back(clock.ms) == {0: DAY_MS}
    assert not any(ahead_of(raw, clock.ms).values())
    assert store.bring_back(clock.ms) == {}
    assert follow(store, 200).committed_ms == clock.ms


def test_what_users_record_while_a_shard_is_brought_back_is_brought_back_too(
    open_one: Opener, raw: MySQLConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_shard, "BROUGHT_AT_ONCE", 7)
    clock = FakeClock()
    store, other = open_one(clock=clock), open_one(clock=clock)
    recorded_ahead(store, clock)
    latest_in, recorded = statements.latest_in, 0

    def meanwhile(dated: statements.Dated, part: str) -> str:
        nonlocal recorded
        if recorded < 300 and dated.table in ("edges", "refills"):
            recorded += 1
            # Edges before this place and behind it, of users whose clocks are brought back or not.
            other.record([Request(Follow(recorded % 20 + 1, user(100 + recorded)), f"meanwhile {recorded}")])
        return latest_in(dated, part)

    monkeypatch.setattr(statements, "latest_in", meanwhile)
    assert store.bring_back(clock.ms) == {0: DAY_MS}
    assert recorded > 20
    assert not any(ahead_of(raw, clock.ms).values())


def test_a_shard_whose_rows_are_ahead_is_brought_back_although_its_time_is_not(
    open_one: Opener, raw: MySQLConnection
) -> None:
    """As a command leaves it that was killed."""
    clock = FakeClock()
    store = open_one(clock=clock)
    recorded_ahead(store, clock)
    raw.run([f"UPDATE shard_state SET latest_ms = {clock.ms}"])
    assert store.bring_back(clock.ms) == {0: DAY_MS}
    assert not any(ahead_of(raw, clock.ms).values())


def test_a_server_that_was_ahead_for_others_too_is_gone_by(where: mysql.MySQLServer) -> None:
    clock = FakeClock(NOW + 86_400_000)
    agreeing = mysql.open_store([where], clock, None, clock)
    agreeing.settled_ms()
    agreeing.close()
    store = mysql.open_store([where], clock, None, lambda: NOW)
    assert store.now() == clock.ms
    store.close()


# Sequences of boards
# --------------------------------------------------------------------------------------------------------------------


def test_the_server_divides_no_sequence_and_keeps_each_digit(raw: MySQLConnection):
    """Why nothing is computed in SQL: DIV has 64 bits, and a quotient with a float in it has 53."""
    largest = 10**38 - 1
    kept = "CAST({} AS DECIMAL(38, 0))".format
    assert raw.rows(f"SELECT {kept(largest)}, {kept(largest)} > {kept(largest - 1)}") == ((largest, 1),)
    with pytest.raises(pymysql.err.OperationalError, match="BIGINT value is out of range"):
        raw.rows(f"SELECT {kept(largest)} DIV 2")
    ((double,),) = raw.rows(f"SELECT {kept(largest)} * 5e-1")
    assert int(double) != largest // 2


def test_the_column_of_sequences_refuses_39_digits(open_one: Opener, raw: MySQLConnection):
    open_one()
    row = "INSERT INTO placed_pins (board, sequence, pin, place_ms, created_ms, moved_ms) VALUES (1, {}, 1, 1, 1, 1)"
    with pytest.raises(pymysql.err.DataError, match="Out of range"):
        raw.run([row.format(10**38)])
    raw.run([row.format(10**38 - 1)])
    assert raw.rows("SELECT sequence FROM placed_pins") == ((10**38 - 1,),)
