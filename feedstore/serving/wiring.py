"""Turns the configuration into adapters: the one place in this package that knows which there are."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from feedstore.domain import InvalidValueError
from feedstore.feeds import FEEDS, PROGRESS, Replica, feed_table, progress_table
from feedstore.follows import sqlite
from feedstore.follows.port import FollowStore, FollowStoreUnavailableError
from feedstore.serving.config import FILE_NAME, Config, ConfigError
from feedstore.widecolumn import Table, UnavailableError
from feedstore.widecolumn.late import LateCluster
from feedstore.widecolumn.rocksdb import Access, RocksCluster

if TYPE_CHECKING:
    from feedstore.follows.mysql import Server


def tables(config: Config) -> list[Table]:
    """The tables of every cluster."""
    limits = config.limits
    return [feed_table(limits.cap, limits.slack, limits.purge_window_ms), progress_table(limits.purge_window_ms)]


def open_follows(config: Config, clock: Callable[[], int]) -> FollowStore:
    """clock: the store's, where it has none of its own: MySQL goes by its servers'.

    Raises FollowStoreUnavailableError, ConfigError.
    """
    if _in_mysql(config):
        servers = _mysql_servers(config)
        from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

        return mysql.open_store(servers)
    return sqlite.open_store([config.path(url, "sqlite") for url in config.shards], clock)


def create_follows(config: Config) -> None:
    """Makes the follow store, or brings an older one up to date. Raises FollowStoreUnavailableError, ConfigError."""
    if _in_mysql(config):
        servers = _mysql_servers(config)
        from feedstore.follows import mysql  # noqa: PLC0415 - PyMySQL is an extra

        mysql.create(servers)
        return
    paths = [config.path(url, "sqlite") for url in config.shards]
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FollowStoreUnavailableError(str(error)) from error
    sqlite.create(paths)


def _in_mysql(config: Config) -> bool:
    return all(url.startswith("mysql:") for url in config.shards)


def _mysql_servers(config: Config) -> list["Server"]:
    try:
        from feedstore.follows.mysql import server  # noqa: PLC0415 - PyMySQL is an extra
    except ImportError as error:
        raise ConfigError(f"the follow store is in MySQL: install feedstore[mysql]: {error}") from error
    try:
        return [server(url, config.home, os.environ) for url in config.shards]
    except (InvalidValueError, OSError) as error:
        raise ConfigError(f"{config.home / FILE_NAME}: follows.shards: {error}") from error


def create_cluster(config: Config, name: str, prepare: Callable[[Replica], None] | None = None) -> None:
    """Makes an empty cluster; one that is there stays as it is. It is there once `prepare` has written into it, or
    not at all. Raises UnavailableError, ConfigError.
    """
    if cluster_exists(config, name):
        return
    path = cluster_path(config, name)
    new = path.with_name(path.name + ".new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        made = LateCluster(lambda: RocksCluster.open(new, tables(config), access="owner"))
        try:
            made.opened()
            if prepare is not None:
                prepare(replica(name, made))
        finally:
            made.close()
        new.rename(path)
    except OSError as error:
        raise UnavailableError(str(error)) from error


def remove_cluster(config: Config, name: str) -> None:
    """Deletes a cluster and all that is in it. Raises UnavailableError, ConfigError."""
    path = cluster_path(config, name)
    try:
        if path.exists():
            # Half of a cluster would look like a damaged one.
            gone = path.with_name(path.name + ".gone")
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
            shutil.rmtree(gone)
    except OSError as error:
        raise UnavailableError(str(error)) from error


def open_cluster(config: Config, name: str, access: Access, *, feeds: bool = True) -> LateCluster:
    """A cluster by name, opened when it is first used. access: `owner` writes; `beside` reads while another process
    writes. feeds: whether the feeds are read, or only how far the cluster is: what was written to a table since its
    last flush is in the memory of everyone who opens it.

    A cluster that is not there is unavailable, also to its owner: made anew behind everybody's back, it would lack
    all that the queue delivered before.
    """
    path = cluster_path(config, name)

    def opener() -> RocksCluster:
        if not cluster_exists(config, name):
            raise UnavailableError(f"{path}: there is no cluster in this directory; bring it back, or rebuild it")
        opened = [table for table in tables(config) if feeds or table.name != FEEDS]
        return RocksCluster.open(path, opened, access=access)

    return LateCluster(opener)


def cluster_path(config: Config, name: str) -> Path:
    """The directory of a cluster. Raises ConfigError where there is none of that name."""
    urls = {cluster.name: cluster.url for cluster in config.clusters}
    if name not in urls:
        raise ConfigError(f"no cluster {name!r}; there are: {', '.join(urls)}")
    return config.path(urls[name], "rocksdb")


def cluster_exists(config: Config, name: str) -> bool:
    """Whether there is anything at all where a cluster must be."""
    try:
        return any(cluster_path(config, name).iterdir())
    except OSError:
        return False


def replica(name: str, cluster: LateCluster) -> Replica:
    """The two tables of a cluster."""
    return Replica(name, cluster.table(FEEDS), cluster.table(PROGRESS))
