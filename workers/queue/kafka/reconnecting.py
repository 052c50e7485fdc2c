"""Clients of kafka-python that wait while a broker does not answer, instead of asking again and again, and that close
what they had opened.
"""

import socket
import ssl
from typing import Any, ClassVar, Final
from weakref import WeakSet

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from feedstore.lazy import closed_on_error

LOOK_AGAIN_MS: Final = 100.0
GREETS_MS: Final = 3_000
"""How long a broker may take to greet a new connection; after each time that it does not, twice as long, up to 30 s. It
is less than a third of the time in which a new client must find a broker: if one hangs, others are asked.
"""
TOLD: Final = 4
"""How many reasons are told if no broker is found."""
DIRECT: Final = "direct"
_COORDINATOR: Final = "coordinator-"
"""How the library's names of connections to coordinators begin."""


class WaitingClient(KafkaNetClient):  # type: ignore[misc]  # the library has no types
    """A client that says in milliseconds when a broker may be asked, and makes callers wait while it still connects.

    The library's own client says it in seconds, which its producer reads as milliseconds; and it says that a broker may
    be asked at once while the connection is still being made. While a broker is away (long, if its host is gone), a
    producer with something to send and a consumer whose heartbeat is due then ask without a pause. That takes a whole
    processor for each worker, just when something is wrong (https://github.com/dpkp/kafka-python/issues/1907; seen in
    3.0.12). A connection that is made ends the wait, so nothing is sent later because of it.

    The coordinator of a group is not waited for here: its caller takes one with a wait for dead, and looks it up again
    and again while the connection is made. Each look-up puts off the next heartbeat, so that a connection that takes
    long cost a member its partitions. What is sent to a coordinator waits for the connection by itself.

    When it is closed, it closes its sockets. If something was still to be written on a connection, such as a heartbeat,
    the library's own client leaves that socket to the garbage collector (seen in 3.0.12).
    """

    def __init__(self, **options: Any) -> None:
        """The options of a client of kafka-python."""
        net = NetworkSelector(**options)
        super().__init__(net=net, manager=_Connections(net, **options), **options)

    def close(self, node_id: object = None) -> None:
        """Closes the connection to one broker, or all of them, and the client with them."""
        super().close(node_id)
        if node_id is None:
            self._manager.close_sockets()

    def connection_delay(self, node_id: object) -> float:
        """The wait in milliseconds; 0 if the broker is connected, or was not tried."""
        delay_ms: float = super().connection_delay(node_id) * 1_000
        connection = self._manager._conns.get(node_id)  # noqa: SLF001 - as the class does that is extended here
        waits = connection is not None and not connection.connected and not str(node_id).startswith(_COORDINATOR)
        return max(delay_ms, LOOK_AGAIN_MS) if waits else delay_ms


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # the library has no types
    """The connections of a client, with the sockets of all of them."""

    def __init__(self, net: NetworkSelector, **options: Any) -> None:
        super().__init__(net, socket_connection_setup_timeout_ms=GREETS_MS, **options)
        self._transports: WeakSet[KafkaTCPTransport] = WeakSet()
        self._failures: dict[str, None] = {}  # of connections, without repetitions

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """Finds the brokers, while a client is made. If none answers, it closes everything: no caller gets the client
        to close it, and its thread would run as long as this process does (seen in 3.0.12).

        Raises:
            KafkaTimeoutError: none answered in time. The library does not say why not (a wrong password, or a
                certificate that is not trusted); this does.
        """
        try:
            super().bootstrap(timeout_ms, refresh)
        except KafkaTimeoutError as error:
            self._close_all()
            raise KafkaTimeoutError("; ".join(self._failures) or str(error)) from error
        except BaseException:
            self._close_all()
            raise

    def _close_all(self) -> None:
        self.close()
        self._net.close()
        self.close_sockets()

    async def _connect(self, node: Any, conn: Any, **options: Any) -> None:
        await super()._connect(node, conn, **options)
        if conn.close_future.failed() and len(self._failures) < TOLD:
            why = str(conn.close_future.exception)
            if why.endswith("socket disconnected") and self.config["security_protocol"] != "PLAINTEXT":
                why += ", as if the broker refused the password or the certificate"  # if it said so, that was not read
            self._failures[f"{node.host}:{node.port}: {why}"] = None

    def get_connection(self, node_id: object, timeout_ms: float | None = None, **options: Any) -> Any:
        """The library lets a new client wait for one broker, chosen by chance, as long as for all of them together
        (seen in 3.0.12). Here a broker has the time of any other connection.
        """
        if timeout_ms is not None:
            timeout_ms = min(timeout_ms, self.socket_connection_setup_timeout_ms(node_id))
        return super().get_connection(node_id, timeout_ms, **options)

    def close_sockets(self) -> None:
        """Closes all sockets. The client's loop must have ended: nothing is written any more."""
        for transport in self._transports:
            if transport._sock is not None:  # noqa: SLF001 - it has no way to be closed but through the loop
                transport._sock.close()  # noqa: SLF001

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> KafkaTCPTransport:
        if self.ssl_enabled:
            transport = await self._secured(node, timeout_at)
        else:
            transport = await super()._build_transport(node, timeout_at=timeout_at)
        self._transports.add(transport)
        return transport

    async def _secured(self, node: Any, timeout_at: float | None) -> KafkaTCPTransport:
        """A connection with TLS. The library's own has no limit of time for the greeting of TLS, so that a client of a
        broker that hangs waits for ever; and if the greeting fails, it leaves the socket to the garbage collector (both
        seen in 3.0.12).
        """
        options = self.config["socket_options"]
        sock = await create_connection(self._net, node.host, node.port, options, self.config["proxy_url"], timeout_at)
        try:
            secrets = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
            transport = KafkaSSLTransport(self._net, sock, host=node.host, **secrets)
            sock = transport._sock  # noqa: SLF001 - the one of TLS, which has taken over from the other
            await self._greeted(sock, timeout_at)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError | KafkaError):
                raise KafkaConnectionError(f"TLS: {error}") from error
            raise
        return transport

    async def _greeted(self, sock: ssl.SSLSocket, timeout_at: float | None) -> None:
        while True:
            try:
                return sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(sock, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(sock, timeout_at)


class DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """Connects without a proxy, for clients whose proxy is given as `direct://`. An attempt that fails closes its
    socket.

    The library's own attempts leave their sockets to the garbage collector, which rarely runs in a worker
    (workers.app.memory_tuning): that costs a file descriptor each time a broker refuses a connection (seen in 3.0.12).
    """

    SCHEMES: ClassVar = (DIRECT,)

    async def sock_connect(
        self, net: object, sock: socket.socket, sockaddr: object, timeout_at: float | None = None
    ) -> Any:
        with closed_on_error(sock):
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
