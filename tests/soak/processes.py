"""The processes of a site: two of each stage but one writer of cluster b, and a web server."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.cli.command import Cli, eventually
from tests.stack import homes
from tests.stack.homes import Part
from workers.cli.session import NOT_NOW

_WORDS: Final = {
    "relay-1": ("relay",),
    "relay-2": ("relay",),
    "expand-1": ("expand",),
    "expand-2": ("expand",),
    "write-a-1": ("write", "--cluster", "a"),
    "write-a-2": ("write", "--cluster", "a"),
    "write-b-1": ("write", "--cluster", "b"),
}
SERVE: Final = "serve"
PROCESSES: Final = (*_WORDS, SERVE)
_ANSWERS_S: Final = 120.0
_EXCUSED_S: Final = 10.0


class Site:
    """The processes of one home, by the names of `PROCESSES`. address: of the web server, (host, port).

    ended: what ended though no fault had ended it, as sentences.
    """

    def __init__(self, cli: Cli) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address: tuple[str, int] = free.getsockname()
        words = _WORDS | {SERVE: (SERVE, "--port", str(self.address[1]))}
        self._parts = {name: Part(cli, name, *said) for name, said in words.items()}
        self._excused_until_s = 0.0
        self._is_broken = False
        self._is_alone = False
        self.ended: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        with homes.running(list(self._parts.values())):
            eventually(self._answers, "the web server answers", _ANSWERS_S)
            yield

    def serves(self) -> bool:
        """Whether a page must be answered now: neither the web server nor a whole cluster has a fault, or had one a
        moment ago. While one cluster is away, the other one serves alone. If it has more to do than it can, it does not
        answer for a second now and then, as while its Java collects garbage.
        """
        return not self._is_broken and not self._is_alone and time.monotonic() >= self._excused_until_s

    @contextmanager
    def cluster_away(self) -> Iterator[None]:
        """A whole cluster has a fault until the end of the block."""
        self._is_alone = True
        try:
            yield
        finally:
            self._excuse()
            self._is_alone = False

    def _excuse(self) -> None:
        """Requests that hung meanwhile may still fail."""
        self._excused_until_s = time.monotonic() + _EXCUSED_S

    def begin(self, name: str, how: str) -> None:
        if not self._is_there(name):
            return
        self._is_broken = self._is_broken or name == SERVE
        if how == "kill":
            self._parts[name].kill()
        else:
            self._parts[name].signal(signal.SIGSTOP)

    def end(self, name: str, how: str) -> None:
        if how == "kill":
            if not self._parts[name].running():
                self._parts[name].start()
        else:
            self._parts[name].signal(signal.SIGCONT)
        if name == SERVE:
            eventually(self._answers, "the web server answers again", _ANSWERS_S)
            self._excuse()
            self._is_broken = False

    def look(self) -> None:
        """Notes what has ended by itself, and starts it again."""
        for name in self._parts:
            self._is_there(name)

    def _is_there(self, name: str) -> bool:
        part = self._parts[name]
        if part.running():
            return True
        # NOT_NOW: its queue or follow store went away while it began, and it is started again.
        if part.status() != NOT_NOW:
            last = part.log.read_text(errors="replace").splitlines()[-1:]
            self.ended.append(f"{name} ended by itself: {''.join(last)[:500]}")
        part.start()
        return False

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address, 5) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return bool(connection.recv(1))
        except OSError:
            return False
