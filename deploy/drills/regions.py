"""Where the regions of the feeds are, as hbase:meta has it."""

from contextlib import closing
from dataclasses import dataclass

from feedstore.following import FEEDS
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.addresses import Address


@dataclass(frozen=True)
class Region:
    """start, end: row keys, empty at the ends of the table. server: the host, empty while it is nowhere."""

    start: bytes
    end: bytes
    server: str

    def holds(self, row: bytes) -> bool:
        return self.start <= row and (not self.end or row < self.end)


def regions(url: str) -> list[Region]:
    """The regions of the feeds, in the order of their rows; none without a table. Raises UnavailableError."""
    with closing(HBaseCluster.open(url, [], check=False)) as cluster:
        found = cluster.regions(FEEDS)
    starts = [*(each.start for each in found), b""]
    return [Region(each.start, end, _host(each.server)) for each, end in zip(found, starts[1:], strict=True)]


def server_of_meta(url: str) -> str:
    """The host that holds hbase:meta. Raises UnavailableError."""
    with closing(HBaseCluster.open(url, [], check=False)) as cluster:
        return _host(cluster.server_of_catalog())


def _host(server: Address | None) -> str:
    return "" if server is None else server.host.partition(".")[0]
