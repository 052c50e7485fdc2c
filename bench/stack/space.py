"""Bytes an entry in HFiles after a major compaction, beside Redis' memory; with and without encoding, with compressed
blocks, and what those cost a page that finds nothing in the block cache.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.native import write_pages
from bench.ours import fill
from bench.redis_server import redis_client
from bench.redis_side import feed_bytes, fill_feed
from bench.results import Row, at_least, at_most, percentile, ratios
from bench.stack.servers import Servers
from feedstore.feeds import FEEDS, Replica, feed_table, row_key
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.schema import definition

NAME = "space"
LIMIT = 26
PURGE_MS = 432_000_000
KINDS = {
    "none": {"DATA_BLOCK_ENCODING": "NONE"},
    "fast_diff": {"DATA_BLOCK_ENCODING": "FAST_DIFF"},
    "gz": {"DATA_BLOCK_ENCODING": "FAST_DIFF", "COMPRESSION": "GZ"},
}


def measure(servers: Servers, context: Context) -> list[Row]:
    """Bytes an entry on disk by encoding, beside Redis' memory, and pages that read from disk"""
    count = context.pick(300, 20)
    size: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cold: dict[str, list[float]] = {kind: [] for kind in KINDS}
    used: list[float] = []
    pages = context.folder("space") / "pages"
    for repeat in range(context.repeats):
        feeds = made_feeds(count, CAP, seed=repeat)
        write_pages(pages, [(row_key(feed.user), None) for feed in feeds])
        for kind in list(KINDS) if repeat % 2 == 0 else reversed(KINDS):
            with _table(servers, kind) as place:
                table = f"bench_{kind}:{FEEDS}"
                fill(place, feeds)
                servers.native.compact(table)
                size[kind].append(servers.files("a", table) / (count * CAP))
                servers.native.pages(table, pages, 5 * count, LIMIT, 1)  # the code is warm, the blocks are not
                servers.native.forget(table)
                cold[kind].append(percentile(servers.native.pages(table, pages, count, LIMIT, 1), 0.5))
        used.append(_redis(context, feeds) / (count * CAP))
    return [
        Row(NAME, "HFile bytes an entry / Redis memory an entry", "x", ratios(size["fast_diff"], used), at_most(0.2)),
        Row(NAME, "with GZ blocks / Redis", "x", ratios(size["gz"], used)),
        Row(
            NAME,
            "without encoding / FAST_DIFF",
            "x",
            ratios(size["none"], size["fast_diff"]),
            at_least(4),
            note="4 x is what the paper says of its prefix encoding",
        ),
        Row(
            NAME,
            "page from blocks that are not cached, GZ / FAST_DIFF, p50",
            "x",
            ratios(cold["gz"], cold["fast_diff"]),
        ),
        Row(
            NAME,
            "page from blocks that are not cached, NONE / FAST_DIFF, p50",
            "x",
            ratios(cold["none"], cold["fast_diff"]),
        ),
        *(Row(NAME, f"HFile bytes an entry, {kind}", "bytes", taken) for kind, taken in size.items()),
        Row(NAME, "Redis MEMORY USAGE an entry", "bytes", used),
        *(Row(NAME, f"native Get of 26, nothing cached, {kind}, p50", "us", taken) for kind, taken in cold.items()),
    ]


@contextmanager
def _table(servers: Servers, kind: str) -> Iterator[Replica]:
    """A table of feeds that is compressed in another way."""
    table = feed_table(CAP, 250, PURGE_MS)
    wanted = definition(table)
    families = {name: {**settings, **KINDS[kind]} for name, settings in wanted.families.items()}
    with closing(HBaseCluster.open(servers.url("a", f"bench_{kind}"), [table], check=False)) as cluster:
        cluster.administration.create_namespace()
        cluster.administration.create(replace(wanted, families=families))
        try:
            yield Replica(kind, cluster.table(FEEDS), cluster.table(FEEDS))
        finally:
            cluster.administration.drop(FEEDS)
            cluster.administration.drop_namespace()


def _redis(context: Context, feeds: list[Feed]) -> int:
    with redis_client(context.folder("redis")) as client:
        for feed in feeds:
            fill_feed(client, feed.user, feed.entries)
        return sum(feed_bytes(client, feed.user) for feed in feeds)
