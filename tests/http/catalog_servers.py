"""A server in this process with a catalog in two clusters, which a test can make fail or hang."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from http_servers import InProcess, in_process

from feedstore.app.catalogs import form_of
from feedstore.catalog.cache import Cache, Lifetimes
from feedstore.catalog.pin_source import BoundedSource, CatalogPins
from feedstore.catalog.pins import key_of, record_of
from feedstore.catalog.port import CatalogUnavailableError, Update
from feedstore.catalog.reader import Catalog
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.catalog.service import CatalogService, ServedCatalog
from feedstore.catalog.watch import CatalogWatch
from feedstore.domain import Pin, SavePin
from feedstore.follows.pin_source import FollowStorePins, Hydrated, PinSource
from feedstore.follows.port import FollowStoreUnavailableError, Request
from feedstore.follows.store import FollowStore
from feedstore.http.queues import QueuesUnavailableError
from feedstore.replicas.attempts import OnThreads
from feedstore.replicas.watermarks import Watermarks
from tests.catalog.memory_catalog import MemoryCatalog
from tests.replicas.fakes import LONG_S, NOW_MS

DEADLINE_S = 3.0
LOOK_S = 0.01
KNOWN_MS = NOW_MS - 100
"""How far the updates of a catalog are, unless a test says otherwise."""
OLD_MS, NEW_MS = 1_000, 2_000
"""The as_of of the generations."""


class FakeCluster:
    """A catalog in memory. `fails`: each call raises; `gate`: each call waits for it."""

    def __init__(self) -> None:
        self.store = MemoryCatalog()
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            assert self.gate.wait(LONG_S)
            if self.fails:
                raise CatalogUnavailableError("secret-gateway:9090 is away")
            return getattr(self.store, name)(*arguments)

        return call


class FakePins:
    """The follow store as pages ask it for pins. `fails`, `gate`: as of a cluster."""

    def __init__(self) -> None:
        self.source: PinSource | None = None
        self.fails = False
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()

    def look_up(self, pins: Any, deadline_s: float) -> Hydrated:
        self.asked += 1
        assert self.gate.wait(LONG_S)
        if self.fails:
            raise FollowStoreUnavailableError("secret-database:3306 is away")
        assert self.source is not None
        return self.source.look_up(pins, deadline_s)


class FakePosting:
    """`away`: it takes nothing."""

    def __init__(self) -> None:
        self.away = False
        self.taken: list[tuple[str, list[Update]]] = []

    def post(self, catalog: str, updates: Sequence[Update]) -> None:
        if self.away:
            raise QueuesUnavailableError("secret-broker:9092 is away")
        self.taken.append((catalog, list(updates)))


@dataclass
class Shelf:
    """A server, the clusters of its catalogs (`pins` and `ads`), what its pages ask of the follow store, and where
    updates are posted.
    """

    inside: InProcess
    pins: dict[str, FakeCluster]
    ads: dict[str, FakeCluster]
    follows: FakePins
    posting: FakePosting

    @property
    def address(self) -> str:
        return self.inside.server.address

    def fill(self, pins: range, *, catalog: range | None = None, known_ms: int = KNOWN_MS) -> None:
        """Saves pins, and loads those of `catalog` (None: all) into two generations. They are in the feed of USER."""
        saved = [Pin(pin, 2, 9, 1_000 + pin) for pin in pins]
        self.inside.follows.record([Request(SavePin(pin)) for pin in saved])
        self.inside.pair.fill(pins)
        for name in "ab":
            self.inside.pair.replicas.set_watermark(name, NOW_MS - 10)
        there = [(key_of(pin.pin), record_of(pin, deleted=False)) for pin in saved if pin.pin in (catalog or pins)]
        self.load(self.pins, there, known_ms)

    def load(
        self, clusters: dict[str, FakeCluster], records: list[tuple[bytes, bytes]], known_ms: int = KNOWN_MS
    ) -> None:
        for cluster in clusters.values():
            for as_of_ms in (OLD_MS, NEW_MS):
                cluster.store.use(cluster.store.load(as_of_ms, records).id)
            cluster.store.note_known(1)
            cluster.store.note_known(known_ms)

    def delete(self, pin: int) -> None:
        for cluster in self.pins.values():
            record = record_of(Pin(pin, 2, 9, 1_000 + pin), deleted=True)
            cluster.store.update([Update(key_of(pin), NEW_MS + 1, record)])

    def stop(self, *, clusters: str = "ab", follows: bool = True, hangs: bool) -> None:
        """From now on these do not answer."""
        for each in [*(self.pins[name] for name in clusters), *([self.follows] if follows else [])]:
            if hangs:
                each.gate.clear()
            else:
                each.fails = True

    def release(self) -> None:
        for each in (*self.pins.values(), *self.ads.values(), self.follows):
            each.gate.set()


@contextmanager
def shelf(home: Path, text: str = "", lifetimes: Lifetimes | None = None) -> Iterator[Shelf]:
    """text: as of `in_process`."""
    lifetimes = lifetimes or Lifetimes()
    pins, ads = ({name: FakeCluster() for name in "ab"} for _ in range(2))
    with ExitStack() as stack:
        served = {}
        for name, clusters in (("pins", pins), ("ads", ads)):
            sources = [CatalogSource(cluster, fake, OnThreads(cluster, 8)) for cluster, fake in clusters.items()]
            replicas = CatalogReplicas(sources, DEADLINE_S, time.monotonic)
            stack.callback(replicas.close)
            catalog = Catalog(
                replicas,
                OnThreads(f"catalog-{name}", 8),
                Cache(1 << 20, lifetimes, lambda: 0.0, form_of(name)),
                DEADLINE_S,
                time.monotonic,
                lambda: NOW_MS,
            )
            stack.enter_context(closing(catalog))
            watch = CatalogWatch([*clusters], catalog.rolled_back, lambda: NOW_MS)
            looks = {source.name: partial(watch.look, source) for source in sources}
            stack.enter_context(closing(Watermarks(looks, replicas.set_known, time.monotonic, LOOK_S)))
            stores = {cluster: lambda fake=fake: fake for cluster, fake in clusters.items()}
            served[name] = ServedCatalog(catalog, watch, stores)
        service = CatalogService(served, OnThreads("swaps", 4), time.monotonic, lambda: NOW_MS)
        stack.enter_context(closing(service))
        follows = FakePins()

        def source_of(store: FollowStore) -> PinSource:
            follows.source = FollowStorePins(store)
            source = BoundedSource(follows, OnThreads("follows", 4), time.monotonic)
            stack.enter_context(closing(source))
            return CatalogPins(service.catalog("pins"), source, time.monotonic)

        environ = {"FEED_SERVING_DEADLINE": f"{int(1_000 * DEADLINE_S)}ms"}
        posting = FakePosting()
        inside = stack.enter_context(
            in_process(home, text, environ, time.monotonic, catalogs=service, pins=source_of, posting=posting)
        )
        made = Shelf(inside, pins, ads, follows, posting)
        stack.callback(made.release)
        yield made
