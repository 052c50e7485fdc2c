"""A connection to a region server, which reads a row of a region without a gateway.

HBase's own protocol, without security. Source: the reference guide's RPC specification
(https://hbase.apache.org/book.html#hbase.rpc), and `RPC.proto` and `Client.proto` of HBase 2.6 for the numbers of the
fields. A call is a head and a request; an answer is a head, a response, and the cells behind it as `KeyValueCodec`
writes them.
"""

import struct
from functools import lru_cache
from typing import Final

from feedstore.widecolumn.hbase.encoding import FAMILY, columns_after
from feedstore.widecolumn.hbase.gateways import AnsweredError, shown
from feedstore.widecolumn.hbase.protobuf import delimited, fields, number, text, undelimited
from feedstore.widecolumn.hbase.sockets import BUFFER_BYTES, DeadlineSocket

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024

_VERSION: Final = b"".join(text(field, b"-") for field in range(1, 7)) + number(7, 2) + number(8, 6)
"""The version of a client of HBase 2.6. A client that says none gets cells in an older form."""
_HELLO: Final = (
    text(1, text(1, b"feedstore"))  # the user
    + text(2, b"ClientService")
    + text(3, b"org.apache.hadoop.hbase.codec.KeyValueCodec")
    + text(5, _VERSION)
)
_PREAMBLE: Final = b"HBas\x00\x50" + struct.pack(">I", len(_HELLO)) + _HELLO
"""The protocol, its version 0, and that there is no authentication (80); then the caller."""

_GET: Final = text(3, b"Get") + number(4, 1)
"""Part of a call's head: the method, and that a request follows."""
_THE_FAMILY: Final = text(2, text(1, FAMILY))

_TIME_AND_TYPE_BYTES: Final = 9


class RegionServerConnection:
    """A connection on which rows are read. Not thread-safe."""

    def __init__(self, connected: DeadlineSocket) -> None:
        self._socket = connected
        self._calls = 0
        self.set_deadline = connected.set_deadline
        self.is_silent = connected.is_silent
        self.close = connected.close

    def cells(
        self, region: bytes, row: bytes, after: bytes | None, limit: int | None, column_bytes: int
    ) -> list[tuple[bytes, int]]:
        """As `WideColumnStore.read`, of a row of a region, with the timestamp of each column. region: its name, as
        hbase:meta has it. limit: None for all.

        Raises:
            AnsweredError: the region is not on this server, the server refuses, or a cell is not as this adapter writes
                cells.
            OSError, ValueError: the connection broke off, or what came is not an answer.
        """
        self._calls += 1
        left_ms = max(1, int(1_000 * self._socket.left_s()))
        get = text(1, row) + _THE_FAMILY
        if limit is not None:
            get += number(8, limit)
        if after is not None:
            get += text(4, columns_after(after))
        head = number(1, self._calls) + _GET + number(7, left_ms)  # after this time, the server drops it
        request = _named(region) + text(2, get)
        message = delimited(head) + delimited(request)
        hello = _PREAMBLE if self._calls == 1 else b""
        self._socket.write(hello + struct.pack(">I", len(message)) + message)
        count, block = self._found(self._answer())
        cells = _cut(block, row, column_bytes)
        if len(cells) != count:
            raise AnsweredError(f"expected {count} cells, got {len(cells)}", may_retry=False)
        return cells

    def _found(self, answer: bytes) -> tuple[int, bytes]:
        """How many cells the response announces, and the cells behind it."""
        head, at = undelimited(answer, 0)
        about = dict(fields(head))
        if about.get(1) != self._calls:
            raise ValueError(f"call {self._calls} was answered as {about.get(1)!r}")
        if failure := _message(about.get(2)):
            said = dict(fields(failure))
            raise AnsweredError(shown(said.get(2) or said.get(1) or b"no reason given"), may_retry=False)
        response, at = undelimited(answer, at)
        count = dict(fields(_message(dict(fields(response)).get(1)))).get(2, 0)
        if not isinstance(count, int):
            raise ValueError("the number of cells is no number")  # noqa: TRY004 - so says what came
        return count, answer[at:]

    def _answer(self) -> bytes:
        received = bytearray(self._socket.read(BUFFER_BYTES))
        while len(received) < 4:
            received += self._socket.read(BUFFER_BYTES)
        size = int.from_bytes(received[:4], "big")
        if size > ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes, expected at most {ANSWER_BYTES_MAX}")
        while len(received) < 4 + size:
            received += self._socket.read(BUFFER_BYTES)
        if len(received) > 4 + size:
            raise ValueError("more than one answer came")
        return bytes(received[4:])


@lru_cache(maxsize=4_096)
def _named(region: bytes) -> bytes:
    """The field of a request that names its region."""
    return text(1, number(1, 1) + text(2, region))


def _message(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _cut(block: bytes, row: bytes, column_bytes: int) -> list[tuple[bytes, int]]:
    """The column and the timestamp of each cell. Every cell must be of this row and without a value: then all have the
    same head.
    """
    key_bytes = 2 + len(row) + 1 + len(FAMILY) + column_bytes + _TIME_AND_TYPE_BYTES
    head = struct.pack(">IIIH", 8 + key_bytes, key_bytes, 0, len(row)) + row + bytes([len(FAMILY)]) + FAMILY
    each = struct.Struct(f">{len(head)}s{column_bytes}sQx")
    if len(block) % each.size:
        raise AnsweredError("a cell has a value, or another width", may_retry=False)
    found = [(column, timestamp) for start, column, timestamp in each.iter_unpack(block) if start == head]
    if len(found) * each.size != len(block):
        raise AnsweredError("a cell has a value, or another width", may_retry=False)
    return found
