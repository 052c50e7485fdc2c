"""How soon an action can be seen while pins arrive at a steady pace, and what each process takes meanwhile.

A client outside of the workers saves a pin now and then, and asks each cluster for the first page of a follower until
it shows the pin. All else is as in `outage`: the four workers are processes, and other pins arrive through a replay.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from urllib.request import urlopen

import psutil

from bench.children import child, free_port
from bench.context import Context
from bench.ours import feedctl, pages_of, ports
from bench.results import Row, at_most, percentile, ratios
from bench.stack.arriving import FOLLOWERS, arriving
from bench.stack.outage import PARTS
from bench.stack.servers import Servers, home
from feedstore.app.config import Config
from feedstore.app.services import open_service
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, user
from workers.following.ports import Ports

PER_S = 20
PACES = (20, 200, 2_000)
AT_ONCE = "1ms"
"""A distance between the lots of a writer that is over before the next one could begin."""
WARM_S, REST_S, SEE_S = 10, 12, 15
"""Everything gets warm; processor time is taken while the client rests, which costs servers more than twenty pins a
second do; then the client looks.
"""
OWNER, FOLLOWER = 900_001, 900_002
BETWEEN_S = (0.2, 0.5)
"""Between two pins of the client: at random, as the loops of the workers have a rhythm of their own."""
ASK_S = 0.002
CALLS = "feed_cluster_call_seconds_count"
SEEN_S = 60.0


@dataclass(frozen=True)
class _Sample:
    """ms: from the return of the call that saved a pin until a cluster showed it; by cluster. processor: seconds of
    processor time a second, by process. calls: of the writers to their clusters, a second.
    """

    ms: Mapping[str, Sequence[float]]
    processor: Mapping[str, float]
    calls: float

    def at(self, rank: float) -> float:
        """Of the later cluster."""
        return max(percentile(each, rank) for each in self.ms.values())

    def __str__(self) -> str:
        taken = ", ".join(f"{name} {each:.2f}" for name, each in self.processor.items())
        return f"visible p50 {self.at(0.5):.0f} ms, p99 {self.at(0.99):.0f}; {self.calls:.0f} calls/s; {taken}"


def measure(servers: Servers, context: Context) -> list[Row]:
    """How soon a saved pin can be seen in each cluster, at 20 pins a second"""
    with home(servers, context) as config, _running(servers, context, config, PER_S) as running:
        taken = [running.look(context) for _ in range(context.repeats)]
    return [
        Row(
            f"a saved pin is shown by cluster {cluster}, {PER_S} pins/s, {name}",
            "ms",
            [percentile(each.ms[cluster], rank) for each in taken],
        )
        for cluster in taken[0].ms
        for name, rank in (("p50", 0.5), ("p99", 0.99))
    ]


def measure_gathering(servers: Servers, context: Context) -> list[Row]:
    """The same at several paces, with writers that wait for more as `feedctl init` has it, and at once"""
    rows: list[Row] = []
    for per_s in PACES:
        gathered: list[_Sample] = []
        at_once: list[_Sample] = []
        with home(servers, context) as config, ExitStack() as stack:
            # Both sides write the same tables, one after the other: only the writers are started again.
            stack.enter_context(arriving(config, context.folder("replay") / "log", per_s))
            for repeat in range(context.repeats):
                sides = [(gathered, {}), (at_once, {"FEED_WORKER_GATHER": AT_ONCE})]
                for into, settings in sides if repeat % 2 == 0 else reversed(sides):
                    with _workers(servers, context, config, settings) as running:
                        into.append(running.look(context))
        rows += _compared(per_s, gathered, at_once)
    return rows


def _compared(per_s: int, gathered: Sequence[_Sample], at_once: Sequence[_Sample]) -> Iterator[Row]:
    what = f"{per_s:,} pins/s for {FOLLOWERS} followers each"
    sides = (("gathered", gathered), ("at once", at_once))
    for name, rank, target in (("p50", 0.5, None), ("p99", 0.99, at_most(1.1) if per_s == PER_S else None)):
        ours, theirs = ([each.at(rank) for each in taken] for taken in (gathered, at_once))
        yield Row(
            f"{what}: a pin is shown by both clusters, {name}, gathered / at once", "x", ratios(ours, theirs), target
        )
        yield from (
            Row(f"{what}, {side}: a pin is shown by both clusters, {name}", "ms", taken)
            for side, taken in (("gathered", ours), ("at once", theirs))
        )
    calls = [[each.calls for each in taken] for taken in (gathered, at_once)]
    yield Row(f"{what}: calls of the writers to HBase, gathered / at once", "x", ratios(*calls))
    yield from (
        Row(f"{what}, {side}: calls to HBase", "calls/s", taken) for (side, _), taken in zip(sides, calls, strict=True)
    )
    together = [[sum(each.processor.values()) for each in taken] for taken in (gathered, at_once)]
    yield Row(f"{what}: processor time of all, gathered / at once", "x", ratios(*together))
    yield from (
        Row(
            f"{what}, {side}: processor time of {process}, of one core",
            "x",
            [each.processor[process] for each in taken],
        )
        for side, taken in sides
        for process in taken[0].processor
    )


class _Running:
    """Workers that are under load. pids: of their processes, by name. metrics: the ports of what the writers count."""

    def __init__(
        self, servers: Servers, config: Config, opened: Ports, pids: Mapping[str, int], metrics: Sequence[int]
    ) -> None:
        self._servers = servers
        self._config = config
        self._opened = opened
        self._pids = pids
        self._metrics = metrics
        self._pins = count(wall_ms() * 1_000)

    def look(self, context: Context) -> _Sample:
        self._see(context.pick(WARM_S, 2))
        before, calls, began = self._processor(), self._calls(), time.perf_counter()
        time.sleep(context.pick(REST_S, 2))
        seconds = time.perf_counter() - began
        after = self._processor()
        taken = {name: (after[name] - before[name]) / seconds for name in after}
        sample = _Sample(self._see(context.pick(SEE_S, 3)), taken, (self._calls() - calls) / seconds)
        context.say(str(sample))
        return sample

    def _see(self, seconds: float) -> Mapping[str, Sequence[float]]:
        """Saves pins, and how many ms later each cluster showed them."""
        until = time.perf_counter() + seconds
        rng = random.Random(1)
        found: defaultdict[str, list[float]] = defaultdict(list)
        readers = {name: pages_of(each) for name, each in self._opened.replicas.items()}
        with open_service(self._config) as service:
            service.follow(FOLLOWER, user(OWNER))
            while time.perf_counter() < until:
                pin = next(self._pins)
                service.save_pin(Pin(pin, owner=OWNER, board=OWNER, created_ms=wall_ms()))
                saved = time.perf_counter()
                missing = dict(readers)
                while missing:
                    for name, reader in list(missing.items()):
                        if any(entry.pin == pin for entry in reader.page(FOLLOWER, limit=1).entries):
                            found[name].append(1_000 * (time.perf_counter() - saved))
                            del missing[name]
                    assert time.perf_counter() - saved < SEEN_S, missing
                    time.sleep(ASK_S)
                time.sleep(rng.uniform(*BETWEEN_S))
        return found

    def _processor(self) -> Mapping[str, float]:
        """Seconds since each process started; the replay and this process are none of them."""
        taken: defaultdict[str, float] = defaultdict(float)
        for name, pid in self._pids.items():
            times = psutil.Process(pid).cpu_times()
            taken[name] += times.user + times.system
        for name, seconds in self._servers.processor_seconds().items():
            if name.startswith(("hbase", "thrift2", "kafka", "mariadb")):
                taken[name.partition("-")[0]] += seconds
        return taken

    def _calls(self) -> float:
        total = 0.0
        for port in self._metrics:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            total += sum(float(line.split()[-1]) for line in lines if line.startswith(CALLS))
        return total


@contextmanager
def _running(servers: Servers, context: Context, config: Config, per_s: float) -> Iterator[_Running]:
    with (
        arriving(config, context.folder("replay") / "log", per_s),
        _workers(servers, context, config, {}) as running,
    ):
        yield running


@contextmanager
def _workers(servers: Servers, context: Context, config: Config, settings: Mapping[str, str]) -> Iterator[_Running]:
    """The four workers, with settings of their own in the environment."""
    pids: dict[str, int] = {}
    metrics: list[int] = []
    with ExitStack() as stack:
        for words in PARTS:
            mine = {**settings}
            if words[0] == "write":
                metrics.append(free_port())
                mine["FEED_METRICS_LISTEN"] = f"127.0.0.1:{metrics[-1]}"
            log = context.folder("part") / "log"
            given = (f"{name}={value}" for name, value in mine.items())
            started = stack.enter_context(child(["env", *given, *feedctl(config.home, *words)], log, watched=False))
            pids[" ".join((words[0], *words[2:]))] = started.process.pid
        yield _Running(servers, config, stack.enter_context(ports(config)), pids, metrics)
