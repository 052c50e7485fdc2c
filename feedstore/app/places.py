"""Where a cluster is: what each kind of place can do."""

from collections.abc import Callable, Sequence
from typing import Protocol

from feedstore.following import FEEDS
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import Access, Cluster, Table
from feedstore.widecolumn.progress import PROGRESS

Prepare = Callable[[Replica], None]
"""Writes into a new cluster before it counts as there."""


class ClusterPlace(Protocol):
    """Where one cluster is, whether it is there or not. Every method may raise UnavailableError."""

    def exists(self) -> bool:
        """Whether there is anything at all where the cluster must be. Raises UnavailableError: it cannot be said."""
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


def replica(name: str, cluster: Cluster) -> Replica:
    """The tables of a cluster."""
    return Replica(name, {table: cluster.table(table) for table in (FEEDS, PROGRESS)})
