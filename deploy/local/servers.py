"""What every server of the stack is to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deploy.local.processes import Command

Say = Callable[[str], None]
"""Takes one line of progress."""


@dataclass(frozen=True)
class Server:
    """One process of the stack.

    name: unique in the stack.
    ports: where it listens, by purpose.
    mark: the argument that tells its process from all others; see `processes`.
    prepare: writes its configuration and, the first time, the data that it needs. May be repeated, also after a crash
        in the middle. The server does not run. Raises StackError: it cannot be done.
    command: how it is started.
    check: sends the running server a request as its clients will. Takes a few seconds at most. Raises NotReadyError: it
        does not answer, or not as it must.
    needs: servers that must be ready before this one can be.
    patience_s: how long it may take to end by itself after SIGTERM, before it is killed.
    """

    name: str
    ports: Mapping[str, int]
    mark: str
    prepare: Callable[[Say], None]
    command: Callable[[], Command]
    check: Callable[[], None]
    needs: tuple[str, ...] = ()
    patience_s: float = 10.0
