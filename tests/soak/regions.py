"""What HBase, and those who operate it, do to the regions of the feeds."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from deploy.local import Stack, hbase
from deploy.local.ports import LOOPBACK
from feedstore.app.config import Config
from feedstore.following import FEEDS
from tests.stack import homes
from tests.widecolumn.hbase_regions import Regions

NAMES: Final = tuple(f"regions-{cluster}" for cluster in homes.CLUSTERS)
WAYS: Final = ("close", "compact")


class FeedRegions:
    """close: the first region of the table is away. compact: all files are rewritten into one, region by region."""

    def __init__(self, stack: Stack, config: Config) -> None:
        self._of = {name: Regions(config.cluster(cluster).url, FEEDS) for name, cluster in _clusters().items()}
        self._masters = {
            name: (LOOPBACK, stack.port(hbase.cluster_name(cluster), "master")) for name, cluster in _clusters().items()
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


def _clusters() -> Mapping[str, str]:
    return dict(zip(NAMES, homes.CLUSTERS, strict=True))
