"""A connection to a Thrift1 gateway, for scans: happybase on our own socket and thriftpy2's compiled codec.

happybase's sockets wait for each byte again and its codec is the one written in Python; both are public attributes
of its `Connection`, so they are replaced.
"""

from typing import Any

import happybase
from Hbase_thrift import Hbase, IllegalArgument
from Hbase_thrift import IOError as HBaseIOError
from thriftpy2.thrift import TApplicationException, TClient

from feedstore.widecolumn.hbase import codec
from feedstore.widecolumn.hbase.encoding import FAMILY
from feedstore.widecolumn.hbase.gateways import AnsweredError
from feedstore.widecolumn.hbase.sockets import DeadlineSocket

_COLUMN_AT = len(FAMILY) + 1


class Thrift1Connection:
    """One connection of happybase."""

    def __init__(self, connected: DeadlineSocket) -> None:
        protocol = codec.protocol(connected, decodes=False)
        self._happybase: Any = happybase.Connection(autoconnect=False)
        self._happybase.transport = protocol.trans
        self._happybase.client = TClient(Hbase, protocol)
        self.set_deadline = connected.set_deadline
        self.is_silent = connected.is_silent
        self.close = connected.close

    def rows(self, table: bytes, start: bytes, stop: bytes | None, count: int) -> list[tuple[bytes, list[bytes]]]:
        """The first `count` rows at or after `start`, each with its columns in order; fewer only if there are no more.

        Three round trips. The scanner is gone when this returns: a caller may take as long as it likes before it asks
        for more, and may ask another gateway.
        """
        found = self._happybase.table(table).scan(
            row_start=start, row_stop=stop, columns=[FAMILY], batch_size=count, limit=count
        )
        return [(row, sorted([name[_COLUMN_AT:] for name in cells])) for row, cells in found]

    def compact(self, table: bytes) -> None:
        """Asks for a compaction, and does not wait for it."""
        self._happybase.compact_table(table, major=True)


def translate(error: Exception) -> Exception:
    if isinstance(error, HBaseIOError):
        return AnsweredError(codec.shown(error.message), may_retry=getattr(error, "canRetry", None) is not False)
    if isinstance(error, IllegalArgument):
        return AnsweredError(codec.shown(error.message), may_retry=False)
    if isinstance(error, TApplicationException):
        return AnsweredError(codec.unexpected(error, "Thrift1"), may_retry=True)
    return error
