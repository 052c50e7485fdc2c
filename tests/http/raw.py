"""Bare connections to a server: requests byte by byte, and what comes back until it closes."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from http_servers import kind

from tests.cli.command import DEADLINE_S

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/follows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A connection to a server from one of this machine's loopback addresses."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S, source_address=(source, 0))


@dataclass
class Sent:
    """taken: how many bytes were. closed: whether the server closed the connection within the deadline. answer: all
    that it said.
    """

    taken: int = 0
    closed: bool = False
    answer: bytes = b""
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def statuses(self) -> list[int]:
        return [int(each[1:4]) for each in self.answer.split(b"HTTP/1.1")[1:]]

    def problem(self) -> str:
        """The kind of the last answer, which must be a refusal that closes."""
        return kind(problem(self.answer))


def problem(answers: bytes) -> dict[str, object]:
    """The document of the last of some answers, which must be a refusal that closes."""
    head, _, body = answers[answers.rindex(b"HTTP/1.1") :].partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answers
    assert b"connection: close" in head.lower(), answers
    return dict(json.loads(body))


def send(connection: socket.socket, parts: Iterable[bytes], *, every_s: float = 0.0, within_s: float) -> Sent:
    """Sends the parts one after the other, whatever comes back, until the server closes or the time is up."""
    sent = Sent()
    connection.settimeout(within_s)
    reading = threading.Thread(target=_read, args=(connection, sent))
    reading.start()
    end_s = time.monotonic() + within_s
    with contextlib.suppress(OSError):
        for part in parts:
            if time.monotonic() >= end_s or sent._done.wait(every_s):
                break
            connection.sendall(part)
            sent.taken += len(part)
    reading.join(max(0.0, end_s - time.monotonic()) + 1.0)
    return sent


def _read(connection: socket.socket, sent: Sent) -> None:
    try:
        while part := connection.recv(65_536):
            sent.answer += part
        sent.closed = True
    except TimeoutError:
        pass
    except OSError:
        sent.closed = True
    finally:
        sent._done.set()


def forever(part: bytes) -> Iterator[bytes]:
    while True:
        yield part
