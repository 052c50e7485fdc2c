"""A connection to a region server against answers that are no answers: real sockets, and a server that says one thing.

What a real one answers is in the tests of the port and in test_hbase_server.py.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.gateways import AnsweredError
from feedstore.widecolumn.hbase.protobuf import delimited, number, text
from feedstore.widecolumn.hbase.regionserver import ANSWER_BYTES_MAX, RegionServerConnection
from feedstore.widecolumn.hbase.sockets import DeadlineSocket

REGION, ROW, A, B = b"feed,,1.0123456789abcdef0123456789abcdef.", b"r1", b"aaa", b"bbb"


def cell(column: bytes, row: bytes = ROW, family: bytes = b"feed", value: bytes = b"") -> bytes:
    """As HBase's `KeyValueCodec` writes one."""
    key = struct.pack(">H", len(row)) + row + bytes([len(family)]) + family + column + struct.pack(">QB", 5, 4)
    pair = struct.pack(">II", len(key), len(value)) + key + value
    return struct.pack(">I", len(pair)) + pair


def found(*cells: bytes, count: int | None = None, call: int = 1) -> bytes:
    """An answer with these cells behind it. count: how many it announces."""
    block = b"".join(cells)
    head = number(1, call) + text(3, number(1, len(block)))
    return _framed(delimited(head) + delimited(text(1, number(2, len(cells) if count is None else count))) + block)


def failed(name: bytes) -> bytes:
    return _framed(delimited(number(1, 1) + text(2, text(1, name) + text(2, name + b": no\n\tat Some.java:1"))))


def _framed(answer: bytes) -> bytes:
    return struct.pack(">I", len(answer)) + answer


@contextmanager
def answering(answer: bytes, *, closes: bool = False) -> Iterator[tuple[RegionServerConnection, bytearray]]:
    """A connection to a server that answers what comes first, and what it has been sent until then."""
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                received.extend(connection.recv(65_536))
                connection.sendall(answer)
                if not closes:
                    connection.recv(65_536)  # until the client has gone

        thread = threading.Thread(target=serve)
        thread.start()
        connected = DeadlineSocket.connect(Address(*listening.getsockname()), 60)
        with closing(RegionServerConnection(connected)) as connection:
            connection.set_deadline(time.monotonic() + 60)
            yield connection, received
        thread.join()


def read(connection: RegionServerConnection) -> list[tuple[bytes, int]]:
    return connection.cells(REGION, ROW, None, 9, len(A))


def test_the_columns_of_a_row():
    with answering(found(cell(A), cell(B))) as (connection, received):
        assert read(connection) == [(A, 5), (B, 5)]
    assert received.startswith(b"HBas\x00\x50")
    assert REGION in received


def test_a_row_without_columns():
    with answering(found()) as (connection, _):
        assert read(connection) == []


def test_what_the_server_will_not_do_is_its_answer():
    with (
        answering(failed(b"org.apache.hadoop.hbase.NotServingRegionException")) as (connection, _),
        pytest.raises(AnsweredError, match=r"NotServingRegionException: no$"),
    ):
        read(connection)


@pytest.mark.parametrize(
    "cells",
    [
        [cell(A, value=b"v")],
        [cell(A + b"x")],
        [cell(A, row=b"r2")],
        [cell(A, family=b"food")],
        [cell(A), cell(b"bb", value=b"v")],
        [cell(A)[:-1]],
    ],
)
def test_cells_that_this_adapter_does_not_write_are_left_to_the_gateways(cells: list[bytes]):
    with answering(found(*cells)) as (connection, _), pytest.raises(AnsweredError, match="another width"):
        read(connection)


def test_cells_that_are_not_behind_the_answer_are_not_passed_over():
    with answering(found(cell(A), count=2)) as (connection, _), pytest.raises(AnsweredError, match="expected 2 cells"):
        read(connection)


@pytest.mark.parametrize(
    "answer",
    [
        found(cell(A), call=2),
        found(cell(A)) + b"x",
        struct.pack(">I", ANSWER_BYTES_MAX + 1) + b"x",
        _framed(b"\xff" * 40),
        _framed(b""),
        _framed(delimited(number(1, 1))),
        _framed(delimited(number(1, 1)) + delimited(text(1, text(2, b"two")))),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_no_answer_breaks_the_connection_off(answer: bytes):
    with answering(answer, closes=True) as (connection, _), pytest.raises((ValueError, OSError)):
        read(connection)


@pytest.mark.parametrize("size", [0, 3, 20])
def test_an_answer_that_is_cut_off(size: int):
    with (
        answering(found(cell(A))[:size], closes=True) as (connection, _),
        pytest.raises(OSError, match=r"closed|reset"),
    ):
        read(connection)
