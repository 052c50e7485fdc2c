"""thriftpy2's compiled codec on a socket of ours."""

from typing import Any

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TCyBufferedTransport

from feedstore.widecolumn.hbase.sockets import DeadlineSocket

BUFFER_BYTES = 64 * 1024
"""The most bytes that one read or write of the socket carries; thriftpy2's own 4 KiB would cost a system call each."""
MESSAGE_MAX = 300


def protocol(connected: DeadlineSocket) -> Any:
    transport = TCyBufferedTransport(connected, BUFFER_BYTES)
    return TCyBinaryProtocol(transport, decode_response=True)  # type: ignore[no-untyped-call]


def shown(message: object) -> str:
    """HBase's message, without the stack trace that often follows it."""
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    first = text.partition("\n")[0]
    return first if len(first) <= MESSAGE_MAX else first[: MESSAGE_MAX - 3] + "..."


def unexpected(error: TApplicationException) -> str:
    """The error of a gateway that could not decode a call, or failed on it."""
    hint = "; is it a Thrift2 gateway?" if error.type == TApplicationException.UNKNOWN_METHOD else ""
    return shown(error.message or error) + hint
