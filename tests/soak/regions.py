"""What HBase, and those who operate it, do to the regions of its tables."""

from contextlib import ExitStack
from typing import Final

from deploy.local import Stack, hbase
from deploy.local.ports import LOOPBACK
from feedstore.app.config import Config
from feedstore.catalog.hbase.tables import CATALOGS
from feedstore.following import FEEDS
from feedstore.widecolumn.progress import PROGRESS
from tests.stack import homes
from tests.widecolumn.hbase_regions import Regions

_PLACES: Final = {
    f"{table}-{cluster}": (table, cluster) for table in (FEEDS, PROGRESS, CATALOGS) for cluster in homes.CLUSTERS
}
NAMES: Final = tuple(_PLACES)
"""A table of a cluster each."""
WAYS: Final = ("close", "compact")


class TableRegions:
    """close: the first region of a table is away. compact: all files are rewritten into one, region by region."""

    def __init__(self, stack: Stack, config: Config) -> None:
        self._of = {name: Regions(config.cluster(cluster).url, table) for name, (table, cluster) in _PLACES.items()}
        self._masters = {
            name: (LOOPBACK, stack.port(hbase.cluster_name(cluster), "master"))
            for name, (_, cluster) in _PLACES.items()
        }
        self._closed: dict[str, ExitStack] = {}

    def begin(self, name: str, how: str) -> None:
        if how == "close":
            self._closed[name] = ExitStack()
            self._closed[name].enter_context(self._of[name].one_away(self._masters[name]))
        else:
            self._of[name].flush()
            self._of[name].compact(major=True)

    def end(self, name: str, how: str) -> None:
        if how == "close":
            self._closed.pop(name).close()
