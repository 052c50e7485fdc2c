"""Sockets that listen, with several queues, so that the networks of clients mostly wait in different ones.

The kernel keeps connections that are not accepted yet in one queue for each listening socket. If the queue is full, it
drops new ones, and a dropped client tries again after a second. One crowd of clients fills a queue of thousands in a
moment. So there are several sockets on one port, and the client's address decides in which queue it waits.
"""

import contextlib
import ctypes
import socket
import struct
from typing import Final

_QUEUES: Final = 16
"""How many queues there are: two networks share one with a probability of one in sixteen."""
BACKLOG: Final = 1_024
_ACCEPTED_AT_ONCE: Final = 4
"""How many connections of each queue are accepted in one round of the event loop. The loop accepts one from each of its
sockets, so each queue is registered this many times.
"""
_RECEIVED_MAX: Final = 32_768
"""How many bytes the kernel takes from a client before they are read: one read can return all of them."""
_SENT_MAX: Final = 262_144
"""How many bytes of answers the kernel keeps for a client that does not take them yet."""

_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_NETWORK_HEADER: Final = -0x100000  # SKF_NET_OFF
_LOAD, _TO_X, _RIGHT, _XOR, _MODULO, _RETURN = 0x20, 0x07, 0x74, 0xAC, 0x94, 0x16


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    if port:
        # The port is shared by our own sockets only: if another process has it, it must not get half of our clients.
        with socket.socket(family, kind, proto) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
    return _listening(family, address)


def siblings(listener: socket.socket) -> list[socket.socket]:
    """The further sockets on the port of a socket from `listen`. All of them together share the networks evenly."""
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
        listener.bind(address)  # type: ignore[arg-type]  # in the form that the system gave
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _choose_by_network(listener: socket.socket) -> None:
    """Makes the kernel choose among the sockets of a port by the client's address (with IPv6, its /64 network), and not
    by its address and port. The program is in the kernel's language for packet filters.
    """
    if listener.family == socket.AF_INET6:
        load = [(_LOAD, _NETWORK_HEADER + 8), (_TO_X, 0), (_LOAD, _NETWORK_HEADER + 12), (_XOR, 0)]
    else:
        load = [(_LOAD, _NETWORK_HEADER + 12)]
    fold = [step for bits in (16, 8) for step in ((_TO_X, 0), (_RIGHT, bits), (_XOR, 0))]
    steps = [*load, *fold, (_MODULO, _QUEUES), (_RETURN, 0)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBi", code, 0, 0, value) for code, value in steps))
    filter_ = struct.pack("@HP", len(steps), ctypes.addressof(program))
    # If the kernel refuses the program, it chooses by address and port. Then networks share queues; nothing else is
    # lost.
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, filter_)
