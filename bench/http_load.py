"""A client that asks a server on this machine as fast as it answers, over a few connections, each one request at a
time:

    python -m bench.http_load PORT CONNECTIONS COUNT < PATHS

It prints a JSON line: how long it took, and what the requests took. Every answer must be a 200.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice

import uvloop

from bench.results import percentile

END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length: "


class Asker(asyncio.Protocol):
    """One connection: sends the next request as soon as an answer is complete."""

    def __init__(self, requests: Sequence[bytes], done: "asyncio.Future[None]", times_us: list[float]) -> None:
        self._requests = iter(requests)
        self._done = done
        self._times_us = times_us
        self._data = b""
        self._sent_ns = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(END_OF_HEAD)
        if not found or len(body) < int(head[head.index(LENGTH) + len(LENGTH) :].partition(b"\r\n")[0]):
            return
        self._times_us.append((time.perf_counter_ns() - self._sent_ns) / 1_000)
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(self._data.decode(errors="replace")))
            return
        self._data = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the server closed the connection"))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._done.set_result(None)
            self._transport.close()
            return
        self._sent_ns = time.perf_counter_ns()
        self._transport.write(request)


async def load(port: int, connections: int, count: int, paths: Sequence[str]) -> dict[str, float]:
    requests = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths]
    loop = asyncio.get_running_loop()
    times_us: list[float] = []
    each = [
        list(islice(cycle(requests[start:] + requests[:start]), count // connections)) for start in range(connections)
    ]
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in each]
    began_s = time.perf_counter()
    for some, done in zip(each, ends, strict=True):
        await loop.create_connection(lambda some=some, done=done: Asker(some, done, times_us), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    return {
        "seconds": time.perf_counter() - began_s,
        "answered": len(times_us),
        "p50_us": percentile(times_us, 0.50),
        "p99_us": percentile(times_us, 0.99),
    }


if __name__ == "__main__":
    at, over, how_many = map(int, sys.argv[1:])
    print(json.dumps(uvloop.run(load(at, over, how_many, sys.stdin.read().split()))))
