"""What requests to HBase have in common, and the filter of a page. Pure: no connection is needed."""

from collections.abc import Mapping

from feedstore.widecolumn.hbase.addresses import Sync
from feedstore.widecolumn.hbase.protobuf import number, text

FAMILY = b"feed"

# HBase's names for its log in the memory of the servers that get it (hflush), and on their disks (hsync). Each mutation
# says which, because somebody else may change the default of a table, or of a server.
DURABILITY: Mapping[Sync, int] = {"memory": 3, "disk": 4}  # SYNC_WAL, FSYNC_WAL
DELETE_COLUMNS = 1

_RANGE_FILTER = b"org.apache.hadoop.hbase.filter.ColumnRangeFilter"


def columns_after(column: bytes) -> bytes:
    """The filter that passes columns strictly after one, as HBase's own protobuf. Unlike its filter language, protobuf
    carries any bytes, and the region server seeks to the column instead of walking there.
    """
    column_range = text(1, column) + number(2, 0)  # the lower end, exclusive; no upper end
    return text(1, _RANGE_FILTER) + text(2, column_range)
