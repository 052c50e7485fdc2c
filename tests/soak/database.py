"""What administrators and their tools do to a database that people use."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from deploy.local import Stack, mariadb
from tests.stack.administered import administer

NAME: Final = mariadb.NAME
WAYS: Final = ("read_only", "full", "end_connections")
_USUAL: Final = 200
"""How many connections it takes, as the stack starts it."""
_FEW: Final = 10
"""The least that MariaDB takes; a site wants more."""
_EVERY_S: Final = 0.5
_END: Final = f"KILL USER {mariadb.USER}"


_AS_EVER: Final = f"SET GLOBAL read_only = 0; SET GLOBAL max_connections = {_USUAL}"


class Database:
    """For `database`. read_only: as in a failover. full: it takes hardly any connections, and has ended those that it
    had. end_connections: it ends all of them again and again.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._is_over = threading.Event()
        self._ending: threading.Thread | None = None

    def begin(self, name: str, how: str) -> None:
        del name
        match how:
            case "read_only":
                administer(self._stack, "SET GLOBAL read_only = 1")
            case "full":
                administer(self._stack, f"SET GLOBAL max_connections = {_FEW}; {_END}")
            case _:
                self._is_over.clear()
                self._ending = threading.Thread(target=self._end_connections)
                self._ending.start()

    def end(self, name: str, how: str) -> None:
        del name, how
        self.close()

    def close(self) -> None:
        """It is as ever."""
        self._is_over.set()
        if self._ending is not None:
            self._ending.join()
        administer(self._stack, _AS_EVER)

    def _end_connections(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            administer(self._stack, _END)


@contextmanager
def database(stack: Stack) -> Iterator[Database]:
    """That of a stack, which is as ever at the end."""
    made = Database(stack)
    try:
        yield made
    finally:
        stack.start(NAME, wait=False)
        stack.resume(NAME)
        made.close()  # before it is waited for: one that is full is never ready
        stack.up(NAME)
