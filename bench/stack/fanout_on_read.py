"""The first page of somebody who follows 500 users with 200 pins each: put together when it is read, by MariaDB;
against read as it is stored, from HBase and from RocksDB.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench import ours
from bench.context import Context
from bench.feeds import START_MS, Feed
from bench.measurements.page import Times
from bench.measurements.serving import opened
from bench.results import Row, at_least, interleaved, latencies, ratios
from bench.stack.servers import Servers, database, insert, replica
from feedstore.clocks import wall_ms
from feedstore.following import FEEDS
from feedstore.following.pages import FeedPages
from feedstore.follows.mysql.connections import MySQLConnection
from feedstore.replicas.attempts import InPlace, OnThreads
from feedstore.replicas.replicas import Replicas

NAMESPACE = f"bench{os.getpid()}onread"
DATABASE = f"follows_bench{os.getpid()}_on_read"
LIMIT = 25
FOLLOWED, PINS_OF_EACH = 500, 200
CAP = 1_000
FIRST_READER = 1_000_000
BLOCKS = 5
"""A repeat is cut into so many turns of each side."""

FOLLOWS = "CREATE TABLE follows (follower BIGINT, followee BIGINT, PRIMARY KEY (follower, followee)) ENGINE=InnoDB"
# All that a query wants of a pin is in the key, and rows lie in its order.
PINS = (
    "CREATE TABLE pins (owner BIGINT, created_ms BIGINT, pin BIGINT, PRIMARY KEY (owner, created_ms DESC, pin))"
    " ENGINE=InnoDB"
)
JOIN = (
    "SELECT pins.pin, pins.created_ms FROM follows JOIN pins ON pins.owner = follows.followee"
    " WHERE follows.follower = {reader} ORDER BY pins.created_ms DESC, pins.pin LIMIT 25"
)
FOLLOWEES = "SELECT followee FROM follows WHERE follower = {reader}"
NEWEST_OF_ONE = "(SELECT pin, created_ms FROM pins WHERE owner = {owner} ORDER BY owner, created_ms DESC, pin LIMIT 25)"
OF_THE_UNION = " ORDER BY created_ms DESC, pin LIMIT 25"
# The 25 newest pins are of the 25 owners whose newest pins are the newest, and none is older than the oldest of those
# (where no two pins have the same time). MariaDB has no LATERAL, but it has subqueries in place of a value.
NEWEST_FIRST = (
    "SELECT pins.pin, pins.created_ms FROM"
    " (SELECT owner, MIN(newest_ms) OVER () AS least_ms FROM"
    "  (SELECT followee AS owner, (SELECT created_ms FROM pins WHERE pins.owner = follows.followee"
    "    ORDER BY owner, created_ms DESC LIMIT 1) AS newest_ms"
    "   FROM follows WHERE follower = {reader} ORDER BY newest_ms DESC LIMIT 25) AS newest) AS owners"
    " STRAIGHT_JOIN pins ON pins.owner = owners.owner AND pins.created_ms >= owners.least_ms"
    " ORDER BY pins.created_ms DESC, pins.pin LIMIT 25"
)

Page = Callable[[int], Sequence[tuple[int, int]]]


def measure(servers: Servers, context: Context) -> list[Row]:
    """The first page put together by MariaDB when it is read, against pages of HBase and of RocksDB"""
    owners, readers = context.pick(2_000, 600), context.pick(50, 5)
    rng = random.Random(1)
    pins = _pins(owners, rng)
    follows = {FIRST_READER + n: rng.sample(range(1, owners + 1), FOLLOWED) for n in range(readers)}
    feeds = [_feed(reader, followees, pins) for reader, followees in follows.items()]
    config = ours.make_home(context.folder("on-read"))
    with ours.ports(config) as filled:
        embedded = next(iter(filled.replicas.values()))
        ours.fill(embedded, feeds)
        embedded.tables[FEEDS].sweep(wall_ms())
    with ExitStack() as stack:
        connection = stack.enter_context(_database(servers, pins, follows))
        context.say("filled MariaDB")
        place = stack.enter_context(replica(servers, NAMESPACE))
        ours.fill(place, feeds)
        local = stack.enter_context(ours.replica(config))
        pages = {
            "HBase": _stored(stack.enter_context(opened({"a": place}, lambda name: OnThreads(name, 8)))),
            "embedded": _stored(stack.enter_context(opened({local.name: local}, lambda _: InPlace()))),
            **_queries(connection),
        }
        _check(pages, feeds)
        sides = {}
        for side, page in pages.items():
            calls = context.pick(*((200, 50) if side in {"HBase", "embedded"} else (40, 5)))
            sides[side] = Times(calls, seed=1).of(feeds, page)
        interleaved(sides, 1)
        blocks = interleaved(sides, context.repeats * BLOCKS)
    return _rows(blocks)


def _rows(blocks: Mapping[str, Sequence[list[float]]]) -> list[Row]:
    at = latencies(blocks, BLOCKS)
    queries = [side for side in blocks if side not in {"HBase", "embedded"}]
    best = min(queries, key=lambda side: sorted(at["p99"][side])[len(at["p99"][side]) // 2])
    rows = []
    for side, target in (("HBase", 10), ("embedded", 100)):
        for query in (best, *(each for each in queries if each != best)):
            for share in ("p99", "p50"):
                what = f"MariaDB, {query}{' (its fastest)' if query == best else ''} / {side}, first page, {share}"
                wanted = at_least(target) if share == "p99" and query == best else None
                rows.append(Row(what, "x", ratios(at[share][query], at[share][side]), wanted))
    return rows + [Row(f"{side}, {share}", "us", at[share][side]) for side in blocks for share in at]


def _pins(owners: int, rng: random.Random) -> dict[int, list[tuple[int, int]]]:
    """The (pin, created_ms) of each owner, newest first. Pins are numbered in the order in which they were saved."""
    saved = [owner for owner in range(1, owners + 1) for _ in range(PINS_OF_EACH)]
    rng.shuffle(saved)
    pins: dict[int, list[tuple[int, int]]] = {owner: [] for owner in range(1, owners + 1)}
    for pin in range(len(saved), 0, -1):
        pins[saved[pin - 1]].append((pin, START_MS + 1_500 * pin))
    return pins


def _feed(reader: int, followees: Sequence[int], pins: Mapping[int, Sequence[tuple[int, int]]]) -> Feed:
    entries = sorted(
        ((pin, created_ms, owner) for owner in followees for pin, created_ms in pins[owner]), reverse=True
    )[:CAP]
    return Feed(reader, [entry[:2] for entry in entries], [START_MS + owner for _, _, owner in entries])


@contextmanager
def _database(
    servers: Servers, pins: Mapping[int, Sequence[tuple[int, int]]], follows: Mapping[int, Sequence[int]]
) -> Iterator[MySQLConnection]:
    """A database of its own, with both tables; gone at the end."""
    with database(servers, DATABASE, [FOLLOWS, PINS]) as connection:
        insert(connection, "follows", ((reader, owner) for reader, owners in follows.items() for owner in owners))
        saved = ((owner, created_ms, pin) for owner, some in pins.items() for pin, created_ms in some)
        insert(connection, "pins", saved)
        connection.run(["ANALYZE TABLE follows, pins"])
        yield connection


def _queries(connection: MySQLConnection) -> dict[str, Page]:
    """Ways to ask MariaDB for the page, by what they are called in the rows."""

    def union(reader: int) -> Sequence[tuple[int, int]]:
        followees = connection.rows(FOLLOWEES.format(reader=reader))
        each = " UNION ALL ".join(NEWEST_OF_ONE.format(owner=owner) for (owner,) in followees)
        return connection.rows(each + OF_THE_UNION)

    return {
        "a join": lambda reader: connection.rows(JOIN.format(reader=reader)),
        "a union of 25 of each": union,
        "the owners of the newest first": lambda reader: connection.rows(NEWEST_FIRST.format(reader=reader)),
    }


def _stored(replicas: Replicas) -> Page:
    """As a web tier reads it."""
    pages = FeedPages(replicas, CAP)
    return lambda reader: [(entry.pin, entry.created_ms) for entry in pages.page(reader, LIMIT).entries]


def _check(pages: Mapping[str, Page], feeds: Sequence[Feed]) -> None:
    """What is timed is also right, and everywhere the same."""
    for feed in feeds:
        for side, page in pages.items():
            assert list(map(tuple, page(feed.user))) == list(feed.entries[:LIMIT]), (side, feed.user)
