"""Where a cluster is, by its url: an embedded one is a directory, any other is HBase behind its gateways."""

from collections.abc import Callable, Sequence
from typing import Protocol

from feedstore.feeds import FEEDS, PROGRESS, Replica
from feedstore.serving.config import Config, ConfigError
from feedstore.widecolumn import Access, Cluster, Table

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
        """Raises:
        UnavailableError: it is not there. It is not made anew behind everybody's back: it would lack all that the
            queue delivered before.
        """
        ...


def place(config: Config, name: str) -> Place:
    """Raises ConfigError where there is no cluster of that name, or its url cannot be read."""
    clusters = {cluster.name: cluster for cluster in config.clusters}
    if name not in clusters:
        raise ConfigError(f"no cluster {name!r}; there are: {', '.join(clusters)}")
    url = clusters[name].url
    # Neither kind of cluster pays for the libraries of the other, in memory above all.
    if clusters[name].in_files:
        from feedstore.serving.rocksdb import Directory  # noqa: PLC0415

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
