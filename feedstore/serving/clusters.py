"""Where a cluster is, by its url: an embedded one is a directory, any other is HBase behind its gateways."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from feedstore.feeds import FEEDS, PROGRESS, Replica
from feedstore.serving.config import Config, ConfigError
from feedstore.widecolumn import Cluster, Table, UnavailableError
from feedstore.widecolumn.late import LateCluster
from feedstore.widecolumn.rocksdb import Access, RocksCluster

Prepare = Callable[[Replica], None]
"""Writes into a new cluster before it counts as there."""


class Place(Protocol):
    """Where one cluster is, whether it is there or not. Every method may raise UnavailableError."""

    def exists(self) -> bool:
        """Whether there is anything at all where the cluster must be."""
        ...

    def create(self, tables: Sequence[Table], prepare: Prepare | None) -> None:
        """Makes an empty cluster; one that is there stays as it is. It is there once `prepare` has written into it,
        or not at all.
        """
        ...

    def remove(self) -> None:
        """Deletes the cluster's tables with all that is in them."""
        ...

    def open(self, tables: Sequence[Table], access: Access) -> Cluster:
        """access: `owner` writes; `beside` reads while somebody else writes.

        Raises:
            UnavailableError: it is not there. It is not made anew behind everybody's back: it would lack all that the
                queue delivered before.
        """
        ...


def place(config: Config, name: str) -> Place:
    """Raises ConfigError where there is no cluster of that name, or its url cannot be read."""
    urls = {cluster.name: cluster.url for cluster in config.clusters}
    if name not in urls:
        raise ConfigError(f"no cluster {name!r}; there are: {', '.join(urls)}")
    url = urls[name]
    if not url.startswith("hbase:"):
        return Directory(config.path(url, "rocksdb"))
    try:
        from feedstore.serving.hbase import Gateways  # noqa: PLC0415 - its libraries are an extra
    except ImportError as error:
        raise ConfigError(f"cluster {name} is HBase: install feedstore[hbase]: {error}") from error
    try:
        return Gateways(url)
    except ValueError as error:
        raise ConfigError(f"cluster {name}: {error}") from error


def replica(name: str, cluster: Cluster) -> Replica:
    """The two tables of a cluster."""
    return Replica(name, cluster.table(FEEDS), cluster.table(PROGRESS))


class Directory:
    """An embedded cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        try:
            return any(self.path.iterdir())
        except OSError:
            return False

    def create(self, tables: Sequence[Table], prepare: Prepare | None) -> None:
        if self.exists():
            return
        new = self.path.with_name(self.path.name + ".new")
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            made = LateCluster(lambda: RocksCluster.open(new, tables, access="owner"))
            try:
                made.opened()
                if prepare is not None:
                    prepare(replica(self.path.name, made))
            finally:
                made.close()
            new.rename(self.path)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    def remove(self) -> None:
        try:
            if self.path.exists():
                # Half of a cluster would look like a damaged one.
                gone = self.path.with_name(self.path.name + ".gone")
                shutil.rmtree(gone, ignore_errors=True)
                self.path.rename(gone)
                shutil.rmtree(gone)
        except OSError as error:
            raise UnavailableError(str(error)) from error

    def open(self, tables: Sequence[Table], access: Access) -> Cluster:
        if not self.exists():
            raise UnavailableError(f"{self.path}: there is no cluster in this directory; bring it back, or rebuild it")
        return RocksCluster.open(self.path, tables, access=access)
