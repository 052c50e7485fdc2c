"""kafka-python's clients while a broker does not answer: they wait, instead of asking again and again, and they
close what they had opened.
"""

import socket
from typing import Any, ClassVar, Final

from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket

LOOK_AGAIN_MS: Final = 100.0
DIRECT: Final = "direct"


class WaitingClient(KafkaNetClient):  # type: ignore[misc]  # the library has no types
    """A client that says in milliseconds when a broker is worth asking, and to which one that is being connected to is
    not.

    The library's own says it in seconds, and its producer takes them for milliseconds; and that a broker which is being
    connected to may be asked at once. While a broker is away, and for long where its host is gone, a producer with
    something to send and a consumer whose heartbeat is due then ask without a pause: a whole processor for each worker,
    just when something is wrong (https://github.com/dpkp/kafka-python/issues/1907; seen in 3.0.12). A connection that
    is made ends the wait: nothing is sent later for it.
    """

    def connection_delay(self, node_id: object) -> float:
        """Milliseconds; 0 if the broker is connected, or was not tried."""
        delay_ms: float = super().connection_delay(node_id) * 1_000
        connection = self._manager._conns.get(node_id)  # noqa: SLF001 - as the class does that is extended here
        is_connecting = connection is not None and not connection.connected
        return max(delay_ms, LOOK_AGAIN_MS) if is_connecting else delay_ms


class DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """How `direct://`, given as a client's proxy, connects: without one. An attempt that fails closes its socket.

    The library's own attempts leave theirs to the garbage collector, which comes rarely to a worker
    (workers.app.memory_tuning): a file descriptor for each time that a broker refuses a connection (seen in 3.0.12).
    """

    SCHEMES: ClassVar = (DIRECT,)

    async def sock_connect(
        self, net: object, sock: socket.socket, sockaddr: object, timeout_at: float | None = None
    ) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
