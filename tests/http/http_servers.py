"""Servers to ask: a real `feedctl serve`, and one in this process whose clusters and follow store a test can stop."""

import contextlib
import re
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from feedstore.app import config as configuration
from feedstore.app import http as http_wiring
from feedstore.app.services import Services
from feedstore.boards import Boards
from feedstore.boards.service import BoardService
from feedstore.catalog.posting import Posting
from feedstore.catalog.service import CatalogService
from feedstore.following.service import FeedService
from feedstore.follows.pin_source import FollowStorePins, PinSource
from feedstore.follows.store import FollowStore
from feedstore.http import listening
from feedstore.http.problems import MEDIA_TYPE
from feedstore.http.queues import GroupState, Letter, QueuesState, QueuesUnavailableError
from feedstore.http.server import HttpServer
from feedstore.metering import Counting
from tests.cli.command import DEADLINE_S, Cli
from tests.follows.memory_follows import open_in_memory
from tests.replicas.fakes import CAP, NOW_MS, Pair
from workers.app.metrics import ALL

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Of no use over plain HTTP; without it, each client would read the certificates of the world, which takes 40 ms."""


@dataclass
class Client:
    """Asks one server, as the web tier or (`operator`) as an operator."""

    http: httpx.Client
    operator: httpx.Client

    def get(self, path: str, status: int = 200, **arguments: Any) -> Any:
        return self.ask("GET", path, status, **arguments)

    def post(self, path: str, body: Any, status: int = 200, **arguments: Any) -> Any:
        return self.ask("POST", path, status, json=body, **arguments)

    def delete(self, path: str, body: Any = None, status: int = 200, **arguments: Any) -> Any:
        return self.ask("DELETE", path, status, **({} if body is None else {"json": body}), **arguments)

    def ask(self, method: str, path: str, status: int, **arguments: Any) -> Any:
        """The decoded answer. A refusal must be a problem document, of the status that it says."""
        answer = self.http.request(method, path, **arguments)
        assert answer.status_code == status, answer.text
        if status != 200:
            check_problem(answer)
        return answer.json()


def check_problem(answer: httpx.Response) -> None:
    assert answer.headers["content-type"] == MEDIA_TYPE
    document = answer.json()
    assert document["type"].startswith("urn:feedstore:problem:")
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["request_id"] == answer.headers["x-request-id"]
    assert ("retry-after" in answer.headers) == (answer.status_code in {503, 504})


def kind(problem: dict[str, object]) -> str:
    """The kind of a problem document."""
    return str(problem["type"]).rpartition(":")[2]


@contextmanager
def client_of(address: str, token: str = "", operator: str = "") -> Iterator[Client]:
    def headers(brought: str) -> dict[str, str]:
        return {"authorization": f"Bearer {brought}"} if brought else {}

    with (
        httpx.Client(base_url=address, headers=headers(token), timeout=DEADLINE_S, verify=_NO_TLS) as http,
        httpx.Client(base_url=address, headers=headers(operator), timeout=DEADLINE_S, verify=_NO_TLS) as other,
    ):
        yield Client(http, other)


@contextmanager
def feedctl_serve(cli: Cli, *words: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`feedctl serve` on a free port, and its address."""
    with (cli.home.parent / "serve.log").open("ab") as log:
        process = cli.spawn("serve", "--port", 0, *words, stderr=log)
        try:
            assert process.stdout is not None
            said = process.stdout.readline().decode()
            assert re.fullmatch(r"http://\S+\n", said), (said, (cli.home.parent / "serve.log").read_text())
            yield process, said.strip()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.communicate()


class FakeQueues:
    """Queues with one group and a few dead letters; `away` makes them unavailable, and a `gate` that is not set is
    waited for.
    """

    def __init__(self) -> None:
        self.away = False
        self.gate = threading.Event()
        self.gate.set()
        self.dead = [Letter(n, "feed.actions", "expander", "malformed", "no object", 1_000 + n, 5) for n in range(1, 6)]

    def state(self) -> QueuesState:
        assert self.gate.wait(DEADLINE_S)
        if self.away:
            raise QueuesUnavailableError("secret-broker:9092 is away")
        return QueuesState([GroupState("expander", "feed.actions", 3)], len(self.dead))

    def stopped(self) -> str | None:
        return None

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        if self.away:
            raise QueuesUnavailableError("secret-broker:9092 is away")
        return [letter for letter in self.dead if letter.id > after][:limit]


@dataclass
class InProcess:
    """A server on two clusters across a network, which a test can make fail or wait."""

    pair: Pair
    queues: FakeQueues
    server: HttpServer
    service: FeedService
    boards: BoardService
    follows: FollowStore

    def connect(self) -> socket.socket:
        """A bare connection."""
        host, _, port = self.server.address.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), DEADLINE_S)

    def accepts(self) -> bool:
        """Whether it takes new connections."""
        try:
            self.connect().close()
        except OSError:
            return False
        return True


@contextmanager
def in_process(
    home: Path,
    text: str = "",
    environ: dict[str, str] | None = None,
    clock: Callable[[], float] | None = None,
    catalogs: CatalogService | None = None,
    pins: Callable[[FollowStore], PinSource] = FollowStorePins,
    posting: Posting | None = None,
) -> Iterator[InProcess]:
    """text: more of feed.toml. clock: of all that is served; None: that of the pair, which a test moves. pins: where
    those of a page come from. posting: where updates of catalogs go.
    """
    home.mkdir(exist_ok=True)
    whole = configuration.DEFAULT.replace("[http]\n", f"[http]\n{text}")
    if catalogs is not None:
        whole += "".join(f"[catalogs.{each.name}]\n" for each in catalogs.states())
    config = configuration.parse(home, whole, environ or {})
    with ExitStack() as stack:
        pair = Pair(clock=clock)
        stack.callback(pair.close)
        follows = stack.enter_context(closing(open_in_memory(lambda: NOW_MS)))
        service = stack.enter_context(
            FeedService(
                pair.replicas,
                follows,
                pins(follows),
                cap=CAP,
                refill_again_ms=3_600_000,
                within_s=60.0,
                clock=pair.clock,
                close=lambda: None,
            )
        )
        queues = FakeQueues()
        meter = Counting(pair.clock)
        boards = BoardService(Boards(follows), pair.clock, meter)
        services = Services(service, boards, catalogs)
        app = http_wiring.open_app(
            config,
            {},
            services,
            queues,
            owns_clusters=False,
            clock=pair.clock,
            posting=posting,
            counted=meter.counts,
            definitions=ALL,
        )
        listener = listening.listen("127.0.0.1", 0)
        server = stack.enter_context(closing(http_wiring.server(config, app, listener)))
        server.start()
        yield InProcess(pair, queues, server, service, boards, follows)


def read_to_end(connection: socket.socket) -> bytes:
    """Everything that a server sends until it closes, also where something of ours was still on its way."""
    connection.settimeout(DEADLINE_S)
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return found
