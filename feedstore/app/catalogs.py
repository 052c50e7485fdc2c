"""The catalogs of a home: where each cluster has them, by the cluster's url."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, assert_never

from feedstore.app import open_files
from feedstore.app.config import ClusterConfig, Config
from feedstore.app.wiring import FIRST_LOOK_S, clock_of, in_files, monotonic_s, reads_of
from feedstore.catalog.cache import Cache, Lifetimes
from feedstore.catalog.forms import AS_BYTES, Form
from feedstore.catalog.pin_source import BoundedSource, CatalogPins
from feedstore.catalog.pins import AS_PINS, HeldPin
from feedstore.catalog.port import CatalogReader, CatalogStore
from feedstore.catalog.reader import Catalog
from feedstore.catalog.replicas import CatalogReplicas, CatalogSource
from feedstore.catalog.service import CatalogService, ServedCatalog
from feedstore.catalog.settings import PINS, CatalogSettings, kind_of
from feedstore.catalog.watch import CatalogWatch
from feedstore.clocks import wall_ms
from feedstore.errors import ConfigError, needing_extra
from feedstore.follows.pin_source import FollowStorePins, PinSource
from feedstore.follows.store import FollowStore
from feedstore.replicas.attempts import InPlace, OnThreads, Reads
from feedstore.replicas.watermarks import Watermarks

FALLBACKS_AT_ONCE: Final = 8
"""At most this many pages of this process ask the follow store at once for pins that the catalog lacks."""

SWAPS_AT_ONCE: Final = 16
"""At most this many clusters are swapped at once: all that a home may have."""

HOUR_MS: Final = 3_600_000
"""How long a record is held if updates keep it fresh."""


class CatalogPlace(NamedTuple):
    """Where one catalog of one cluster is. reader: makes a reader of it. store: makes a store, which also loads and
    updates it. Neither opens anything before it is used. path: its directory, if it is in files.
    """

    reader: Callable[[], CatalogReader]
    store: Callable[[], CatalogStore]
    path: Path | None = None


def settings_of(config: Config, catalog: str) -> CatalogSettings:
    """The settings of a catalog. Raises ConfigError, which names the catalogs that exist."""
    try:
        return config.catalogs[catalog]
    except KeyError:
        there = ", ".join(config.catalogs) or f"none (add [catalogs.{catalog}] to feed.toml)"
        raise ConfigError(f"no catalog {catalog!r}; there are: {there}") from None


def place(config: Config, catalog: str, cluster: str) -> CatalogPlace:
    """The place of a catalog in a cluster. Raises ConfigError if there is no catalog or cluster of that name."""
    settings_of(config, catalog)
    found = config.cluster(cluster)
    match found.scheme:
        case "rocksdb":
            return _in_files(config, found, catalog)
        case "hbase":
            return _in_hbase(found, catalog, config.serving.reads_at_once)
        case _:
            assert_never(found.scheme)


def form_of(catalog: str) -> Form[Any]:
    match kind_of(catalog).source:
        case "pins":
            return AS_PINS
        case "files":
            return AS_BYTES
        case unknown:
            assert_never(unknown)


def _in_files(config: Config, cluster: ClusterConfig, catalog: str) -> CatalogPlace:
    """A directory next to the cluster's."""
    from feedstore.catalog.rocksdb.reader import RocksCatalogReader  # noqa: PLC0415 - HBase does not need RocksDB
    from feedstore.catalog.rocksdb.store import RocksCatalogStore  # noqa: PLC0415 - the same

    open_files.lift()  # a generation has a file for each 64 MiB, and all of them are open while it is read
    directory = config.path(cluster.url)
    path = directory.with_name(directory.name + ".catalog") / catalog
    return CatalogPlace(
        lambda: RocksCatalogReader(path, monotonic_s),
        lambda: RocksCatalogStore(path, monotonic_s, wall_ms, _unique),
        path,
    )


def _in_hbase(cluster: ClusterConfig, catalog: str, fetches_at_once: int) -> CatalogPlace:
    """Tables in the namespace of the cluster."""
    with needing_extra(f"cluster {cluster.name} is HBase", "hbase"):
        from feedstore.catalog.hbase.reader import HBaseCatalogReader  # noqa: PLC0415 - its libraries are an extra
        from feedstore.catalog.hbase.store import HBaseCatalogStore  # noqa: PLC0415 - the same
        from feedstore.widecolumn.hbase import Addresses, HBaseCluster  # noqa: PLC0415 - the same
    try:
        Addresses.parse(cluster.url)
    except ValueError as error:
        raise ConfigError(f"cluster {cluster.name}: {error}") from error

    def opened() -> HBaseCluster:
        # Separate connections, so that fetches do not wait for pages of feeds.
        return HBaseCluster.open(cluster.url, [], check=False)

    return CatalogPlace(
        lambda: HBaseCatalogReader(opened(), catalog, monotonic_s, fetches_at_once),
        lambda: HBaseCatalogStore(opened(), catalog, monotonic_s, wall_ms, _unique),
    )


def _unique() -> str:
    return uuid.uuid4().hex


@contextmanager
def open_catalog(config: Config, name: str) -> Iterator[Catalog[Any]]:
    """A catalog for reading: from the cluster that answers, through a cache of this process. Raises ConfigError."""
    with _open_served(config, name) as served:
        yield served.catalog


@contextmanager
def open_catalogs(config: Config) -> Iterator[CatalogService]:
    """All catalogs of a home, for a web tier. Raises ConfigError."""
    with ExitStack() as stack:
        served = {name: stack.enter_context(_open_served(config, name)) for name in config.catalogs}
        swapping = OnThreads("catalog-swap", SWAPS_AT_ONCE)
        yield stack.enter_context(closing(CatalogService(served, swapping, monotonic_s, clock_of(config))))


@contextmanager
def _open_served(config: Config, name: str) -> Iterator[ServedCatalog]:
    settings = settings_of(config, name)
    within_s = config.serving.deadline_ms / 1_000
    with ExitStack() as stack:
        sources = []
        for cluster in sorted(config.clusters, key=lambda each: each.name != config.serving.prefer):
            reader = stack.enter_context(closing(place(config, name, cluster.name).reader()))
            sources.append(CatalogSource(cluster.name, reader, reads_of(config, cluster.name)))
        replicas = CatalogReplicas(sources, within_s, monotonic_s)
        stack.callback(replicas.close)
        clock_ms = clock_of(config)
        lifetimes = Lifetimes(
            ttl_ms=settings.ttl_ms, followed_ttl_ms=max(HOUR_MS, settings.ttl_ms), stale_max_ms=settings.stale_max_ms
        )
        cache = Cache(settings.cache_bytes, lifetimes, random.random, form_of(name))
        reads: Reads = InPlace() if in_files(config) else OnThreads(f"catalog-{name}", config.serving.reads_at_once)
        catalog = stack.enter_context(closing(Catalog(replicas, reads, cache, within_s, monotonic_s, clock_ms)))
        watch = CatalogWatch([source.name for source in sources], catalog.rolled_back, clock_ms)
        looks = {source.name: partial(watch.look, source) for source in sources}
        watermarks = stack.enter_context(closing(Watermarks(looks, replicas.set_known, monotonic_s)))
        watermarks.wait(FIRST_LOOK_S)  # before anything is held: the first look cannot tell of a rollback before it
        stores = {source.name: place(config, name, source.name).store for source in sources}
        yield ServedCatalog(catalog, watch, stores)


@contextmanager
def pins_from(config: Config, follows: FollowStore, catalog: Catalog[HeldPin]) -> Iterator[PinSource]:
    """The source of pages of pins: a catalog of pins, then the follow store for pins that it lacks. The caller has
    opened the catalog and closes it afterwards.
    """
    with ExitStack() as stack:
        source = None
        match settings_of(config, PINS).missing:
            case "source":
                # On threads even if the store is in files: a page has a deadline, and a query has none.
                reads = OnThreads("follows", FALLBACKS_AT_ONCE)
                source = stack.enter_context(closing(BoundedSource(FollowStorePins(follows), reads, monotonic_s)))
            case "skip":
                pass
            case unknown:
                assert_never(unknown)
        yield CatalogPins(catalog, source, monotonic_s)


@contextmanager
def open_reader(config: Config, catalog: str, cluster: str) -> Iterator[CatalogReader]:
    """The reader of a catalog in one cluster. Raises ConfigError."""
    with closing(place(config, catalog, cluster).reader()) as reader:
        yield reader


@contextmanager
def open_store(config: Config, catalog: str, cluster: str) -> Iterator[CatalogStore]:
    """The store of a catalog in one cluster. Raises ConfigError."""
    with closing(place(config, catalog, cluster).store()) as store:
        yield store
