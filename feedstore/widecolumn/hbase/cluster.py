"""An HBase cluster behind its Thrift gateways."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

from feedstore.background import on_a_thread
from feedstore.lazy import closed_on_error
from feedstore.metering import Meter
from feedstore.widecolumn.hbase import regions
from feedstore.widecolumn.hbase.addresses import Address, Addresses
from feedstore.widecolumn.hbase.direct import DirectReads, RegionServers
from feedstore.widecolumn.hbase.gateways import Gateways
from feedstore.widecolumn.hbase.parallel import ParallelWriter
from feedstore.widecolumn.hbase.records import RecordTable
from feedstore.widecolumn.hbase.regions import TableRegion
from feedstore.widecolumn.hbase.regionserver import RegionServerConnection
from feedstore.widecolumn.hbase.schema import definition, refuse_unsafe
from feedstore.widecolumn.hbase.sockets import DeadlineSocket
from feedstore.widecolumn.hbase.store import HBaseStore
from feedstore.widecolumn.hbase.tables import Tables
from feedstore.widecolumn.hbase.thrift2 import Thrift2Connection, structs
from feedstore.widecolumn.port import Table

_REGIONS_AT_ONCE: Final = 1_000

C = TypeVar("C")


class HBaseCluster:
    """The tables of one cluster, on connections that they share. Build it with `open`. Thread-safe."""

    def __init__(self, addresses: Addresses, tables: Sequence[Table], name: str | None, direct: Meter | None) -> None:
        size, connect_s = addresses.connections, addresses.connect_ms / 1_000
        connect = _connecting(Thrift2Connection, connect_s)
        clock = time.monotonic  # the sockets use it as well
        whose = "" if name is None else f"cluster {name}: "
        name = name or str(addresses.thrift2[0])
        self._thrift2 = Gateways(addresses.thrift2, connect, size, clock, whose)
        self.administration = Tables(self._thrift2, addresses.namespace)
        self._addresses = addresses
        self._parallel = ParallelWriter(size)
        self._servers = RegionServers(_connecting(RegionServerConnection, connect_s), size, clock)
        self._stores = {
            table.name: HBaseStore(
                table,
                addresses,
                self._thrift2,
                self._parallel,
                None if direct is None else self._direct(table, name, direct),
            )
            for table in tables
        }

    @classmethod
    def open(
        cls, url: str, tables: Sequence[Table], *, check: bool, name: str | None = None, direct: Meter | None = None
    ) -> Self:
        """Opens a cluster.

        check: whether to look at the tables' definitions first (two round trips a table).
        name: of the cluster, for errors, the log and the meter; None: errors name only gateways, and the others the
            first gateway.
        direct: counts the reads of rows, which region servers are asked for, unless the url says otherwise; None: rows
            are read through gateways. Only for pages: a region server that has lost a region without knowing it
            answers with what is old, and no decision may follow from that.

        Raises:
            ValueError: the url, or two tables of one name.
            UnsafeTableError: checked, and a table is defined so that it would break the port's promises.
            UnavailableError: checked, and the cluster does not answer, or a table is missing.
        """
        if len({table.name for table in tables}) != len(tables):
            raise ValueError(f"tables: expected different names, got {[table.name for table in tables]}")
        addresses = Addresses.parse(url)
        cluster = cls(addresses, tables, name, direct if addresses.reads == "direct" else None)
        if check:
            with closed_on_error(cluster):
                refuse_unsafe(cluster.administration, [definition(table) for table in tables])
        return cluster

    def table(self, name: str) -> HBaseStore:
        """Raises KeyError for a table that the cluster was not opened with."""
        return self._stores[name]

    def records(self, name: str) -> RecordTable:
        """A table of records, which may be missing. It is closed with the cluster."""
        return RecordTable(name, self._addresses, self._thrift2, self._parallel)

    def regions(self, name: str) -> list[TableRegion]:
        """The regions of a table now, in the order of their rows; none if it is not there. Raises UnavailableError."""
        namespace = self._addresses.namespace
        table = (name if namespace == "default" else f"{namespace}:{name}").encode()
        start, stop = regions.bounds(table)
        columns = [structs.TColumn(regions.FAMILY, each) for each in (regions.SERVER, regions.STATE)]
        found: list[tuple[bytes, dict[bytes, bytes]]] = []
        while True:
            scan = structs.TScan(start, stop, columns, limit=_REGIONS_AT_ONCE)
            some = self._thrift2.call(partial(_scanned, scan=scan), self._addresses.read_ms)
            found += [(each.row, {cell.qualifier: cell.value for cell in each.columnValues}) for each in some]
            if len(some) < _REGIONS_AT_ONCE:
                return regions.regions(table, found)
            start = found[-1][0] + b"\0"

    def server_of_catalog(self) -> Address:
        """Which server has the catalog of regions (hbase:meta) now. Raises UnavailableError."""
        found = self._thrift2.call(
            lambda to: to.tables.getRegionLocation(regions.CATALOG, b"", True), self._addresses.read_ms
        ).serverName
        return Address(found.hostName, found.port)

    def close(self) -> None:
        self._parallel.close()
        self._servers.close()
        self._thrift2.close()

    def _direct(self, table: Table, name: str, meter: Meter) -> DirectReads:
        look_up, within_ms = partial(self.regions, table.name), self._addresses.read_ms
        background = on_a_thread("hbase-regions")
        return DirectReads(name, table, look_up, self._servers, within_ms, time.monotonic, background, meter)


def _connecting(kind: Callable[[DeadlineSocket], C], within_s: float) -> Callable[[Address, float], C]:
    """The function with which a pool opens connections of a kind."""
    return lambda to, left_s: kind(DeadlineSocket.connect(to, min(left_s, within_s)))


def _scanned(to: Thrift2Connection, scan: Any) -> Any:
    return to.records.getScannerResults(regions.CATALOG, scan, _REGIONS_AT_ONCE)
