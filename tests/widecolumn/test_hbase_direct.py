"""Direct reads, with region servers that are only objects: which are asked, and when the gateways must be."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import pytest

from feedstore.metering import UNCOUNTED, Counting
from feedstore.widecolumn import Table, UnavailableError
from feedstore.widecolumn.hbase import direct
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.direct import (
    ANSWERS_WITHIN_S,
    BLAMED_FROM_S,
    LOOK_S,
    LOOK_S_MAX,
    SHARE,
    DirectReads,
    RegionServers,
)
from feedstore.widecolumn.hbase.gateways import AnsweredError
from feedstore.widecolumn.hbase.regions import TableRegion

TABLE = Table("feed", 2, 3, trim=None, purge_window_ms=0)
S1, S2, S3 = Address("s1", 1), Address("s2", 2), Address("s3", 3)
LOW, HIGH = TableRegion(b"", b"t,,1.", S1), TableRegion(b"m", b"t,m,1.", S2)
ROW, HIGHER_ROW = b"aa", b"zz"
A, B = b"aaa", b"bbb"
WITHIN_MS = 1_000


class Asked(NamedTuple):
    """within_s: how much time the call had."""

    server: Address
    region: bytes
    row: bytes
    within_s: float


class Connection:
    def __init__(self, world: "World", server: Address) -> None:
        self._world = world
        self._server = server
        self._deadline_s = 0.0

    def set_deadline(self, deadline: float) -> None:
        self._deadline_s = deadline

    def cells(self, region: bytes, row: bytes, after: bytes | None, limit: int, column_bytes: int) -> list:
        assert column_bytes == TABLE.column_bytes
        self._world.asked.append(Asked(self._server, region, row, self._deadline_s - self._world.now_s))
        if self._server in self._world.slow:
            raise TimeoutError("timed out")
        if error := self._world.errors.get(self._server) or self._world.errors.get(region):
            self._world.now_s += self._world.took_s
            self._world.fail(error)
        return [(each, 5) for each in (A, B) if after is None or each > after][:limit]

    def is_silent(self) -> bool:
        return True

    def close(self) -> None:
        self._world.closed.append(self._server)


class World:
    """The servers, and a clock. errors: what a server or a region answers. took_s: how long that takes. meanwhile: what
    happens until the next error. slow: servers that answer nothing in time, not even that they are connected.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.took_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.regions: Sequence[TableRegion] | Exception = [LOW, HIGH]
        self.errors: dict[Address | bytes, Exception] = {}
        self.refusing: set[Address] = set()
        self.slow: set[Address] = set()
        self.asked: list[Asked] = []
        self.closed: list[Address] = []
        self.looks = 0
        self.waiting: list[Callable[[], None]] = []
        self.meter = Counting(lambda: self.now_s)

    def connect(self, server: Address, timeout_s: float) -> Any:
        assert timeout_s > 0
        if server in self.refusing:
            raise ConnectionRefusedError("refused")
        if server in self.slow:
            raise TimeoutError("timed out")
        return Connection(self, server)

    def look_up(self) -> Sequence[TableRegion]:
        self.looks += 1
        if isinstance(self.regions, Exception):
            self.fail(self.regions)
        return self.regions

    def fail(self, error: Exception) -> NoReturn:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        raise error

    def clock(self) -> float:
        return self.now_s

    def servers(self, size: int = 4) -> RegionServers:
        return RegionServers(self.connect, size, self.clock)

    def reads(self, servers: RegionServers | None = None, table: Table = TABLE) -> DirectReads:
        servers = servers or self.servers()
        return DirectReads("a", table, self.look_up, servers, WITHIN_MS, self.clock, self.waiting.append, self.meter)

    def looked_up(self, servers: RegionServers | None = None, table: Table = TABLE) -> DirectReads:
        """Reads of a table whose regions were looked up."""
        reads = self.reads(servers, table)
        assert reads.cells(ROW) is None
        self.look()
        return reads

    def counted(self) -> dict[tuple[str, ...], float]:
        return {each.labels: each.value for each in self.meter.counts().counters}

    def look(self) -> None:
        """The look-up that was begun takes place."""
        [look] = self.waiting
        self.waiting.clear()
        look()
        self.asked.clear()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def reads(world: World) -> DirectReads:
    """Regions were looked up."""
    return world.looked_up()


def test_a_read_does_not_wait_for_the_first_look(world: World):
    reads = world.reads()
    assert reads.cells(ROW) is None
    assert reads.cells(ROW) is None
    assert (len(world.waiting), world.looks, world.asked) == (1, 0, [])


def test_the_server_of_a_rows_region_is_asked(world: World, reads: DirectReads):
    assert reads.cells(ROW) == [(A, 5), (B, 5)]
    assert reads.cells(HIGHER_ROW, A, 1, None) == [(B, 5)]
    assert [(each.server, each.region, each.row) for each in world.asked] == [
        (S1, LOW.name, ROW),
        (S2, HIGH.name, HIGHER_ROW),
    ]


def test_the_first_row_of_a_region_is_in_it(world: World, reads: DirectReads):
    assert reads.cells(HIGH.start + b"\0", None, 9, None) == [(A, 5), (B, 5)]
    assert world.asked[0].region == HIGH.name


def test_a_region_that_moved_is_left_to_the_gateways_until_it_is_looked_up(world: World, reads: DirectReads):
    world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
    assert reads.cells(ROW) is None
    assert reads.cells(ROW) is None
    assert reads.cells(HIGHER_ROW) == [(A, 5), (B, 5)]
    assert [each.server for each in world.asked] == [S1, S2]

    world.regions = [LOW._replace(server=S2), HIGH]
    del world.errors[LOW.name]
    world.now_s += LOOK_S
    assert reads.cells(ROW) is None
    world.look()
    assert reads.cells(ROW) == [(A, 5), (B, 5)]
    assert world.asked[0].server == S2


@pytest.mark.parametrize("error", [TimeoutError("timed out"), ValueError("garbage")])
def test_a_server_that_breaks_off_is_not_asked_again(world: World, error: Exception):
    world.regions = [LOW, HIGH._replace(server=S1)]
    reads = world.looked_up()
    world.errors[S1] = error
    assert reads.cells(ROW) is None
    assert reads.cells(HIGHER_ROW) is None
    assert len(world.asked) == 1


def test_a_server_that_was_started_again_is_asked_on_a_new_connection(world: World, reads: DirectReads):
    reads.cells(ROW)
    world.errors[S1] = ConnectionResetError("the server closed the connection")
    seen = len(world.asked)
    assert reads.cells(ROW) is None
    assert len(world.asked) == seen + 2


@pytest.mark.parametrize("error", [TimeoutError("timed out"), AnsweredError("not online here", may_retry=False)])
def test_a_read_that_fails_late_forgets_nothing_that_was_looked_up_meanwhile(
    world: World, reads: DirectReads, error: Exception
):
    def looked_up() -> None:
        world.regions = [LOW._replace(server=S2), HIGH]
        assert reads.cells(ROW) is None
        world.look()

    world.errors[S1] = error
    world.meanwhile = looked_up
    world.now_s += LOOK_S
    assert reads.cells(ROW) is None
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


@pytest.mark.parametrize("deadline_s", [None, 0.4])
def test_a_server_that_hangs_gets_its_share_of_the_time(world: World, reads: DirectReads, deadline_s: float | None):
    world.errors[S1] = TimeoutError("timed out")
    assert reads.cells(ROW, None, 9, None if deadline_s is None else world.now_s + deadline_s) is None
    assert world.asked[0].within_s == pytest.approx(SHARE * (deadline_s or WITHIN_MS / 1_000))


def test_a_server_that_had_hardly_any_time_is_asked_again(world: World, reads: DirectReads):
    """Where there are too many reads they begin late, and the server is as well as before."""
    world.errors[S1] = TimeoutError("timed out")
    assert reads.cells(ROW, deadline_s=world.now_s + 1.9 * BLAMED_FROM_S) is None
    del world.errors[S1]
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_what_is_known_stays_if_no_gateway_can_say_where_the_regions_are(world: World, reads: DirectReads):
    world.regions = UnavailableError("no gateway answers")
    world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
    world.now_s += LOOK_S
    assert reads.cells(ROW) is None
    world.look()
    assert reads.cells(HIGHER_ROW) == [(A, 5), (B, 5)]
    assert reads.cells(ROW) is None


def test_a_server_that_is_lost_during_a_look_in_vain_stays_lost(world: World, reads: DirectReads):
    def lost() -> None:
        world.errors[S2] = TimeoutError("timed out")
        assert reads.cells(HIGHER_ROW) is None

    world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
    world.now_s += LOOK_S
    assert reads.cells(ROW) is None
    world.regions = UnavailableError("no gateway answers")
    world.meanwhile = lost
    world.look()
    assert reads.cells(HIGHER_ROW) is None
    assert world.asked == []


def test_no_server_is_asked_if_the_time_is_over(world: World, reads: DirectReads):
    assert reads.cells(ROW, None, 9, world.now_s) is None
    assert world.asked == []
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_a_server_that_cannot_be_reached_costs_no_read_anything(world: World):
    world.refusing = {S1}
    reads = world.looked_up()
    assert reads.cells(ROW) is None
    assert reads.cells(HIGHER_ROW) == [(A, 5), (B, 5)]
    assert [each.server for each in world.asked] == [S2]


def test_a_server_must_answer_a_look(world: World):
    reads = world.reads()
    reads.cells(ROW)
    world.errors[S1] = TimeoutError("timed out")
    [look] = world.waiting
    look()
    assert {(each.server, each.within_s) for each in world.asked} == {(S1, ANSWERS_WITHIN_S), (S2, ANSWERS_WITHIN_S)}
    assert reads.cells(ROW) is None


def test_a_region_that_its_server_refuses_is_the_only_one_left_to_the_gateways(world: World):
    """HBase's catalog may say that a region is open where it is not, and a file of one region may be unreadable."""
    world.regions = [LOW, HIGH._replace(server=S1)]
    world.errors[HIGH.name] = AnsweredError("not online here", may_retry=False)
    reads = world.looked_up()
    assert reads.cells(ROW) == [(A, 5), (B, 5)]
    assert reads.cells(HIGHER_ROW) is None
    world.now_s += LOOK_S
    reads.cells(HIGHER_ROW)
    assert world.waiting == [], "no more often than while a server is away"


def test_a_region_without_a_server_is_the_gateways(world: World):
    world.regions = [LOW, HIGH._replace(server=None)]
    reads = world.looked_up()
    assert reads.cells(HIGHER_ROW) is None
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_looks_are_rare_while_something_is_away(world: World):
    world.regions = UnavailableError("no gateway answers")
    reads = world.reads()
    began_s = world.now_s
    looked_s = []
    while world.now_s < began_s + 200:
        reads.cells(ROW)
        if world.waiting:
            looked_s.append(world.now_s - began_s)
            world.look()
        world.now_s += 0.5
    assert looked_s == [0, 2, 6, 14, 30, *range(60, 200, int(LOOK_S_MAX))]


def test_looks_are_as_often_as_before_once_all_is_well(world: World):
    world.regions = UnavailableError("no gateway answers")
    reads = world.reads()
    for _ in range(9):
        reads.cells(ROW)
        world.look()
        world.now_s += LOOK_S_MAX
    world.regions = [LOW, HIGH]
    reads.cells(ROW)
    world.look()
    world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
    reads.cells(ROW)
    assert world.waiting == []
    world.now_s += LOOK_S
    reads.cells(ROW)
    assert len(world.waiting) == 1


def test_a_server_whose_connections_are_all_in_use_is_not_lost_by_it(world: World):
    times = itertools.count(100, 0.05)  # s: time passes with each look at the clock
    servers = RegionServers(world.connect, 1, lambda: next(times))
    reads = DirectReads("a", TABLE, world.look_up, servers, 800, lambda: next(times), world.waiting.append, UNCOUNTED)
    reads.cells(ROW)
    world.look()
    found: list[list[tuple[bytes, int]] | None] = []
    servers.at(S1).call(lambda _: found.append(reads.cells(ROW)), 10_000)
    assert found == [None]
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_a_server_that_still_answers_for_a_region_that_it_has_lost_is_not_asked_for_long(
    world: World, reads: DirectReads
):
    """It is cut off from ZooKeeper and from the master, and readers reach it."""
    world.regions = [LOW._replace(server=S2), HIGH]
    world.now_s += LOOK_S_MAX - 1
    reads.cells(ROW)
    assert world.waiting == []
    world.now_s += 1
    assert reads.cells(ROW) == [(A, 5), (B, 5)]
    world.look()
    assert reads.cells(ROW) == [(A, 5), (B, 5)]
    assert [each.server for each in world.asked] == [S2]


@pytest.mark.parametrize("had_one", [True, False])
def test_a_server_is_not_lost_by_a_read_that_waited_for_a_connection(world: World, had_one: bool):
    """If a server is slow for a moment, reads wait for each other, and little of their time is left for it."""
    servers = world.servers(size=1)
    reads = world.looked_up(servers)
    pool = servers.at(S1)._pool
    lease = pool.take(world.now_s + 1)

    class GivesBack(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == SHARE * WITHIN_MS / 1_000
            world.now_s += 0.6 * timeout
            pool.give_back(lease) if had_one else pool.discard(lease)
            return True

    pool._changed = GivesBack()
    world.slow = {S1}
    assert reads.cells(ROW) is None
    world.slow = set()
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_a_look_does_not_lose_a_server_whose_connections_are_all_in_use(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(direct, "ANSWERS_WITHIN_S", 0.05)
    servers = RegionServers(world.connect, 1, time.monotonic)
    waiting = world.waiting.append
    reads = DirectReads("a", TABLE, world.look_up, servers, WITHIN_MS, time.monotonic, waiting, UNCOUNTED)
    reads.cells(ROW)
    servers.at(S1).call(lambda _: world.look(), 10_000)
    assert world.closed == []
    assert reads.cells(ROW) == [(A, 5), (B, 5)]


def test_connections_to_a_server_go_once_no_table_needs_it(world: World):
    """A region server that is started again under another name, as in a container, would leave its sockets here."""
    servers = world.servers()
    tables = TABLE, Table("other", 2, 3, trim=None, purge_window_ms=0)
    each = [world.looked_up(servers, table) for table in tables]
    world.regions = [LOW._replace(server=S3), HIGH]
    for reads in each:
        assert world.closed == []
        world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
        world.now_s += LOOK_S
        assert reads.cells(ROW) is None
        world.errors.clear()
        world.look()
    assert world.closed == [S1]


def test_a_look_that_cannot_begin_costs_no_read_anything(world: World):
    refused: list[Callable[[], None]] = []

    def refuse(look: Callable[[], None]) -> None:
        refused.append(look)
        raise RuntimeError("can't start new thread")

    reads = DirectReads("a", TABLE, world.look_up, world.servers(), WITHIN_MS, world.clock, refuse, UNCOUNTED)
    assert [reads.cells(ROW), reads.cells(ROW)] == [None, None]
    assert len(refused) == 2, "the next read tries it again"


def test_reads_are_counted_by_who_answers_them(world: World):
    reads = world.reads()
    assert world.counted() == {("a", "region_server"): 0, ("a", "gateway"): 0}, "the first of each is an increase, too"
    reads.cells(ROW)
    world.look()
    assert world.counted() == {("a", "region_server"): 0, ("a", "gateway"): 1}, "a look is no read"
    reads.cells(ROW)
    reads.cells(HIGHER_ROW)
    world.errors[LOW.name] = AnsweredError("not online here", may_retry=False)
    reads.cells(ROW)
    reads.cells(ROW)
    reads.cells(HIGHER_ROW, deadline_s=world.now_s)
    assert world.counted() == {("a", "region_server"): 2, ("a", "gateway"): 4}


def test_a_closed_cluster_is_not_asked(world: World):
    servers = world.servers()
    servers.close()
    with pytest.raises(UnavailableError, match="closed"):
        servers.at(S1)
