"""The places of clusters, and what each kind of place can do."""

from collections.abc import Callable, Sequence
from typing import Protocol

from feedstore.following import FEEDS
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Access, Cluster, Table
from feedstore.widecolumn.progress import PROGRESS

Prepare = Callable[[Replica], None]
"""Writes into a new cluster before it counts as there."""


class ClusterPlace(Protocol):
    """Where one cluster is or will be. Every method may raise UnavailableError. `create` and `remove` raise ConfigError
    if no cluster can be made at this place, and change nothing.
    """

    def exists(self) -> bool:
        """Whether there is anything at this place. Raises UnavailableError if that cannot be determined."""

    def create(self, tables: Sequence[Table], prepare: Prepare) -> None:
        """Makes an empty cluster; an existing one stays as it is. It exists only once `prepare` has written into it."""

    def remove(self) -> None:
        """Deletes the cluster's tables and everything in them."""

    def open(self, tables: Sequence[Table], access: Access) -> Cluster:
        """Opens the cluster. Raises:
        UnavailableError: the cluster does not exist. It is not created silently, because it would lack everything
            that the queue delivered before.
        """


def replica(name: str, cluster: Cluster) -> Replica:
    return Replica(name, {table: cluster.table(table) for table in (FEEDS, PROGRESS)})
