"""What kafka-python's clients do while a broker does not answer: they wait, instead of asking again and again."""

from typing import Final

from kafka.net.compat import KafkaNetClient

LOOK_AGAIN_MS: Final = 100.0


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
        """Milliseconds; 0 where the broker is connected, or nobody has tried."""
        delay_ms: float = super().connection_delay(node_id) * 1_000
        connection = self._manager._conns.get(node_id)  # noqa: SLF001 - as the class does that is extended here
        is_connecting = connection is not None and not connection.connected
        return max(delay_ms, LOOK_AGAIN_MS) if is_connecting else delay_ms
