"""The server and its clients: those that are slow, large or many, and what becomes of them all when it ends."""

import asyncio
import json
import select
import signal
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
from http_servers import InProcess, check_problem, client_of, feedctl_serve, in_process, kind, read_to_end
from raw import problem

from feedstore.app.http import WAITING_FOR_EACH_THREAD
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.http import server
from feedstore.http.connections import HEAD_BYTES_MAX, Whole
from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.replicas.fakes import USER

PATIENCE_S = 1.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[InProcess]:
    """A server that waits for clients no longer than a second."""
    with in_process(tmp_path / "home", environ={"FEED_HTTP_PATIENCE": "1s"}) as hasty:
        yield hasty


@pytest.fixture
def small(tmp_path: Path) -> Iterator[InProcess]:
    """A server that takes four connections, and waits for clients longer than a test does."""
    with in_process(tmp_path / "home", environ={"FEED_HTTP_CONNECTIONS": "4"}) as small:
        yield small


def answers_to_end(connection: socket.socket) -> list[bytes]:
    return [b"HTTP/1.1" + answer for answer in read_to_end(connection).split(b"HTTP/1.1")[1:]]


def refused(raw: bytes) -> str:
    """The kind of a refusal."""
    return kind(problem(raw))


# Answers in one piece
# --------------------------------------------------------------------------------------------------------------------


class Written(asyncio.Transport):
    """Keeps what each call of `write` was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []

    def write(self, data: Any) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append(b"closed")

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass


class Known:
    """What a transport asks its connection for; unlike a SimpleNamespace it can be held weakly."""

    def __init__(self, cycle: object) -> None:
        self.cycle = cycle

    def end(self) -> bool:
        return False


def test_a_connection_is_not_kept_alive_by_its_transport():
    connection = Known(None)
    transport, seen = Whole(Written(), connection), weakref.ref(connection)
    del connection
    assert seen() is None
    assert not transport.is_closing()


def test_a_head_leaves_with_its_body():
    written, connection = Written(), Known(None)
    transport = Whole(written, connection)
    transport.write(b"refused")
    connection.cycle = SimpleNamespace(response_started=False, response_complete=False)
    transport.write(b"continue")
    assert written.seen == [b"refused", b"continue"]
    connection.cycle.response_started = True
    transport.write(b"head")
    transport.write(b"body")
    assert written.seen == [b"refused", b"continue"]
    transport.flush()
    transport.flush()
    assert written.seen == [b"refused", b"continue", b"headbody"]
    transport.write(b"half an answer")
    transport.close()
    assert written.seen[3:] == [b"half an answer", b"closed"]


def test_what_waits_leaves_before_what_does_not():
    """A request that came behind another one on the same connection is the one that the connection knows of."""
    written = Written()
    connection = Known(SimpleNamespace(response_started=True, response_complete=False))
    transport = Whole(written, connection)
    transport.write(b"head")
    connection.cycle = SimpleNamespace(response_started=False, response_complete=False)
    transport.write(b"body")
    assert written.seen == [b"headbody"]


def test_requests_in_a_row_are_answered_in_their_order(inside: InProcess):
    with closing(inside.connect()) as connection:
        last = HEAD + b"Connection: close\r\n\r\n"
        missing = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + missing + last)
        answers = answers_to_end(connection)
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"200", b"404", b"200"]
    assert answers[0].endswith(b"\r\n\r\n")  # a head alone
    assert answers[2].endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("pages", [1, 2])
def test_a_client_that_asks_for_no_more_is_answered_what_it_has_asked(inside: InProcess, pages: int):
    inside.pair.fill(range(1, 3))
    inside.pair.hang()
    page = b"GET /v1/users/%d/feed HTTP/1.1\r\nHost: localhost\r\n\r\n" % USER
    with closing(inside.connect()) as connection:
        connection.sendall(page * pages)
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: inside.pair.a.asked, "the first request is under way")
        inside.pair.release()
        answers = answers_to_end(connection)
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"200"] * pages
    assert b"connection: close" in answers[-1]


@pytest.mark.parametrize("more", [b"\r\n", HEAD], ids=["an empty line", "half a request"])
def test_a_client_that_ends_after_more_than_it_has_asked_is_answered_that(inside: InProcess, more: bytes):
    inside.pair.fill(range(1, 3))
    inside.pair.hang()
    with closing(inside.connect()) as connection:
        connection.sendall(b"GET /v1/users/%d/feed HTTP/1.1\r\nHost: localhost\r\n\r\n" % USER)
        eventually(lambda: inside.pair.a.asked, "the request is under way")
        connection.sendall(more)
        connection.shutdown(socket.SHUT_WR)
        inside.pair.release()
        [answer] = answers_to_end(connection)
    assert answer.split(b" ", 2)[1] == b"200"


def test_an_empty_line_begins_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Some old clients send one after a body: their connection is as idle as before."""
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 1)
    with (
        in_process(tmp_path / "home", environ={"FEED_HTTP_PATIENCE": "1s"}) as inside,
        closing(inside.connect()) as connection,
    ):
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\r\n")
        assert read_to_end(connection) == b""


def test_empty_lines_are_bounded(inside: InProcess):
    with closing(inside.connect()) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"\r\n" * HEAD_BYTES_MAX)
        assert refused(read_to_end(connection)) == "head-too-large"


def test_a_client_that_ends_in_the_middle_of_a_request_is_closed(inside: InProcess):
    with closing(inside.connect()) as connection:
        connection.sendall(b"POST /v1/pins HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Le")
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(DEADLINE_S)
        assert connection.recv(65_536) == b""


def test_who_waits_to_be_asked_for_the_body_is_asked_and_may_take_longer_than_an_answer(inside: InProcess):
    body = b'{"follower": "1", "user": "2"}'
    with closing(inside.connect()) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(
            b"POST /v1/follows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        inside.pair.now_s += 60  # far beyond [serving] deadline
        connection.sendall(body)
        [answer] = answers_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_client_of_http_1_0_is_not_asked_for_the_body(inside: InProcess):
    """It would take the word for its answer (RFC 9110, 10.1.1)."""
    body = b'{"follower": "1", "user": "2"}'
    with closing(inside.connect()) as connection:
        connection.sendall(
            b"POST /v1/follows HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        [answer] = answers_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")


# Slow and large
# --------------------------------------------------------------------------------------------------------------------


def test_a_client_that_says_nothing_is_told_and_closed(hasty: InProcess):
    with closing(hasty.connect()) as connection:
        assert refused(read_to_end(connection)) == "request-timeout"


@pytest.mark.parametrize(
    ("begun", "drop"), [(b"", b"\n"), (b"GET /", b"x"), (HEAD, b"x"), (HEAD + b"\r\n" + HEAD, b"x")]
)
def test_a_head_that_drips_is_closed_however_it_drips(hasty: InProcess, begun: bytes, drop: bytes):
    """A byte now and then must not keep a connection: the time counts from its beginning."""
    with closing(hasty.connect()) as connection:
        connection.sendall(begun)
        stopped = threading.Event()

        def drip() -> None:
            for _ in range(int(DEADLINE_S / 0.05)):
                if stopped.wait(0.05):
                    return
                try:
                    connection.send(drop)
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            answer = answers_to_end(connection)[-1]
        finally:
            stopped.set()
            dripping.join()
        assert refused(answer) == "request-timeout"


def test_a_body_that_does_not_come_is_given_up(hasty: InProcess):
    with closing(hasty.connect()) as connection:
        connection.sendall(
            b"POST /v1/follows HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"follower"'
        )
        assert refused(read_to_end(connection)) == "request-timeout"


def test_a_connection_that_was_kept_goes_on(hasty: InProcess):
    """The bound on a head is none on the time between requests."""
    with closing(hasty.connect()) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            found = connection.recv(65_536)
            assert found.startswith(b"HTTP/1.1 200")
            time.sleep(1.5 * PATIENCE_S)  # what is tested is that this time passes and nothing happens


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (b"GET /", b""),
        (b"GET /", b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        (HEAD + b"X: ", b""),
        (HEAD + b"X: ", b"\r\n\r\n"),
    ],
    ids=["a part of a line", "a line, all in one piece", "a part of a head", "a head, all in one piece"],
)
def test_a_line_and_a_head_are_bounded(inside: InProcess, begun: bytes, rest: bytes):
    with closing(inside.connect()) as connection:
        connection.sendall(begun + b"x" * (HEAD_BYTES_MAX + 1) + rest)
        assert refused(read_to_end(connection)) == "head-too-large"


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"NONSENSE\r\n\r\n"]
)
def test_what_is_no_http_is_told_so(inside: InProcess, raw: bytes):
    with closing(inside.connect()) as connection:
        connection.sendall(raw)
        document = read_to_end(connection)
    assert refused(document) == "malformed-request"
    without = ", without TLS" if raw.startswith(b"\x16") else ""
    assert f"expected an HTTP request{without}: " in str(problem(document)["detail"])


@pytest.mark.parametrize("target", [b"http://localhost", b"http://localhost?limit=1"])
def test_an_absolute_target_without_a_path_is_said_to_have_none(inside: InProcess, target: bytes):
    with closing(inside.connect()) as connection:
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_to_end(connection)
    assert refused(answer) == "malformed-request"
    assert b"has no path" in answer


def test_connections_are_bounded(small: InProcess):
    with client_of(small.server.address) as client, ExitStack() as opened:
        connections = [opened.enter_context(closing(small.connect())) for _ in range(5)]
        for connection in connections:
            connection.sendall(HEAD)
        # Which one of them is the fifth is the kernel's to say: it may hold them in several queues.
        answered, _, _ = select.select(connections, [], [], DEADLINE_S)
        assert [refused(read_to_end(each)) for each in answered] == ["overloaded"]
        opened.close()

        def answers() -> bool:
            try:
                return client.http.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        eventually(answers, "there is room again")


def test_more_calls_than_may_wait_are_refused_and_the_server_still_answers(tmp_path: Path):
    """Clusters that hang must not take the process with them."""
    at_most = 2 * (1 + WAITING_FOR_EACH_THREAD)
    environ = {"FEED_HTTP_THREADS": "2", "FEED_SERVING_DEADLINE": "60s"}
    with in_process(tmp_path / "home", environ=environ) as inside, client_of(inside.server.address) as client:
        inside.pair.fill(range(1, 3))
        inside.pair.hang()
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.get(f"{inside.server.address}/v1/users/{USER}/feed", timeout=DEADLINE_S))

        asking = [threading.Thread(target=ask) for _ in range(at_most + 3)]
        for thread in asking:
            thread.start()
        eventually(lambda: len(answers) == 3, "what is too much is refused")
        for answer in answers:
            assert answer.json()["type"].endswith(":overloaded")
            check_problem(answer)
        assert client.get("/healthz") == {"status": "ok"}
        inside.pair.release()
        for thread in asking:
            thread.join(DEADLINE_S)
        assert sorted(answer.status_code for answer in answers) == [200] * at_most + [503] * 3


ASKED: Final[Mapping[str, tuple[str, str, Mapping[str, str] | None]]] = {
    "follow": ("POST", "/v1/follows", {"follower": "1", "user": "2"}),
    "following": ("GET", f"/v1/users/{USER}/following", None),
    "page": ("GET", f"/v1/users/{USER}/feed", None),
    "ready": ("GET", "/readyz", None),
    "status": ("GET", "/v1/status", None),
    "work": ("GET", "/v1/work", None),
    "metrics": ("GET", "/metrics", None),
}


@pytest.mark.parametrize("hung", ["follow", "following"])
def test_calls_that_hang_keep_no_call_of_another_kind_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hung: str
):
    at_most = 2 * (1 + WAITING_FOR_EACH_THREAD)
    there, gate = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> Any:
        there.set()
        assert gate.wait(DEADLINE_S)
        raise FollowStoreUnavailableError("it was away")

    environ = {"FEED_HTTP_THREADS": "2", "FEED_SERVING_DEADLINE": "60s"}
    with in_process(tmp_path / "home", environ=environ) as inside:
        inside.pair.fill(range(1, 3))
        monkeypatch.setattr(inside.service, hung, hangs)
        statuses: list[int] = []

        def ask(what: str) -> int:
            method, path, body = ASKED[what]
            return httpx.request(method, inside.server.address + path, json=body, timeout=DEADLINE_S).status_code

        asking = [threading.Thread(target=lambda: statuses.append(ask(hung))) for _ in range(at_most + 1)]
        for thread in asking:
            thread.start()
        eventually(lambda: len(statuses) == 1, "no more calls may wait")
        assert there.wait(DEADLINE_S)
        others = [what for what in ASKED if what != hung]
        assert {what: ask(what) for what in others} == dict.fromkeys(others, 200)
        gate.set()
        for thread in asking:
            thread.join(DEADLINE_S)
        assert statuses == [503] * (at_most + 1)


def test_a_request_has_a_deadline(tmp_path: Path):
    with (
        in_process(tmp_path / "home", environ={"FEED_SERVING_DEADLINE": "300ms"}, clock=time.monotonic) as inside,
        client_of(inside.server.address) as client,
    ):
        inside.pair.hang()
        assert str(client.get(f"/v1/users/{USER}/feed", 504)["type"]).endswith(":deadline-exceeded")


# The end
# --------------------------------------------------------------------------------------------------------------------


def test_it_drains_and_finishes_what_is_under_way(tmp_path: Path):
    with in_process(tmp_path / "home", environ={"FEED_SERVING_DEADLINE": "60s"}) as inside:
        inside.pair.fill(range(1, 3))
        inside.pair.hang()
        answers: list[httpx.Response] = []
        url = f"{inside.server.address}/v1/users/{USER}/feed"
        asking = threading.Thread(target=lambda: answers.append(httpx.get(url, timeout=DEADLINE_S)))
        asking.start()
        eventually(lambda: inside.pair.a.asked, "the request is under way")
        with client_of(inside.server.address) as client:
            inside.server.drain(DEADLINE_S)
            assert str(client.get("/readyz", 503)["type"]).endswith(":draining")
            assert client.get("/healthz") == {"status": "ok"}
        inside.server.drain(0.1)
        eventually(lambda: not inside.accepts(), "no new connection is taken")
        assert inside.server.is_running()
        assert not answers
        inside.pair.release()
        asking.join(DEADLINE_S)
        assert [answer.status_code for answer in answers] == [200]
        eventually(lambda: not inside.server.is_running(), "it ends")


@pytest.mark.parametrize(
    ("hung", "again"),
    [
        ("follow", "the action may have been recorded or not: try again with the same Idempotency-Key"),
        ("page", "try again"),
    ],
    ids=["follow", "page"],
)
def test_what_a_server_that_ends_does_not_wait_for_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hung: str, again: str
):
    there, gate = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> Any:
        there.set()
        assert gate.wait(DEADLINE_S)
        raise FollowStoreUnavailableError("it was away")

    environ = {"FEED_HTTP_PATIENCE": "100ms", "FEED_SERVING_DEADLINE": "100ms"}
    with in_process(tmp_path / "home", environ=environ) as inside:
        monkeypatch.setattr(inside.service, hung, hangs)
        method, path, body = ASKED[hung]
        with ThreadPoolExecutor(1) as client:
            asking = client.submit(
                lambda: httpx.request(method, inside.server.address + path, json=body, timeout=DEADLINE_S)
            )
            assert there.wait(DEADLINE_S)
            inside.server.drain(0.0)
            answer = asking.result()
        eventually(lambda: not inside.server.is_running(), "it ends")
        gate.set()
    assert answer.status_code == 503
    check_problem(answer)
    assert answer.json()["type"].endswith(":draining")
    assert answer.json()["detail"] == again
    assert answer.headers["connection"] == "close"


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_feedctl_serve_ends_with_0_while_requests_go_on(cli: Cli, tmp_path: Path, number: int):
    with feedctl_serve(cli) as (process, address):
        answered, statuses = threading.Event(), set()

        def ask() -> None:
            with httpx.Client(base_url=address, timeout=DEADLINE_S) as http:
                key = 0
                while True:
                    key += 1
                    try:
                        answer = http.post("/v1/follows", json={"follower": "1", "user": str(key + 1)})
                    except httpx.TransportError:
                        return  # it has ended; what it had answered counts
                    statuses.add(answer.status_code)
                    followed.append(key + 1)
                    answered.set()

        followed: list[int] = []
        asking = threading.Thread(target=ask)
        asking.start()
        assert answered.wait(DEADLINE_S)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0
        asking.join(DEADLINE_S)
    assert statuses == {200}
    # Acknowledged means durable.
    with cli.ports() as ports:
        assert {edge.followee.id for edge in ports.follows.following(1)} >= set(followed)
    events = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines() if line.startswith("{")]
    requests = [event for event in events if event["event"] == "http.request"]
    assert len(requests) >= len(followed)
    assert set(requests[0]) == {
        "event",
        "level",
        "timestamp",
        "request_id",
        "endpoint",
        "method",
        "status",
        "took_ms",
    }


def test_a_port_that_is_taken_is_said(cli: Cli):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        assert "Address already in use" in cli("serve", "--port", taken.getsockname()[1], code=2).stderr
