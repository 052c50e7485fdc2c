"""HBase's own protocol (protobuf, no security), as far as tests need what no gateway offers."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TIMEOUT_S = 60.0

Ask = Callable[[str, bytes], bytes]
"""`ask(method, request)` gives the response."""


@contextmanager
def conversation(server: tuple[str, int], service: str) -> Iterator[Ask]:
    """On a connection of its own."""
    with socket.create_connection(server, TIMEOUT_S) as connection:
        header = text(1, text(1, b"test")) + text(2, service.encode())
        connection.sendall(b"HBas\x00\x50" + struct.pack(">I", len(header)) + header)

        def ask(method: str, request: bytes) -> bytes:
            head = number(1, 1) + text(3, method.encode()) + number(4, 1)
            body = _varint(len(head)) + head + _varint(len(request)) + request
            connection.sendall(struct.pack(">I", len(body)) + body)
            answer = _exactly(connection, struct.unpack(">I", _exactly(connection, 4))[0])
            head_fields, rest = _delimited(answer)
            failure = dict(fields(head_fields)).get(2)
            assert failure is None, (method, failure)
            return _delimited(rest)[0]

        yield ask


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the region server closed the connection"
        data += more
    return data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _delimited(data: bytes) -> tuple[bytes, bytes]:
    size, at = _read_varint(data, 0)
    return data[at : at + size], data[at + size :]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        else:
            assert key & 7 == 2, key
            size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value
