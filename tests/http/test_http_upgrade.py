"""Requests of clients that offer to continue in another protocol, as Java's HttpClient and `curl --http2` do: they are
answered as if the offer were not there, bodies included (RFC 9110, 7.8).
"""

from contextlib import closing

import pytest
from raw import connect, send

from tests.cli.command import DEADLINE_S

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
CLOSE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HEAD = b"POST /v1/follows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"follower":"7","user":"2"}'
WITH_LENGTH = b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
IN_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])


def statuses(address: str, data: bytes, size: int) -> list[int]:
    """What is answered to data that is sent in pieces of a size."""
    with closing(connect(address)) as connection:
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        sent = send(connection, pieces, within_s=DEADLINE_S)
    assert sent.closed
    return sent.statuses


@pytest.mark.parametrize("size", [10_000, 40, 1])
@pytest.mark.parametrize("body", [WITH_LENGTH, IN_CHUNKS], ids=["with a length", "in chunks"])
@pytest.mark.parametrize("offer", [OFFER, b"Connection: upgrade\r\nUpgrade: websocket\r\n"], ids=["h2c", "websocket"])
def test_an_action_is_recorded_whatever_is_offered(address: str, offer: bytes, body: bytes, size: int):
    """So are those behind it: the connection stays open."""
    assert statuses(address, (HEAD + offer + body) * 2 + HEAD + body + CLOSE, size) == [200, 200, 200, 200]


def test_a_page_is_answered(address: str):
    page = b"GET /v1/users/7/feed HTTP/1.1\r\nHost: localhost\r\n" + OFFER + b"\r\n"
    assert statuses(address, page + CLOSE, 10_000) == [200, 200]


def test_a_client_that_waits_for_a_word_before_its_body(address: str):
    with closing(connect(address)) as connection:
        connection.settimeout(DEADLINE_S)
        head, _, body = WITH_LENGTH.partition(b"\r\n\r\n")
        connection.sendall(HEAD + OFFER + b"Expect: 100-continue\r\n" + head + b"\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_closes_behind_its_offer(address: str):
    closes = OFFER.replace(b"Connection: ", b"Connection: close, ")
    assert statuses(address, HEAD + closes + WITH_LENGTH, 10_000) == [200]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"Host: localhost\r\n" + WITH_LENGTH, 400),
        (b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (b"x: y\r\n" * 101 + WITH_LENGTH, 431),
        (b"x: " + b"y" * 20_000 + b"\r\n\r\n", 431),
    ],
    ids=["two hosts", "another coding", "many headers", "a large head"],
)
def test_it_is_refused_as_without_an_offer(address: str, more: bytes, status: int):
    assert statuses(address, HEAD + OFFER + more, 10_000) == [status]
    assert statuses(address, HEAD + more, 10_000) == [status]


def test_a_tunnel_is_not_opened(address: str):
    tunnel = b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert statuses(address, tunnel + b"\x16\x03\x01" * 10, 10_000) == [400]
