"""Counts of a catalog's reads, for the metrics."""

import threading
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Took(NamedTuple):
    """How many fetches there were, and how long they took together."""

    fetches: int = 0
    seconds: float = 0.0


@dataclass
class CatalogCounts:
    """Counts since the catalog was opened.

    Each key that was asked for is one of: hit (its record was held), stale (its record was held, but had expired, and
    the store did not answer), fetched, joined (fetched by another batch that had begun before), missing (no record, or
    no answer). source: missing keys that the caller then looked for in the source itself.

    fetches: calls of the store. failed_fetches: how many of these failed. took: the others, by the cluster that
    answered. updates: how many updates replaced an entry.
    """

    hit: int = 0
    stale: int = 0
    fetched: int = 0
    joined: int = 0
    missing: int = 0
    source: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    took: dict[str, Took] = field(default_factory=dict)
    updates: int = 0

    @property
    def asked(self) -> int:
        """How many keys were asked for."""
        return self.hit + self.stale + self.fetched + self.joined + self.missing


class CatalogCounting:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = CatalogCounts()

    def batch(self, *, hit: int, missing: int = 0, stale: int = 0, fetched: int = 0, joined: int = 0) -> None:
        """Counts the keys of a batch that has its result."""
        with self._lock:
            self._counts.hit += hit
            self._counts.missing += missing
            self._counts.stale += stale
            self._counts.fetched += fetched
            self._counts.joined += joined

    def fetched(self, cluster: str | None, took_s: float) -> None:
        """Counts a call of the store that has ended. cluster: the one that answered; None: the call failed."""
        with self._lock:
            counts = self._counts
            counts.fetches += 1
            if cluster is None:
                counts.failed_fetches += 1
            else:
                before = counts.took.get(cluster, Took())
                counts.took[cluster] = Took(before.fetches + 1, before.seconds + took_s)

    def updated(self) -> None:
        with self._lock:
            self._counts.updates += 1

    def source(self, keys: int) -> None:
        with self._lock:
            self._counts.source += keys

    def counts(self) -> CatalogCounts:
        with self._lock:
            return replace(self._counts, took=dict(self._counts.took))
