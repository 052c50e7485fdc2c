"""Durable recordings in SQLite: pins saved by one client, and by sixteen threads of a process, a request for each."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain

from bench.context import Context
from bench.results import Row, at_least, interleaved, percentile, ratios
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, SavePin
from feedstore.follows import sqlite
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore

CLIENTS = 16
_IDS = 1_000_000
"""Each client has so many ids for its pins."""


def measure(context: Context) -> list[Row]:
    """Pins recorded a second in SQLite, each request on disk when it returns: sixteen clients against one"""
    seconds = context.pick(5, 1)
    taken = interleaved(
        {"one": partial(_run, context, 1, seconds), "many": partial(_run, context, CLIENTS, seconds)}, context.repeats
    )
    rates = {side: [len(latencies) / seconds for latencies in runs] for side, runs in taken.items()}
    waits = {side: [1_000 * percentile(latencies, 0.99) for latencies in runs] for side, runs in taken.items()}
    return [
        Row(
            f"pins recorded by {CLIENTS} clients / by one, durable",
            "x",
            ratios(rates["many"], rates["one"]),
            at_least(2),
        ),
        Row(f"pins recorded by {CLIENTS} clients", "pins/s", rates["many"]),
        Row("pins recorded by one client", "pins/s", rates["one"]),
        Row(f"a recording of {CLIENTS} clients, p99", "ms", waits["many"]),
        Row("a recording of one client, p99", "ms", waits["one"]),
    ]


def _run(context: Context, clients: int, seconds: float) -> list[float]:
    """What each recording took, in s."""
    paths = [context.folder("recording") / "follows.db"]
    sqlite.create(paths)
    with closing(sqlite.open_store(paths, wall_ms)) as store, ThreadPoolExecutor(clients) as pool:
        until_s = time.monotonic() + seconds
        found = list(chain.from_iterable(pool.map(partial(_client, store, until_s), range(clients))))
        recorded = store.counts().pins
    assert recorded == len(found), f"{len(found)} recordings returned, {recorded} pins are there"
    return found


def _client(store: FollowStore, until_s: float, number: int) -> list[float]:
    latencies = []
    pin = 1 + number * _IDS
    while (began_s := time.monotonic()) < until_s:
        store.record([Request(SavePin(Pin(pin, number + 1, number + 1, pin)))])
        latencies.append(time.monotonic() - began_s)
        pin += 1
    return latencies
