"""Faults of clusters in HBase, on the local stack."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from deploy.local import Stack
from feedstore.app import config as configuration
from feedstore.following import FEEDS
from feedstore.following.witnesses import PARTS, ROWS
from feedstore.widecolumn.hbase import Addresses, HBaseCluster
from feedstore.widecolumn.progress import PROGRESS
from tests.cli.command import Cli
from tests.replicas.files import empty, spoil
from tests.replicas.rounds import COPIED_ALIVE, PUT_BACK, STATUS_S, Rounds
from tests.stack.own_home import own_home, remove_tables
from tests.widecolumn.hbase_master import Snapshots
from tests.widecolumn.hbase_regions import Regions

ON_DISK: Final = ("cut", "flipped")
"""What becomes of a file of a region, while its server is dead. Slow: the server is started again. None is deleted:
HBase takes the files that it finds for all that there were, and a disk that loses blocks still has the names.
"""
_TABLES: Final = {"feeds put back": (FEEDS,), "progress put back": (PROGRESS,)}
"""Which tables a fault puts back; both, if it is not named here."""


@contextmanager
def rounds(
    stack: Stack, home: Path, rng: random.Random, say: Callable[[str], None], status_s: float = STATUS_S
) -> Iterator[Rounds]:
    """Those of a new home with tables, topics and databases of its own."""
    with own_home(stack, home) as cli, closing(OnServers(cli, stack, rng)) as faults:
        yield Rounds(cli, faults, rng, say, status_s)


class OnServers:
    """rng: chooses the region. Close it: it has snapshots, and tables that only the right files let go."""

    kinds: Sequence[str] = (*PUT_BACK, COPIED_ALIVE, "emptied", "region emptied", *ON_DISK)

    def __init__(self, cli: Cli, stack: Stack, rng: random.Random) -> None:
        self._cli = cli
        self._stack = stack
        self._rng = rng
        self._taken: set[tuple[str, str]] = set()
        self._spoiled: list[tuple[str, Path, bytes]] = []
        self._left: list[str] = []
        """Urls under which a cluster was before."""

    def copy(self, cluster: str) -> None:
        """One table after the other, as an operator does it: nothing in HBase takes both at one moment."""
        tables = [FEEDS, PROGRESS]
        self._rng.shuffle(tables)
        for table in tables:
            self._forget(cluster, table)
            self._taken.add((cluster, table))
            self._snapshots(cluster).take(*self._named(cluster, table))

    def harm(self, fault: str, cluster: str) -> str:
        if fault in {*PUT_BACK, COPIED_ALIVE}:
            tables = _TABLES.get(fault, (FEEDS, PROGRESS))
            for table in tables:
                self._snapshots(cluster).restore(*self._named(cluster, table))
        elif fault == "emptied":
            with closing(HBaseCluster.open(self._url(cluster), [], check=False)) as opened:
                opened.administration.empty(FEEDS)
        elif fault in ON_DISK:
            return self._spoil(fault, cluster)
        else:
            part = self._rng.randrange(PARTS)
            stop = ROWS[part + 1] if part + 1 < PARTS else None
            with self._cli.ports(access="write") as ports:
                empty(ports.replicas[cluster].tables[FEEDS], ROWS[part], stop)
            return f"{fault} ({ROWS[part][0]:02x}..)"
        return fault

    def move(self, cluster: str) -> None:
        url = self._url(cluster)
        file = self._cli.home / configuration.FILE_NAME
        namespace = Addresses.parse(url).namespace
        file.write_text(file.read_text().replace(url, url.replace(namespace, f"{namespace}_{len(self._left)}")))
        self._left.append(url)

    def close(self) -> None:
        for cluster, table in sorted(self._taken):
            self._forget(cluster, table)
        for cluster in {cluster for cluster, _, _ in self._spoiled}:
            self._stack.kill(f"hbase-{cluster}")
        for _, file, content in reversed(self._spoiled):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        self._stack.up()
        for url in self._left:
            remove_tables(url)

    def _spoil(self, fault: str, cluster: str) -> str:
        Regions(self._url(cluster), FEEDS).flush()
        server = f"hbase-{cluster}"
        namespace = Addresses.parse(self._url(cluster)).namespace
        tables = self._stack.home / "data" / server / "root" / "data" / namespace
        self._stack.kill(server)
        file = self._rng.choice(sorted(tables.glob(f"{FEEDS}/*/feed/[0-9a-f]*")))
        self._spoiled.append((cluster, file, file.read_bytes()))
        spoil(file, fault, self._rng)
        self._stack.up()
        return f"{fault} a file of region {file.parent.parent.name}"

    def _forget(self, cluster: str, table: str) -> None:
        if (cluster, table) in self._taken:
            self._snapshots(cluster).delete(*self._named(cluster, table))
            self._taken.discard((cluster, table))

    def _snapshots(self, cluster: str) -> Snapshots:
        return Snapshots(("127.0.0.1", self._stack.port(f"hbase-{cluster}", "master")))

    def _named(self, cluster: str, table: str) -> tuple[str, str]:
        """The names of a table's snapshot, and of the table as HBase has it."""
        namespace = Addresses.parse(self._url(cluster)).namespace
        return f"{namespace}_{table}", f"{namespace}:{table}"

    def _url(self, cluster: str) -> str:
        clusters = configuration.load(self._cli.home, {}).clusters
        return next(each.url for each in clusters if each.name == cluster)
