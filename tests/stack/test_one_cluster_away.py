"""One cluster away while work arrives at a steady pace: the other one's lag stays what it was, and the one that is back
catches up although work keeps arriving (rule 12).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import pytest

from deploy.local import Stack
from tests.cli.command import Cli
from tests.stack import homes, traces
from tests.stack.homes import Part
from tests.stack.own_home import own_home
from tests.stack.recording import Recorder
from workers.following.groups import EXPANDER, writer_group
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(600)]

FIRST = 2_000
"""So many actions are recorded at once, to see what the machine can do just now."""
SHARE, PER_S_MAX = 0.125, 100.0
"""What arrives then, of what it can do."""
LOOKS, LOOK_S = 100, 0.1
TICKS = 32
"""More messages than the ticks that may be under way with actions."""

COUPLED = """
from dataclasses import replace
from feedstore.following import FEEDS
from workers.app import wiring
from workers.cli import main

class Both:
    def __init__(self, one, other):
        self._one, self._other = one, other
    def apply(self, batch):
        self._other.apply(batch)
        self._one.apply(batch)
    def __getattr__(self, name):
        return getattr(self._one, name)

opening = wiring.open_ports

def coupled(*arguments, **named):
    ports = opening(*arguments, **named)
    a, b = ports.replicas["a"], ports.replicas["b"]
    ports.replicas["a"] = replace(a, tables={**a.tables, FEEDS: Both(a.tables[FEEDS], b.tables[FEEDS])})
    return ports

wiring.open_ports = coupled
main()
"""
"""What must not be: a writer of cluster a that waits for cluster b."""


@dataclass(frozen=True)
class Steady:
    """A home on the stack, its workers, and actions that arrive at a steady pace while a test looks.

    per_s: so many of them.
    """

    stack: Stack
    cli: Cli
    ports: Ports
    parts: dict[str, Part]
    recorder: Recorder
    per_s: float

    def lag(self, cluster: str) -> int:
        return lag_of(self.ports.queue, DELIVERIES, writer_group(cluster))

    def looks(self, cluster: str, until: Callable[[Sequence[int]], bool]) -> list[int]:
        """The lag of a cluster's writer, looked at again and again until that is enough; the trace is its bound."""
        began_s = time.monotonic()
        allowed = 0
        seen: list[int] = []
        while not until(seen):
            due = int((time.monotonic() - began_s) * self.per_s)
            self.recorder.allow(due - allowed)
            allowed = due
            seen.append(self.lag(cluster))
            time.sleep(LOOK_S)
        return seen

    def limit(self, before: Sequence[int]) -> float:
        """The largest lag that is still what it was: three times as much, and three seconds of work. What arrives
        between two looks comes to about one message.
        """
        return 3 * median(before) + 3 / LOOK_S + TICKS

    def bring_back(self) -> None:
        """Starts what is missing, while work arrives."""
        with ThreadPoolExecutor(1) as pool:
            up = pool.submit(self.stack.up)
            self.looks("b", lambda _: up.done())
            up.result()

    def recorded(self) -> bytes:
        """Returns when everything that arrived is acknowledged: what a cluster must hold after it."""
        homes.eventually(self.recorder.done, "all actions are acknowledged")
        return traces.model(self.recorder.acknowledged(), homes.config_of(self.cli).limits.cap)


@pytest.fixture(scope="module")
def steady(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steady]:
    directory = tmp_path_factory.mktemp("steady")
    with own_home(stack, directory / "home") as cli:
        parts = homes.parts_of(cli)
        recorder = Recorder(homes.config_of(cli), traces.made_up(), directory / "acks")
        with cli.ports() as ports, homes.running(list(parts.values())), recorder:
            with homes.telling(stack, list(parts.values())):
                homes.landed(ports)
                began_s = time.monotonic()
                recorder.allow(FIRST)
                homes.eventually(lambda: recorder.done() and all_done(ports), "the first actions are done")
                per_s = min(PER_S_MAX, SHARE * FIRST / (time.monotonic() - began_s))
            yield Steady(stack, cli, ports, parts, recorder, per_s)


def all_done(ports: Ports) -> bool:
    """Whether nothing but ticks is under way."""
    if ports.follows.backlog().rows or lag_of(ports.queue, ACTIONS, EXPANDER) > TICKS:
        return False
    return all(lag_of(ports.queue, DELIVERIES, writer_group(each)) <= TICKS for each in homes.CLUSTERS)


@pytest.fixture(scope="module")
def before(steady: Steady) -> list[int]:
    """The lag of cluster a's writer while both clusters are there."""
    return steady.looks("a", lambda seen: len(seen) == LOOKS)


def test_rule_12_one_cluster_away_delays_only_itself_and_catches_up_while_work_arrives(
    steady: Steady, before: list[int]
) -> None:
    """While it is away: a writer that waits for the other cluster would be noticed."""
    limit = steady.limit(before)
    coupled = Part(steady.cli, "coupled", "write", "--cluster", "a", code=COUPLED)
    parts = list(steady.parts.values())
    with homes.telling(steady.stack, [*parts, coupled]):
        steady.stack.kill("cluster-b")
        away = steady.looks("a", lambda seen: len(seen) == LOOKS)
        print(f"{steady.per_s:.0f} actions/s; lag of a before {median(before)}, with b away {median(away)}")
        assert median(away) <= limit, (median(before), median(away))
        wanted = steady.recorded()
        homes.landed(steady.ports, ["a"])
        homes.assert_same(homes.exported(steady.cli, "a"), wanted, "cluster a")
        assert [part.name for part in parts if not part.running()] == []
        assert steady.lag("b") > limit

        assert steady.parts["writer-a"].end() == 0
        with homes.running([coupled]):
            steady.looks("a", lambda seen: bool(seen) and median(seen) > limit)
            # Work keeps arriving all the while: a writer that is not faster than it never gets there.
            steady.bring_back()
        steady.parts["writer-a"].start()
        caught_up = steady.looks("b", lambda seen: bool(seen) and seen[-1] <= limit)

        print(f"lag of b when it is back {caught_up[0]}, after {len(caught_up)} looks {caught_up[-1]}")
        wanted = steady.recorded()
        homes.landed(steady.ports)
        homes.check(steady.cli, wanted)
