"""The place of a cluster in HBase. Needs the extra `hbase`."""

from collections.abc import Sequence
from contextlib import closing

from feedstore.app.places import Prepare, replica
from feedstore.following import FEEDS
from feedstore.metering import Meter
from feedstore.widecolumn import Access, Cluster, Table
from feedstore.widecolumn.hbase import Addresses, HBaseCluster, schema
from feedstore.widecolumn.hbase.schema import SchemaChanges, TableDifference
from feedstore.widecolumn.progress import PROGRESS


class HBasePlace:
    """A cluster behind its Thrift gateways. direct: as in `HBaseCluster.open`.

    Raises ValueError for a url that cannot be read.
    """

    def __init__(self, url: str, name: str, direct: Meter | None = None) -> None:
        Addresses.parse(url)
        self._url = url
        self._name = name
        self._direct = direct

    def table(self, name: str) -> str:
        """A table's name in HBase, with its namespace."""
        return f"{Addresses.parse(self._url).namespace}:{name}"

    def exists(self) -> bool:
        with closing(self._opened([])) as cluster:
            return cluster.administration.exists(FEEDS)

    def create(self, tables: Sequence[Table], prepare: Prepare) -> None:
        # The table of the feeds is made last: if it exists, the cluster counts as there.
        ordered = sorted(tables, key=lambda table: table.name == FEEDS)
        with closing(self._opened(tables)) as cluster:
            if cluster.administration.exists(FEEDS):
                return
            schema.apply(cluster.administration, [schema.definition(table) for table in ordered[:-1]])
            prepare(replica(self._name, cluster))
            schema.apply(cluster.administration, [schema.definition(ordered[-1])])

    def remove(self) -> None:
        with closing(self._opened([])) as cluster:
            for name in (FEEDS, PROGRESS):
                cluster.administration.drop(name)

    def open(self, tables: Sequence[Table], access: Access) -> Cluster:
        """Opens the cluster. access: an owner checks the tables first, and refuses settings that would break the rules.

        Raises UnsafeTableError: an UnavailableError; the message names each setting.
        """
        return self._opened(tables, check=access == "write")

    def apply(self, tables: Sequence[Table]) -> SchemaChanges:
        """Makes the missing tables, and corrects the trim of those that exist (`schema.apply`)."""
        with closing(self._opened([])) as cluster:
            return schema.apply(cluster.administration, [schema.definition(table) for table in tables])

    def differences(self, tables: Sequence[Table]) -> list[TableDifference]:
        """All differences between the tables and what they must be."""
        with closing(self._opened([])) as cluster:
            return schema.differences(cluster.administration, [schema.definition(table) for table in tables])

    def _opened(self, tables: Sequence[Table], *, check: bool = False) -> HBaseCluster:
        return HBaseCluster.open(self._url, tables, check=check, name=self._name, direct=self._direct)
