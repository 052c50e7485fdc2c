"""What it costs that a write is on disk when it returns: the same batches with `sync=disk` and with `sync=memory`."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

from bench.context import Context
from bench.deliveries import CAP
from bench.results import Row, interleaved, percentile, ratios
from bench.stack.servers import PURGE_MS, SLACK, Servers, replica
from bench.timing import seconds
from feedstore.following import FEEDS, feed_table, mutations
from feedstore.widecolumn import Mutation
from feedstore.widecolumn.hbase import HBaseCluster

BATCH_CELLS = 10_000
FANOUT = 1_000
USERS = 100_000
FIRST_MS = 1_700_000_000_000
SIDES = ("disk", "memory")


def measure(servers: Servers, context: Context) -> list[Row]:
    """Batches of a writer, and single cells, into HBase: synced to disk against synced to memory"""
    batches, singles = context.pick(20, 3), context.pick(200, 20)
    namespace = f"bench{os.getpid()}sync"
    feeds = feed_table(CAP, SLACK, PURGE_MS)
    pins = iter(range(1, 1_000_000_000))
    with ExitStack() as stack:
        stack.enter_context(replica(servers, namespace))
        stores = {
            side: stack.enter_context(
                closing(HBaseCluster.open(f"{servers.url('a', namespace)}?sync={side}", [feeds], check=False))
            ).table(FEEDS)
            for side in SIDES
        }

        def write(side: str, cells: int, count: int) -> list[float]:
            """Seconds of each batch."""
            return [seconds(partial(stores[side].apply, _batch(pins, cells))) for _ in range(count)]

        sides = {
            f"{kind}, {side}": partial(write, side, cells, count)
            for kind, cells, count in (("batches", BATCH_CELLS, batches), ("single cells", 1, singles))
            for side in SIDES
        }
        interleaved(sides, 1)  # the servers' compilers warm up
        taken = interleaved(sides, context.repeats)
    rates = {side: [BATCH_CELLS * len(each) / sum(each) for each in taken[f"batches, {side}"]] for side in SIDES}
    p50 = {side: [percentile(each, 0.5) * 1e3 for each in taken[f"single cells, {side}"]] for side in SIDES}
    return [
        Row("batches of 10,000 cells, disk / memory, cells a second", "x", ratios(rates["disk"], rates["memory"])),
        Row("a single cell, disk / memory, p50", "x", ratios(p50["disk"], p50["memory"])),
        *(Row(f"batches of 10,000 cells, {side}", "cells/s", rates[side]) for side in SIDES),
        *(Row(f"a single cell, {side}, p50", "ms", p50[side]) for side in SIDES),
    ]


def _batch(pins: Iterator[int], cells: int) -> list[Mutation]:
    """Pins that each go to up to FANOUT followers."""
    rows = min(cells, FANOUT)
    batch: list[Mutation] = []
    for _ in range(cells // rows):
        pin = next(pins)
        first = pin * 7_919 % USERS
        followers = [(1 + (first + each) % USERS, FIRST_MS) for each in range(rows)]
        batch.append(mutations.put(followers, [(pin, FIRST_MS + pin)]))
    return batch
