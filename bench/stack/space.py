"""Bytes an entry in HFiles after a major compaction, against Redis' memory; with and without encoding, with compressed
blocks, and what those cost a page that finds nothing in the block cache.
"""

import os
from contextlib import ExitStack
from functools import partial

from bench import redis_side
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.native import write_pages
from bench.ours import fill
from bench.redis_server import redis_client
from bench.results import Row, at_most, interleaved, percentile, ratios
from bench.stack.servers import Servers, replica
from feedstore.following import FEEDS, row_key

LIMIT = 26
KINDS = {
    "none": {"DATA_BLOCK_ENCODING": "NONE"},
    "fast_diff": {"DATA_BLOCK_ENCODING": "FAST_DIFF"},
    "gz": {"DATA_BLOCK_ENCODING": "FAST_DIFF", "COMPRESSION": "GZ"},
}


def measure(servers: Servers, context: Context) -> list[Row]:
    """Bytes an entry on disk by encoding, against Redis' memory, and pages that read from disk"""
    count = context.pick(200, 20)
    feeds = made_feeds(count, CAP, seed=1)
    pages = context.folder("space") / "pages"
    write_pages(pages, [(row_key(feed.user), None) for feed in feeds])
    tables = {kind: f"bench{os.getpid()}{kind}" for kind in KINDS}
    size: dict[str, list[float]] = {}
    with ExitStack() as stack:
        for kind, namespace in tables.items():
            fill(stack.enter_context(replica(servers, namespace, KINDS[kind])), feeds)
            servers.native.compact(f"{namespace}:{FEEDS}")
            size[kind] = [servers.files(f"{namespace}:{FEEDS}") / (count * CAP)]
            context.say(f"{kind}: {size[kind][0]:.1f} bytes an entry")

        def read(kind: str) -> float:
            """Each page once, none of their blocks in the cache; p50."""
            table = f"{tables[kind]}:{FEEDS}"
            servers.native.forget(table)
            return percentile(servers.native.pages(table, pages, count, LIMIT, 1), 0.5)

        sides = {kind: partial(read, kind) for kind in KINDS}
        interleaved(sides, 3)  # the code is warm, the blocks are not
        cold = interleaved(sides, context.repeats)
    with redis_client(context.folder("redis")) as client:
        redis_side.fill(client, feeds)
        used = [redis_side.memory_bytes(client, feeds) / (count * CAP)]
    return [
        Row("HFile bytes an entry / Redis memory an entry", "x", ratios(size["fast_diff"], used), at_most(0.2)),
        Row("with GZ blocks / Redis", "x", ratios(size["gz"], used)),
        Row(
            "without encoding / FAST_DIFF",
            "x",
            ratios(size["none"], size["fast_diff"]),
            note="4 x is what the paper says of its prefix encoding",
        ),
        Row("page from blocks that are not cached, GZ / FAST_DIFF, p50", "x", ratios(cold["gz"], cold["fast_diff"])),
        Row(
            "page from blocks that are not cached, NONE / FAST_DIFF, p50", "x", ratios(cold["none"], cold["fast_diff"])
        ),
        *(Row(f"HFile bytes an entry, {kind}", "bytes", taken) for kind, taken in size.items()),
        Row("Redis MEMORY USAGE an entry", "bytes", used),
        *(Row(f"native Get of 26, nothing cached, {kind}, p50", "us", taken) for kind, taken in cold.items()),
    ]
