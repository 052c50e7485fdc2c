"""Turns the configuration into adapters: the one place in this package that knows which there are."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from feedstore.domain import InvalidValueError
from feedstore.feeds import FEEDS, PROGRESS, Progress, Replica, feed_table, progress_table
from feedstore.follows import sqlite
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.serving.attempts import InPlace, OnThreads, Reads
from feedstore.serving.clusters import Prepare, place, replica
from feedstore.serving.config import Config, ConfigError
from feedstore.serving.replicas import Replicas, Source
from feedstore.serving.service import FeedService
from feedstore.serving.watermarks import Watermarks
from feedstore.widecolumn import Access, Cluster, DamagedError, Table, UnavailableError
from feedstore.widecolumn.late import LateCluster

if TYPE_CHECKING:
    from feedstore.follows.mysql import Server

FIRST_LOOK_S = 1.0
"""How long who opens the clusters waits to hear how far each is."""


def wall_ms() -> int:
    """The clock of this machine, ms since 1970."""
    return time.time_ns() // 1_000_000


monotonic_s: Final = time.monotonic
"""The clock of deadlines and of how long something takes, s. Whatever needs one is given this one when it is made."""


def open_service(config: Config, clock: Callable[[], int] = wall_ms) -> FeedService:
    """What a web tier calls. It writes to no cluster: it may run beside a worker, and there may be many. A process that
    forks opens it afterwards: its threads would stay behind.

    clock: that `behind_ms` goes by, and an embedded follow store.

    Raises:
        FollowStoreUnavailableError: a cluster may be away, the follow store must be there.
        ConfigError
    """
    with ExitStack() as stack:
        follows = open_follows(config, clock)
        stack.callback(follows.close)
        return _service(config, follows, stack.enter_context(reading(config, clock)), stack.pop_all().close)


def service_on(
    config: Config, follows: FollowStore, replicas: Iterable[Replica], clock: Callable[[], int] = wall_ms
) -> FeedService:
    """The same on what the caller has opened, and closes after it: for the process that writes clusters in files, and
    need not catch up with itself. clock: as in `open_service`.
    """
    with ExitStack() as stack:
        return _service(
            config, follows, stack.enter_context(_preferred(config, replicas, clock)), stack.pop_all().close
        )


def _service(config: Config, follows: FollowStore, replicas: Replicas, close: Callable[[], None]) -> FeedService:
    return FeedService(
        replicas,
        follows,
        cap=config.limits.cap,
        refill_again_ms=config.refill_again_ms,
        within_s=config.deadline_ms / 1_000,
        clock=monotonic_s,
        close=close,
    )


@contextmanager
def reading(config: Config, clock: Callable[[], int] = wall_ms) -> Iterator[Replicas]:
    """The clusters as pages are read from them, the preferred one first. Each is opened when it is first asked, and
    may be away. Raises ConfigError.
    """
    with ExitStack() as stack:
        replicas: list[Replica] = []
        for cluster in config.clusters:
            opened = open_cluster(config, cluster.name, "beside")
            stack.callback(opened.close)
            replicas.append(replica(cluster.name, opened))
        yield stack.enter_context(_preferred(config, replicas, clock))


@contextmanager
def _preferred(config: Config, replicas: Iterable[Replica], clock: Callable[[], int]) -> Iterator[Replicas]:
    with ExitStack() as stack:
        ordered = sorted(replicas, key=lambda each: each.name != config.prefer)
        found = Replicas(
            [Source(each, _reads(config, each.name)) for each in ordered],
            clock,
            config.deadline_ms / 1_000,
            monotonic_s,
        )
        stack.callback(found.close)
        watermarks = Watermarks(ordered, found.heard, monotonic_s)
        stack.callback(watermarks.close)
        watermarks.wait(FIRST_LOOK_S)
        yield found


def in_files(config: Config) -> bool:
    """Whether every cluster is a directory of this machine."""
    return all(each.in_files for each in config.clusters)


def _reads(config: Config, name: str) -> Reads:
    in_files = any(each.in_files for each in config.clusters if each.name == name)
    return InPlace() if in_files else OnThreads(name, config.reads_at_once)


def tables(config: Config) -> list[Table]:
    """The tables of every cluster."""
    limits = config.limits
    return [feed_table(limits.cap, limits.slack, limits.purge_window_ms), progress_table(limits.purge_window_ms)]


def open_follows(config: Config, clock: Callable[[], int]) -> FollowStore:
    """clock: the store's, where it has none of its own: MySQL goes by its servers'.

    Raises FollowStoreUnavailableError, ConfigError.
    """
    if _in_mysql(config):
        servers = mysql_servers(config)
        from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

        return mysql.open_store(servers)
    return sqlite.open_store([config.path(url, "sqlite") for url in config.shards], clock)


def create_follows(config: Config) -> None:
    """Makes the follow store, or brings an older one up to date. Raises FollowStoreUnavailableError, ConfigError."""
    if _in_mysql(config):
        servers = mysql_servers(config)
        from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

        mysql.create(servers)
        return
    paths = [config.path(url, "sqlite") for url in config.shards]
    try:
        for path in paths:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FollowStoreUnavailableError(str(error)) from error
    sqlite.create(paths)


def _in_mysql(config: Config) -> bool:
    return all(url.startswith("mysql:") for url in config.shards)


def mysql_servers(config: Config) -> list["Server"]:
    """Where the shards of a follow store in MySQL are; asks none of them. Raises ConfigError."""
    try:
        from feedstore.follows.mysql import server  # noqa: PLC0415 - PyMySQL is an extra
    except ImportError as error:
        raise ConfigError(f"the follow store is in MySQL: install feedstore[mysql]: {error}") from error
    try:
        return [server(url, config.home, os.environ) for url in config.shards]
    except (InvalidValueError, OSError) as error:
        raise ConfigError(f"{config.sources.blamed('follows.shards')}: follows.shards: {error}") from error


def create_cluster(config: Config, name: str, prepare: Prepare | None = None) -> None:
    """`Place.create`; the new cluster knows its name. Raises UnavailableError, ConfigError."""

    def prepared(new: Replica) -> None:
        if prepare is not None:
            prepare(new)
        Progress(new.progress).note_name(name)

    place(config, name).create(tables(config), prepared)


def remove_cluster(config: Config, name: str) -> None:
    """`Place.remove`. Raises UnavailableError, ConfigError."""
    place(config, name).remove()


def open_cluster(config: Config, name: str, access: Access, *, feeds: bool = True) -> LateCluster:
    """A cluster by name, opened when it is first used. access: `owner` writes; `beside` reads while somebody else
    writes. feeds: whether the feeds are read, or only how far the cluster is: what was written to an embedded table
    since its last flush is in the memory of everyone who opens it. Raises ConfigError.

    Opening raises DamagedError if the cluster was written under another name.
    """
    where = place(config, name)
    wanted = [table for table in tables(config) if feeds or table.name != FEEDS]

    def open_named() -> Cluster:
        opened = where.open(wanted, access)
        try:
            _refuse_another(opened, name, access)
        except BaseException:
            opened.close()
            raise
        return opened

    return LateCluster(open_named)


def _refuse_another(opened: Cluster, name: str, access: Access) -> None:
    """Raises DamagedError for a cluster that was written under another name, UnavailableError."""
    try:
        found = Progress(opened.table(PROGRESS)).name()
    except DamagedError:
        raise
    except UnavailableError:
        if access == "owner":
            raise
        return  # pages can be read without the table of the progress
    if found not in {None, name}:
        raise DamagedError(
            f"this is cluster {found}, and feed.toml calls it {name}: bring back what was there, or rebuild it"
            f" (feedctl rebuild --all --cluster {name})"
        )


def cluster_exists(config: Config, name: str) -> bool:
    """`Place.exists`. Raises UnavailableError, ConfigError."""
    return place(config, name).exists()
