"""Flushes and compactions at the moment that a test wants them.

No gateway offers either, so this asks the region servers themselves, in HBase's own protocol (protobuf, no security).
"""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import happybase

from feedstore.widecolumn.hbase import Addresses

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Region:
    """name: as hbase:meta has it. server: where it is."""

    name: bytes
    server: tuple[str, int]


class Regions:
    """The regions of a table, looked up anew for each call: they move."""

    def __init__(self, url: str, table: str) -> None:
        addresses = Addresses.parse(url)
        self._thrift1 = addresses.thrift1[0]
        self._table = f"{addresses.namespace}:{table}"

    def flush(self) -> None:
        """What is in memory goes to files."""
        for region in self._all():
            with _admin(region) as ask:
                ask("FlushRegion", _bytes(1, _specifier(region)))

    def compact(self, *, major: bool) -> None:
        """Rewrites all files into one (major), or as many as HBase finds worth it, and waits for that."""
        for region in self._all():
            with _admin(region) as ask:
                ask("CompactRegion", _bytes(1, _specifier(region)) + _number(2, int(major)))
                deadline = time.monotonic() + TIMEOUT_S
                while _state(ask("GetRegionInfo", _bytes(1, _specifier(region)) + _number(2, 1))):
                    assert time.monotonic() < deadline, f"{region.name!r} still compacts after {TIMEOUT_S} s"
                    time.sleep(0.01)

    def files(self) -> int:
        """How many files there are, over all regions."""
        found = 0
        for region in self._all():
            with _admin(region) as ask:
                answer = ask("GetStoreFile", _bytes(1, _specifier(region)) + _bytes(2, b"feed"))
                found += sum(field == 1 for field, _ in _fields(answer))
        return found

    def _all(self) -> Sequence[Region]:
        connection = happybase.Connection(self._thrift1.host, self._thrift1.port, timeout=60_000)
        try:
            # Its rows sort by their parts, not as bytes, so a prefix would miss some.
            rows = connection.table("hbase:meta").scan(columns=[b"info:server"])
            prefix = f"{self._table},".encode()
            found = [Region(name, _server(cells[b"info:server"])) for name, cells in rows if name.startswith(prefix)]
        finally:
            connection.close()
        assert found, self._table
        return found


def _server(text: bytes) -> tuple[str, int]:
    host, _, port = text.decode().rpartition(":")
    return host, int(port)


def _specifier(region: Region) -> bytes:
    return _number(1, 1) + _bytes(2, region.name)


@contextmanager
def _admin(region: Region) -> Iterator[Any]:
    """`ask(method, request) -> response` on a connection of its own."""
    with socket.create_connection(region.server, TIMEOUT_S) as connection:
        header = _bytes(1, _bytes(1, b"test")) + _bytes(2, b"AdminService")
        connection.sendall(b"HBas\x00\x50" + struct.pack(">I", len(header)) + header)

        def ask(method: str, request: bytes) -> bytes:
            head = _number(1, 1) + _bytes(3, method.encode()) + _number(4, 1)
            body = _varint(len(head)) + head + _varint(len(request)) + request
            connection.sendall(struct.pack(">I", len(body)) + body)
            answer = _exactly(connection, struct.unpack(">I", _exactly(connection, 4))[0])
            head_fields, rest = _delimited(answer)
            failure = dict(_fields(head_fields)).get(2)
            assert failure is None, (method, failure)
            return _delimited(rest)[0]

        yield ask


def _state(answer: bytes) -> int:
    """compaction_state: 0 is none."""
    return dict(_fields(answer)).get(2, 0)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the region server closed the connection"
        data += more
    return data


# ---- protobuf


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
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


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
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
