"""Turns the configuration into adapters: the one module of this package that knows which adapters exist."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.app.places import Prepare, replica
from feedstore.clocks import HomeClock, Machine, wall_ms
from feedstore.domain import InvalidValueError
from feedstore.errors import ConfigError, needing_extra
from feedstore.following import FEEDS, feed_table, trusted_watermark
from feedstore.follows import sqlite, versions
from feedstore.follows.store import FollowStore
from feedstore.lazy import closed_on_error
from feedstore.metering import UNCOUNTED, Meter
from feedstore.replicas.attempts import InPlace, OnThreads, Reads
from feedstore.replicas.replicas import Replica, Replicas, ReplicaSource, TracedReplicas
from feedstore.replicas.watermarks import Watermarks
from feedstore.tracing import UNTRACED, Tracer
from feedstore.widecolumn import Access, Cluster, DamagedError, Table, UnavailableError
from feedstore.widecolumn.lazy import LazyCluster
from feedstore.widecolumn.progress import PROGRESS, Progress, progress_table

if TYPE_CHECKING:
    from feedstore.follows.mysql import MySQLServer

FIRST_LOOK_S = 1.0
"""How long opening the clusters waits to learn each one's watermark."""


CLOCK_NAME: Final = "clock.json"
"""The file of a home with the time that its processes share."""

monotonic_s: Final = time.monotonic
"""The clock of deadlines and durations, in s. It is handed to all parts that need one when they are made."""


def home_clock(config: Config) -> HomeClock | None:
    """The clock that all processes of a home in files share (`HomeClock`). None if nothing of the home is in files:
    servers have clocks of their own.
    """
    if not config.holds_files:
        return None
    return HomeClock(
        config.home / CLOCK_NAME,
        Machine(wall_ms),
        lambda: sqlite.stamped_ms(config.shard_files),
        config.clock_offset_ms,
        monotonic_s,
    )


def clock_of(config: Config) -> Callable[[], int]:
    """The time of a home, ms since 1970."""
    return home_clock(config) or wall_ms


@contextmanager
def reading(
    config: Config, clock: Callable[[], int] | None = None, tracer: Tracer = UNTRACED, meter: Meter = UNCOUNTED
) -> Iterator[Replicas]:
    """The clusters for reading pages, the preferred one first. Each is opened when it is first asked, and may be away.
    clock: the time for `behind_ms`; None: `clock_of` the home. tracer: of reads. meter: counts reads from servers.
    Raises ConfigError.
    """
    with ExitStack() as stack:
        replicas: list[Replica] = []
        for cluster in config.clusters:
            opened = open_cluster(config, cluster.name, "read", direct=meter)
            stack.callback(opened.close)
            replicas.append(replica(cluster.name, opened))
        yield stack.enter_context(reading_from(config, replicas, clock or clock_of(config), tracer))


@contextmanager
def reading_from(
    config: Config, replicas: Iterable[Replica], clock: Callable[[], int], tracer: Tracer = UNTRACED
) -> Iterator[Replicas]:
    """The clusters for reading pages, which the caller has opened and closes afterwards."""
    with ExitStack() as stack:
        ordered = sorted(replicas, key=lambda each: each.name != config.serving.prefer)
        kind = Replicas if tracer is UNTRACED else TracedReplicas
        found = kind(
            [ReplicaSource(each, reads_of(config, each.name)) for each in ordered],
            clock,
            config.serving.deadline_ms / 1_000,
            monotonic_s,
            tracer,
        )
        stack.callback(found.close)
        looks = {each.name: partial(trusted_watermark, each) for each in ordered}
        watermarks = Watermarks(looks, found.set_watermark, monotonic_s)
        stack.callback(watermarks.close)
        watermarks.wait(FIRST_LOOK_S)
        yield found


def in_files(config: Config) -> bool:
    """Whether every cluster is a directory of this machine."""
    return all(each.in_files for each in config.clusters)


def reads_of(config: Config, name: str) -> Reads:
    """How a cluster is read: in place, or on threads."""
    return InPlace() if config.cluster(name).in_files else OnThreads(name, config.serving.reads_at_once)


def tables(config: Config) -> list[Table]:
    limits = config.limits
    return [feed_table(limits.cap, limits.slack, limits.purge_window_ms), progress_table(limits.purge_window_ms)]


def open_follows(
    config: Config,
    clock: Callable[[], int],
    *,
    may_be_away: bool = False,
    meter: Meter = UNCOUNTED,
    tracer: Tracer = UNTRACED,
) -> FollowStore:
    """Opens the follow store. clock: for a store in files; MySQL uses its servers' clocks. may_be_away: whether it
    opens even if none of its servers can be reached now; a file must be there in any case. meter: counts its calls by
    shard. tracer: of actions.

    Raises FollowStoreUnavailableError, ConfigError.
    """
    match config.shards_scheme:
        case "sqlite":
            return sqlite.open_store(config.shard_files, clock, meter, tracer)
        case "mysql":
            servers = mysql_servers(config)
            from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

            return mysql.open_store(servers, may_be_away=may_be_away, meter=meter, tracer=tracer)
        case _:
            assert_never(config.shards_scheme)


def create_follows(config: Config) -> None:
    """Makes the follow store, or brings an older one up to date. Raises FollowStoreUnavailableError, ConfigError."""
    match config.shards_scheme:
        case "sqlite":
            sqlite.create(config.shard_files)
        case "mysql":
            servers = mysql_servers(config)
            from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

            mysql.create(servers)
        case _:
            assert_never(config.shards_scheme)


def missing_follows(config: Config) -> list[str]:
    """The shards of the follow store that are lost or not made yet. Raises FollowStoreUnavailableError, ConfigError."""
    return [shard for shard, version in _stored_versions(config).items() if not version]


def outdated_follows(config: Config) -> list[str]:
    """The shards of the follow store whose tables are of an earlier version. Raises FollowStoreUnavailableError,
    ConfigError.
    """
    newest = versions.latest(config.shards_scheme)
    return [shard for shard, version in _stored_versions(config).items() if 0 < version < newest]


def _stored_versions(config: Config) -> dict[str, int]:
    match config.shards_scheme:
        case "sqlite":
            return {str(path): sqlite.stored_version(path) for path in config.shard_files}
        case "mysql":
            servers = mysql_servers(config)
            from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

            return {str(server): mysql.stored_version(server) for server in servers}
        case _:
            assert_never(config.shards_scheme)


def has_feeds(config: Config, name: str) -> bool:
    """Whether ticks of a follow store have come to a cluster. Raises UnavailableError if it cannot be asked,
    ConfigError.
    """
    if not place(config, name).exists():
        return False
    with closing(open_cluster(config, name, "read")) as opened:
        return Progress(replica(name, opened).progress).watermark() is not None


def are_files_used(config: Config) -> bool:
    """Whether a home has worked with the stores that are in files: something was recorded, or a worker has run. Stores
    that were only made are not in use. Raises FollowStoreUnavailableError, UnavailableError, ConfigError.
    """
    return sqlite.stamped_ms(config.shard_files) > 0 or any(
        has_feeds(config, each.name) for each in config.clusters if each.in_files
    )


def mysql_servers(config: Config) -> list["MySQLServer"]:
    """The servers and databases of a follow store in MySQL; asks none of them. Raises ConfigError."""
    with needing_extra("the follow store is in MySQL", "mysql"):
        from feedstore.follows.mysql import server  # noqa: PLC0415 - PyMySQL is an extra
    try:
        return [server(url, config.home, os.environ) for url in config.shards]
    except (InvalidValueError, OSError) as error:
        raise ConfigError(f"{config.sources.blamed('follows.shards')}: follows.shards: {error}") from error


def create_cluster(config: Config, name: str, prepare: Prepare = lambda _: None) -> None:
    """Creates a cluster by `ClusterPlace.create`, and notes its name in it. Raises UnavailableError, ConfigError."""

    def prepared(new: Replica) -> None:
        prepare(new)
        Progress(new.progress).note_name(name)

    place(config, name).create(tables(config), prepared)


def open_cluster(
    config: Config, name: str, access: Access, *, feeds: bool = True, direct: Meter | None = None
) -> LazyCluster:
    """A cluster by name, opened when it is first used. access: `write` owns it; `read` reads while another process
    writes. feeds: whether to open the feeds, or only the progress. Without the feeds less memory is needed: a process
    that opens an embedded table loads all that was written to it since its last flush. direct: counts reads of rows in
    HBase, which region servers are asked for; None: they go through gateways. Only for pages: what a region server
    answers may be old. Raises ConfigError.

    Opening raises DamagedError if the cluster was written under another name.
    """
    where = place(config, name, direct)
    wanted = [table for table in tables(config) if feeds or table.name != FEEDS]

    def open_named() -> Cluster:
        opened = where.open(wanted, access)
        with closed_on_error(opened):
            _refuse_another(opened, name, access)
        return opened

    return LazyCluster(open_named)


def _refuse_another(opened: Cluster, name: str, access: Access) -> None:
    """Raises DamagedError if the cluster was written under another name, UnavailableError."""
    try:
        found = Progress(opened.table(PROGRESS)).name()
    except DamagedError:
        raise
    except UnavailableError:
        if access == "write":
            raise
        return  # pages can be read without the progress table
    if found not in {None, name}:
        raise DamagedError(
            f"this is cluster {found}, and feed.toml calls it {name}: bring back what was there, or rebuild it"
            f" (feedctl rebuild --all --cluster {name})"
        )
