"""The connections of clients, with a bound on everything that a client can make us wait for or keep.

uvicorn bounds how long a kept connection may be idle. It does not bound how long or how large a request's head may be;
nor how many connections there are. The time of a body is bounded where it is read.

It also sends an answer's head and its body each by itself, and each is a call of the kernel, which costs as much as all
of a page's JSON: here both leave together.
"""

import asyncio
import secrets
import socket
import weakref
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from feedstore.serving.http import problems
from feedstore.serving.http.problems import Kind, ProblemError

HEAD_BYTES_MAX: Final = 16_384


class Connection(HttpToolsProtocol):
    """One client's. patience_s: how long a head may take, and how long an answer may wait for the client to take it.
    at_most: so many connections; one more is told so and closed.
    """

    patience_s: float
    at_most: int

    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _answers: "Whole"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._answers = Whole(transport, self)
        super().connection_made(self._answers)
        if len(self.connections) > self.at_most:
            self._refuse(problems.OVERLOADED, "too many connections")
            return
        client = transport.get_extra_info("socket")
        if client is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # The kernel closes what a client has not taken by then.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1_000 * self.patience_s))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._in_head:
            self._disarm()
        elif self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(problems.HEAD_TOO_LARGE, f"at most {HEAD_BYTES_MAX} bytes")
        elif self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._answers.flush()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(problems.MALFORMED_REQUEST, msg)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.patience_s, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._refuse(problems.TOO_SLOW, f"no request within {self.patience_s:g} s")

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Answers where there is no request to answer, and closes."""
        if self.transport.is_closing():
            return
        self._disarm()
        error = ProblemError(kind, detail, closes=True)
        content = error.document(secrets.token_hex(8))
        headers = {**error.headers, "content-type": problems.MEDIA_TYPE, "content-length": str(len(content))}
        lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + content)
        self.transport.close()


class Whole(asyncio.Transport):
    """A connection's transport. What is written between the start of an answer and its end leaves at its end, in one
    piece.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__()
        self._transport = transport
        # Weakly: the connection holds this transport, and cycles are looked for rarely.
        self._connection = weakref.proxy(connection)
        self._parts: list[bytes] = []
        # Asked for each request, several times.
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]

    def write(self, data: Any) -> None:
        self._parts.append(data)
        cycle = self._connection.cycle
        # There is none before the first request.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            whole = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(whole)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def bounded(patience_s: float, at_most: int) -> type[Connection]:
    """The class of a server's connections."""
    return type("Connection", (Connection,), {"patience_s": patience_s, "at_most": at_most})
