"""The people of a site: some save pins, some delete them, some follow and unfollow, many read, and some leave in the
middle of what they ask or are told.
"""

import http.client
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests import threads

_TIMEOUT_S: Final = 15.0
_AGAIN_S: Final = 0.25
_ANSWERED_S: Final = 300.0
_DELETED: Final = 0.03
_TURNED: Final = 0.1
"""So many of the actions delete a pin, and so many end a follow or begin it again."""
_READERS: Final = 2
_READS_EVERY_S: Final = 0.02
_LEAVES_EVERY_S: Final = 0.5
_LEAVE_AT_ONCE: Final = 40
_HEARS: Final = 0.3
_HEARS_S: Final = 0.1
"""So many of them wait for an answer, and for so long."""
_RESETS: Final = struct.pack("ii", 1, 0)
"""A socket with this `SO_LINGER` says nothing when it is closed: its peer is told that the connection is gone."""
FIRST_OWNER: Final = 10_000_000


@dataclass
class Seen:
    """What the clients have seen. saved: the pins that were acknowledged. deleted: those of them whose deletion was
    acknowledged. unanswered: attempts of actions without an answer; each was repeated with its key. refused: actions
    that were answered by something else than success. left: pins of clients that left before they had asked for all.
    failed: pages that had to be answered and were not. excused: pages that were not answered while a fault explains it.
    """

    saved: list[int] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    actions: int = 0
    unanswered: int = 0
    refused: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    pages_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)


class Client:
    """One connection, which is opened again if it fails."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises OSError or HTTPException if there is none."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT_S)
        headers = {} if body is None else {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(frozen=True)
class Load:
    """rate: actions a second. owners: users who save, each of whom `followers` users follow at first, 1, 2, ... key: no
    other run on the same home has it. must_serve: whether a page must be answered now.
    """

    address: tuple[str, int]
    key: str
    rate: float
    owners: int
    followers: int
    must_serve: Callable[[], bool]
    seen: Seen
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        """Loads until the end of the block. An action that has begun is acknowledged before that."""
        working = [
            threading.Thread(target=self._act, args=(Random(seed),)),
            threading.Thread(target=self._leave, args=(Random(f"{seed} leave"),)),
        ]
        working += [
            threading.Thread(target=self._read, args=(Random(f"{seed} {number}"),)) for number in range(_READERS)
        ]
        with threads.running(working, self._ended):
            yield

    def _act(self, rng: Random) -> None:
        client = Client(self.address)
        alive: list[int] = []
        ended: set[tuple[int, int]] = set()
        due_s = time.monotonic()
        for number in itertools.count(1):
            # At a time that does not depend on answers; what is late after a fault is not caught up with.
            due_s = max(due_s + 1 / self.rate, time.monotonic() - 1)
            if self._ended.wait(max(0.0, due_s - time.monotonic())):
                return client.close()
            owner = FIRST_OWNER + rng.randrange(self.owners)
            drawn = rng.random()
            if drawn < _TURNED:
                edge = (rng.randint(1, self.followers), owner)
                method = "POST" if edge in ended else "DELETE"
                self._until_answered(client, number, method, "/v1/follows", _edge(*edge))
                ended ^= {edge}
            elif drawn < _TURNED + _DELETED and alive:
                pin = alive.pop(rng.randrange(len(alive)))
                if self._until_answered(client, number, "DELETE", f"/v1/pins/{pin}", None):
                    self.seen.deleted.add(pin)
            else:
                pin = time.time_ns() // 1_000
                saved = {"pin": str(pin), "owner": str(owner), "board": str(owner)}
                if self._until_answered(client, number, "POST", "/v1/pins", saved):
                    self.seen.saved.append(pin)
                    alive.append(pin)
        raise AssertionError

    def _until_answered(self, client: Client, number: int, method: str, path: str, body: object) -> bool:
        """Whether it succeeded. Without an answer it is asked again, with the same key, for _ANSWERED_S."""
        until_s = time.monotonic() + _ANSWERED_S
        while True:
            try:
                status, said = client.ask(method, path, body, f"soak-{self.key}-{number}")
            except (OSError, http.client.HTTPException) as error:
                status, said = 503, repr(error).encode()
            if status not in {429, 503, 504} or time.monotonic() > until_s:
                break
            self.seen.unanswered += 1
            time.sleep(_AGAIN_S)
        self.seen.actions += 1
        if status != 200:
            self.seen.refused.append(f"{method} {path}: {status} {said.decode(errors='replace')[:300]}")
        return status == 200

    def _read(self, rng: Random) -> None:
        client = Client(self.address)
        while not self._ended.wait(_READS_EVERY_S):
            must_serve = self.must_serve()
            path = f"/v1/users/{rng.randint(1, self.followers)}/feed?limit=25"
            began_s = time.monotonic()
            try:
                status, said = client.ask("GET", path)
            except (OSError, http.client.HTTPException) as error:
                status, said = 0, repr(error).encode()
            if status == 200:
                self.seen.pages_s.append(time.monotonic() - began_s)
            else:
                why = f"{status} {said.decode(errors='replace')[:300]}"
                (self.seen.failed if must_serve and self.must_serve() else self.seen.excused).append(why)
        client.close()

    def _leave(self, rng: Random) -> None:
        """Many at once connect; each says a part of a request, or all of one, hears a part of the answer, and goes."""
        while not self._ended.wait(_LEAVES_EVERY_S):
            with ExitStack() as going, suppress(OSError):
                for _ in range(rng.randint(1, _LEAVE_AT_ONCE)):
                    one = going.enter_context(socket.create_connection(self.address, _TIMEOUT_S))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
                    one.sendall(self._begun(rng))
                    if rng.random() < _HEARS:
                        one.settimeout(_HEARS_S)
                        one.recv(rng.randint(1, 2_000))

    def _begun(self, rng: Random) -> bytes:
        """A page's request, or the beginning of one for a pin."""
        if rng.random() < 1 / 2:
            return (
                f"GET /v1/users/{rng.randint(1, self.followers)}/feed?limit=100 HTTP/1.1\r\nhost: soak\r\n\r\n".encode()
            )
        pin = time.time_ns() // 1_000
        self.seen.left.append(pin)
        body = json.dumps({"pin": str(pin), "owner": str(FIRST_OWNER), "board": str(FIRST_OWNER)})
        head = f"POST /v1/pins HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        whole = f"{head}\r\n\r\n{body}".encode()
        return whole[: rng.randrange(1, len(whole))]


def _edge(follower: int, owner: int) -> dict[str, str]:
    return {"follower": str(follower), "user": str(owner)}
