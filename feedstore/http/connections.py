"""The connections of clients, with bounds on all time and memory that a client can cost a server.

uvicorn bounds how long a connection may be idle between requests. The rest is bounded here, by three rules:
- Only the body of a request may be long, and its reader bounds it. The rest is counted together: the head, the frames
  of chunks, and the trailers, which are dropped.
- A client has a limited time to send a request, from its first byte to its last, whether it is being read or not, and
  to take an answer, until the client's kernel has it.
- If a request is answered before all of it has arrived, its connection ends.

`Places` decides which clients have a connection at all.

uvicorn sends the head and the body of an answer separately, each with a call of the kernel, which costs as much as all
of a page's JSON. Here both are sent together.
"""

import asyncio
import fcntl
import math
import re
import secrets
import socket
import struct
import termios
import weakref
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from feedstore.http import problems
from feedstore.http.incoming import REFUSED
from feedstore.http.places import SPARE_PLACES, Places, network
from feedstore.http.problems import ProblemError
from feedstore.http.turns import RequestTurns

HEAD_BYTES_MAX: Final = 16_384
"""The most bytes of a request without its body. More may arrive at once, but is not kept."""
HEADERS_MAX: Final = 100
PIPELINED_MAX: Final = 4
"""The most requests of a connection that wait behind the one that is being answered."""
HEALTH: Final = frozenset({b"/healthz", b"/readyz"})
"""The requests that a connection in a spare place may make."""

_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})
"""The headers of a request by which a client offers to continue in another protocol, such as HTTP/2. A server may
ignore the offer (RFC 9110, 7.8), and must then answer the request as if it were not there.
"""

_UNKNOWN: Final = re.compile(
    rb"^(?!(?:DELETE|GET|HEAD|POST) )[!#$%&'*+.^_`|~0-9A-Za-z-]+ \S+ HTTP/1\.[01]\r$", re.MULTILINE
)
"""The first line of a request with a method that no resource has."""
_HANDSHAKE: Final = b"\x16\x03"
"""How a client of TLS begins."""
_DROPPED_MAX: Final = 262_144
"""How many bytes are read and dropped after a refusal, so that it reaches a client that still sends. If a connection is
closed before everything was read, it is reset, and the refusal is lost.
"""
UNTAKEN_MAX: Final = 16 * 1024 * 1024
"""The most bytes of answers, for all clients together, that are kept because the kernel has no room for them."""
ON_ITS_WAY_S: Final = 0.5
"""How long a request that is on its way when the server ends has to arrive, on a connection that has none under way.
By then a proxy has noticed that the server takes no new connections.
"""
_LOOKS: Final = 8
"""How many times within the patience all clients are checked."""

_log = structlog.get_logger()


class Clients:
    """All clients of one server, used by its event loop alone.

    patience_s: how long a client may take to send a request, and to take an answer. at_most: the most connections.
    refused: is told the status of each request that is refused before the application has it.
    """

    def __init__(self, patience_s: float, at_most: int, refused: Callable[[int], None]) -> None:
        self.patience_s = patience_s
        self.refused = refused
        self.last_words_s = patience_s / 4
        """How long a client has to take its last answer, after which its connection ends."""
        self.turn_s = patience_s / 8
        """How long a request may wait behind others until it begins. If all requests that may wait on a connection take
        this long, one after the other, the connection must still not outlive its limit.
        """
        self._untaken: dict[Connection, int] = {}
        self._untaken_bytes = 0
        self._places: Places[Connection] = Places(at_most, SPARE_PLACES)
        self._turns: RequestTurns | None = None
        self._connected: set[Connection] = set()
        self._looking = False

    def enter(self, connection: "Connection", host: str) -> bool:
        """Finds a place for a new connection. True if it is a spare place."""
        spare, leaves = self._places.enter(connection, host)
        if leaves is not None:
            leaves.give_way()
        self._connected.add(connection)
        if not self._looking:
            self._looking = True
            connection.loop.call_later(self.patience_s / _LOOKS, self._look, connection.loop)
        return spare

    def turns(self, loop: asyncio.AbstractEventLoop) -> RequestTurns:
        if self._turns is None:
            self._turns = RequestTurns(loop.call_soon)
        return self._turns

    def leave(self, connection: "Connection", host: str) -> None:
        self._places.leave(connection, host)
        self._connected.discard(connection)
        self.took(connection)

    def does_not_take(self, connection: "Connection", size: int) -> None:
        """Notes that a client takes no more of its answers for now. If too much is untaken by all clients together,
        those that have taken nothing for the longest time are dropped.
        """
        self._untaken[connection] = size
        self._untaken_bytes += size
        while self._untaken_bytes > UNTAKEN_MAX:
            longest = next(iter(self._untaken))
            self.took(longest)
            longest.transport.abort()

    def took(self, connection: "Connection") -> None:
        """Notes that a client takes its answers again, or has gone."""
        self._untaken_bytes -= self._untaken.pop(connection, 0)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        full = self._places.full()
        for connection in list(self._connected):
            connection.look(now_s, full=full)
        self._looking = bool(self._connected)
        if self._looking:
            loop.call_later(self.patience_s / _LOOKS, self._look, loop)


class Connection(HttpToolsProtocol):
    """The connection of one client.

    _owes_until_s: when the rest of a request must be here, in the loop's time; infinite if nothing is missing.
    _takes_until_s: when the client must have the last answer; infinite if there is none.
    """

    clients: Clients

    _network = ""
    _spare = False
    _owes = True
    _owes_until_s = math.inf
    _takes_until_s = math.inf
    _in_message = False
    _in_body = False
    _offers = False
    _beside_body_bytes = 0
    _dropped_bytes = 0
    _keeps = True
    _ending = False
    _deaf = False
    _last: ProblemError | None = None
    _answers: "Whole"
    _turns: RequestTurns

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._answers = Whole(transport, self)
        super().connection_made(self._answers)
        # If the kernel does not take an answer at once, the client counts as not taking it.
        transport.set_write_buffer_limits(high=0)
        patience_s = self.clients.patience_s
        client = transport.get_extra_info("socket")
        if client is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # If the client has not taken its data by then, the kernel closes the connection, even after it was closed
            # here.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1_000 * patience_s))
        self._turns = self.clients.turns(self.loop)
        self._network = network(self.client[0]) if self.client else ""
        self._owes_until_s = self.loop.time() + patience_s
        self._spare = self.clients.enter(self, self._network)
        if self._spare:
            self._owes_until_s = self.loop.time() + self.clients.last_words_s

    def connection_lost(self, exc: Exception | None) -> None:
        self.clients.leave(self, self._network)
        super().connection_lost(exc)
        for cycle, _ in self.pipeline:
            _forget(cycle)
        self.pipeline.clear()

    # What comes
    # -----------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._drop(data)
            return
        if self.transport.is_closing():
            return
        self._beside_body_bytes += len(data)
        if not self._in_message and not data.strip(b"\r\n"):
            self._pass_over()
            return
        self._unset_keepalive_if_required()
        self._owes = True
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade:
            # After a CONNECT, anything may follow.
            self.cycle.keep_alive = False
            self._deaf = True
        except httptools.HttpParserError as error:
            said = error.__context__
            if not isinstance(said, ProblemError):
                said = _no_request(error, data)
            # The error may wait until earlier answers are sent, and its traceback would keep the data that was read.
            self._refuse(said.with_traceback(None))
            return
        if not self._owes:
            self._owes_until_s = math.inf
        elif self._beside_body_bytes > HEAD_BYTES_MAX:
            self._refuse(_too_long())
        elif self._owes_until_s == math.inf:
            self._owes_until_s = self.loop.time() + self.clients.patience_s

    def _pass_over(self) -> None:
        """Passes over empty lines before a request (RFC 9112, 2.2): none has begun, so the connection stays as idle as
        it was. They are bounded as a head is.
        """
        if self._beside_body_bytes > HEAD_BYTES_MAX:
            self._refuse(_too_long())

    def _parse(self, data: bytes) -> None:
        """Parses data. The parser does not read the body of a request that offers another protocol. No offer is
        accepted, so such a request is parsed again without it. Raises HttpParserError, and HttpParserUpgrade after a
        CONNECT.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._offers:
                    raise
                head = _without_offer(self.parser, self.url, self.headers)
                data = head + data[upgrade.args[0] :]
                self._offers = False
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn never keeps it open
        """Whether the connection stays open. A client may close its side to show that it asks for no more. Its
        requests, above all actions, are still answered, and then the connection is closed.
        """
        if self._in_body or not self._is_answering():
            return False
        # If another request has begun, its rest never comes.
        self._owes = False
        self._owes_until_s = math.inf
        self.cycle.keep_alive = False
        return True

    def _drop(self, data: bytes) -> None:
        if not self.transport.is_closing():
            # Answers are still to be sent. Reading and dropping everything meanwhile would be unbounded work.
            self.transport.pause_reading()
            return
        self._dropped_bytes += len(data)
        if self._dropped_bytes > _DROPPED_MAX:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._owes = self._in_message = True
        self._offers = False
        self._hosts = self._authorizations = 0
        self._codings: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"authorization":
            self._authorizations += 1
        elif name == b"transfer-encoding":
            self._codings.append(value.strip().lower())
        elif name == b"upgrade":
            self._offers = True
        elif name == b"expect":
            # A client of HTTP/1.0 takes whatever comes first for its answer.
            self.expect_100_continue = value.lower() == b"100-continue" and self.parser.get_http_version() == "1.1"
        self.headers.append((name, value))
        if len(self.headers) > HEADERS_MAX:
            raise _too_large(f"a request has at most {HEADERS_MAX} headers")

    def on_headers_complete(self) -> None:
        if self._offers:
            self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._offers:
            return
        self._check_head()
        if self._spare and self.url.partition(b"?")[0] not in HEALTH:
            raise _crowded()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ProblemError(problems.OVERLOADED, f"at most {PIPELINED_MAX} requests may wait on a connection")
        super().on_headers_complete()
        self._in_body = True
        # Until all of the request is here, its answer is the last one of the connection.
        self._keeps = self.cycle.keep_alive and not self._spare
        self.cycle.keep_alive = False

    def _check_head(self) -> None:
        """Raises ProblemError if the head is too long, or says what others may read in another way."""
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() == "1.1"):
            raise ProblemError(problems.MALFORMED_REQUEST, "send exactly one Host header")
        if b"%2" in self.url and b"%2f" in self.url.partition(b"?")[0].lower():
            # It would be decoded before the path is taken apart, and a proxy that looks at paths sees another one.
            raise ProblemError(problems.MALFORMED_REQUEST, "the path: expected no encoded slash (%2F): no id has one")
        if b"#" in self.url:
            # The path would end there, and a proxy that looks at the ends of paths sees another one.
            raise ProblemError(problems.MALFORMED_REQUEST, "the target of the request: expected no fragment (#)")
        if self._authorizations > 1:  # one of them may be a proxy's
            raise ProblemError(problems.MALFORMED_REQUEST, "send at most one Authorization header")
        # What came in one piece is all counted, also what follows the head.
        if self._beside_body_bytes > HEAD_BYTES_MAX and self._head_bytes() > HEAD_BYTES_MAX:
            raise _too_long()
        if not self.url.startswith(b"/") and httptools.parse_url(self.url).path is None:
            raise ProblemError(problems.MALFORMED_REQUEST, "the target of the request has no path: send at least /")
        if self._codings and self._codings != [b"chunked"]:
            raise ProblemError(problems.NOT_IMPLEMENTED, "the only Transfer-Encoding that is accepted is chunked")

    def _head_bytes(self) -> int:
        """How long the head is at least: what separates its parts is not counted."""
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        self._beside_body_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers:
            return
        self._owes = self._in_message = self._in_body = False
        self._owes_until_s = math.inf
        self._beside_body_bytes = 0
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps and not self._ending
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._turns.now():
            super()._start_asgi_task(cycle, app)
        else:
            until_s = self.loop.time() + self.clients.turn_s
            self._turns.later(self._network, partial(self._begin, cycle, app, until_s))

    def _begin(self, cycle: RequestResponseCycle, app: Any, until_s: float) -> bool:
        """Begins a request whose turn it is. False if its client has gone or it has waited too long."""
        if self.transport.is_closing():
            _forget(cycle)
            return False
        if self.loop.time() > until_s:
            self._say(ProblemError(problems.OVERLOADED, "the request waited too long for its turn: try again"))
            _forget(cycle)
            return False
        super()._start_asgi_task(cycle, app)
        return True

    # What leaves
    # -----------------------------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self._answers.flush()
        super().on_response_complete()
        # A connection that closes already has its limit, `last_words_s`.
        if not self.flow.write_paused and not self._deaf:
            self._takes_until_s = self.loop.time() + self.clients.patience_s
        if self._last is not None and not self._is_answering():
            self._say(self._last)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.clients.does_not_take(self, self._answers.untaken_bytes())
        self._takes_until_s = self.loop.time() + self.clients.patience_s

    def resume_writing(self) -> None:
        super().resume_writing()
        self.clients.took(self)
        self._takes_until_s = self.loop.time() + self.clients.patience_s

    def shutdown(self) -> None:
        self._ending = True
        if self._is_answering():
            super().shutdown()
        else:
            # A request may be on its way. If the connection were closed now, a proxy could not know whether that was
            # done, and would repeat no action elsewhere.
            self.loop.call_later(ON_ITS_WAY_S, self._end_unused)

    def _end_unused(self) -> None:
        if not self._is_answering():
            self.transport.close()

    def end(self) -> bool:
        """Notes that no more answers follow. True if the client may still send: its data must then be dropped before
        the connection is closed.
        """
        if not self.flow.write_paused:
            self._takes_until_s = self.loop.time() + self.clients.last_words_s
        was_deaf, self._deaf = self._deaf, True
        return self._owes or was_deaf

    # What takes too long
    # -----------------------------------------------------------------------------------------------------------------

    def look(self, now_s: float, *, full: bool) -> None:
        """Ends the connection if its client takes too long. full: no place is left: unused connections are closed."""
        if now_s >= self._takes_until_s:
            if self.transport.is_closing() or self.flow.write_paused or self._untaken_bytes():
                self.transport.abort()
                return
            if full and not self._is_answering() and not self._owes:
                self.transport.close()
                return
            self._takes_until_s = now_s + self.clients.patience_s
        if now_s >= self._owes_until_s:
            if self._deaf:
                self.transport.abort()
            elif self._spare:
                self._refuse(_crowded())
            else:
                self._refuse(
                    ProblemError(problems.TOO_SLOW, f"the request must arrive within {self.clients.patience_s:g} s")
                )

    def rank(self) -> int | None:
        if self.transport.is_closing():
            return 0
        if self._owes or self.flow.write_paused:
            return 1
        return None if self._is_answering() else 2

    def give_way(self) -> None:
        """Ends the connection, because another client has its place now."""
        if self.transport.is_closing() or self._is_answering():
            self.transport.abort()
        elif self._owes:
            self._say(_crowded(), lingers=False)
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # there is none before the first request
        return cycle is not None and not cycle.response_complete

    def _untaken_bytes(self) -> int:
        """How many bytes the kernel still has to send to the client."""
        client = self.transport.get_extra_info("socket")
        [count] = struct.unpack("i", fcntl.ioctl(client.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        return int(count)

    def _refuse(self, error: ProblemError) -> None:
        """Refuses the request that is arriving, once all earlier ones are answered, and ignores all further data."""
        self._deaf = True
        if not self._is_answering():
            self._say(error)
        elif self._in_body:
            # The application already has the request and answers it. In any case, the connection ends then.
            self.cycle.scope["state"][REFUSED] = error
            self.cycle.message_event.set()
            self._owes_until_s = self.loop.time() + self.clients.last_words_s
        else:
            self._last = error
            self._owes_until_s = math.inf

    def _say(self, error: ProblemError, *, lingers: bool = True) -> None:
        """Answers a request that was not given to the application, and closes."""
        if self.transport.is_closing():
            return
        request_id = secrets.token_hex(8)
        _log.info("http.refused", request_id=request_id, status=error.kind.status, error=error.for_log())
        self.clients.refused(error.kind.status)
        headers, content = error.answer(request_id)
        headers |= {
            **{name.decode(): value.decode() for name, value in self.server_state.default_headers},  # the date
            "x-request-id": request_id,
            "x-content-type-options": "nosniff",
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {error.kind.status} {HTTPStatus(error.kind.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._answers.write("\r\n".join([*lines, "", ""]).encode() + content)
        self._answers.close(lingers=lingers)


class Whole(asyncio.Transport):
    """A connection's transport. Collects what is written of an answer, and sends it at its end, in one piece."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__()
        self._transport = transport
        # A weak reference: the connection refers to this transport, and the garbage collector rarely looks for cycles.
        self._connection = weakref.proxy(connection)
        self._parts: list[bytes] = []
        # Called directly, because they are needed several times for each request.
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]

    def write(self, data: Any) -> None:
        if self.is_closing():
            return  # a waiting request, whose client has gone
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

    def close(self, *, lingers: bool = True) -> None:
        """Sends what was written, and closes. lingers: whether to drop first what the client may still send."""
        if self.is_closing():
            return
        self.flush()
        if self._connection.end() and lingers:
            self.is_closing = lambda: True  # type: ignore[method-assign]
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    def untaken_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def _forget(cycle: RequestResponseCycle) -> None:
    """Cuts the reference of a request that never begins to its connection: else both stay until the collector runs."""
    cycle.on_response = _nothing


def _without_offer(parser: httptools.HttpRequestParser, url: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of a request, without its offer of another protocol."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), url, parser.get_http_version().encode())]
    for name, value in headers:
        kept = value
        if name == b"connection":
            kept = b", ".join(each for each in map(bytes.strip, value.split(b",")) if each.lower() not in _OFFER)
        if name not in _OFFER and (kept or name != b"connection"):
            lines.append(b"%b: %b" % (name, kept))
    return b"\r\n".join([*lines, b"", b""])


def _nothing() -> None: ...


def _no_request(error: httptools.HttpParserError, data: bytes) -> ProblemError:
    """The problem of data that the parser does not accept. It accepts some methods only."""
    if isinstance(error, httptools.HttpParserInvalidMethodError) and _UNKNOWN.search(data):
        return ProblemError(problems.NOT_IMPLEMENTED, "no resource has such a method")
    if data[:2] == _HANDSHAKE:
        return ProblemError(
            problems.MALFORMED_REQUEST, "expected an HTTP request, without TLS: this is a TLS handshake"
        )
    return ProblemError(problems.MALFORMED_REQUEST, f"expected an HTTP request: {str(error.__context__ or error)[:80]}")


def _too_large(detail: str) -> ProblemError:
    return ProblemError(problems.HEAD_TOO_LARGE, detail)


def _too_long() -> ProblemError:
    return _too_large(f"a request has at most {HEAD_BYTES_MAX} bytes without its body")


def _crowded() -> ProblemError:
    return ProblemError(problems.OVERLOADED, "too many connections")


def bounded(patience_s: float, at_most: int, refused: Callable[[int], None]) -> type[Connection]:
    """The class of the connections of one server."""
    return type("Connection", (Connection,), {"clients": Clients(patience_s, at_most, refused)})
