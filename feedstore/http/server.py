"""Serves an application on a socket, in a separate thread, and ends gracefully."""

import asyncio
import math
import socket
import threading
from contextlib import suppress
from typing import Final

import uvicorn

from feedstore.http import listening
from feedstore.http.app import App
from feedstore.http.connections import bounded
from feedstore.http.traced import TracedApp

KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle: longer than proxies keep theirs, so none is closed just as a proxy uses it."""


_WAITING_MAX: Final = 100
"""The most connections that an ending server takes from one queue: each needs a file descriptor."""


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes the connections that wait in the kernel before the sockets are closed, which would reset them: their
        clients may have sent requests already.
        """
        waiting = [client for each in sockets or () for client in _last(each)]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        for client in waiting:
            with suppress(OSError, RuntimeError):  # it has gone
                await loop.connect_accepted_socket(self._connection, client)
        await asyncio.sleep(0)  # those that the loop has taken just now are made
        await super().shutdown(sockets)

    def _connection(self) -> asyncio.Protocol:
        """As uvicorn makes one for each connection that it takes."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def _last(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait in the queue of a socket, which takes no more from now on."""
    clients: list[socket.socket] = []
    # Both also fail on a further descriptor of the same queue.
    with suppress(OSError):
        while len(clients) < _WAITING_MAX:
            clients.append(listener.accept()[0])
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RD)  # `close` would take a moment
    return clients


class HttpServer:
    """A server, controlled by one thread, which is not the one that serves.

    listener: from `listening.listen`; the server owns it. patience_s: how long a client may take to send a request, and
    to take an answer. connections: the most at once. end_s: how long requests may take when the server ends.
    """

    def __init__(
        self, app: App | TracedApp, listener: socket.socket, *, patience_s: float, connections: int, end_s: float
    ) -> None:
        self._app = app
        self._listener = listener
        self._error: BaseException | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http=bounded(patience_s, connections, app.refused),
                interface="asgi3",
                ws="none",
                lifespan="off",
                loop="uvloop",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(end_s),
                backlog=listening.BACKLOG,
            )
        )
        host, port = listener.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self, for_s: float) -> None:
        """Ends the server gracefully: it serves for `for_s` more while it reports that it is not ready, then finishes
        the requests that are under way. Returns at once.
        """
        self._app.drain()
        timer = threading.Timer(for_s, self._end)
        timer.daemon = True
        timer.start()

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, within_s: float) -> None:
        """Waits until the server has ended, or the time is up."""
        self._thread.join(within_s)

    def close(self) -> None:
        """Ends the server without draining, if it has not ended yet. If an error has ended it, raises that."""
        self._end()
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()
        self._app.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener, *listening.siblings(self._listener)])
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._error = error

    def _end(self) -> None:
        self._server.should_exit = True
