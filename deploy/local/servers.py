"""The interface of every server to the stack."""

from collections.abc import Callable, Mapping
from typing import Protocol

from deploy.local.processes import Command

Say = Callable[[str], None]
"""Takes one line of progress."""


class Server(Protocol):
    """One process of the stack.

    name: unique in the stack.
    needs: servers that must be ready before this one can be.
    ports: where it listens, by purpose.
    patience_s: how long it may take to end by itself after SIGTERM, before it is killed.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> tuple[str, ...]: ...

    @property
    def ports(self) -> Mapping[str, int]: ...

    @property
    def patience_s(self) -> float: ...

    @property
    def mark(self) -> str:
        """The argument that tells its process from all others; see `processes`."""
        ...

    def prepare(self, say: Say) -> None:
        """Writes its configuration and, the first time, the data that it needs. May be repeated, also after a crash
        in the middle. The server does not run.

        Raises:
            StackError: it cannot be done.
        """
        ...

    def command(self) -> Command: ...

    def check(self) -> None:
        """Sends the running server a request as its clients will. Takes a few seconds at most.

        Raises:
            NotReadyError: it does not answer, or not as it must.
        """
        ...
