"""The people of a site: some save pins, some delete them, some follow and unfollow, many read, and some leave in the
middle of what they ask or are told.
"""

import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests import threads
from tests.soak.client import Client, refusal
from tests.soak.orders import Arranger, Orders
from tests.soak.records import Catalogs

_TIMEOUT_S: Final = 15.0
_DELETED: Final = 0.03
_TURNED: Final = 0.1
"""So many of the actions delete a pin, and so many end a follow or begin it again."""
_WITH_PINS: Final = 0.3
"""So many of the pages ask for what their pins are."""
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


@dataclass(frozen=True)
class Load:
    """rate: actions a second. owners: users who save, each of whom `followers` users follow at first, 1, 2, ... key: no
    other run on the same home has it. must_serve: whether a page must be answered now. clock: the home's time, in ms.
    """

    address: tuple[str, int]
    key: str
    rate: float
    owners: int
    followers: int
    must_serve: Callable[[], bool]
    clock: Callable[[], int]
    seen: Seen
    orders: Orders
    arranger: Arranger
    catalogs: Catalogs
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        """Loads until the end of the block. An action that has begun is acknowledged before that."""
        boards = [FIRST_OWNER + owner for owner in range(self.owners)]
        working: list[tuple[Callable[..., None], Sequence[object]]] = [
            (self._act, ()),
            (self._leave, ()),
            (self.arranger.run, (boards, self._ended)),
            (self.catalogs.post, (self._ended,)),
            *((self.catalogs.read, (self._ended,)) for _ in range(_READERS)),
            *((self._read, ()) for _ in range(_READERS)),
        ]
        begun = [
            threading.Thread(target=act, args=(Random(f"{seed} {number}"), *given))
            for number, (act, given) in enumerate(working)
        ]
        with threads.running(begun, self._ended):
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
                self._delete(client, number, alive.pop(rng.randrange(len(alive))))
            else:
                pin = time.time_ns() // 1_000
                self._save(client, number, pin, owner)
                alive.append(pin)
        raise AssertionError

    def _save(self, client: Client, number: int, pin: int, owner: int) -> None:
        saved = {"pin": str(pin), "owner": str(owner), "board": str(owner)}
        if self._until_answered(client, number, "POST", "/v1/pins", saved):
            self.seen.saved.append(pin)
            self.orders.saved(owner, pin, self.clock())
            self.catalogs.pins.saved(pin, self.clock())

    def _delete(self, client: Client, number: int, pin: int) -> None:
        self.orders.deleting(pin)
        self.catalogs.pins.deleting(pin)
        if self._until_answered(client, number, "DELETE", f"/v1/pins/{pin}", None):
            self.seen.deleted.add(pin)
            self.catalogs.pins.deleted(pin, self.clock())

    def _until_answered(self, client: Client, number: int, method: str, path: str, body: object) -> bool:
        """Whether it succeeded. Each attempt has the same key."""

        def unanswered() -> None:
            self.seen.unanswered += 1

        status, said = client.ask_until_answered(method, path, lambda: body, f"soak-{self.key}-{number}", unanswered)
        self.seen.actions += 1
        if status != 200:
            self.seen.refused.append(refusal(method, path, status, said))
        return status == 200

    def _read(self, rng: Random) -> None:
        client = Client(self.address)
        while not self._ended.wait(_READS_EVERY_S):
            must_serve, with_pins = self.must_serve(), rng.random() < _WITH_PINS
            path = f"/v1/users/{rng.randint(1, self.followers)}/feed?limit=25" + ("&hydrate=true" if with_pins else "")
            began_s, asked_ms = time.monotonic(), self.clock()
            status, said = client.ask("GET", path)
            if status == 200:
                self.seen.pages_s.append(time.monotonic() - began_s)
                if with_pins:
                    self.catalogs.page(path, asked_ms, said)
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
