"""Sockets that listen. Each network of clients waits in a queue of its own before it is accepted.

The kernel keeps connections that are not accepted yet in one queue for each listening socket, and drops what finds no
room there; a client that is dropped tries again after a second. One crowd fills a queue of thousands in a moment. So
there are several sockets on one port, and the client's address says in which of them it waits.
"""

import contextlib
import ctypes
import socket
import struct
from typing import Final

_QUEUES: Final = 16
"""Two networks share one with this probability: one in sixteen."""
BACKLOG: Final = 1_024
_ACCEPTED_AT_ONCE: Final = 4
"""Connections of each queue that are accepted in one round of the event loop, which takes one from each of its sockets:
each queue is given to it that often.
"""
_RECEIVED_MAX: Final = 32_768
"""How many bytes the kernel takes from a client before they are read: one read can bring so many."""
_SENT_MAX: Final = 262_144
"""How many bytes of answers the kernel keeps for a client that does not take them."""

_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_NETWORK_HEADER: Final = -0x100000  # SKF_NET_OFF
_LOAD, _TO_X, _RIGHT, _XOR, _MODULO, _RETURN = 0x20, 0x07, 0x74, 0xAC, 0x94, 0x16


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    if port:
        # The port is shared among our own sockets; another process that has it must not get half of our clients.
        with socket.socket(family, kind, proto) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
    return _listening(family, address)


def siblings(listener: socket.socket) -> list[socket.socket]:
    """More sockets on the port of one from `listen`. All of them together accept from all networks alike."""
    queues = [_listening(listener.family, listener.getsockname()) for _ in range(_QUEUES - 1)]
    _choose_by_network(listener)
    again = [each.dup() for each in (listener, *queues) for _ in range(_ACCEPTED_AT_ONCE - 1)]
    return [*queues, *again]


def _listening(family: int, address: object) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_MAX)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_MAX)
        listener.bind(address)  # type: ignore[arg-type]  # as the system gave it
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _choose_by_network(listener: socket.socket) -> None:
    """Has the kernel choose among the sockets of a port by the client's address, or its /64 network with IPv6, rather
    than by its address and port: in the kernel's language for packet filters.
    """
    if listener.family == socket.AF_INET6:
        load = [(_LOAD, _NETWORK_HEADER + 8), (_TO_X, 0), (_LOAD, _NETWORK_HEADER + 12), (_XOR, 0)]
    else:
        load = [(_LOAD, _NETWORK_HEADER + 12)]
    fold = [step for bits in (16, 8) for step in ((_TO_X, 0), (_RIGHT, bits), (_XOR, 0))]
    steps = [*load, *fold, (_MODULO, _QUEUES), (_RETURN, 0)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBi", code, 0, 0, value) for code, value in steps))
    filter_ = struct.pack("@HP", len(steps), ctypes.addressof(program))
    # A kernel that refuses it chooses by address and port: then networks share queues, and nothing else is lost.
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, filter_)
