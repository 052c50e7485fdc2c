"""The local stack under measurement: homes on it whose tables, topics and databases have names of their own."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import psutil

from bench.context import Context
from bench.deliveries import CAP
from bench.mysql_follows import dropped
from bench.native import Native
from deploy.local import Stack
from feedstore.app.clusters import place
from feedstore.app.config import Config
from feedstore.following import FEEDS, feed_table
from feedstore.follows import mysql
from feedstore.follows.mysql.connections import MySQLConnection, PoolBounds
from feedstore.metering import UNCOUNTED
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn.hbase import Addresses, HBaseCluster
from feedstore.widecolumn.hbase.schema import definition
from feedstore.widecolumn.progress import PROGRESS, progress_table
from workers.app import wiring
from workers.app.home import create
from workers.following.topics import TOPICS
from workers.queue.kafka.queue import connect

PARTITIONS = 4
ROWS_AT_ONCE = 5_000
PURGE_MS = 432_000_000
SLACK = CAP // 4


@dataclass(frozen=True)
class Servers:
    """stack: it runs. native: HBase's own client on cluster a."""

    stack: Stack
    native: Native

    def url(self, cluster: str, namespace: str) -> str:
        return f"hbase://127.0.0.1:{self.stack.port(f'thrift2-{cluster}')}/{namespace}"

    def database_url(self, database: str = "") -> str:
        """The URL of a database of MariaDB."""
        return (
            f"mysql://feed@127.0.0.1:{self.stack.port('mariadb')}/{database}?password_file={self.stack.password_file}"
        )

    def flush(self, table: str) -> None:
        """What both clusters hold in memory of a table goes to files: a table with much in memory costs HBase twice as
        much a cell. table: with its namespace.
        """
        self.native.flush(table)
        self.native.flush(table, self.stack.port("hbase-b", "zookeeper"))

    def processor_seconds(self) -> Mapping[str, float]:
        """The processor time that each server and HBase's own client have taken since they started."""
        pids = {state.name: state.pid for state in self.stack.status()} | {"native": self.native.pid}
        taken = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items() if pid is not None}
        return {name: each.user + each.system for name, each in taken.items()}

    def files(self, table: str) -> int:
        """The bytes of a table's HFiles on cluster a, right after a major compaction. table: with its namespace."""
        return sum(file.stat().st_size for file in self._newest(table))

    def rewrite(self, table: str) -> float:
        """Compacts what a table on cluster a has in files, into one a region; the seconds that took."""
        before = self._newest(table)
        seconds = self.native.rewrite(table)
        assert before.isdisjoint(self._newest(table)), "a region was not compacted"
        return seconds

    def _newest(self, table: str) -> set[Path]:
        """What was compacted away stays for two minutes, so only the newest file of each region counts."""
        data = self.stack.home / "data" / "hbase-a" / "root" / "data" / Path(*table.split(":"))
        newest: dict[Path, tuple[int, Path]] = {}
        for file in data.glob("*/feed/*"):
            found = (file.stat().st_mtime_ns, file)
            newest[file.parent] = max(found, newest.get(file.parent, found))
        return {file for _, file in newest.values()}


@contextmanager
def home(servers: Servers, context: Context) -> Iterator[Config]:
    """A home on all the servers; its tables, topics and databases are gone at the end."""
    folder = context.folder("home")
    name = f"bench{os.getpid()}x{folder.name.rpartition('-')[2]}"
    shards = [servers.database_url(f"follows_{name}_{shard}") for shard in range(2)]
    queue = f"kafka://127.0.0.1:{servers.stack.port('kafka')}?prefix={name}."
    replaced = {
        'url = "rocksdb:data/a"': f'url = "{servers.url("a", name)}"',
        'url = "rocksdb:data/b"': f'url = "{servers.url("b", name)}"',
        'shards = ["sqlite:data/follows.db"]': f"shards = {json.dumps(shards)}",
        'url = "embedded:data/queue.db"': f'url = "{queue}"\nreplication = 1',
        "partitions = 1 ": f"partitions = {PARTITIONS} ",
    }
    config = create(folder, {}, replaced)
    try:
        yield config
    finally:
        for cluster in config.clusters:
            place(config, cluster.name).remove()
        _drop_topics(config)
        dropped([mysql.server(url, config.home, os.environ) for url in config.shards])
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replica(
    servers: Servers,
    namespace: str,
    family: Mapping[str, str] | None = None,
    *,
    cluster: str = "a",
    trimmed: bool = True,
) -> Iterator[Replica]:
    """The two tables of a cluster in a namespace of their own, without a home; gone at the end.

    family: settings of the feeds' cells that differ from the schema. trimmed: whether compactions trim the feeds.
    """
    feeds, progress = feed_table(CAP, SLACK, PURGE_MS), progress_table(PURGE_MS)
    wanted = definition(feeds if trimmed else dataclasses.replace(feeds, trim=None))
    families = {name: {**settings, **(family or {})} for name, settings in wanted.families.items()}
    url = servers.url(cluster, namespace)
    with closing(HBaseCluster.open(url, [feeds, progress], check=False, direct=UNCOUNTED)) as opened:
        tables = opened.administration
        tables.create_namespace()
        try:
            tables.create(definition(progress))
            tables.create(dataclasses.replace(wanted, families=families))
            yield Replica(cluster, {table: opened.table(table) for table in (FEEDS, PROGRESS)})
        finally:
            for name in (FEEDS, PROGRESS):
                tables.drop(name)
            tables.drop_namespace()


def feeds_of(config: Config, cluster: str) -> str:
    """The name of a cluster's table of feeds, as HBase has it."""
    return f"{Addresses.parse(config.cluster(cluster).url).namespace}:{FEEDS}"


def _drop_topics(config: Config) -> None:
    address = wiring.kafka_address(config)
    with closing(connect(address)) as admin:
        admin.delete_topics([address.named(topic.name) for topic in TOPICS])


@contextmanager
def database(servers: Servers, name: str, tables: Sequence[str]) -> Iterator[MySQLConnection]:
    """A database of its own in MariaDB; gone at the end. tables: the statements that make them."""
    server = mysql.server(servers.database_url(name), Path(), os.environ)
    with closing(MySQLConnection(server.without_database(), PoolBounds(), None)) as connection:
        connection.run([f"CREATE DATABASE {name}"])
        try:
            connection.run([f"USE {name}", *tables])
            yield connection
        finally:
            connection.run([f"DROP DATABASE {name}"])


def insert(connection: MySQLConnection, table: str, rows: Iterable[tuple[int, ...]]) -> None:
    left = iter(rows)
    while some := ",".join(map(str, islice(left, ROWS_AT_ONCE))):
        connection.run([f"INSERT INTO {table} VALUES {some}"])
