"""Calls on several gateways, and what becomes of errors."""

import math
from collections.abc import Callable

import pytest
import structlog
from structlog.testing import capture_logs
from test_hbase_pool import G1, G2, FakeConnection, Peers
from thriftpy2.thrift import TApplicationException

from feedstore.widecolumn import RefusedError, UnavailableError, WillNotError
from feedstore.widecolumn.hbase import thrift2
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.gateways import AnsweredError, Gateways
from feedstore.widecolumn.hbase.pool import DOWN_S, TRIED_S, WHOLE_S
from feedstore.widecolumn.hbase.thrift2 import structs


class World(Peers):
    """Gateways of which some are down, and a clock that `ask` may move."""

    def gateways(self, *addresses: Address) -> Gateways[FakeConnection]:
        return Gateways(addresses, self.connect, 4, lambda: self.now)


@pytest.fixture
def world() -> World:
    return World()


def raising(error: Exception, at: Address) -> Callable[[FakeConnection], Address]:
    def ask(connection: FakeConnection) -> Address:
        if connection.address == at:
            raise error
        return connection.address

    return ask


def test_an_answer_comes_from_the_first_gateway(world: World):
    assert world.gateways(G1, G2).call(lambda to: to.address, 1_000) == G1


def test_a_gateway_that_is_down_costs_a_try(world: World):
    world.down = {G1}
    assert world.gateways(G1, G2).call(lambda to: to.address, 1_000) == G2


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow"), ValueError("garbage")])
def test_a_call_that_breaks_off_is_made_elsewhere(world: World, error: Exception):
    gateways = world.gateways(G1, G2)
    assert gateways.call(raising(error, G1), 1_000) == G2
    assert [each.closed for each in world.opened] == [True, False]
    assert gateways.call(lambda to: to.address, 1_000) == G2, "the one that failed is asked last"


def test_the_error_names_every_gateway(world: World):
    world.down = {G1}
    with pytest.raises(UnavailableError, match="g1:1: refused; g2:2: slow"):
        world.gateways(G1, G2).call(raising(TimeoutError("slow"), G2), 1_000)


def test_each_gateway_gets_its_share_of_the_time(world: World):
    seen: list[float] = []

    def hang(to: FakeConnection) -> None:
        seen.append(to.deadline - world.now)
        world.now = to.deadline
        raise TimeoutError("timed out")

    with pytest.raises(UnavailableError, match="timed out"):
        world.gateways(G1, G2).call(hang, 1_000)
    assert seen == pytest.approx([0.5, 0.5])


def asked_for(
    world: World, took_s: dict[Address, float], gateways: Gateways[FakeConnection], until: float
) -> list[float]:
    """Calls of 30 s at most until a time, one after the other. Gives how long G1 was waited for, each time.

    took_s: how long a gateway needs for an answer.
    """
    waited: list[float] = []

    def ask(to: FakeConnection) -> None:
        within_s = min(took_s[to.address], to.deadline - world.now)
        world.now += within_s
        if to.address == G1:
            waited.append(within_s)
        if within_s < took_s[to.address]:
            raise TimeoutError("timed out")

    while world.now < until:
        gateways.call(ask, 30_000)
    return waited


def test_a_gateway_that_hangs_costs_a_second_from_its_second_failure_on(world: World):
    gateways = world.gateways(G1, G2)
    whole, *later = asked_for(world, {G1: math.inf, G2: 0.1}, gateways, world.now + 200)
    assert whole == 15
    assert len(later) >= 5
    assert later == pytest.approx([TRIED_S] * len(later))

    asked_for(world, {G1: 0.1, G2: 0.1}, gateways, world.now + 40)
    assert asked_for(world, {G1: 5, G2: 0.1}, gateways, world.now + 6)[0] == 5, "an answer restores its share"


def test_a_gateway_that_is_slow_is_not_taken_for_one_that_hangs_for_ever(world: World):
    """All may be slow, for as long as HBase is."""
    gateways = world.gateways(G1, G2)
    asked_for(world, {G1: math.inf, G2: 5}, gateways, world.now + 15)
    seen = asked_for(world, {G1: 5, G2: 5}, gateways, world.now + 2 * WHOLE_S)
    assert TRIED_S in map(round, seen)
    assert seen[-1] == 5


@pytest.mark.parametrize("addresses", [(G1,), (G1, G2)])
def test_gateways_that_have_all_failed_have_all_of_the_time(world: World, addresses: tuple[Address, ...]):
    gateways = world.gateways(*addresses)
    for _ in range(3):
        began = world.now
        with pytest.raises(UnavailableError):
            asked_for(world, {G1: math.inf, G2: math.inf}, gateways, math.inf)
        assert world.now == pytest.approx(began + 30)


def test_no_gateway_is_asked_after_the_deadline(world: World):
    def hang(to: FakeConnection) -> None:
        world.now += 5
        raise TimeoutError("timed out")

    with pytest.raises(UnavailableError, match="g1:1: timed out; no answer in 1000 ms"):
        world.gateways(G1, G2).call(hang, 1_000)
    assert len(world.opened) == 1


def test_a_gateway_that_was_started_anew_is_asked_again(world: World):
    gateways = world.gateways(G1)
    gateways.call(lambda to: to.address, 1_000)
    calls = 0

    def once(to: FakeConnection) -> Address:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionResetError("the gateway closed the connection")
        return to.address

    assert gateways.call(once, 1_000) == G1
    assert [each.closed for each in world.opened] == [True, False]


def test_an_answer_that_is_an_error_is_final_and_keeps_the_connection(world: World):
    gateways = world.gateways(G1, G2)
    with pytest.raises(UnavailableError, match="g1:1: region is not online"):
        gateways.call(raising(AnsweredError("region is not online", may_retry=True), G1), 1_000)
    assert [each.closed for each in world.opened] == [False]


def test_a_gateway_that_answers_with_errors_only_costs_one_call(world: World):
    """One that has lost its cluster answers every call with an error, and the others are as well as before."""
    gateways = world.gateways(G1, G2)
    asked_s = []

    def ask(to: FakeConnection) -> Address:
        if to.address == G1:
            asked_s.append(world.now - 100)
            raise AnsweredError("Failed 1 action", may_retry=True)
        return to.address

    with pytest.raises(UnavailableError, match="g1:1: Failed 1 action"):
        gateways.call(ask, 1_000)
    structlog.reset_defaults()  # a command that ran in this process has its own
    with capture_logs() as logs:
        while world.now < 140:
            assert gateways.call(ask, 1_000) == G2
            world.now += DOWN_S / 2
    assert [(each["event"], each["error"]) for each in logs] == [("hbase.gateway_failed", "g1:1: Failed 1 action")] * 5
    assert asked_s == [0, 1, 3, 7, 15, 31], "it is asked last, each time for longer"


def test_an_error_among_answers_is_final(world: World):
    """A region may be away for a while, and each gateway would wait for it."""
    gateways = world.gateways(G1, G2)
    asked = 0

    def ask(to: FakeConnection) -> None:
        nonlocal asked
        asked += 1
        raise AnsweredError("region is not online", may_retry=True)

    for rounds in (1, 2, 3):
        with pytest.raises(UnavailableError):
            gateways.call(ask, 1_000)
        assert asked == rounds
        world.now += DOWN_S
        assert {gateways.call(lambda to: to.address, 1_000) for _ in range(2)} == {G1, G2}


def test_what_all_gateways_answer_is_named_with_each(world: World):
    gateways = world.gateways(G1, G2)
    for failed in ("g1:1: no", "g2:2: no", "g1:1: no; g2:2: no"):
        with pytest.raises(RefusedError, match=f"^{failed}$"):
            gateways.call(refuse, 1_000, may_refuse=True)


def refuse(_: FakeConnection) -> None:
    raise AnsweredError("no", may_retry=False)


@pytest.mark.parametrize(("may_refuse", "kind"), [(True, RefusedError), (False, UnavailableError)])
def test_only_administration_is_refused(world: World, may_refuse: bool, kind: type):
    with pytest.raises(kind, match="no such table"):
        world.gateways(G1).call(
            raising(AnsweredError("no such table", may_retry=False), G1), 1_000, may_refuse=may_refuse
        )


def test_a_gateway_whose_cluster_is_away_refuses_nothing(world: World):
    away = AnsweredError("Zookeeper LIST could not be completed in 10000 ms", may_retry=False)
    with pytest.raises(UnavailableError, match="Zookeeper LIST"):
        world.gateways(G1).call(raising(away, G1), 1_000, may_refuse=True)


def test_what_hbase_will_not_do_is_told_from_what_is_away(world: World):
    with pytest.raises(WillNotError, match="no such table"):
        world.gateways(G1).call(raising(AnsweredError("no such table", may_retry=False), G1), 1_000)
    with pytest.raises(UnavailableError) as caught:
        world.gateways(G1).call(raising(AnsweredError("region is not online", may_retry=True), G1), 1_000)
    assert not isinstance(caught.value, WillNotError)


def test_an_interrupt_passes_and_discards_the_connection(world: World):
    def interrupted(to: FakeConnection) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.gateways(G1).call(interrupted, 1_000)
    assert world.opened[0].closed


# ---- what gateways raise


@pytest.mark.parametrize(
    ("error", "message", "may_retry"),
    [
        (structs.TIOError("Failed 1 action\n\tat Some.java:1", True), "Failed 1 action", True),
        (structs.TIOError("nope", False), "nope", False),
        (structs.TIOError("from an older HBase", None), "from an older HBase", True),
        (
            structs.TIOError("feed:feeds", False),
            "feed:feeds; is this table missing, disabled, or still being made?",
            False,
        ),
        (
            structs.TIOError("progress", False),
            "progress; is this table missing, disabled, or still being made?",
            False,
        ),
        (structs.TIOError("x" * 1_000, None), "x" * 297 + "...", True),
        (TApplicationException(1), "Unknown method; is it a Thrift2 gateway", True),
    ],
)
def test_what_a_gateway_answers(error: Exception, message: str, may_retry: bool):
    found = thrift2.answered(error)
    assert str(found).startswith(message)
    assert "\n" not in str(found)
    assert found.may_retry is may_retry


@pytest.mark.parametrize("said", [None, "rs-1.example.org", "Timeout"])
def test_what_may_be_retried_is_no_name_of_a_table(said: str | None):
    assert str(thrift2.answered(structs.TIOError(said, True))) == str(said)
