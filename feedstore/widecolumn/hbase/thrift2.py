"""A connection to a Thrift2 gateway, with thriftpy2's compiled codec."""

import re
from pathlib import Path
from typing import Any, Final

import thriftpy2
from thriftpy2.thrift import TApplicationException, TClient

from feedstore.widecolumn.hbase import codec
from feedstore.widecolumn.hbase.gateways import AnsweredError
from feedstore.widecolumn.hbase.sockets import DeadlineSocket

structs: Any = thriftpy2.load(str(Path(__file__).parent / "thrift2.thrift"), "feedstore_hbase_thrift2_thrift")


_TABLE: Final = re.compile(r"(?:[\w.-]+:)?[\w.-]+")


class _Writes(TClient):
    def answer(self, call: str) -> None:
        """Reads the answer to a call that was sent as bytes. Raises what the call itself would raise."""
        self._recv(call)


class Thrift2Connection:
    """pages, cells, records, writes, tables: the services of one gateway, all on the same connection."""

    def __init__(self, connected: DeadlineSocket) -> None:
        self._socket = connected
        protocol = codec.protocol(connected)
        self.pages: Any = TClient(structs.Pages, protocol)
        self.cells: Any = TClient(structs.Cells, protocol)
        self.records: Any = TClient(structs.Records, protocol)
        self.writes: Any = _Writes(structs.Writes, protocol)
        self.tables: Any = TClient(structs.Tables, protocol)
        self.set_deadline = connected.set_deadline
        self.is_silent = connected.is_silent
        self.close = connected.close

    def send(self, call: str, message: bytes) -> None:
        """A call of the writes, encoded by the caller, and its answer."""
        self._socket.write(message)  # the client has nothing left to send: each of its calls ends with a flush
        self.writes.answer(call)


def translate(error: Exception) -> Exception:
    if isinstance(error, structs.TIOError):
        said = codec.shown(error.message)
        # If a table is missing, disabled or not made yet, HBase passes on only its name, and not what is wrong.
        # Without a namespace it looks like any other word, such as a host of an error that passes.
        is_table = _TABLE.fullmatch(said) and (":" in said or error.canRetry is False)
        hint = "; is this table missing, disabled, or still being made?" if is_table else ""
        return AnsweredError(said + hint, may_retry=error.canRetry is not False)
    if isinstance(error, TApplicationException):
        return AnsweredError(codec.unexpected(error), may_retry=True)
    return error
