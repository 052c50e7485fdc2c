"""Reads that region servers answer themselves, without a gateway in between.

A gateway takes as long for a page as HBase, and it is one more machine that can fail. So a reader looks up where the
regions of its table are, and asks their servers. Whatever they do not answer with cells (because a region moved, or a
server is away or cannot be reached from here) is asked of the gateways, and the region is left to them until it has
been looked up again. No read waits for a look-up: threads of their own do them.
"""

import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from feedstore.background import Background, BackgroundLook
from feedstore.metering import Meter
from feedstore.widecolumn import metrics
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.gateways import Gateways
from feedstore.widecolumn.hbase.pool import BusyError
from feedstore.widecolumn.hbase.regions import TableRegion
from feedstore.widecolumn.hbase.regionserver import RegionServerConnection
from feedstore.widecolumn.port import Table, UnavailableError, WillNotError

_log = structlog.get_logger()

LOOK_S, LOOK_S_MAX = 1.0, 30.0
"""How long the next look-up waits after one; doubled while some regions cannot be had, up to the second. After that, a
read begins one even if all seems well: a server that has lost its regions without knowing it answers as before.
"""
ANSWERS_WITHIN_S: Final = 1.0
"""A server that does not answer a look-up within this time is left to the gateways."""
BLAMED_FROM_S: Final = 0.1
"""A server that had less time than this for a read is not given up: if there are too many reads, they begin late."""
SHARE: Final = 0.5
"""The share of a read's time that a region server that hangs gets. The rest is for the gateways."""


class RegionServers:
    """The region servers of a cluster that were met. Thread-safe.

    connect: opens a connection; raises OSError. size: the most connections to each server. clock: as the sockets wait.
    """

    def __init__(
        self,
        connect: Callable[[Address, float], RegionServerConnection],
        size: int,
        clock: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._size = size
        self._clock = clock
        self._lock = threading.Lock()
        self._met: dict[Address, Gateways[RegionServerConnection]] = {}
        self._needed: dict[str, frozenset[Address]] = {}
        """The servers that the reads of each table may ask."""
        self.is_closed = False

    def at(self, server: Address) -> Gateways[RegionServerConnection]:
        with self._lock:
            if self.is_closed:
                raise UnavailableError("the cluster is closed")
            if server not in self._met:
                self._met[server] = Gateways([server], self._connect, self._size, self._clock)
            return self._met[server]

    def need(self, table: str, servers: Iterable[Address]) -> None:
        """Notes which servers the reads of a table may ask from now on, and closes the connections to those that no
        table needs: a server that comes back under another name would leave its sockets here.
        """
        with self._lock:
            self._needed[table] = frozenset(servers)
            needed = frozenset().union(*self._needed.values())
            left = [self._met.pop(server) for server in [*self._met] if server not in needed]
        for each in left:
            each.close()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            met = list(self._met.values())
        for each in met:
            each.close()


class DirectReads:
    """The direct reads of one table. Thread-safe.

    cluster: names it in the log and to the meter. look_up: the regions of the table, in the order of their rows; raises
    UnavailableError. within_ms: how long a read may take, if its caller does not say. background: runs a look-up
    elsewhere.
    """

    def __init__(
        self,
        cluster: str,
        table: Table,
        look_up: Callable[[], Sequence[TableRegion]],
        servers: RegionServers,
        within_ms: int,
        clock: Callable[[], float],
        background: Background,
        meter: Meter,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._log = _log.bind(cluster=cluster, table=table.name)
        self._look_up = look_up
        self._servers = servers
        self._within_s = within_ms / 1_000
        self._clock = clock
        self._looks = BackgroundLook(
            self._look, background, lambda error: self._log.warning("hbase.not_looked_up", error=error)
        )
        self._regions: list[TableRegion] = []
        self._wait_s = LOOK_S
        self._look_again_s = -math.inf
        self._look_due_s = math.inf
        self._meter = meter
        for by in metrics.READS.labels[1].values:  # from the beginning: the first of a kind is an increase, too
            meter.add(metrics.READS, 0, cluster, by)

    def cells(
        self, row: bytes, after: bytes | None = None, limit: int | None = None, deadline_s: float | None = None
    ) -> list[tuple[bytes, int]] | None:
        """As `WideColumnStore.read`, with the timestamp of each column. None: the gateways must be asked."""
        found = self._found(row, after, limit, deadline_s)
        self._meter.add(metrics.READS, 1, self._cluster, "gateway" if found is None else "region_server")
        return found

    def _found(
        self, row: bytes, after: bytes | None, limit: int | None, deadline_s: float | None
    ) -> list[tuple[bytes, int]] | None:
        if self._servers.is_closed:  # the gateways are closed as well, and say so
            return None
        if self._clock() >= self._look_due_s:
            self._look_soon()
        regions = self._regions
        at = bisect_right(regions, row, key=_start) - 1
        region = regions[at] if at >= 0 else None
        if region is None or region.server is None:
            self._look_soon()
            return None
        now_s = self._clock()
        share_s = SHARE * (self._within_s if deadline_s is None else min(self._within_s, deadline_s - now_s))
        if share_s <= 0:
            return None
        try:
            return self._asked(region.name, region.server, row, after, limit, now_s + share_s)
        except UnavailableError as error:
            if isinstance(error, WillNotError) or (share_s >= BLAMED_FROM_S and not isinstance(error, BusyError)):
                self._regions = self._left(self._regions, region, error)  # which may have been looked up meanwhile
                self._look_soon()
            return None

    def _asked(
        self, region: bytes, server: Address, row: bytes, after: bytes | None, limit: int | None, deadline_s: float
    ) -> list[tuple[bytes, int]]:
        """Raises WillNotError if the server answers that it will not, else UnavailableError."""
        column_bytes = self._table.column_bytes
        within_ms = math.ceil(1_000 * (deadline_s - self._clock()))
        return self._servers.at(server).call(
            lambda to: to.cells(region, row, after, limit, column_bytes), within_ms, deadline_s=deadline_s
        )

    def _look_soon(self) -> None:
        """Begins a look-up, unless one is under way or has just ended. It does not wait, and it does not raise."""
        if self._clock() >= self._look_again_s:
            self._looks.begin()

    def _look(self) -> None:
        before = self._regions
        try:
            found = list(self._look_up())
            # Before they are asked: a look at another table must not close their connections meanwhile.
            self._servers.need(self._table.name, _servers(self._regions) | _servers(found))
            # Each is asked something, by which it shows that it can be reached from here, and answers.
            for server, region in {each.server: each for each in found if each.server is not None}.items():
                until_s = self._clock() + ANSWERS_WITHIN_S
                try:
                    self._asked(region.name, server, region.start or b"\0", None, 1, until_s)
                except BusyError:  # it is asked all the time
                    continue
                except UnavailableError as error:
                    found = self._left(found, region, error)
            self._regions = found
            self._servers.need(self._table.name, _servers(found))
        except UnavailableError as error:  # some of those that are known may still be had
            self._log.info("hbase.regions_not_found", error=str(error))
        finally:
            regions = self._regions
            away = sum(each.server is None for each in regions)
            if regions and not away:
                self._wait_s = LOOK_S
            else:
                self._wait_s = min(LOOK_S_MAX, 2 * self._wait_s)
            now_s = self._clock()
            self._look_again_s, self._look_due_s = now_s + self._wait_s, now_s + LOOK_S_MAX
            if regions != before:
                self._log.info("hbase.regions", regions=len(regions), left_to_gateways=away)

    def _left(self, regions: Sequence[TableRegion], region: TableRegion, error: UnavailableError) -> list[TableRegion]:
        """The regions after a failed read of one of them: those that it concerns are left to the gateways."""
        if isinstance(error, WillNotError):  # the server answered: only this region is not as it was
            self._log.info("hbase.region_lost", region=region.name.decode("latin-1"), error=str(error))
            return [each._replace(server=None) if each == region else each for each in regions]
        self._log.info("hbase.region_server_lost", server=str(region.server), error=str(error))
        return [each._replace(server=None) if each.server == region.server else each for each in regions]


def _servers(regions: Iterable[TableRegion]) -> set[Address]:
    return {each.server for each in regions if each.server is not None}


def _start(region: TableRegion) -> bytes:
    return region.start
