"""`python -m bench.hbase URL`: what one HBase cluster does for this client, through its gateways.

It writes into a namespace of its own, which it empties first and leaves behind: writes as fanout (one pin into a
thousand feeds), backfill (a thousand pins into one feed) and purge (as many markers), pages from the top of a feed and
from deep within, and a scan of everything.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from bench.results import percentile
from bench.timing import each_us
from feedstore.following import columns, feed_table, feeds_ascending, row_key
from feedstore.metering import UNCOUNTED
from feedstore.widecolumn import DeleteColumns, Put
from feedstore.widecolumn.hbase import HBaseCluster, HBaseStore
from feedstore.widecolumn.hbase.schema import apply, definition

NAMESPACE = "feedbench"
NOW_MS = 1_700_000_000_000
BATCH_CELLS = 10_000
CHUNK = 1_000
FEEDS = 20_000
DEEP_FEED, DEEP_ENTRIES = 7, 20_000
FIRST_BACKFILLED = 10**10

TABLE = feed_table(1_000, 250, 432_000_000)
Batch = list[Put | DeleteColumns]


def fanout(number: int) -> Batch:
    """Ten pins, each into a thousand feeds; every follower at a time of their own."""
    chance = random.Random(number)
    users = random.Random(0).sample(range(1, 10**9), FEEDS)
    batch: Batch = []
    for pin in range(BATCH_CELLS // CHUNK):
        first = chance.randrange(FEEDS - CHUNK)
        rows = [(row_key(user), NOW_MS + user % 1_000) for user in users[first : first + CHUNK]]
        batch.append(Put(rows, columns([(number * 10 + pin + 1, NOW_MS + number * 10 + pin)])))
    return batch


def backfill(number: int) -> Batch:
    """A thousand pins into each of ten feeds."""
    pins = columns([(pin + 1, NOW_MS + pin) for pin in range(CHUNK)])
    users = [FIRST_BACKFILLED + number * 10 + each for each in range(BATCH_CELLS // CHUNK)]
    return [Put([(row_key(user), NOW_MS)], pins) for user in users]


def purge(number: int) -> Batch:
    """Markers for every second of those pins."""
    return [DeleteColumns(rows, pins[::2]) for rows, pins in backfill(number)]


def cells_in(batch: Batch) -> int:
    return sum(len(rows) * len(pins) for rows, pins in batch)


def written(store: HBaseStore, batches: Sequence[Batch], streams: int) -> float:
    """Cells a second."""
    shares = [batches[number::streams] for number in range(streams)]
    with ThreadPoolExecutor(streams) as pool:
        began = time.perf_counter()
        # A list: it raises what a stream has raised.
        list(pool.map(lambda share: [*map(store.apply, share)], shares))
    return sum(map(cells_in, batches)) / (time.perf_counter() - began)


def page_us(store: HBaseStore, after: bytes | None, times: int) -> tuple[float, float]:
    """p50 and p99."""

    def read(_: int) -> None:
        store.read(row_key(DEEP_FEED), after, 26)

    each_us(read, range(times // 10))  # warms it up
    took = each_us(read, range(times))
    return percentile(took, 0.5), percentile(took, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.hbase", description=__doc__)
    parser.add_argument("url", help="hbase://HOST:PORT/")
    parser.add_argument("--batches", type=int, default=20, help="of 10,000 cells, for each sample (default 20)")
    parser.add_argument("--pages", type=int, default=2_000, help="for each sample (default 2000)")
    parser.add_argument("--repeats", type=int, default=5, help="samples (default 5)")
    parser.add_argument("--streams", type=int, default=1, help="threads that write (default 1)")
    chosen = parser.parse_args()
    url = urlsplit(chosen.url)._replace(path="/" + NAMESPACE).geturl()
    cluster = HBaseCluster.open(url, [TABLE], check=False, direct=UNCOUNTED)
    store = cluster.table(TABLE.name)
    if not apply(cluster.administration, [definition(TABLE, {"MEMSTORE_FLUSHSIZE": str(128 << 20)})]).created:
        cluster.administration.empty(TABLE.name)

    kinds = {"fanout": fanout, "backfill": backfill, "purge": purge}
    samples: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(chosen.repeats + 1):
        numbers = range(repeat * chosen.batches, (repeat + 1) * chosen.batches)
        for kind, make in kinds.items():
            rate = written(store, [make(number) for number in numbers], chosen.streams)
            if repeat:  # the first round warms the servers up
                samples[kind].append(rate)
    for kind, rates in samples.items():
        shown = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"{kind}: {statistics.median(rates):,.0f} cells/s ({shown})", flush=True)

    store.apply([Put([(row_key(DEEP_FEED), NOW_MS)], columns([(pin, NOW_MS + pin) for pin in range(1, DEEP_ENTRIES)]))])
    deep = columns([(1_000, NOW_MS + 1_000)])[0]
    for name, after in (("first page of 25", None), ("page of 25, 19,000 entries deep", deep)):
        pages = [page_us(store, after, chosen.pages) for _ in range(chosen.repeats)]
        p50, p99 = (statistics.median(each) for each in zip(*pages, strict=True))
        print(f"{name}: p50 {p50 / 1_000:.3f} ms, p99 {p99 / 1_000:.3f} ms", flush=True)

    for name, rows in (("scan", store.scan), ("export", lambda: feeds_ascending(store, 1_000))):
        began = time.perf_counter()
        cells = sum(len(found) for _, found in rows())
        print(f"{name}: {cells / (time.perf_counter() - began):,.0f} cells/s of {cells:,}", flush=True)
    cluster.close()


if __name__ == "__main__":
    main()
