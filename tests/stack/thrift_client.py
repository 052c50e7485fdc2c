"""Calls of a Thrift1 gateway in plain values: enough to write a row and to read it, with nothing installed.

A struct is a dict of field numbers to `(kind, value)` when it is sent, and to values when it is received.
"""

import socket
import struct
from typing import Any

from deploy.local.ports import LOOPBACK

BOOL, I32, STRING, STRUCT, MAP, LIST = 2, 8, 11, 12, 13, 15
_FIXED = {BOOL: ">b", 3: ">b", 6: ">h", I32: ">i", 10: ">q", 4: ">d"}
_CALL = 0x80010001

Fields = dict[int, tuple[int, Any]]


def call(port: int, method: str, arguments: Fields, timeout_s: float = 60.0) -> Any:
    """The result of a call; field 0 of its answer.

    Raises:
        RuntimeError: the gateway answered with an exception.
        OSError, EOFError: there is no gateway.
    """
    name = method.encode()
    with (
        socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection,
        connection.makefile("rwb") as stream,
    ):
        stream.write(struct.pack(">Ii", _CALL, len(name)) + name + struct.pack(">i", 1) + _struct(arguments))
        stream.flush()
        version, size = struct.unpack(">Ii", _exactly(stream, 8))
        _exactly(stream, size + 4)
        result = _read(stream, STRUCT)
    if version & 0xFF != 2 or any(field != 0 for field in result):
        raise RuntimeError(f"{method}: {result}")
    return result.get(0)


def _struct(fields: Fields) -> bytes:
    return (
        b"".join(struct.pack(">bh", kind, number) + _write(kind, value) for number, (kind, value) in fields.items())
        + b"\0"
    )


def _write(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return struct.pack(">i", len(value)) + value
    if kind == STRUCT:
        return _struct(value)
    if kind == LIST:  # of structs
        return struct.pack(">bi", STRUCT, len(value)) + b"".join(_struct(item) for item in value)
    if kind == MAP:  # an empty one
        return struct.pack(">bbi", STRING, STRING, 0)
    return struct.pack(_FIXED[kind], value)


def _read(stream: Any, kind: int) -> Any:
    if kind == STRING:
        return _exactly(stream, _number(stream, ">i"))
    if kind == STRUCT:
        fields = {}
        while inner := _number(stream, ">b"):
            number = _number(stream, ">h")
            fields[number] = _read(stream, inner)
        return fields
    if kind in (LIST, 14):
        inner = _number(stream, ">b")
        return [_read(stream, inner) for _ in range(_number(stream, ">i"))]
    if kind == MAP:
        key, value = _number(stream, ">b"), _number(stream, ">b")
        return {_read(stream, key): _read(stream, value) for _ in range(_number(stream, ">i"))}
    return _number(stream, _FIXED[kind])


def _number(stream: Any, form: str) -> Any:
    return struct.unpack(form, _exactly(stream, struct.calcsize(form)))[0]


def _exactly(stream: Any, size: int) -> bytes:
    read = stream.read(size)
    if len(read) != size:
        raise EOFError("the gateway closed the connection")
    return read
