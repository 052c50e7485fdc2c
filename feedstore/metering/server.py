"""Serves `/metrics` and `/healthz` over HTTP, without disturbing the work of the process.

One thread with its own event loop. The counts are read at most once a second, whatever the number of readers. A
connection has five seconds for its request and its answer; if there are sixteen, new ones are closed.
"""

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from typing import Final

from feedstore.errors import ConfigError
from feedstore.metering.settings import split

CONNECTIONS: Final = 16
TIME_OUT_S: Final = 5.0
AGAIN_S: Final = 1.0
_HEAD_MAX: Final = 8_192


def listen(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT; port 0 takes any free one. Raises ConfigError."""
    host, port = split(address)
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(CONNECTIONS)
        except OSError:
            listener.close()
            raise
    except UnicodeError as error:  # a part of the host's name is empty or too long
        raise ConfigError(f"metrics cannot be served at {address}: {error}") from error
    except OSError as error:
        taken = ": another process listens there; end it, or take another port" * (error.errno == errno.EADDRINUSE)
        raise ConfigError(f"metrics cannot be served at {address}: {error.strerror or error}{taken}") from error
    return listener


class MetricsServer:
    """listener: from `listen`; the server owns it. text: returns the counts in Prometheus' text format; it is called on
    the server's thread, and must not wait for anything. clock: monotonic seconds.
    """

    def __init__(
        self, listener: socket.socket, text: Callable[[], bytes], media_type: str, clock: Callable[[], float]
    ) -> None:
        self._listener = listener
        self._text = text
        self._media_type = media_type
        self._clock = clock
        self._open = 0
        self._kept: tuple[float, bytes] | None = None
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        host, port = listener.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the server at once; closing twice is fine."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listener, limit=_HEAD_MAX)
        await self._end.wait()
        server.close()
        answers = asyncio.all_tasks() - {asyncio.current_task()}
        for task in answers:
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await asyncio.sleep(0)  # one more round closes the sockets of the connections that ended

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        writer.transport.set_write_buffer_limits(high=0)  # `drain` waits until the kernel has all of the answer
        try:
            if self._open <= CONNECTIONS:
                async with asyncio.timeout(TIME_OUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # data that the client did not read is dropped
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            self._open -= 1
            writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _response(405, "text/plain", b"only GET\n", method)
        if path == b"/healthz":
            return _response(200, "application/json", b'{"status":"alive"}\n', method)
        if path == b"/metrics":
            return _response(200, self._media_type, self._now(), method)
        return _response(404, "text/plain", b"there are /metrics and /healthz\n", method)

    def _now(self) -> bytes:
        now_s = self._clock()
        if self._kept is None or now_s - self._kept[0] >= AGAIN_S:
            self._kept = (now_s, self._text())
        return self._kept[1]


_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}


def _response(status: int, media_type: str, body: bytes, method: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
