"""Asks a server for pages from inside of its process, without a network, and prints the processor time of a page in us.

    python -P bench/http_in_process.py HOME COUNT < paths

It is run by its path with the Python of any version of this project, and imports nothing of it but the command: so two
versions are compared by one and the same code. `feedctl serve` starts as always, with its worker; but the thread that
would listen gives requests to one connection, one after the other, and takes the answers. So all of a page is timed but
the kernel's part, and without what the network and other processes do to a server's time. The lowest of the rounds is
printed: whatever disturbs one adds to it.
"""

import asyncio
import os
import sys
import time
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

ROUND = 500
"""Pages a round."""


class Transport:
    """What a connection writes to. taken: how many answers."""

    def __init__(self) -> None:
        self.taken = 0
        self.last = b""

    def write(self, data: bytes) -> None:
        self.taken += 1
        self.last = data

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def set_write_buffer_limits(self, **limits: int) -> None:
        """All is taken at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """There is one request at a time."""

    resume_reading = close = abort = pause_reading


async def pages(connection: Any, transport: Transport, requests: list[bytes], count: int) -> None:
    for number in range(count):
        before = transport.taken
        connection.data_received(requests[number % len(requests)])
        while transport.taken == before:  # noqa: ASYNC110 - the answer is a task of this loop
            await asyncio.sleep(0)


async def lowest_us(config: uvicorn.Config, requests: list[bytes], count: int) -> float:
    transport = Transport()
    connection: Any = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
    connection.connection_made(transport)
    rounds = []
    for _ in range(count // ROUND):
        began_s = time.thread_time()
        await pages(connection, transport, requests, ROUND)
        rounds.append((time.thread_time() - began_s) / ROUND)
    if not transport.last.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"no page: {transport.last[:1_000].decode()}")
    return 1e6 * min(rounds)


def main() -> None:
    home, count = sys.argv[1], int(sys.argv[2])
    requests = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n".encode() for path in sys.stdin.read().split()]

    def run(server: uvicorn.Server, sockets: object = None) -> None:  # noqa: ARG001 - it listens to none
        server.config.load()
        uvloop.install()
        print("us", asyncio.run(lowest_us(server.config, requests, count)), flush=True)
        os._exit(0)  # the process is done, in whatever threads it works

    uvicorn.Server.run = run  # type: ignore[assignment,method-assign]
    from workers.cli import main as command  # noqa: PLC0415 - it must find the server replaced

    sys.argv = ["feedctl", "--home", home, "serve", "--port", "0"]
    command()


if __name__ == "__main__":
    main()
