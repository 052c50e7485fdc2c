"""Pages and pins at a steady pace, while each cluster in turn is killed, suspended, or loses its gateway."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import paced
from bench.children import child
from bench.context import Context
from bench.measurements.http import serving
from bench.ours import feedctl, ports
from bench.paced import Line
from bench.results import Row, at_least, at_most, percentile
from bench.stack import outage
from bench.stack.arriving import OWNERS, USERS, arriving
from bench.stack.servers import Servers, home
from deploy.local import Stack
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import Progress
from workers.following.ports import Ports

PAGES_PER_S = 40
"""Through each door."""
PINS_PER_S = 20
WARM_S, BEFORE_S, AWAY_S, AFTER_S = 15.0, 10.0, 15.0, 5.0
FULL_MS = 5_000
"""A cluster that is no further behind has caught up."""
CAUGHT_UP_S = 180.0
CLUSTERS = ("a", "b")


@dataclass(frozen=True)
class Drill:
    """What becomes of a cluster, and how it comes back; `Stack.up` brings what is still missing `settled_s` later."""

    what: str
    begin: Callable[[Stack, str], None]
    end: Callable[[Stack, str], None] = lambda _, __: None
    settled_s: float = 0.0


DRILLS = (
    Drill("killed", lambda stack, cluster: stack.kill(f"hbase-{cluster}")),
    Drill(
        "suspended",
        lambda stack, cluster: stack.suspend(f"hbase-{cluster}"),
        lambda stack, cluster: stack.resume(f"hbase-{cluster}"),
        settled_s=15.0,  # it finds out that its session has ended, and ends
    ),
    Drill("its gateway killed", lambda stack, cluster: stack.kill(f"thrift2-{cluster}")),
)


@dataclass(frozen=True)
class Taken:
    """The pages of one door around one drill: before it, while the cluster was away, and while it came back (its
    servers start, it catches up).
    """

    before: Sequence[Line]
    away: Sequence[Line]
    back: Sequence[Line]

    @property
    def failed(self) -> int:
        return sum(line.is_failure for line in (*self.away, *self.back))

    @property
    def asked(self) -> int:
        return len(self.away) + len(self.back)


def measure(servers: Servers, context: Context) -> list[Row]:
    """Pages through the library and over HTTP while each cluster in turn is killed, suspended, loses its gateway"""
    taken: dict[tuple[str, str], list[Taken]] = {}
    with home(servers, context) as config, ExitStack() as running:
        for words in outage.PARTS:
            running.enter_context(child(feedctl(config.home, *words), context.folder("part") / "log", watched=False))
        opened = running.enter_context(ports(config))
        running.enter_context(
            arriving(config, context.folder("replay") / "log", PINS_PER_S, context.pick(10, 1) * OWNERS)
        )
        folder = context.folder("drills")
        served = running.enter_context(serving(feedctl(config.home, "serve", "--port", "0"), folder / "serve.log"))
        _wait_landed(opened)
        doors = {"library": str(config.home), "HTTP": served.address}
        logs = {door: folder / f"{door}.pages" for door in doors}
        for door, where in doors.items():
            paced = [sys.executable, "-m", "bench.paced", where, str(PAGES_PER_S), str(USERS[0]), str(USERS[-1])]
            running.enter_context(child(paced, logs[door], watched=False))
        time.sleep(context.pick(int(WARM_S), 5))
        for _ in range(context.repeats):
            for drill in DRILLS:
                for cluster in CLUSTERS:
                    for door, each in _drilled(servers.stack, context, opened, logs, drill, cluster).items():
                        taken.setdefault((door, f"{cluster} {drill.what}"), []).append(each)
                        context.say(f"{door}, {cluster} {drill.what}: {_told(each)}")
    return [row for (door, what), some in taken.items() for row in _rows(f"{door}, {what}", some)]


def _drilled(
    stack: Stack, context: Context, opened: Ports, logs: Mapping[str, Path], drill: Drill, cluster: str
) -> dict[str, Taken]:
    share = 0.3 if context.quick else 1.0
    began_s = time.monotonic()
    time.sleep(share * BEFORE_S)
    away_s = time.monotonic()
    drill.begin(stack, cluster)
    time.sleep(share * AWAY_S)
    back_s = time.monotonic()
    with ThreadPoolExecutor(1) as pool:  # its probes must not hold up the loop that keeps time here
        drill.end(stack, cluster)
        time.sleep(drill.settled_s)
        pool.submit(stack.up).result()
    _wait_landed(opened)
    ended_s = time.monotonic()
    time.sleep(share * AFTER_S)
    found = {}
    for door, log in logs.items():
        lines = paced.lines(log)
        found[door] = Taken(
            *(
                [line for line in lines if from_s <= line.due_s < until_s]
                for from_s, until_s in ((began_s, away_s), (away_s, back_s), (back_s, ended_s))
            )
        )
    return found


def _wait_landed(opened: Ports) -> None:
    """Until both clusters are where they are when all is well."""
    deadline_s = time.monotonic() + CAUGHT_UP_S
    while True:
        with suppress(UnavailableError):  # its servers answer, and it may not yet
            marks = [Progress(opened.replicas[cluster].progress).watermark() for cluster in CLUSTERS]
            behind_ms = max(opened.follows.now() - (mark or 0) for mark in marks)
            if behind_ms <= FULL_MS:
                return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"after {CAUGHT_UP_S:.0f} s a cluster has not caught up")
        time.sleep(outage.LOOK_S)


def _rows(what: str, taken: Sequence[Taken]) -> list[Row]:
    """A sample for each time that the cluster was away; but every page counts, failed or slowest."""

    def at(share: float, of: Callable[[Taken], Sequence[Line]]) -> list[float]:
        return [percentile([line.took_ms for line in of(each)], share) for each in taken]

    before = at(0.5, lambda each: each.before)
    failed, asked = sum(each.failed for each in taken), sum(each.asked for each in taken)
    note = f"{failed} of {asked:,} failed"
    rows = [Row(f"{what}: pages that came / asked for", "x", [1 - failed / asked], at_least(1), note)]
    for when, of in (("away", lambda each: each.away), ("coming back", lambda each: each.back)):
        p50, p99, longest = (at(share, of) for share in (0.5, 0.99, 1.0))
        ratio = [one / other for one, other in zip(p50, before, strict=True)]
        rows += [
            Row(f"{what}: p50 {when} / before", "x", ratio, at_most(1.5)),
            Row(f"{what}: p99 {when}", "ms", p99, at_most(100)),
            Row(f"{what}: the longest page {when}", "ms", [max(longest)], at_most(1_000)),
        ]
    rows.append(Row(f"{what}: p50 before", "ms", before))
    rows.append(Row(f"{what}: p99 before", "ms", at(0.99, lambda each: each.before)))
    return rows


def _told(taken: Taken) -> str:
    parts = []
    for when, lines in (("before", taken.before), ("away", taken.away), ("back", taken.back)):
        took_ms = [line.took_ms for line in lines]
        p50, p99, longest = (percentile(took_ms, share) for share in (0.5, 0.99, 1.0))
        by = Counter(line.said for line in lines)
        parts.append(f"{when} {len(lines)} pages, {p50:.1f} / {p99:.1f} / {longest:.0f} ms, by {dict(by)}")
    return "; ".join(parts)
