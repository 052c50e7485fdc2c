"""Where a cluster is, by its url: an embedded one is a directory, any other is HBase behind its gateways."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, assert_never

from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.errors import ConfigError
from feedstore.following import FEEDS
from feedstore.replicas.replica import Replica
from feedstore.widecolumn import Access, Cluster, Table
from feedstore.widecolumn.progress import PROGRESS

if TYPE_CHECKING:
    from feedstore.app.hbase import Gateways

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
        UnavailableError: it is not there. It is not created silently: it would lack all that the
            queue delivered before.
        """
        ...


def place(config: Config, name: str) -> Place:
    """Raises ConfigError where there is no cluster of that name, or its url cannot be read."""
    cluster = config.cluster(name)
    # Neither kind of cluster pays for the libraries of the other, in memory above all.
    match cluster.scheme:
        case "rocksdb":
            from feedstore.app.rocksdb import Directory  # noqa: PLC0415

            return Directory(config.path(cluster.url))
        case "hbase":
            return _gateways(cluster)
        case _:
            assert_never(cluster.scheme)


def _gateways(cluster: configuration.Cluster) -> "Gateways":
    try:
        from feedstore.app.hbase import Gateways  # noqa: PLC0415 - its libraries are an extra
    except ImportError as error:
        raise ConfigError(f"cluster {cluster.name} is HBase: install feedstore[hbase]: {error}") from error
    try:
        return Gateways(cluster.url)
    except ValueError as error:
        raise ConfigError(f"cluster {cluster.name}: {error}") from error


def replica(name: str, cluster: Cluster) -> Replica:
    """The tables of a cluster."""
    return Replica(name, {table: cluster.table(table) for table in (FEEDS, PROGRESS)})
