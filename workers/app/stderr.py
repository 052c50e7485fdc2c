"""Lines to stderr that wait for no reader: one that is stuck must not hold what logs."""

import os
import select
import socket
import stat
import sys
from collections.abc import Callable
from typing import Final, Protocol

_PIPE_BYTES: Final = 4_096
"""How many bytes a pipe that can be written takes without waiting."""


class Stderr(Protocol):
    """Used under a lock."""

    def write(self, line: str) -> bool:
        """False if the line was dropped. One that was written in part is ended before the next one."""
        ...


class Plain:
    """Waits: files and terminals take everything at once, or are looked at by the one who stopped them."""

    def write(self, line: str) -> bool:
        sys.stderr.write(line)
        sys.stderr.flush()
        return True


class Unwaiting:
    """send: writes some of what it is given, at once, and says how many bytes; raises OSError if none."""

    def __init__(self, send: Callable[[bytes], int]) -> None:
        self._send = send
        self._rest = b""

    def write(self, line: str) -> bool:
        self._rest = self._left_of(self._rest)
        if self._rest:
            return False
        whole = line.encode(errors="backslashreplace")
        left = self._left_of(whole)
        if len(left) == len(whole):
            return False
        self._rest = left
        return True

    def _left_of(self, data: bytes) -> bytes:
        try:
            while data:
                data = data[self._send(data) :]
        except OSError:
            pass  # it is full, or its reader has gone, and both are no reason to end what logs
        return data


def opened() -> Stderr:
    """This process's stderr. It is not made non-blocking itself: other processes write to it too."""
    try:
        descriptor = sys.stderr.fileno()
        mode = os.fstat(descriptor).st_mode
    except (AttributeError, OSError, ValueError):
        return Plain()  # a test's, or closed
    if stat.S_ISSOCK(mode):
        return Unwaiting(lambda data: _sent(descriptor, data))
    if not stat.S_ISFIFO(mode):
        return Plain()
    try:
        # The same pipe, opened again: this one may be non-blocking.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # It belongs to another user, as in a container.
        return Unwaiting(lambda data: _written_if_ready(descriptor, data))
    return Unwaiting(lambda data: os.write(own, data))


def _sent(descriptor: int, data: bytes) -> int:
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptor)
    try:
        return borrowed.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    finally:
        borrowed.detach()


def _written_if_ready(descriptor: int, data: bytes) -> int:
    """It waits nevertheless if another process takes the last room in between."""
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    if not ready.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[:_PIPE_BYTES])
