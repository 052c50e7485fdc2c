"""A cluster that is opened when it is first used. If that fails, the next use tries again."""

from collections.abc import Callable
from typing import Any, cast

from feedstore.lazy import Lazy
from feedstore.widecolumn.port import Cluster, UnavailableError, WideColumnStore


class LazyCluster(Lazy[Cluster]):
    """A cluster that may not be there yet: each call opens it, or raises the UnavailableError that opening raised.

    So a reader fails over, and a writer waits, just as if an open cluster had gone away. Thread-safe.
    """

    def __init__(self, opener: Callable[[], Cluster]) -> None:
        super().__init__(opener, lambda: UnavailableError("the cluster is closed"))

    def table(self, name: str) -> WideColumnStore:
        return cast("WideColumnStore", _LazyTable(self, name))


class _LazyTable:
    """A table of the cluster. Each method opens the cluster, if it is not open, and is then the table's own."""

    def __init__(self, cluster: LazyCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def __getattr__(self, call: str) -> Any:
        """Looks up a method at its first use, and keeps the opened table's own: later calls cost nothing extra."""
        found = getattr(self._cluster.opened().table(self._name), call)
        setattr(self, call, found)
        return found
