"""`python -m bench.mysql_follows mysql://root@127.0.0.1:3306/`: the follow store in MySQL, call by call.

It makes databases of its own on that server and drops them. Each line is the median of the repeats.
"""

import argparse
import itertools
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from bench.ours import forget_outbox
from bench.timing import seconds
from deploy.local.signals import unwinding
from feedstore.domain import Edge, Follow, Pin, PinSaved, SavePin, user
from feedstore.follows import mysql
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds
from feedstore.follows.port import Merged, Request
from feedstore.follows.store import FollowStore

CREATED_MS = 1_700_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.mysql_follows", description=__doc__)
    parser.add_argument("url", help="a server, and a user that may create databases")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--followers", type=int, default=200_000, help="of the one followee that is paged through")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    with temporary_store(chosen.url, chosen.shards) as store:
        for name, unit, measure in _measurements(store, chosen.followers):
            rates = sorted(measure() for _ in range(chosen.repeats))
            print(f"{name:<58} {statistics.median(rates):>12,.0f} {unit}  ({rates[0]:,.0f} .. {rates[-1]:,.0f})")


@contextmanager
def temporary_store(url: str, shards: int) -> Iterator[FollowStore]:
    """A store in databases of its own, which are dropped at the end. url: a server, and a user that may make them."""
    databases = servers(url, shards, f"bench_{os.getpid()}")
    try:
        mysql.create(databases)
        store = mysql.open_store(databases)
        try:
            yield store
        finally:
            store.close()
    finally:
        dropped(databases)


def servers(url: str, shards: int, name: str) -> list[mysql.MySQLServer]:
    """Where the shards of a store of the bench are. url: as of `temporary_store`."""
    return [_server(url, f"follows_{name}_{shard}") for shard in range(shards)]


def dropped(databases: Sequence[mysql.MySQLServer]) -> None:
    """Drops the databases of a store."""
    for server in databases:
        _drop(server)


def _server(url: str, database: str) -> mysql.MySQLServer:
    return mysql.server(urlunsplit(urlsplit(url)._replace(path=f"/{database}")), Path(), os.environ)


def _drop(server: mysql.MySQLServer) -> None:
    connection = MySQLConnection(server.without_database(), PoolBounds(), server.tls_context())
    connection.run([f"DROP DATABASE IF EXISTS `{server.database}`"])
    connection.close()


Measure = Callable[[], float]


def _measurements(store: FollowStore, followers: int) -> Iterator[tuple[str, str, Measure]]:
    ids = itertools.count(1)
    for size, batches in ((1, 200), (50, 40), (500, 10)):
        yield f"record, follows in batches of {size}", "actions/s", _recording(store, ids, size, batches, 1)
    for threads in (4, 16):
        yield f"record, single follows, {threads} threads", "actions/s", _recording(store, ids, 1, 50, threads)
    yield "record, pins in batches of 500", "actions/s", lambda: _saved(store, ids, 500, 10)
    yield "relay: unrelayed(2,000) and mark_relayed", "rows/s", lambda: _relayed(store, ids, 10_000)
    yield "index, edges in batches of 5,000, new rows", "rows/s", lambda: _indexed(store, ids, 50_000)
    yield "index, the same edges again", "rows/s", _indexing_again(store, next(ids))
    yield (
        "index, pins in batches of 2,500 (two rows each), new rows",
        "rows/s",
        lambda: _indexed_pins(store, ids, 10_000),
    )
    yield f"followers, {followers:,} in pages of 1,000", "rows/s", _paging(store, next(ids), followers)
    yield "newest_pins, 1,000 of one followee", "calls/s", _newest(store, next(ids))
    yield "newest_pins_merged, 1,000 of 500 followees", "calls/s", _merged(store, ids)
    yield "edges, 500 keys", "keys/s", _edges(store, ids)
    yield "settled_ms", "calls/s", lambda: 200 / seconds(lambda: [store.settled_ms() for _ in range(200)])


def _recording(store: FollowStore, ids: Iterator[int], size: int, batches: int, threads: int) -> Measure:
    def record(requests: Sequence[Sequence[Request]]) -> None:
        for batch in requests:
            store.record(batch)

    def measure() -> float:
        work = [
            [[Request(Follow(next(ids), user(1))) for _ in range(size)] for _ in range(batches)] for _ in range(threads)
        ]
        with ThreadPoolExecutor(threads) as pool:
            # A list: it raises what a thread has raised.
            return threads * batches * size / seconds(lambda: list(pool.map(record, work)))

    next(ids)  # no follower follows themselves
    return measure


def _saved(store: FollowStore, ids: Iterator[int], size: int, batches: int) -> float:
    work = [
        [
            Request(SavePin(Pin(pin, pin % 1_000 + 1, pin % 1_000 + 1, CREATED_MS)))
            for pin in itertools.islice(ids, size)
        ]
        for _ in range(batches)
    ]
    return size * batches / seconds(lambda: [store.record(batch) for batch in work])


def _relayed(store: FollowStore, ids: Iterator[int], rows: int) -> float:
    forget_outbox(store)
    for _ in range(rows // 500):
        store.record([Request(Follow(follower, user(1))) for follower in itertools.islice(ids, 500)])
    return rows / seconds(lambda: forget_outbox(store, 2_000))


def _index_edges(store: FollowStore, edges: Sequence[Edge]) -> None:
    for start in range(0, len(edges), 5_000):
        store.index(edges=edges[start : start + 5_000])


def _indexed(store: FollowStore, ids: Iterator[int], rows: int) -> float:
    # As tasks come: of many followees, in no order.
    edges = [Edge(each, user(each * 7_919 % 20_011 + 1), each, active=True) for each in itertools.islice(ids, rows)]
    return rows / seconds(lambda: _index_edges(store, edges))


def _indexing_again(store: FollowStore, first: int) -> Measure:
    edges = [Edge(first + each, user(each * 7_919 % 20_011 + 1), 5, active=True) for each in range(50_000)]
    _index_edges(store, edges)
    return lambda: len(edges) / seconds(lambda: _index_edges(store, edges))


def _indexed_pins(store: FollowStore, ids: Iterator[int], pins: int) -> float:
    saved = [
        PinSaved(Pin(each, each % 5_003 + 1, each % 5_003 + 1, CREATED_MS + each), CREATED_MS + each)
        for each in itertools.islice(ids, pins)
    ]
    batches = [saved[start : start + 2_500] for start in range(0, pins, 2_500)]

    def index() -> None:
        for batch in batches:
            store.index(pins=batch)

    return 2 * pins / seconds(index)


def _paging(store: FollowStore, followee: int, followers: int) -> Measure:
    wanted = user(10**12 + followee)
    _index_edges(store, [Edge(each, wanted, CREATED_MS + each, active=True) for each in range(1, followers + 1)])

    def walk() -> None:
        after, seen = None, 0
        while page := store.followers([wanted], after, 1_000, tombstones=False):
            after, seen = (wanted, page[-1].follower), seen + len(page)
        assert seen == followers

    return lambda: followers / seconds(walk)


def _newest(store: FollowStore, owner: int) -> Measure:
    owner += 10**12
    store.index(
        pins=[PinSaved(Pin(owner + each, owner, owner, CREATED_MS + each), CREATED_MS) for each in range(3_000)]
    )
    return lambda: 50 / seconds(lambda: [store.newest_pins([user(owner)], 1_000) for _ in range(50)])


def _merged(store: FollowStore, ids: Iterator[int]) -> Measure:
    first = next(ids) + 10**13
    pins = [Pin(first + each, first + each % 500, first + each % 500, CREATED_MS + each) for each in range(10_000)]
    store.index(pins=[PinSaved(pin, CREATED_MS) for pin in pins])
    followees = [user(first + each) for each in range(500)]
    return lambda: 10 / seconds(lambda: [store.newest_pins_merged([Merged(followees)], 1_000) for _ in range(10)])


def _edges(store: FollowStore, ids: Iterator[int]) -> Measure:
    keys = [(follower, user(1)) for follower in itertools.islice(ids, 500)]
    store.record([Request(Follow(*key)) for key in keys])
    return lambda: 50 * len(keys) / seconds(lambda: [store.edges(keys) for _ in range(50)])


if __name__ == "__main__":
    with unwinding():
        main()
