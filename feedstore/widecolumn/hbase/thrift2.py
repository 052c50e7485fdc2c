"""A connection to a Thrift2 gateway, with thriftpy2's compiled codec."""

import re
from pathlib import Path
from typing import Any, Final

import thriftpy2
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyBufferedTransport

from feedstore.widecolumn.hbase.gateways import AnsweredError, shown
from feedstore.widecolumn.hbase.sockets import BUFFER_BYTES, DeadlineSocket

structs: Any = thriftpy2.load(str(Path(__file__).parent / "thrift2.thrift"), "feedstore_hbase_thrift2_thrift")


_TABLE: Final = re.compile(r"(?:[\w.-]+:)?[\w.-]+")


class _Client(TClient):
    def answer(self, call: str) -> None:
        """Reads the answer to a call that was sent as bytes. Raises what the call itself would raise."""
        self._recv(call)

    def _recv(self, call: str) -> Any:
        try:
            return super()._recv(call)
        except (structs.TIOError, TApplicationException) as error:
            raise answered(error) from error


class Thrift2Connection:
    """pages, cells, records, writes, tables: the services of one gateway, all on the same connection."""

    def __init__(self, connected: DeadlineSocket) -> None:
        self._socket = connected
        protocol = protocol_on(connected)
        self.pages: Any = _Client(structs.Pages, protocol)
        self.cells: Any = _Client(structs.Cells, protocol)
        self.records: Any = _Client(structs.Records, protocol)
        self.writes: Any = _Client(structs.Writes, protocol)
        self.tables: Any = _Client(structs.Tables, protocol)
        self.set_deadline = connected.set_deadline
        self.is_silent = connected.is_silent
        self.close = connected.close

    def send(self, call: str, message: bytes) -> None:
        """A call of the writes, encoded by the caller, and its answer."""
        self._socket.write(message)  # the client has nothing left to send: each of its calls ends with a flush
        self.writes.answer(call)


def protocol_on(connected: DeadlineSocket) -> Any:
    transport = TCyBufferedTransport(connected, BUFFER_BYTES)
    return TCyBinaryProtocol(transport, decode_response=True)  # type: ignore[no-untyped-call]


def answered(error: Any) -> AnsweredError:
    """error: HBase's own, or that of a gateway that could not decode a call, or failed on it."""
    if isinstance(error, TApplicationException):
        hint = "; is it a Thrift2 gateway?" if error.type == TApplicationException.UNKNOWN_METHOD else ""
        return AnsweredError(shown(error.message or error) + hint, may_retry=True)
    said = shown(error.message)
    # If a table is missing, disabled or not made yet, HBase passes on only its name, and not what is wrong.
    # Without a namespace it looks like any other word, such as a host of an error that passes.
    is_table = _TABLE.fullmatch(said) and (":" in said or error.canRetry is False)
    hint = "; is this table missing, disabled, or still being made?" if is_table else ""
    return AnsweredError(said + hint, may_retry=error.canRetry is not False)
