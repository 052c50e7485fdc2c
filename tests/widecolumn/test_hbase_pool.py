"""The pool, with connections that are only names."""

import threading
from itertools import pairwise

import pytest

from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.pool import DOWN_S, BusyError, GatewayError, Pool

G1, G2 = Address("g1", 1), Address("g2", 2)


class FakeConnection:
    deadline = 0.0

    def __init__(self, address: Address) -> None:
        self.address = address
        self.silent = True
        self.closed = False

    def set_deadline(self, deadline: float) -> None:
        self.deadline = deadline

    def is_silent(self) -> bool:
        return self.silent

    def close(self) -> None:
        self.closed = True


class Peers:
    """What there is to connect to, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.down: set[Address] = set()
        self.opened: list[FakeConnection] = []

    def connect(self, address: Address, timeout_s: float) -> FakeConnection:
        assert timeout_s > 0
        if address in self.down:
            raise ConnectionRefusedError("refused")
        self.opened.append(FakeConnection(address))
        return self.opened[-1]

    def pool(self, *addresses: Address, size: int = 4) -> Pool[FakeConnection]:
        return Pool(addresses or (G1,), self.connect, size, lambda: self.now)


@pytest.fixture
def gateways() -> Peers:
    return Peers()


def test_a_connection_is_used_again(gateways: Peers):
    pool = gateways.pool()
    first = pool.take(101)
    assert not first.is_reused
    pool.give_back(first)
    again = pool.take(101)
    assert (again.connection, again.is_reused) == (first.connection, True)
    assert len(gateways.opened) == 1


def test_who_has_no_time_left_opens_nothing_and_blames_no_gateway(gateways: Peers):
    """On a busy machine the deadline passes between two steps."""
    pool = gateways.pool(G1, G2, size=1)
    with pytest.raises(GatewayError, match="no time was left"):
        pool.take(100)
    assert gateways.opened == []
    pool.give_back(pool.take(101))
    assert [each.address for each in gateways.opened] == [G2], "it is the other one's turn"


def test_a_connection_that_comes_back_just_as_the_time_is_up_is_taken(gateways: Peers):
    """A thread that gives one back wakes one other. If that one gave up, the rest would wait for a free connection."""
    pool = gateways.pool(size=1)
    lease = pool.take(101)

    class TimesOut(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 1
            gateways.now += 1
            pool.give_back(lease)
            return False

    pool._changed = TimesOut()
    assert pool.take(101).connection is lease.connection
    with pytest.raises(BusyError, match="all 1 connections are busy"):
        pool.take(101)


def test_a_dead_one_is_noticed_before_it_is_used(gateways: Peers):
    pool = gateways.pool()
    first, second = pool.take(101), pool.take(101)
    pool.give_back(first)
    pool.give_back(second)
    for connection in gateways.opened:
        connection.silent = False
    third = pool.take(101)
    assert not third.is_reused
    assert first.connection.closed
    assert second.connection.closed


def test_a_discarded_one_is_closed_and_makes_room(gateways: Peers):
    pool = gateways.pool(size=1)
    lease = pool.take(101)
    pool.discard(lease)
    assert lease.connection.closed
    assert pool.take(101).connection is not lease.connection


def test_there_are_never_more_than_its_size(gateways: Peers):
    pool = gateways.pool(G1, G2, size=2)
    leases = [pool.take(101), pool.take(101)]
    gateways.now = 101.5
    with pytest.raises(UnavailableError, match="all 2 connections are busy"):
        pool.take(101)
    for lease in leases:
        pool.give_back(lease)
    for _ in range(10):
        pool.give_back(pool.take(200, tried=[G1]))
        pool.give_back(pool.take(200, tried=[G2]))
    assert sum(not each.closed for each in gateways.opened) <= 2


def test_room_is_made_for_another_gateway(gateways: Peers):
    pool = gateways.pool(G1, G2, size=1)
    pool.give_back(pool.take(101, tried=[G2]))
    lease = pool.take(101, tried=[G1])
    assert (lease.address, gateways.opened[0].closed) == (G2, True)


def test_gateways_take_turns(gateways: Peers):
    pool = gateways.pool(G1, G2)
    assert [pool.take(101).address for _ in range(4)] == [G1, G2, G1, G2]


def test_a_gateway_that_was_tried_is_left_out(gateways: Peers):
    pool = gateways.pool(G1, G2)
    assert [pool.take(101, tried=[G1]).address for _ in range(3)] == [G2] * 3


def test_a_gateway_that_is_down_is_asked_last_for_a_while(gateways: Peers):
    gateways.down = {G1}
    pool = gateways.pool(G1, G2, size=10)
    with pytest.raises(GatewayError, match="g1:1: refused") as caught:
        pool.take(101)
    assert caught.value.address == G1
    assert [pool.take(101).address for _ in range(3)] == [G2] * 3
    gateways.down = set()
    gateways.now += DOWN_S + 0.1
    assert {pool.take(110).address for _ in range(2)} == {G1, G2}


def test_a_gateway_that_keeps_failing_is_asked_less_and_less(gateways: Peers):
    pool = gateways.pool(G1, G2, size=100)
    asked: list[float] = []
    for _ in range(1_000):
        lease = pool.take(gateways.now + 1)
        if lease.address == G1:
            asked.append(gateways.now)
            pool.discard(lease)
            pool.failed(G1)
        else:
            pool.give_back(lease)
        gateways.now += 0.1
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert gaps == pytest.approx([1, 2, 4, 8, 16, 30, 30], abs=0.3)


def test_a_failed_gateway_loses_its_idle_connections(gateways: Peers):
    pool = gateways.pool(G1, G2)
    for lease in [pool.take(101) for _ in range(4)]:
        pool.give_back(lease)
    pool.failed(G1)
    assert [each.closed for each in gateways.opened] == [each.address == G1 for each in gateways.opened]


def test_a_failure_to_connect_takes_no_place(gateways: Peers):
    gateways.down = {G1}
    pool = gateways.pool(size=1)
    for _ in range(3):
        with pytest.raises(GatewayError):
            pool.take(101)
    gateways.down = set()
    pool.take(101)


def test_a_waiting_thread_gets_what_is_given_back(gateways: Peers):
    pool = gateways.pool(size=1)
    lease = pool.take(1_000)
    got: list[FakeConnection] = []
    waiter = threading.Thread(target=lambda: got.append(pool.take(1_000).connection))
    waiter.start()
    pool.give_back(lease)
    waiter.join(10)
    assert got == [lease.connection]


def test_closing_closes_what_is_idle_at_once_and_the_rest_later(gateways: Peers):
    pool = gateways.pool()
    idle, busy = pool.take(101), pool.take(101)
    pool.give_back(idle)
    pool.close()
    pool.close()
    assert (idle.connection.closed, busy.connection.closed) == (True, False)
    pool.give_back(busy)
    assert busy.connection.closed
    with pytest.raises(UnavailableError, match="closed"):
        pool.take(101)


def test_closing_wakes_who_waits(gateways: Peers):
    pool = gateways.pool(size=1)
    pool.take(1_000)
    raised: list[str] = []

    def wait() -> None:
        try:
            pool.take(1_000)
        except UnavailableError as error:
            raised.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    pool.close()
    waiter.join(10)
    assert raised == ["the cluster is closed"]


def test_many_threads_keep_to_the_size(gateways: Peers):
    pool = gateways.pool(G1, G2, size=3)
    busy, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal busy, most
        for _ in range(200):
            lease = pool.take(1_000)
            with lock:
                busy += 1
                most = max(most, busy)
            with lock:
                busy -= 1
            pool.give_back(lease)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert sum(not each.closed for each in gateways.opened) <= 3
