"""A page through the library that a web tier imports, against the bare read; and what hedges cost and save."""

import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from bench import ours
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.measurements.page import Times
from bench.results import Row, at_least, at_most, interleaved, latencies, percentile, ratios
from bench.timing import each_us
from feedstore.clocks import wall_ms
from feedstore.domain import Entry
from feedstore.following import FEEDS, row_key
from feedstore.following.pages import FeedPages
from feedstore.replicas.attempts import InPlace, OnThreads, Reads
from feedstore.replicas.replicas import Replica, Replicas, ReplicaSource
from feedstore.widecolumn.progress import PROGRESS

LIMIT = 25
BLOCKS = 20
USUAL_S = 0.001
SLOW_S = 0.200
WITHIN_S = 10.0


def measure(context: Context) -> list[Row]:
    """A page through the library against the bare read; hedges in normal times, and with one slow cluster"""
    feeds = made_feeds(context.pick(200, 20), CAP, seed=1)
    config = ours.make_home(context.folder("serving"))
    with ours.replica(config) as replica:
        ours.fill(replica, feeds)
        replica.tables[FEEDS].sweep(wall_ms())
    with ours.replica(config) as replica:
        calls = context.pick(5_000, 500)
        rows = []
        with opened({"a": replica}, lambda _: InPlace()) as in_place:
            rows += beside_the_read("RocksDB", replica, in_place, feeds, calls, context.repeats)
        with opened({"a": replica}, _threads) as on_threads:
            taken = beside_the_read("RocksDB on threads", replica, on_threads, feeds, calls, context.repeats)
            rows += [dataclasses.replace(row, target=None) for row in taken]  # why it is not read so
        rng = random.Random(2)
        usual = Slowed(replica.tables[FEEDS], lambda: rng.expovariate(1 / USUAL_S))
        pair = {name: Replica(name, {FEEDS: usual, PROGRESS: replica.progress}) for name in ("a", "b")}
        return [*rows, *hedged(f"reads that take {1_000 * USUAL_S:g} ms on average", pair, feeds, context)]


def beside_the_read(
    where: str, replica: Replica, replicas: Replicas, feeds: Sequence[Feed], calls: int, repeats: int
) -> list[Row]:
    """The first page of 25, by the store alone and by the library."""
    replicas.set_watermark("a", wall_ms())
    pages = FeedPages(replicas, CAP)
    assert pages.page(feeds[0].user, LIMIT).entries == [Entry(*entry) for entry in feeds[0].entries[:LIMIT]]
    keys = {feed.user: row_key(feed.user) for feed in feeds}
    times = Times(calls // BLOCKS, seed=1)
    sides = {
        "read": times.of(feeds, lambda user: replica.tables[FEEDS].read(keys[user], None, LIMIT + 1)),
        "page": times.of(feeds, lambda user: pages.page(user, LIMIT)),
        "entries": times.of(feeds, lambda user: pages.page(user, LIMIT).entries),
    }
    interleaved(sides, BLOCKS)
    rows = []
    for share, at in latencies(interleaved(sides, repeats * BLOCKS), BLOCKS).items():
        what = f"{where}: page of 25 through the library / the store's read, {share}"
        rows += [
            Row(what, "x", ratios(at["page"], at["read"]), at_most(1.3)),
            Row(
                f"{where}: the same with its 25 entries made / the store's read, {share}",
                "x",
                ratios(at["entries"], at["read"]),
            ),
            Row(f"{where}: page of 25 through the library, {share}", "us", at["page"]),
            Row(f"{where}: of which the store's read, {share}", "us", at["read"]),
        ]
    return rows


def hedged(where: str, pair: Mapping[str, Replica], feeds: Sequence[Feed], context: Context) -> list[Row]:
    """Hedges in normal times; and the slowest page of a thousand while the preferred cluster, or one read in a hundred
    of it, takes 200 ms longer, with one cluster alone and with both.
    """
    count = context.pick(3_000, 300)
    alone = context.pick(50, 20)
    extra: list[float] = []
    slow: list[Taken] = []
    some: list[Taken] = []
    for repeat in range(context.repeats):
        rng = random.Random(repeat)

        def now_and_then(rng: random.Random = rng) -> float:
            return SLOW_S if rng.random() < 0.01 else 0.0

        with opened(pair, _threads) as replicas:
            _pages(replicas, feeds, count, rng)
            counters = replicas.counters()
            extra.append(100 * (counters.hedges + counters.failovers + counters.probes) / counters.reads)
        slow.append(_slowed(pair, feeds, lambda: SLOW_S, count, alone, rng))
        some.append(_slowed(pair, feeds, now_and_then, count, count, rng))
    rows = [Row(f"{where}: further reads in normal times, of 100", "", extra, at_most(5))]
    for what, taken in (("a cluster 200 ms slower", slow), ("one read in 100 of it 200 ms slower", some)):
        before, after = [each.alone_ms for each in taken], [each.both_ms for each in taken]
        rows += [
            Row(f"{where}: {what}, without hedges / with, p99.9", "x", ratios(before, after), at_least(10)),
            Row(f"{where}: {what}, without hedges, p99.9", "ms", before),
            Row(f"{where}: {what}, with hedges, p99.9", "ms", after),
        ]
    return rows


@dataclass(frozen=True)
class Taken:
    alone_ms: float
    both_ms: float


def _slowed(
    pair: Mapping[str, Replica],
    feeds: Sequence[Feed],
    more_s: Callable[[], float],
    count: int,
    alone: int,
    rng: random.Random,
) -> Taken:
    """Both begin in normal times, as a web tier does."""
    late = Switch(more_s)
    slower = {
        name: Replica(name, {FEEDS: Slowed(each.tables[FEEDS], late), PROGRESS: each.progress})
        for name, each in pair.items()
        if name == "a"
    }
    taken = []
    for replicas, pages in ((slower, alone), ({**pair, **slower}, count)):
        late.on = False
        with opened(replicas, _threads) as reading:
            _pages(reading, feeds, 300, rng)
            late.on = True
            taken.append(percentile(_pages(reading, feeds, pages, rng), 0.999))
    return Taken(*taken)


def _pages(replicas: Replicas, feeds: Sequence[Feed], count: int, rng: random.Random) -> list[float]:
    """How long each page took, in ms."""
    pages = FeedPages(replicas, CAP)
    taken = each_us(lambda feed: pages.page(feed.user, LIMIT), rng.choices(feeds, k=count))
    return [each / 1_000 for each in taken]


def _threads(name: str) -> Reads:
    return OnThreads(name, 64)


@contextmanager
def opened(pair: Mapping[str, Replica], reads: Callable[[str], Reads]) -> Iterator[Replicas]:
    sources = [ReplicaSource(replica, reads(name)) for name, replica in pair.items()]
    with closing(Replicas(sources, wall_ms, WITHIN_S, time.monotonic)) as replicas:
        yield replicas


class Switch:
    """A delay that comes when it is switched on."""

    def __init__(self, more_s: Callable[[], float]) -> None:
        self.on = False
        self._more_s = more_s

    def __call__(self) -> float:
        return self._more_s() if self.on else 0.0


class Slowed:
    """A store each read of which takes longer."""

    def __init__(self, store: Any, more_s: Callable[[], float]) -> None:
        self._store = store
        self._more_s = more_s

    def read(self, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> list[bytes]:
        more_s = self._more_s()
        if more_s:
            time.sleep(more_s)
        found: list[bytes] = self._store.read(row, after, limit, deadline_s)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
