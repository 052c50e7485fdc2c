"""HBase's own protocol (protobuf, no security), as far as tests need what no gateway offers."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from feedstore.widecolumn.hbase.protobuf import delimited, fields, number, text, undelimited

TIMEOUT_S = 60.0

Ask = Callable[[str, bytes], bytes]
"""`ask(method, request)` gives the response."""

__all__ = ["TIMEOUT_S", "Ask", "conversation", "fields", "number", "text"]


@contextmanager
def conversation(server: tuple[str, int], service: str) -> Iterator[Ask]:
    """On a connection of its own."""
    with socket.create_connection(server, TIMEOUT_S) as connection:
        header = text(1, text(1, b"test")) + text(2, service.encode())
        connection.sendall(b"HBas\x00\x50" + struct.pack(">I", len(header)) + header)

        def ask(method: str, request: bytes) -> bytes:
            message = delimited(number(1, 1) + text(3, method.encode()) + number(4, 1)) + delimited(request)
            connection.sendall(struct.pack(">I", len(message)) + message)
            answer = _exactly(connection, struct.unpack(">I", _exactly(connection, 4))[0])
            head, at = undelimited(answer, 0)
            failure: Any = dict(fields(head)).get(2)
            assert failure is None, (method, failure)
            return undelimited(answer, at)[0]

        yield ask


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the server closed the connection"
        data += more
    return data
