"""What the trim inside compactions costs and saves, against the same compactions without it, and against the two ways
to trim that it replaces: reading and deleting with every write, and a job that scans and deletes.
"""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from bench import ours
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import POOL, Feed, made_feeds
from bench.native import write_cells
from bench.ours import fill
from bench.results import Row, Sample, at_least, interleaved, latencies, of_sides, ratios
from bench.stack.servers import SLACK, Servers, replica
from bench.timing import each_us
from feedstore.clocks import wall_ms
from feedstore.following import FEEDS, columns, row_key
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Mutation, Put

KEEP = CAP + SLACK
TIMES_TOO_LONG = 10
LIMIT = 25
SIDES = {"with": True, "without": False}


# Rows that nothing is cut from
# --------------------------------------------------------------------------------------------------------------------


def measure(servers: Servers, context: Context) -> list[Row]:
    """Compactions of rows under the cap with and without the trim, and pages meanwhile"""
    feeds = made_feeds(context.pick(1_000, 50), CAP, seed=1)
    cells = len(feeds) * CAP
    with ExitStack() as stack:
        places: dict[str, Replica] = {}
        tables: dict[str, str] = {}
        for side, trimmed in SIDES.items():
            namespace = f"bench{os.getpid()}{side}"
            tables[side] = f"{namespace}:{FEEDS}"
            places[side] = stack.enter_context(replica(servers, namespace, trimmed=trimmed))
            fill(places[side], feeds)
            servers.native.compact(tables[side])
            context.say(f"{side}: filled {cells:,} cells")
        rewrites = _sides(lambda side: lambda: cells / servers.rewrite(tables[side]))
        interleaved(rewrites, 2)
        rates = interleaved(rewrites, context.repeats)
        reads = {
            "idle": lambda: _pages(places["with"], feeds, None),
            **_sides(lambda side: lambda: _pages(places[side], feeds, lambda: servers.rewrite(tables[side]))),
        }
        interleaved(reads, 1)
        pages = interleaved(reads, context.repeats)
    at = latencies(pages, 1)
    return [
        Row(
            "compaction of rows under the cap, with the trim / without",
            "x",
            ratios(rates["with"], rates["without"]),
            at_least(0.95),
            note=f"{cells:,} cells in 16 regions",
        ),
        *(Row(f"the same, {side}", "cells/s", taken) for side, taken in rates.items()),
        Row(
            "page of 25 during a compaction, with the trim / without, p99",
            "x",
            ratios(at["p99"]["with"], at["p99"]["without"]),
        ),
        *of_sides(PAGES, at),
    ]


PAGES = {
    "idle": "page of 25, nothing compacts",
    "with": "page of 25, during a compaction with the trim",
    "without": "page of 25, during a compaction without",
}


def _pages(place: Replica, feeds: Sequence[Feed], meanwhile: Callable[[], object] | None) -> list[float]:
    """The microseconds of pages, read until `meanwhile` is done, or so many."""
    reader, chance = ours.pages_of(place), random.Random(1)
    users = [feed.user for feed in feeds]
    for _ in range(200):
        reader.page(chance.choice(users), LIMIT)
    took: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(meanwhile or (lambda: None))
        while not done.done() or (meanwhile is None and len(took) < 3_000):
            took += each_us(lambda user: reader.page(user, LIMIT), [chance.choice(users)])
    done.result()
    return took


# Rows that are ten times too long
# --------------------------------------------------------------------------------------------------------------------


def measure_long(servers: Servers, context: Context) -> list[Row]:
    """Rows ten times too long: compacted with and without the trim, and after a job that scans and deletes"""
    rows = context.pick(40, 4)
    folder = context.folder("trim")
    cells = write_cells(folder / "long", _long_rows(rows, TIMES_TOO_LONG * CAP))
    ways = {**SIDES, "job": False}
    first: dict[str, list[float]] = {way: [] for way in ways}
    size: dict[str, list[float]] = {way: [] for way in ways}
    second: dict[str, list[float]] = {way: [] for way in ways}
    job: list[float] = []

    def once(way: str) -> None:
        """The whole life of such rows: written, flushed, compacted, and compacted again when the time comes."""
        namespace = f"bench{os.getpid()}{way}"
        table = f"{namespace}:{FEEDS}"
        with replica(servers, namespace, trimmed=ways[way]):
            servers.native.load(table, folder / "long")
            servers.native.flush(table)
            before_s = 0.0
            if way == "job":
                before_s, deleted = servers.native.trim_job(table, KEEP)
                assert deleted == rows * (TIMES_TOO_LONG * CAP - KEEP), deleted
                servers.native.flush(table)
                job.append(before_s)
            first[way].append(before_s + servers.rewrite(table))
            size[way].append(servers.files(table))
            second[way].append(servers.rewrite(table))

    interleaved({way: partial(once, way) for way in ways}, 1)
    for taken in (*first.values(), *size.values(), *second.values(), job):
        taken.clear()
    interleaved({way: partial(once, way) for way in ways}, context.repeats)
    note = f"{cells:,} cells in {rows} rows of {TIMES_TOO_LONG} x the cap"
    return [
        Row(
            "first compaction of such rows, with the trim / without, time",
            "x",
            ratios(first["with"], first["without"]),
            note=note,
        ),
        Row("bytes after it, with / without", "x", ratios(size["with"], size["without"])),
        Row("each later compaction, with / without, time", "x", ratios(second["with"], second["without"])),
        Row(
            "a job that scans and deletes, with the compaction after it / a compaction with the trim, time",
            "x",
            ratios(first["job"], first["with"]),
        ),
        Row(
            "bytes after it, with the job's markers / with the trim",
            "x",
            ratios(size["job"], size["with"]),
            note="the markers stay for the purge window",
        ),
        *(Row(f"first compaction of rows too long, {way}", "s", taken) for way, taken in first.items()),
        *(Row(f"bytes after it, {way}", "bytes", taken) for way, taken in size.items()),
        *(Row(f"later compaction, {way}", "s", taken) for way, taken in second.items()),
        Row("the job alone", "s", job),
    ]


def _long_rows(count: int, entries: int) -> Iterator[list[Mutation]]:
    """Followed just now: a marker of such an entry lives for the purge window."""
    now_ms = wall_ms()
    for feed in made_feeds(count, entries, seed=2):
        yield [Put([(row_key(feed.user), now_ms)], columns(feed.entries))]


# Trimming with every write
# --------------------------------------------------------------------------------------------------------------------


def measure_on_write(servers: Servers, context: Context) -> list[Row]:
    """Fanouts into full rows, plain and with a trim on write: each pin pushes one out of every row"""
    full = made_feeds(context.pick(250, 50), KEEP, seed=3)
    folder = context.folder("trim")
    pins = iter(range(POOL + 1, 10**9))
    tables = {side: f"bench{os.getpid()}{side}:{FEEDS}" for side in ("plain", "trimmed")}

    def fanouts(count: int) -> Iterable[Sequence[Mutation]]:
        last_ms = full[0].entries[0][1] + 10**9
        for _ in range(count):
            pin = next(pins)
            yield [Put([(row_key(feed.user), feed.edges[0]) for feed in full], columns([(pin, last_ms + pin)]))]

    def plain() -> float:
        write_cells(folder / "pins", fanouts(context.pick(80, 4)))
        return servers.native.load(tables["plain"], folder / "pins")

    def trimmed() -> float:
        cells = write_cells(folder / "pins", fanouts(context.pick(8, 2)))
        rate, deleted = servers.native.trimmed_load(tables["trimmed"], folder / "pins", KEEP, len(full))
        assert deleted == cells, deleted
        return rate

    with ExitStack() as stack:
        for table in tables.values():
            fill(stack.enter_context(replica(servers, table.partition(":")[0], trimmed=False)), full)
            servers.native.compact(table)
        sides = {"plain": plain, "trimmed": trimmed}
        interleaved(sides, 1)
        rates = interleaved(sides, context.repeats)
    return [
        Row(
            "writes that read and delete what they push out / plain writes, cells a second",
            "x",
            ratios(rates["trimmed"], rates["plain"]),
            note=f"HBase's own client, {len(full)} rows a request, the server passes over what stays",
        ),
        *(Row(f"fanout into full rows, {side}", "cells/s", taken) for side, taken in rates.items()),
    ]


def _sides(make: Callable[[str], Callable[[], Sample]]) -> dict[str, Callable[[], Sample]]:
    return {side: make(side) for side in SIDES}
