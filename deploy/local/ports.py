"""Chooses ports for a new home, and asks whether a port is free."""

import random
import socket
from collections.abc import Collection
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.waiting import becomes

LOOPBACK = "127.0.0.1"

_LOWEST = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_LOWEST = 32_768
_TRIES = 10_000
_MOMENT_S = 3.0


def choose(count: int, rng: random.Random, taken: Collection[int] = ()) -> list[int]:
    """Ports of the loopback that are free now, all different. taken: none of these, whether they are free now or not.

    They lie below the range from which the kernel takes ports for outgoing connections: a server that was killed must
    find its port free when it comes back, not taken by the client that tried to reach it.

    Raises StackError: there are not that many.
    """
    chosen: list[int] = []
    highest = _highest()
    for _ in range(_TRIES):
        if len(chosen) == count:
            return chosen
        port = rng.randint(_LOWEST, highest)
        if port not in chosen and port not in taken and is_free(port):
            chosen.append(port)
    raise StackError(f"{count} free ports between {_LOWEST} and {highest} cannot be found")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port of the loopback."""
    with socket.socket() as probe:
        # As servers do it: connections of a killed server that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def becomes_free(port: int) -> bool:
    """Whether the port is free, now or in a moment: a process that has just died holds its ports a little longer."""
    return becomes(lambda: is_free(port), _MOMENT_S)


def _highest() -> int:
    try:
        lowest_ephemeral = int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = _EPHEMERAL_LOWEST
    # Where the whole range was opened to clients there is nothing below it, and any port is as good as another.
    return lowest_ephemeral - 1 if lowest_ephemeral > _LOWEST + 1_000 else _EPHEMERAL_LOWEST - 1
