"""A catalog of a cluster in a directory, as the configuration names it."""

import uuid
from collections.abc import Callable
from pathlib import Path

from feedstore.catalog.port import CatalogReader, CatalogStore
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.clocks import machine_ms


class CatalogDirectory:
    """A catalog of an embedded cluster: a directory next to the cluster's. clock: monotonic, in s."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock

    def reader(self) -> CatalogReader:
        return RocksCatalogReader(self._path, self._clock)

    def store(self) -> CatalogStore:
        return RocksCatalogStore(self._path, self._clock, machine_ms, lambda: uuid.uuid4().hex)
