"""The broker killed while every stage has more in hand than it handles: nothing that was polled ahead is forgotten."""

import signal

import pytest

from deploy.local import Stack
from feedstore.following import FEEDS, row_key
from tests.stack import homes, traces
from tests.stack.own_home import own_home
from workers.following.groups import EXPANDER, writer_group
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(600)]

SAVED = 30_000
FOLLOWERS = 10

MISSED = ("queue.unavailable", "tick.unavailable", "messages.retry")


def lines() -> list[bytes]:
    follows = [b'{"type":"follow","ts":%d,"follower":%d,"user":99}' % (1_000 + n, 1 + n) for n in range(FOLLOWERS)]
    saves = [b'{"type":"save_pin","ts":%d,"pin":%d,"owner":99,"board":990}' % (2_000 + n, 1 + n) for n in range(SAVED)]
    return [*follows, *saves]


def left(ports: Ports, group: str) -> int:
    return lag_of(ports.queue, ACTIONS if group == EXPANDER else DELIVERIES, group)


def all_waits(ports: Ports, group: str) -> bool:
    """Whether those before it are done, and it has something to do."""
    before = group != EXPANDER and left(ports, EXPANDER)
    return not (before or ports.follows.unrelayed(1)) and left(ports, group) > 0


def entries(ports: Ports) -> int:
    """How many one of the followers has in cluster a."""
    return len(ports.replicas["a"].tables[FEEDS].cells(row_key(1)))


def is_at_work(ports: Ports, group: str) -> bool:
    """Whether it has done something. What it publishes or writes is seen before it commits for the first time: a fast
    one is done with everything then.
    """
    if group == EXPANDER:
        return left(ports, writer_group("b")) > 0
    return entries(ports) > 0


# This process is a client too: kafka-python leaves the socket of an attempt to connect, which the broker's end cuts
# short, to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("busy", [EXPANDER, writer_group("a")])
def test_rule_11_a_broker_killed_under_load_costs_nothing(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory, busy: str
) -> None:
    with own_home(stack, tmp_path_factory.mktemp("load") / "home") as cli, cli.ports() as ports:
        parts = homes.parts_of(cli)
        every = list(parts.values())
        late = parts[{EXPANDER: "expander"}.get(busy, busy)]
        homes.replay(cli, lines())
        early = [part for part in every if part is not late]
        with homes.telling(stack, every), homes.running(early):
            homes.eventually(lambda: all_waits(ports, busy), f"everything waits for {busy}")
            with homes.running([late]):
                homes.eventually(lambda: is_at_work(ports, busy), f"{busy} is at work")
                late.signal(signal.SIGSTOP)
                assert left(ports, busy) > 0, "it was done too soon"
                assert busy == EXPANDER or entries(ports) < SAVED, "it was done too soon"
                stack.kill("kafka")
                late.signal(signal.SIGCONT)
                homes.eventually(lambda: any(map(list, map(late._events, MISSED))), f"{busy} misses the broker")
                stack.up()
                homes.landed(ports)
                assert [part.name for part in every if not part.running()] == []
                homes.check(cli, traces.model(lines(), homes.config_of(cli).limits.cap))
