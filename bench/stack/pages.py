"""A page of 25 from a feed of 1,000, against `Get` of HBase's own client; and deep in the feed."""

import os
from collections.abc import Callable
from contextlib import closing

from bench import ours
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.measurements.page import Times
from bench.native import write_pages
from bench.ours import fill
from bench.results import Row, at_most, interleaved, latencies, of_sides, ratios
from bench.stack.servers import PURGE_MS, SLACK, Servers, replica
from feedstore.domain import Entry
from feedstore.following import FEEDS, columns, feed_table, row_key
from feedstore.following.pages import FeedPages
from feedstore.widecolumn.hbase import HBaseCluster

NAMESPACE = f"bench{os.getpid()}pages"
LIMIT = 25
DEEP = 900
BLOCKS = 10
"""A repeat is cut into so many turns of each side."""


def measure(servers: Servers, context: Context) -> list[Row]:
    """A page of 25 through the adapter, against the native client's Get"""
    feeds = made_feeds(context.pick(100, 20), CAP, seed=1)
    calls = context.pick(1_000, 200) // BLOCKS
    folder = context.folder("pages")
    files = {"first": folder / "first", "deep": folder / "deep"}
    write_pages(files["first"], [(row_key(feed.user), None) for feed in feeds])
    write_pages(files["deep"], [(row_key(feed.user), columns([feed.entries[DEEP - 1]])[0]) for feed in feeds])
    url = f"{servers.url('a', NAMESPACE)}?reads=gateways"
    feeds_table = feed_table(CAP, SLACK, PURGE_MS)
    with (
        replica(servers, NAMESPACE) as place,
        closing(HBaseCluster.open(url, [feeds_table], check=False)) as gateways,
    ):
        table = f"{NAMESPACE}:{FEEDS}"
        fill(place, feeds)
        context.say(f"filled {len(feeds):,} feeds")
        servers.native.compact(table)
        context.say("compacted")
        reader = ours.pages_of(place)
        cursors = {feed.user: reader.page(feed.user, DEEP).cursor for feed in feeds}
        _check(reader, feeds[0], cursors[feeds[0].user])
        times = Times(calls, seed=1)
        seeds = iter(range(10**6))
        gateway = servers.stack.port("thrift2-a")

        def native(which: str) -> Callable[[], list[float]]:
            # One more than the page, as the reader asks for.
            return lambda: servers.native.pages(table, files[which], calls, LIMIT + 1, next(seeds))

        def through() -> list[float]:
            return servers.native.through(table, files["first"], calls, LIMIT + 1, next(seeds), gateway=gateway)

        sides = {
            "native first": native("first"),
            "through": through,
            "first": times.of(feeds, lambda user: reader.page(user, LIMIT).entries),
            "store": times.of(feeds, lambda user: place.tables[FEEDS].read(row_key(user), None, LIMIT + 1)),
            "by gateway": times.of(feeds, lambda user: gateways.table(FEEDS).read(row_key(user), None, LIMIT + 1)),
            "native deep": native("deep"),
            "deep": times.of(feeds, lambda user: reader.page(user, LIMIT, cursors[user]).entries),
        }
        interleaved(sides, BLOCKS)  # warm on both sides, and in the servers
        blocks = interleaved(sides, context.repeats * BLOCKS)
    at = latencies(blocks, BLOCKS)
    return [
        *(
            Row(f"page of 25{where} / native Get, {share}", "x", ratios(p[side], p[f"native {side}"]), at_most(1.5))
            for side, where in (("first", ""), ("deep", ", 900 deep"))
            for share, p in at.items()
        ),
        Row(
            "Thrift's Java client through the gateway / native Get, p50",
            "x",
            ratios(at["p50"]["through"], at["p50"]["native first"]),
        ),
        *(
            Row(
                f"the adapter's read, of the region server / through a gateway, {share}",
                "x",
                ratios(p["store"], p["by gateway"]),
            )
            for share, p in at.items()
        ),
        Row("page 900 deep / first page, p50", "x", ratios(at["p50"]["deep"], at["p50"]["first"]), at_most(1.5)),
        *of_sides(SIDES, at),
    ]


SIDES = {
    "first": "first page of 25",
    "deep": "page of 25, 900 deep",
    "store": "of which the adapter's read",
    "by gateway": "the adapter's read through a gateway",
    "through": "Get of 26 through the gateway, Thrift's Java client",
    "native first": "native Get of 26",
    "native deep": "native Get of 26 with a ColumnRangeFilter, 900 deep",
}


def _check(reader: FeedPages, feed: Feed, cursor: str | None) -> None:
    """What is timed is also right."""
    assert reader.page(feed.user, LIMIT).entries == [Entry(*entry) for entry in feed.entries[:LIMIT]]
    deep = reader.page(feed.user, LIMIT, cursor)
    assert deep.entries == [Entry(*entry) for entry in feed.entries[DEEP : DEEP + LIMIT]]
