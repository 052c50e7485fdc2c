"""A socket that gives up in time: the byte transport under every Thrift connection.

Thrift's own sockets count a timeout from each byte that arrives, so a call could wait for a slow peer without end. Here
a *deadline* holds for everything until the next one is set.
"""

import select
import socket
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from feedstore.background import answer_of, on_a_thread
from feedstore.widecolumn.hbase.addresses import Address

BUFFER_BYTES = 64 * 1024
"""The most bytes that one read or write of the socket carries; thriftpy2's own 4 KiB would cost a system call each."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}
"""A peer that vanished without a word is noticed in 19 s on an idle connection."""
_UNACKNOWLEDGED_MS_MAX = 10_000
"""A peer that has not acknowledged what was sent is given up after this time, even if the call may take longer."""


class DeadlineSocket:
    """A connected socket with the methods that Thrift asks of a transport. Not thread-safe."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._deadline = 0.0
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    @classmethod
    def connect(cls, address: Address, timeout_s: float) -> "DeadlineSocket":
        """Raises OSError. If the name of the host has several addresses, each gets its share of the time."""
        connected = _connected(address, time.monotonic() + timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in {**_KEEP_ALIVE, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MS_MAX}.items():
                if hasattr(socket, name):  # not on every system
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        except OSError:
            connected.close()
            raise
        return cls(connected)

    def set_deadline(self, deadline: float) -> None:
        """deadline: of `time.monotonic`, for all reads and writes from now on."""
        self._deadline = deadline

    def is_silent(self) -> bool:
        """Whether the connection has nothing to read, as an idle one must. Otherwise its peer has closed it, or it
        holds an abandoned answer. No round trip.
        """
        return not self._poll.poll(0)

    def read(self, size: int) -> bytes:
        self._socket.settimeout(self.left_s())
        data = self._socket.recv(size)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data

    def write(self, data: bytes) -> None:
        self._socket.settimeout(self.left_s())
        self._socket.sendall(data)

    def flush(self) -> None:
        """Does nothing: nothing is kept back here."""

    def close(self) -> None:
        self._socket.close()

    def left_s(self) -> float:
        """The time until the deadline. Raises TimeoutError if it has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline of the call has passed")
        return left


class _Names:
    """Looks up where hosts are, on threads: the system's own look-up has no deadline. One at a time for each name.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[Address, Future[list[Any]]] = {}

    def places(self, address: Address, deadline: float) -> list[str]:
        """Raises OSError."""
        with self._lock:
            look = self._looks.get(address)
            if look is None or look.done():
                ask = partial(socket.getaddrinfo, *address, type=socket.SOCK_STREAM)
                try:
                    look = self._looks[address] = answer_of(ask, on_a_thread("hbase-names"))
                except RuntimeError as error:
                    raise OSError(str(error)) from error
        try:
            return [str(each[4][0]) for each in look.result(deadline - time.monotonic())]
        except TimeoutError as error:
            raise TimeoutError(f"the name {address.host} was not resolved in time") from error


_NAMES = _Names()


def _connected(address: Address, deadline: float) -> socket.socket:
    places = _NAMES.places(address, deadline)
    while True:
        share_s = (deadline - time.monotonic()) / len(places)
        try:
            return socket.create_connection((places.pop(0), address.port), max(0.001, share_s))
        except OSError:
            if not places:
                raise
