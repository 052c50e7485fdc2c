"""Clients that want a server to keep or wait for as much as it lets them: six kinds at once, each on as many
connections as it gets, all from this machine.

    python -m bench.adversaries PORT SECONDS CONNECTIONS SOURCE[,SOURCE...]

CONNECTIONS: of each kind. SOURCE: loopback addresses that they come from; the kinds take turns. Each connection that
the server closes is opened again at once. After SECONDS no new ones are opened, and those that are open are kept until
its standard input ends. It prints a JSON line: by kind, how many connections there were and could not be had, and how
many bytes they sent.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Final, NamedTuple

import uvloop

HOST: Final = b"Host: localhost\r\n"
CHUNKED: Final = b"POST /v1/follows HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
PAGE: Final = b"GET /v1/users/1/feed?limit=1000 HTTP/1.1\r\n" + HOST + b"\r\n"
DRIP_S: Final = 0.5
TCP_ESTABLISHED: Final = b"\x01"
AGAIN_S: Final = 0.02
"""After a connection that could not be had."""


class Kind(NamedTuple):
    """begun: sent at once. piece: sent again and again; slowly: each by itself after a pause. reads: takes answers."""

    name: str
    begun: bytes
    piece: bytes
    slowly: bool = False
    reads: bool = True


KINDS: Final = (
    Kind("endless trailers", CHUNKED + b"0\r\n", (b"x: " + b"t" * 4_000 + b"\r\n") * 16),
    Kind("endless chunk extensions", CHUNKED, (b"1;e=" + b"e" * 4_000 + b"\r\nx\r\n") * 16),
    Kind("unread bodies", b"GET /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\n", b"b", slowly=True),
    Kind("slow heads", b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: ", b"h", slowly=True),
    Kind("slow readers", PAGE * 12, b"", slowly=True, reads=False),
    Kind("pipelining", b"", PAGE * 100),
)


@dataclass
class Score:
    connections: int = 0
    refused: int = 0
    sent_bytes: int = 0


class Adversary(asyncio.Protocol):
    """One connection."""

    def __init__(self, kind: Kind, score: Score, ended: "asyncio.Future[None]") -> None:
        self._kind = kind
        self._score = score
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._drip: asyncio.TimerHandle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._score.connections += 1
        transport.set_write_buffer_limits(high=0)
        if not self._kind.reads:
            self._loop.call_soon(transport.pause_reading)  # uvloop begins to read once this returns
        self._send(self._kind.begun)
        self._more()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if not self._kind.slowly:
            self._more()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it ended
        if self._drip is not None:
            self._drip.cancel()
        if not self._ended.done():
            self._ended.set_result(None)

    def _more(self) -> None:
        """Sends a piece, and the next one in its time."""
        if self._transport.is_closing():
            return
        if not self._kind.reads and self._is_closed_there():
            self._transport.abort()
            return
        if not self._paused:
            self._send(self._kind.piece)
        if self._kind.slowly:
            self._drip = self._loop.call_later(DRIP_S, self._more)
        elif not self._paused:
            self._drip = self._loop.call_later(0, self._more)

    def _is_closed_there(self) -> bool:
        """Whether the server has closed it, which who does not read is not told."""
        client = self._transport.get_extra_info("socket")
        return bool(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != TCP_ESTABLISHED)

    def _send(self, data: bytes) -> None:
        self._score.sent_bytes += len(data)
        self._transport.write(data)


async def _hold(kind: Kind, score: Score, port: int, source: str, is_under_way: Callable[[], bool]) -> None:
    """Keeps one connection, and opens it again when it is closed."""
    loop = asyncio.get_running_loop()
    while is_under_way():
        ended = loop.create_future()
        try:
            await loop.create_connection(
                lambda ended=ended: Adversary(kind, score, ended),  # type: ignore[misc]
                "127.0.0.1",
                port,
                local_addr=(source, 0),
            )
        except OSError:
            score.refused += 1
            await asyncio.sleep(AGAIN_S)
        else:
            await ended


async def siege(port: int, seconds: float, connections: int, sources: list[str]) -> dict[str, Score]:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    scores = {kind.name: Score() for kind in KINDS}
    held = [
        asyncio.create_task(_hold(kind, scores[kind.name], port, source, lambda: loop.time() < end_s))
        for kind, source in zip(KINDS, cycle(sources), strict=False)
        for _ in range(connections)
    ]
    await loop.run_in_executor(None, sys.stdin.read)
    for each in held:
        each.cancel()
    return scores


if __name__ == "__main__":
    at, how_long, each, where = sys.argv[1:]
    found = uvloop.run(siege(int(at), float(how_long), int(each), where.split(",")))
    print(json.dumps({name: vars(score) for name, score in found.items()}))
