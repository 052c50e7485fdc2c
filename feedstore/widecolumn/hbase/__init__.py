"""HBase: pages from its region servers, all else through its Thrift2 gateways.

No type of Thrift leaves this package. It needs the extra `hbase`.
"""

from feedstore.widecolumn.hbase.addresses import Addresses
from feedstore.widecolumn.hbase.cluster import HBaseCluster
from feedstore.widecolumn.hbase.records import Record, RecordTable
from feedstore.widecolumn.hbase.store import HBaseStore
from feedstore.widecolumn.hbase.tables import TableDefinition, Tables

__all__ = [
    "Addresses",
    "HBaseCluster",
    "HBaseStore",
    "Record",
    "RecordTable",
    "TableDefinition",
    "Tables",
]
