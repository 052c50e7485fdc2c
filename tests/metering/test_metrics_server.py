"""The small server of a worker's metrics: what it answers, and what it bears."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from feedstore.errors import ConfigError
from feedstore.metering import server as module
from feedstore.metering.server import CONNECTIONS, MetricsServer, listen
from feedstore.metering.settings import split


class Served:
    def __init__(self, server: MetricsServer) -> None:
        self.server = server
        self.now_s = 0.0
        self.texts = 0

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.server.address.removeprefix("http://").rpartition(":")
        return host, int(port)

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self.place, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


@contextlib.contextmanager
def serving(more: bytes = b"", sent_max: int = 262_144) -> Iterator[Served]:
    """more: of the text. sent_max: how many bytes the kernel keeps for a reader that does not take them."""
    made: list[Served] = []

    def text() -> bytes:
        made[0].texts += 1
        return f"text {made[0].texts}\n".encode() + more

    listener = listen("127.0.0.1:0")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_max)
    server = MetricsServer(listener, text, "text/plain; version=0.0.4", lambda: made[0].now_s)
    made.append(Served(server))
    server.start()
    with contextlib.closing(server):
        yield made[0]


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


def test_it_serves_what_is_counted_and_that_it_lives(served: Served):
    assert served.ask("/metrics") == (200, "text 1\n")
    assert served.ask("/healthz") == (200, '{"status":"alive"}\n')
    assert served.ask("/metrics", "HEAD") == (200, "")
    assert served.ask("/")[0] == 404
    assert served.ask("/metrics", "POST")[0] == 405


def test_many_readers_have_it_counted_once_a_second(served: Served):
    assert {served.ask("/metrics")[1] for _ in range(5)} == {"text 1\n"}
    served.now_s += 1
    assert served.ask("/metrics?name=x")[1] == "text 2\n"


def test_a_reader_that_says_nothing_keeps_no_other_waiting(served: Served):
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS - 1):
            stack.enter_context(socket.create_connection(served.place))
        assert served.ask("/metrics")[0] == 200


def test_beyond_its_connections_new_ones_are_closed_and_it_lives_on(served: Served):
    silent = [socket.create_connection(served.place) for _ in range(CONNECTIONS)]
    with contextlib.ExitStack() as stack:
        for each in silent:
            stack.enter_context(each)
        with pytest.raises((http.client.HTTPException, OSError)):
            served.ask("/metrics")
    answers: list[int] = []
    while not answers:  # it notices that they have gone, one after the other
        with contextlib.suppress(http.client.HTTPException, OSError):
            answers.append(served.ask("/metrics")[0])
    assert answers == [200]


def test_a_silent_reader_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TIME_OUT_S", 0.05)
    with serving() as served, socket.create_connection(served.place) as silent:
        silent.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""


def test_a_reader_that_does_not_take_its_answer_keeps_its_connection(monkeypatch: pytest.MonkeyPatch):
    """It would have more and more of them: their answers, and the descriptors, would stay in the worker."""
    monkeypatch.setattr(module, "CONNECTIONS", 1)
    monkeypatch.setattr(module, "TIME_OUT_S", 600)
    with serving(more=b"x" * 60_000, sent_max=4_096) as served, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(20)
        slow.connect(served.place)
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert slow.recv(1) == b"H"
        with pytest.raises((http.client.HTTPException, OSError)):
            served.ask("/metrics")


@pytest.mark.parametrize("said", [b"GET /metrics HTTP/1.1\r\nx: " + b"y" * 100_000, b"\r\n\r\n", b"\x00" * 100])
def test_nonsense_ends_one_connection_only(served: Served, said: bytes):
    with socket.create_connection(served.place) as client:
        client.settimeout(20)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1_000):
                pass
    assert served.ask("/healthz")[0] == 200


def test_it_ends_while_readers_wait():
    with serving() as served, socket.create_connection(served.place) as silent:
        assert served.ask("/healthz")[0] == 200
        served.server.close()
        assert "metrics" not in {thread.name for thread in threading.enumerate()}
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(served.place)
        silent.close()


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"metrics cannot be served at {address}: Address already in use"):
            listen(address)


@pytest.mark.parametrize(
    ("address", "place"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0))],
)
def test_an_address_without_a_host_is_this_machine(address: str, place: tuple[str, int]):
    assert split(address) == place


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000", "1:-2"])
def test_a_bad_address_is_refused(address: str):
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        split(address)
