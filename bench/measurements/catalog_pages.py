"""Pages of pins out of the catalog, against pages of ids and the follow store, and during swaps; keys that are missing
on a trace; how fast a generation is built.
"""

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import ours
from bench.catalog_records import stored, write
from bench.children import child
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import Feed, made_feeds
from bench.measurements import catalog_reader
from bench.measurements.catalog_reader import Step
from bench.results import Row, at_least, at_most, interleaved, latencies, percentile, ratios
from bench.timing import each_us
from feedstore.app import catalogs, wiring
from feedstore.app.config import Config
from feedstore.app.services import open_services
from feedstore.catalog.pins import update_of
from feedstore.catalog.port import CatalogStore
from feedstore.catalog.service import CatalogService
from feedstore.catalog.settings import PINS, CatalogSettings
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, SavePin
from feedstore.following import FEEDS
from feedstore.following.service import FeedService
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from tests.catalog.memory_catalog import MemoryCatalog
from workers.catalog.build import build

LIMIT = 25
BLOCKS = 20
OWNERS = 100
SWAPS = 20
READERS = 2
HOUR_MS = 3_600_000
BATCH_MS = 3 * HOUR_MS
DELAYS_S = (0.3, 1.0)
"""How far the updates are behind: what `catalog-updates` measures at p99, and a second."""


def measure(context: Context) -> list[Row]:
    """Pages of pins: from the catalog and from the follow store, during swaps; keys that are missing; builds"""
    return [*on_pages(context), *missing(context), *builds(context)]


# Pages
# ----------------------------------------------------------------------------------------------------------------------


def on_pages(context: Context) -> list[Row]:
    """Two services on one home, one of them with a catalog, next to the worker that owns the clusters."""
    feeds = made_feeds(context.pick(200, 20), CAP, seed=1)
    folder = context.folder("catalog-pages")
    plain = ours.make_home(folder)
    config = dataclasses.replace(plain, catalogs={PINS: CatalogSettings()})
    with ExitStack() as stack:
        stores = [stack.enter_context(catalogs.open_store(config, PINS, each.name)) for each in config.clusters]
        with ours.ports(plain) as ports:
            for replica in ports.replicas.values():
                ours.fill(replica, feeds)
                replica.tables[FEEDS].sweep(wall_ms())
            pins = {pin: created_ms for feed in feeds for pin, created_ms in feed.entries}
            saved = (Request(SavePin(Pin(pin, 1 + pin % OWNERS, 1 + pin % OWNERS, ms))) for pin, ms in pins.items())
            ours.record_indexed(ports.follows, saved, lambda done: context.say(f"{done:,} pins recorded"))
            for _ in range(2):
                built(stores, ports.follows)
        stack.enter_context(child(ours.feedctl(folder, "work"), context.scratch / "catalog-pages.log", watched=False))
        services, without = (stack.enter_context(open_services(each)) for each in (config, plain))
        assert services.catalogs is not None
        return [
            *beside_ids(context, feeds, services.feeds, without.feeds, context.pick(2_000, 200), 1.4),
            *_during_swaps(context, feeds, services.feeds, stores),
            asked_of_follows(services.catalogs),
        ]


def asked_of_follows(catalogs: CatalogService) -> Row:
    counts = catalogs.catalog(PINS).counts()
    what = "pins of pages for which the follow store was asked / all"
    return Row(what, "x", [counts.source / counts.asked], at_most(0.01))


def beside_ids(
    context: Context,
    feeds: Sequence[Feed],
    with_catalog: FeedService,
    without: FeedService,
    pages: int,
    goal: float,
) -> list[Row]:
    """Pages of pins out of the catalog, and out of the follow store, against pages of ids. pages: of a repeat. goal: of
    the ratio of the first ones' p50.
    """
    expected = without.pins_page(feeds[0].user, LIMIT).pins
    assert with_catalog.pins_page(feeds[0].user, LIMIT).pins == expected
    assert len(expected) == LIMIT
    calls = pages // BLOCKS

    def times(page: Callable[[int], object]) -> Callable[[], list[float]]:
        users = itertools.cycle([feed.user for feed in feeds])
        return lambda: each_us(page, itertools.islice(users, calls))

    sides = {
        "ids": times(lambda user: without.page(user, LIMIT).entries),
        "catalog": times(lambda user: with_catalog.pins_page(user, LIMIT)),
        "follows": times(lambda user: without.pins_page(user, LIMIT)),
    }
    interleaved(sides, BLOCKS)
    at = latencies(interleaved(sides, context.repeats * BLOCKS), BLOCKS)
    rows = []
    for share, times_of in at.items():
        target = at_most(goal) if share == "p50" else None
        what = f"page of {LIMIT} pins / page of {LIMIT} ids"
        rows += [
            Row(f"{what}, out of the catalog, {share}", "x", ratios(times_of["catalog"], times_of["ids"]), target),
            Row(f"{what}, out of the follow store, {share}", "x", ratios(times_of["follows"], times_of["ids"])),
            Row(
                f"a page of {LIMIT} pins out of the catalog, {share}",
                "us",
                times_of["catalog"],
            ),
        ]
    return rows


def _during_swaps(
    context: Context, feeds: Sequence[Feed], service: FeedService, stores: Sequence[CatalogStore]
) -> list[Row]:
    """Pages while generations are swapped and rolled back, against pages at rest."""
    swaps = context.pick(2 * SWAPS, 4)
    rest, during, failed = [], [], 0
    for _ in range(context.repeats):
        taken = _read(service, feeds, lambda: time.sleep(0.02), swaps)
        rest.append(taken)
        generations = [[each.id for each in store.generations()][-2:] for store in stores]
        turns = itertools.count()

        def swap(generations: list[list[str]] = generations, turns: Iterator[int] = turns) -> None:
            turn = next(turns)
            for store, ids in zip(stores, generations, strict=True):
                store.use(ids[turn % 2])
            time.sleep(0.02)

        taken = _read(service, feeds, swap, swaps)
        during.append(taken)
        failed += taken.failed
    p99 = ratios(*([percentile(each.seconds, 0.99) for each in taken] for taken in (during, rest)))
    return [
        Row(f"pages that failed during {swaps} swaps and rollbacks", "pages", [failed], at_most(0)),
        Row("p99 of pages during swaps / at rest", "x", p99, at_most(2.0)),
    ]


class Read(NamedTuple):
    seconds: list[float]
    failed: int


def _read(service: FeedService, feeds: Sequence[Feed], meanwhile: Callable[[], None], times: int) -> Read:
    """Readers show pages while something is done so many times."""
    stop = threading.Event()
    seconds: list[float] = []
    short: list[object] = []

    def show(first: int) -> None:
        for feed in itertools.cycle(feeds[first:]):
            if stop.is_set():
                return
            began = time.perf_counter()
            page = service.pins_page(feed.user, LIMIT)
            seconds.append(time.perf_counter() - began)
            if len(page.pins) != LIMIT:
                short.append(page)

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(show, number) for number in range(READERS)]
        try:
            for _ in range(times):
                meanwhile()
        finally:
            stop.set()
    # What a reader has raised counts as a page that failed.
    return Read(seconds, len(short) + sum(reader.exception() is not None for reader in readers))


def built(stores: Sequence[CatalogStore], follows: FollowStore) -> int:
    """Makes a generation in each cluster and uses it; how many records one has. Its as_of is another one each time."""
    time.sleep(0.002)
    by_cluster = {str(number): store for number, store in enumerate(stores)}
    made, failed = build(by_cluster, follows, HOUR_MS, random.Random(1), lambda _: None)
    assert not failed, failed
    assert all(each.current for each in made.values()), made
    return min(each.records for each in made.values())


# Keys that are missing
# ----------------------------------------------------------------------------------------------------------------------


def missing(context: Context) -> list[Row]:
    """Keys of pages without a record: batches every three hours, alone and with updates."""
    windows = list(catalog_reader.views(context.actions_file, random.Random(1), context.pick(1 << 30, 9_000)))
    what = "keys of pages without a record, the trace ten times as fast"
    return [
        Row(f"{what}, batches every 3 h alone", "x", [_missing(windows, None)]),
        *(
            Row(
                f"{what}, with updates that are {behind_s} s behind",
                "x",
                [_missing(windows, int(10_000 * behind_s))],
                at_most(0.001),
            )
            for behind_s in DELAYS_S
        ),
    ]


def _missing(windows: Sequence[Sequence[Step]], behind_ms: int | None) -> float:
    """A pin is looked up as soon as it is in a feed: once it was saved. behind_ms: of updates, by the trace's time;
    None: there are none.
    """
    store = MemoryCatalog()
    store.use(store.load(1, []).id)
    records: dict[bytes, bytes] = {}
    entered = asked = lacking = 0
    steps = [step for window in windows for step in window]
    pins = [update_of(step.saved) for step in steps if step.saved is not None]
    number = batch_ms = 0
    for step in steps:
        if step.ts - batch_ms >= BATCH_MS:
            batch_ms = step.ts
            store.use(store.load(batch_ms - 1, sorted(records.items())).id)
            store.collect(1)
        while behind_ms is not None and entered < number and pins[entered].time_ms + behind_ms <= step.ts:
            store.update([pins[entered]])
            entered += 1
        if step.saved is not None:
            update = pins[number]
            number += 1
            if update.record is not None:
                records[update.key] = update.record
            continue
        keys = [key for key in step.keys if key in records]
        asked += len(keys)
        lacking += len(keys) - len(store.fetch(keys).records)
    return lacking / max(1, asked)


# Builds
# ----------------------------------------------------------------------------------------------------------------------


def builds(context: Context) -> list[Row]:
    """A generation from the follow store into both clusters, and one from a file of sorted records into one."""
    pins = context.pick(300_000, 3_000)
    config = ours.make_home(context.folder("catalog-builds"))
    config = dataclasses.replace(config, catalogs={PINS: CatalogSettings()})
    rates = []
    file = context.scratch / "catalog-records"
    write(file, pins)
    with closing(wiring.open_follows(config, wall_ms)) as follows:
        saved = (
            Request(SavePin(Pin(pin, 1 + pin % OWNERS, 1 + pin % OWNERS, 1_000 + pin))) for pin in range(1, pins + 1)
        )
        ours.record_indexed(follows, saved, lambda done: context.say(f"{done:,} pins recorded"))
        for _ in range(context.repeats):
            with opened_stores(config) as stores, ours.relaxed():
                rates.append(rates_of(stores, follows, file))
    from_follows, from_records = zip(*rates, strict=True)
    return [
        Row("a build from SQLite into both clusters, checked and in use", "records/s", from_follows, at_least(60_000)),
        Row("a load of a file of sorted records into one cluster", "records/s", from_records, at_least(300_000)),
    ]


def rates_of(stores: Sequence[CatalogStore], follows: FollowStore, file: Path) -> tuple[float, float]:
    """Records a second of a build out of the follow store into each cluster, and of a load of a file into one."""
    began = time.perf_counter()
    build_rate = built(stores, follows) / (time.perf_counter() - began)
    began = time.perf_counter()
    return build_rate, stores[0].load(wall_ms(), stored(file)).records / (time.perf_counter() - began)


@contextmanager
def opened_stores(config: Config) -> Iterator[list[CatalogStore]]:
    with ExitStack() as stack:
        yield [stack.enter_context(catalogs.open_store(config, PINS, each.name)) for each in config.clusters]
