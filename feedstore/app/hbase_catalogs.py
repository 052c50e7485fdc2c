"""A catalog in HBase, as the configuration names it. Needs the extra `hbase`."""

import uuid
from collections.abc import Callable

from feedstore.catalog.hbase.reader import HBaseCatalogReader
from feedstore.catalog.hbase.store import HBaseCatalogStore
from feedstore.catalog.port import CatalogReader, CatalogStore
from feedstore.clocks import machine_ms
from feedstore.widecolumn.hbase import Addresses, HBaseCluster


class CatalogTables:
    """A catalog in the namespace of a cluster. clock: monotonic, in s. Raises ValueError for a url that cannot be
    read.
    """

    def __init__(self, url: str, catalog: str, clock: Callable[[], float]) -> None:
        Addresses.parse(url)
        self._url = url
        self._catalog = catalog
        self._clock = clock

    def reader(self) -> CatalogReader:
        return HBaseCatalogReader(self._opened(), self._catalog, self._clock)

    def store(self) -> CatalogStore:
        return HBaseCatalogStore(self._opened(), self._catalog, self._clock, machine_ms, lambda: uuid.uuid4().hex)

    def _opened(self) -> HBaseCluster:
        """Connections of its own: fetches do not wait for pages of feeds."""
        return HBaseCluster.open(self._url, [], check=False)
