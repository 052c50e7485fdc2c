"""A redis-server of the bench's own: on a free port of the loopback, with its files in a directory that goes away."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.children import ChildError, child, free_port

if TYPE_CHECKING:
    import redis  # an extra, which a measurement without it does not need

START_S = 10.0
CALL_S = 120.0


class MissingServerError(Exception):
    """There is no redis-server to compare with."""


@contextmanager
def redis_client(folder: Path) -> "Iterator[redis.Redis]":
    """A client of a server of its own."""
    import redis  # noqa: PLC0415

    with redis_server(folder) as port, redis.Redis(port=port, socket_timeout=CALL_S) as client:
        yield client


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Yields the port. AOF everysec, as the targets say; its rewriting is off, which only helps Redis."""
    program = shutil.which("redis-server")
    if program is None:
        raise MissingServerError("redis-server is not installed: apt-get install redis-server")
    import redis  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "auto-aof-rewrite-percentage": "0",
    }
    args = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
    with child(args, folder / "redis.log", watched=False) as server:
        deadline = time.monotonic() + START_S
        with redis.Redis(port=port) as client:
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    if server.process.poll() is not None or time.monotonic() > deadline:
                        raise ChildError(f"redis-server did not start: see {folder / 'redis.log'}") from None
                    time.sleep(0.02)
        try:
            yield port
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)
