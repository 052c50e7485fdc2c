"""Flushes and compactions at the moment that a test wants them.

No gateway offers either, so this asks the region servers themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from feedstore.widecolumn.hbase import HBaseCluster
from tests.cli.command import eventually
from tests.widecolumn.hbase_wire import TIMEOUT_S, Ask, conversation, fields, number, text


@dataclass(frozen=True)
class Region:
    """name: as hbase:meta has it. server: where it is."""

    name: bytes
    server: tuple[str, int]


class Regions:
    """The regions of a table, looked up again for each call: they move."""

    def __init__(self, url: str, table: str) -> None:
        self._url = url
        self._table = table

    def flush(self) -> None:
        """What is in memory goes to files."""
        for region in self.all():
            with conversation(region.server, "AdminService") as ask:
                ask("FlushRegion", text(1, _specifier(region)))

    def compact(self, *, major: bool) -> None:
        """Rewrites all files into one (major), or as many as HBase finds worth it, and waits for that."""
        for region in self.all():
            with conversation(region.server, "AdminService") as ask:
                # Flushes begin some by themselves, and no other compaction takes the files of one that runs.
                _compacts_no_more(ask, region)
                ask("CompactRegion", text(1, _specifier(region)) + number(2, int(major)))
                _compacts_no_more(ask, region)

    def files(self) -> int:
        """How many files there are, over all regions."""
        found = 0
        for region in self.all():
            with conversation(region.server, "AdminService") as ask:
                answer = ask("GetStoreFile", text(1, _specifier(region)) + text(2, b"feed"))
                found += sum(field == 1 for field, _ in fields(answer))
        return found

    @contextmanager
    def one_away(self, master: tuple[str, int]) -> Iterator[bytes]:
        """The first region is closed, and stays so until the end; gives its name."""
        region = self.all()[0]
        with conversation(master, "MasterService") as ask:
            ask("UnassignRegion", text(1, _specifier(region)))
        try:
            yield region.name
        finally:
            with conversation(master, "MasterService") as ask:
                ask("AssignRegion", text(1, _specifier(region)))

    def move(self, region: Region, master: tuple[str, int]) -> None:
        """Takes a region to another server, which HBase chooses, and waits for that."""
        with conversation(master, "MasterService") as ask:
            ask("MoveRegion", text(1, _specifier(region)))

    def split(self, region: Region, at: bytes, master: tuple[str, int]) -> None:
        """Divides a region before a row, and waits until its two halves are open."""
        there = len(self.all())
        table, _, rest = region.name.partition(b",")
        start, _, last = rest.rpartition(b",")
        namespace, _, qualifier = table.partition(b":")
        described = number(1, int(last.partition(b".")[0])) + text(2, text(1, namespace) + text(2, qualifier))
        end = min((_start(each) for each in self.all() if _start(each) > start), default=b"")
        with conversation(master, "MasterService") as ask:
            ask("SplitRegion", text(1, described + text(3, start) + text(4, end)) + text(2, at))
        eventually(lambda: len(self.all()) == there + 1, f"the halves of {region.name!r}", TIMEOUT_S)

    @contextmanager
    def scanner(self, start: bytes, stop: bytes) -> Iterator[Callable[[int], list[bytes]]]:
        """Opens a scanner on the region server, of rows in one region. Gives what reads the keys of its next rows, at
        most so many; when there are no more, the server closes it.
        """
        region = [each for each in self.all() if _start(each) <= start][-1]
        with conversation(region.server, "ClientService") as ask:
            opened = ask("Scan", text(1, _specifier(region)) + text(2, text(3, start) + text(4, stop)) + number(4, 0))
            scanner = number(3, int(dict(fields(opened))[2]))

            def keys(count: int) -> list[bytes]:
                answer = fields(ask("Scan", scanner + number(4, count)))
                cells = [dict(fields(result))[1] for field, result in answer if field == 5]
                return [dict(fields(cell))[1] for cell in cells]

            yield keys

    def all(self) -> Sequence[Region]:
        """Those that are open."""
        with closing(HBaseCluster.open(self._url, [], check=False)) as cluster:
            found = [Region(each.name, each.server) for each in cluster.regions(self._table) if each.server]
        assert found, self._table
        return found


def _start(region: Region) -> bytes:
    return region.name.partition(b",")[2].rpartition(b",")[0]


def _specifier(region: Region) -> bytes:
    return number(1, 1) + text(2, region.name)


def _compacts_no_more(ask: Ask, region: Region) -> None:
    def is_over() -> bool:
        info = dict(fields(ask("GetRegionInfo", text(1, _specifier(region)) + number(2, 1))))
        return not info.get(2, 0)  # compaction_state: 0 is none

    eventually(is_over, f"the end of the compaction of {region.name!r}", TIMEOUT_S)
