"""The catalog of pins on servers: built out of MariaDB into both HBase clusters, and read by pages."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from bench import ours
from bench.catalog_records import write
from bench.context import Context
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.measurements.catalog_pages import OWNERS, asked_of_follows, beside_ids, opened_stores, rates_of
from bench.results import Row, at_least
from bench.stack.servers import Servers, home
from feedstore.app import services
from feedstore.app.config import Config
from feedstore.catalog.port import CatalogStore
from feedstore.catalog.settings import PINS, CatalogSettings
from feedstore.domain import Pin, SavePin
from feedstore.follows.port import MAX_PAGE, Request
from feedstore.follows.store import FollowStore
from feedstore.widecolumn.hbase import HBaseCluster

PAGES_GOAL, CALLS = 1.25, 400
MORE, FIRST_MS = 500_000, 1_341_100_000_000
"""Of how many pins builds are measured too: making the tables takes most of the time of a small build."""
LOOK_EVERY_S = 1.0


def measure(servers: Servers, context: Context) -> list[Row]:
    """Builds out of MariaDB and a load from a file, into HBase; pages of pins against pages of ids"""
    feeds = made_feeds(context.pick(100, 10), CAP, seed=1)
    pins = {pin: created_ms for feed in feeds for pin, created_ms in feed.entries}
    with home(servers, context) as plain:
        config = dataclasses.replace(plain, catalogs={PINS: CatalogSettings()})
        with _removed_at_the_end(config), ours.ports(plain) as ports, ExitStack() as stack:
            for replica in ports.replicas.values():
                ours.fill(replica, feeds)
            _record(ports.follows, pins)
            context.say(f"{len(pins):,} pins are recorded")
            with opened_stores(config) as stores, ours.relaxed():
                rows = _builds(context, ports.follows, stores, len(pins))
                more = context.pick(MORE, 2 * len(pins))
                _record(ports.follows, {pin: FIRST_MS + pin for pin in range(max(pins) + 1, max(pins) + 1 + more)})
                context.say(f"{len(pins) + more:,} pins are recorded")
                rows += _builds(context, ports.follows, stores, len(pins) + more)
            opened, without = (stack.enter_context(services.open_services(each)) for each in (config, plain))
            assert opened.catalogs is not None
            time.sleep(2 * LOOK_EVERY_S)  # until it has heard which clusters answer
            calls = context.pick(CALLS, 20)
            rows += beside_ids(context, feeds, opened.feeds, without.feeds, calls, PAGES_GOAL)
            return [*rows, asked_of_follows(opened.catalogs)]


def _record(follows: FollowStore, pins: dict[int, int]) -> None:
    """Without their indexes, which no build reads."""
    requests = [Request(SavePin(Pin(pin, 1 + pin % OWNERS, 1 + pin % OWNERS, ms))) for pin, ms in pins.items()]
    ours.record(follows, requests)
    ours.forget_outbox(follows)


def _builds(context: Context, follows: FollowStore, stores: Sequence[CatalogStore], pins: int) -> list[Row]:
    file = context.scratch / "catalog-records"
    write(file, pins)
    read, rates = [], []
    for _ in range(context.repeats):
        began = time.perf_counter()
        read.append(_read(follows) / (time.perf_counter() - began))
        rates.append(rates_of(stores, follows, file))
        for store in stores:
            store.collect(1)
    from_follows, from_records = zip(*rates, strict=True)
    what = f"{pins:,} records"
    return [
        Row(f"a build of {what} from MariaDB into both clusters, in use", "records/s", from_follows, at_least(60_000)),
        Row(f"{what} read out of MariaDB", "records/s", read),
        Row(f"a load of a file of {what} into one cluster", "records/s", from_records, at_least(300_000)),
    ]


def _read(follows: FollowStore) -> int:
    """Every pin of every shard, as a build reads them; how many there are."""
    pins = 0
    for shard in range(follows.shards()):
        after = 0
        while page := follows.pins_after(shard, after, MAX_PAGE):
            pins += len(page)
            after = page[-1].pin.pin
    return pins


@contextmanager
def _removed_at_the_end(config: Config) -> Iterator[None]:
    """The tables of catalogs, which a home's removal leaves."""
    try:
        yield
    finally:
        for each in config.clusters:
            with closing(HBaseCluster.open(each.url, [], check=False)) as cluster:
                for name in cluster.administration.names():
                    if name.startswith("cat"):
                        cluster.administration.drop(name)
