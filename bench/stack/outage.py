"""Pins at a steady pace, with both clusters and with one of them away: the lag of the one that is there, and how fast
the other one catches up when it is back, while pins keep arriving.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bench.children import child
from bench.context import Context
from bench.ours import feedctl, ports
from bench.results import Row, at_least, at_most, percentile, ratios
from bench.stack.arriving import FOLLOWERS, arriving
from bench.stack.servers import Servers, home
from feedstore.widecolumn.progress import Progress
from workers.following.groups import writer_group
from workers.following.ports import Ports
from workers.following.topics import DELIVERIES
from workers.queue.port import lag_of

PER_S = 200
"""Pins: a tenth of the actions that `trace` gets done."""
LOOK_S = 0.1
WARM_S = 20.0
OUTAGE_S = 30.0
CAUGHT_UP_S = 300.0
KILLED, OTHER = "b", "a"
PARTS = (("relay",), ("expand",), ("write", "--cluster", "a"), ("write", "--cluster", "b"))


def measure(servers: Servers, context: Context) -> list[Row]:
    """The lag of one cluster while the other is away, and how fast that one catches up, at a steady pace of pins"""
    with_s, away_s = (WARM_S, OUTAGE_S) if not context.quick else (5.0, 5.0)
    before: list[_Looks] = []
    away: list[_Looks] = []
    returns: list[_Return] = []
    with home(servers, context) as config, ExitStack() as running:
        for words in PARTS:
            running.enter_context(child(feedctl(config.home, *words), context.folder("part") / "log", watched=False))
        opened = running.enter_context(ports(config))
        running.enter_context(arriving(config, context.folder("replay") / "log", PER_S))
        _look(opened, with_s)  # everything is warm
        for _ in range(context.repeats):
            before.append(_look(opened, with_s))
            servers.stack.kill(f"cluster-{KILLED}")
            away.append(_look(opened, away_s))
            returns.append(_bring_back(servers, opened, away[-1], before[-1]))
            context.say(f"{before[-1].median:.0f} messages, away {away[-1].median:.0f}; {returns[-1]}")
    return [
        Row(
            "lag of the cluster that is there and one message, the other one away / both there, median",
            "x",
            # A writer that keeps up has none most of the time.
            ratios([each.median + 1 for each in away], [each.median + 1 for each in before]),
            at_most(1.25),
        ),
        Row(
            "how far it is behind, the other one away / both there, median",
            "x",
            ratios([each.behind_ms for each in away], [each.behind_ms for each in before]),
            at_most(1.25),
        ),
        Row(
            "the one that is back: rate from its return until it has caught up / arrivals",
            "x",
            [each.ratio for each in returns],
            at_least(2),
            note=f"{PER_S} pins/s for {FOLLOWERS} followers each; away for {away_s:.0f} s and while its servers start",
        ),
        *(
            Row(f"lag, {what}, {which}", "messages", [getattr(each, which) for each in taken])
            for what, taken in (("both there", before), ("the other one away", away))
            for which in ("median", "p90")
        ),
        *(
            Row(f"behind, {what}, median", "ms", [each.behind_ms for each in taken])
            for what, taken in (("both there", before), ("the other one away", away))
        ),
        Row("arrivals", "messages/s", [each.arriving_per_s for each in returns]),
        Row("lag of the one that is back, at its return", "messages", [each.lag for each in returns]),
        Row("from its return until it has caught up", "s", [each.seconds for each in returns]),
    ]


@dataclass(frozen=True)
class _Looks:
    """What was seen of the cluster that is there. seconds: from the first look to the last."""

    lags: Sequence[float]
    behind: Sequence[float]
    seconds: float

    @property
    def median(self) -> float:
        return percentile(self.lags, 0.5)

    @property
    def p90(self) -> float:
        return percentile(self.lags, 0.9)

    @property
    def behind_ms(self) -> float:
        return percentile(self.behind, 0.5)


@dataclass(frozen=True)
class _Return:
    """lag: when all servers of the cluster answered again. seconds: from then until it had caught up."""

    lag: float
    seconds: float
    left: float
    arriving_per_s: float

    @property
    def ratio(self) -> float:
        done = self.lag - self.left + self.arriving_per_s * self.seconds
        return done / self.seconds / self.arriving_per_s

    def __str__(self) -> str:
        return f"back with {self.lag:.0f} messages to do, {self.seconds:.1f} s, {self.ratio:.1f} x what arrives"


def _look(opened: Ports, seconds: float) -> _Looks:
    began = time.perf_counter()
    lags, behind = [], []
    while time.perf_counter() - began < seconds:
        lags.append(float(_lag(opened, OTHER)))
        mark = Progress(opened.replicas[OTHER].progress).watermark()
        behind.append(float(opened.follows.now() - (mark or 0)))
        time.sleep(LOOK_S)
    return _Looks(lags, behind, time.perf_counter() - began)


def _bring_back(servers: Servers, opened: Ports, away: _Looks, before: _Looks) -> _Return:
    """Starts the servers, and waits until the lag is what it is where nothing is wrong."""
    with ThreadPoolExecutor(1) as pool:
        first, began = _lag(opened, KILLED), time.perf_counter()
        pool.submit(servers.stack.up).result()
        lag, back = _lag(opened, KILLED), time.perf_counter()
    arriving_per_s = (lag - first) / (back - began)
    enough = max(before.p90, away.p90)
    while (left := _lag(opened, KILLED)) > enough:
        if time.perf_counter() - back > CAUGHT_UP_S:
            raise TimeoutError(f"cluster {KILLED}: {left} messages behind after {CAUGHT_UP_S:.0f} s")
        time.sleep(LOOK_S)
    return _Return(lag, time.perf_counter() - back, left, arriving_per_s)


def _lag(opened: Ports, cluster: str) -> int:
    return lag_of(opened.queue, DELIVERIES, writer_group(cluster))
