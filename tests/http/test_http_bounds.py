"""What a client can make a server wait for or keep: everything has a bound, read or not, with or without a token.

The server is a process of its own, so that its memory is its own.
"""

import gc
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest
from http_servers import InProcess, feedctl_serve, in_process, read_to_end
from raw import GET, POST, connect, forever, send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from feedstore.http import connections
from tests.cli import template
from tests.cli.command import DEADLINE_S, FEEDCTL, Cli, eventually

MIB = 1024 * 1024
PATIENCE_S = 2.0
WITHIN_S = 4 * PATIENCE_S
FLOOD = 64 * MIB
"""More than any connection may hold; a server that keeps it has grown by more than `GROWTH`."""
GROWTH = 24 * MIB
CONNECTIONS = 8


class Served:
    def __init__(self, address: str, pid: int, log: Path) -> None:
        self.address = address
        self.process = psutil.Process(pid)
        self._log = log

    def rss(self) -> int:
        return int(self.process.memory_info().rss)

    def log(self) -> str:
        return self._log.read_text()

    def talks_to(self, address: tuple[str, int]) -> bool:
        """Whether it holds a connection of a client's address and port."""
        return any(each.raddr == address for each in self.process.net_connections("tcp"))


@contextmanager
def serving(directory: Path, patience_s: float) -> Iterator[Served]:
    """`feedctl serve` with a tokens file; no test has a token of it."""
    cli = Cli(directory / "home")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name in [each for each in os.environ if each.startswith("FEED_")]:
                patch.delenv(name)
            patch.setenv("FEED_HTTP_PATIENCE", f"{patience_s:g}s")
            patch.setenv("FEED_HTTP_CONNECTIONS", str(CONNECTIONS))
            patch.setenv("FEED_HTTP_TOKENS", "tokens.toml")
            cli("init")
            cli("token", "new", "--name", "web", "--scope", "read")
            process, address = stack.enter_context(feedctl_serve(cli))
        yield Served(address, process.pid, cli.home.parent / "serve.log")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bounds"), PATIENCE_S) as made:
        yield made


# Memory
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [GET, POST], ids=["never read", "refused without a token"])
@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x-trailer: " + b"t" * 8_000 + b"\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\nx-trailer: ", b"t" * 8_000),
        (b"Transfer-Encoding: chunked\r\n\r\n1;", b"e" * 8_000),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1;e=" + b"e" * 4_000 + b"\r\nx\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1f40\r\n" + b"b" * 8_000 + b"\r\n"),
        (b"Content-Length: 9999999999\r\n\r\n", b"b" * 8_000),
        (b"", b"x-header: " + b"h" * 8_000 + b"\r\n"),
        (b"", b"a:\r\n" * 2_000),
    ],
    ids=["trailers", "a trailer", "an extension", "extensions", "chunks", "a body", "headers", "many small headers"],
)
def test_what_does_not_end_is_not_kept(served: Served, head: bytes, begun: bytes, piece: bytes):
    before = served.rss()
    with closing(connect(served.address)) as connection:
        connection.sendall(head + begun)
        sent = send(connection, forever(piece * 8), within_s=WITHIN_S)
    assert sent.closed, f"{sent.taken:,} bytes were taken, and the connection is open"
    assert sent.taken < FLOOD
    assert served.rss() - before < GROWTH
    assert {*sent.statuses} <= {200, 401, 431}


def test_requests_in_a_row_are_bounded(served: Served):
    """A few wait behind the first one; a client that sends more is answered those, and closed."""
    before = served.rss()
    with closing(connect(served.address)) as connection:
        sent = send(connection, forever((GET + b"\r\n") * 1_000), within_s=WITHIN_S)
    assert sent.closed
    assert sent.taken < FLOOD
    assert served.rss() - before < GROWTH
    assert sent.statuses.count(200) >= 2
    assert sent.problem() == "overloaded"


@pytest.mark.parametrize(
    "asked",
    [
        [GET.replace(b"/healthz", b"/nowhere") + b"\r\n"],
        [POST + b"Content-Length: 100\r\n\r\n{"],
        [POST + b"Transfer-Encoding: chunked\r\n\r\nx"],
        [(GET + b"\r\n") * 50],
        [GET + b"Content-Length: 100\r\n\r\n"],
    ],
    ids=["refused", "left", "malformed", "in a row", "unread"],
)
def test_what_has_gone_is_not_kept_until_the_collector_comes(inside: InProcess, asked: list[bytes]):
    """It comes rarely in a worker, and a crowd of refused clients would add up until then."""
    gc.collect()
    gc.disable()
    try:
        before = cycles()
        for _ in range(10):
            with closing(inside.connect()) as connection:
                connection.sendall(asked[0])
                connection.shutdown(socket.SHUT_WR)
                read_to_end(connection)
        eventually(lambda: cycles() <= before + 1, "they are freed", WITHIN_S)
    finally:
        gc.enable()


def cycles() -> int:
    return sum(isinstance(each, RequestResponseCycle) for each in gc.get_objects())


# Time
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (GET + b"Content-Length: 1000\r\n\r\n", b"b"),
        (POST + b"Content-Length: 1000\r\n\r\n", b"b"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"t"),
        (b"", b"\r\n"),
    ],
    ids=["a body", "a refused body", "chunks", "a trailer", "lines"],
)
def test_a_request_that_drips_is_closed_whoever_reads_it(served: Served, begun: bytes, piece: bytes):
    with closing(connect(served.address)) as connection:
        connection.sendall(begun)
        sent = send(connection, forever(piece), every_s=0.1, within_s=WITHIN_S)
    assert sent.closed, f"{sent.taken} bytes were taken, and the connection is open"


@pytest.mark.parametrize("asked", [1, 12])
def test_an_answer_that_is_not_taken_is_given_up(served: Served, asked: int):
    """Whether it waits in the server, or in the kernel."""
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        connection.connect(("127.0.0.1", int(served.address.rpartition(":")[2])))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * asked)
        own = connection.getsockname()
        assert connection.recv(1) == b"H"  # it answers, and no more of that is taken
        eventually(lambda: not served.talks_to(own), "it is given up", WITHIN_S)


# What is no request of ours
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status", "problem"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed-request"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "malformed-request"),
        (b"GET /healthz HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", 400, "malformed-request"),
        (b"GET /v1%2fstatus HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "malformed-request"),
        (b"DELETE /v1/pins%2F7 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "malformed-request"),
        (b"GET /v1/dead-letters#.png HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "malformed-request"),
        (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
            400,
            "malformed-request",
        ),
        (b"BREW /v1/follows HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "not-implemented"),
        (b"get /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "not-implemented"),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "not-implemented"),
        (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501, "not-implemented"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n", 401, "unauthenticated"),
    ],
)
def test_what_cannot_be_understood_is_refused_and_closed(served: Served, request_: bytes, status: int, problem: str):
    with closing(connect(served.address)) as connection:
        sent = send(connection, [request_], within_s=WITHIN_S)
    assert sent.closed
    assert sent.statuses == [status]
    assert sent.problem() == problem
    head, _, _ = sent.answer.partition(b"\r\n\r\n")
    names = {line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
    assert {b"date", b"cache-control", b"x-content-type-options", b"x-request-id"} <= names, "as any other refusal"


def test_a_refusal_reaches_a_client_that_still_sends(served: Served):
    """It is not lost in a reset, as it would be if the connection were closed before everything was read."""
    for _ in range(10):
        with closing(connect(served.address)) as connection:
            connection.settimeout(DEADLINE_S)
            connection.sendall(POST + b"Content-Length: 100000\r\n\r\n" + b"b" * 50_000)
            answer = connection.recv(65_536)
            connection.sendall(b"b" * 50_000)
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert connection.recv(65_536) == b""


def test_a_host_may_be_missing_before_http_1_1(served: Served):
    with closing(connect(served.address)) as connection:
        sent = send(connection, [b"GET /healthz HTTP/1.0\r\n\r\n"], within_s=WITHIN_S)
    assert sent.statuses == [200]


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02", b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /%ff%00 HTTP\r\n"]
)
def test_garbage_behind_requests_is_a_line_in_the_log(served: Served, garbage: bytes):
    """What came before it is answered, and nothing is a traceback."""
    before = served.log().count("\n")
    with closing(connect(served.address)) as connection:
        sent = send(connection, [(GET + b"\r\n") * 3 + garbage], within_s=WITHIN_S)
    assert sent.closed
    assert sent.statuses == [200, 200, 200, 400]
    assert sent.problem() == "malformed-request"

    def said() -> list[str]:
        """Whole lines. They are written once the loop has done what was ready: the answer may be here before them."""
        return served.log().split("\n")[before:-1]

    eventually(lambda: any("http.refused" in line or "Traceback" in line for line in said()), "the refusal is logged")
    assert not [line for line in said() if "Traceback" in line]
    # The first lines of a server are for people; they may be as late.
    lines = [json.loads(line) for line in said() if line.startswith("{")]
    assert [line["error"] for line in lines if line["event"] == "http.refused"] == ["malformed-request"]


def test_a_client_that_leaves_in_a_row_of_requests_is_no_fault(served: Served):
    before = len(served.log())
    for _ in range(20):
        with closing(connect(served.address)) as connection:
            connection.sendall((GET + b"\r\n") * 8)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with closing(connect(served.address)) as connection:
        assert send(connection, [GET + b"Connection: close\r\n\r\n"], within_s=WITHIN_S).statuses == [200]
    assert "Traceback" not in served.log()[before:]


# Who may connect
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that waits for a client for as long as a test takes."""
    with serving(tmp_path_factory.mktemp("unhurried"), DEADLINE_S) as made:
        yield made


@pytest.fixture
def crowded(unhurried: Served) -> Iterator[Served]:
    """All connections are of one address, and none says anything."""
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(connect(unhurried.address))) for _ in range(CONNECTIONS)]
        eventually(lambda: all(unhurried.talks_to(each.getsockname()) for each in kept), "they are all there")
        yield unhurried


def test_one_address_does_not_keep_another_one_out(crowded: Served):
    with closing(connect(crowded.address, "127.0.0.2")) as connection:
        asked = [GET.replace(b"/healthz", b"/openapi.json") + b"\r\n", GET + b"Connection: close\r\n\r\n"]
        assert send(connection, asked, within_s=WITHIN_S).statuses == [200, 200]


@pytest.mark.parametrize(("path", "status"), [(b"/healthz", 200), (b"/readyz", 200), (b"/openapi.json", 503)])
def test_health_is_answered_whoever_holds_all_connections(crowded: Served, path: bytes, status: int):
    with closing(connect(crowded.address)) as connection:
        sent = send(connection, [GET.replace(b"/healthz", path) + b"\r\n"], within_s=WITHIN_S)
    assert sent.closed
    assert sent.statuses == [status]


# The end
# --------------------------------------------------------------------------------------------------------------------


def test_answers_say_close_while_it_drains(inside: InProcess):
    with closing(inside.connect()) as connection:
        inside.server.drain(DEADLINE_S)
        sent = send(connection, [GET + b"\r\n"], within_s=DEADLINE_S)
    assert sent.closed
    assert b"\r\nconnection: close\r\n" in sent.answer


def seen(inside: InProcess) -> None:
    """Returns when the server has taken all earlier connections, and what was sent on them."""
    with closing(inside.connect()) as connection:
        assert send(connection, [GET + b"Connection: close\r\n\r\n"], within_s=DEADLINE_S).statuses == [200]


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcess]:
    """Its clients have as much time as a test."""
    monkeypatch.setattr(connections, "ON_ITS_WAY_S", DEADLINE_S)
    with in_process(tmp_path / "home", environ={"FEED_HTTP_PATIENCE": f"{DEADLINE_S:.0f}s"}) as inside:
        yield inside


WHOLE = GET + b"\r\n"


@pytest.mark.parametrize("before", [b"", GET[:9], WHOLE], ids=["none has come", "a part has come", "one was answered"])
def test_a_request_that_is_on_its_way_when_the_server_ends_is_answered(patient: InProcess, before: bytes):
    """A proxy that finds its connection closed repeats no action: it cannot know whether that was done."""
    inside = patient
    with closing(inside.connect()) as connection:
        connection.sendall(before)
        if before == WHOLE:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        seen(inside)
        inside.server.drain(0.0)
        eventually(lambda: not inside.accepts(), "no new connection is taken")
        sent = send(connection, [WHOLE.removeprefix(before) or WHOLE], within_s=DEADLINE_S)
    assert sent.closed
    assert sent.statuses == [200]
    assert b"\r\nconnection: close\r\n" in sent.answer
    eventually(lambda: not inside.server.is_running(), "it ends")


def test_a_connection_that_the_server_has_not_taken_when_it_ends_is_answered(
    patient: InProcess, monkeypatch: pytest.MonkeyPatch
):
    """It waits in the kernel, which would reset it."""
    inside = patient
    ends = inside.server._server.shutdown
    waiting: list[socket.socket] = []

    async def ends_now(sockets: list[socket.socket] | None = None) -> None:
        # The loop of the server runs this, so it takes no connection meanwhile.
        waiting.extend(inside.connect() for _ in range(20))
        for each in waiting[:10]:
            each.sendall(GET + b"\r\n")
        await ends(sockets)

    monkeypatch.setattr(inside.server._server, "shutdown", ends_now)
    inside.server.drain(0.0)
    eventually(lambda: not inside.accepts(), "no new connection is taken")
    assert len(waiting) == 20
    with ExitStack() as stack:
        for number, each in enumerate(waiting):
            stack.enter_context(closing(each))
            sent = send(each, [] if number < 10 else [GET + b"\r\n"], within_s=DEADLINE_S)
            assert sent.statuses == [200]
            assert sent.closed
        eventually(lambda: not inside.server.is_running(), "it ends")


def test_a_connection_without_a_request_does_not_keep_a_server_from_its_end(inside: InProcess):
    with closing(inside.connect()) as connection:
        seen(inside)
        inside.server.drain(0.0)
        eventually(lambda: not inside.server.is_running(), "it ends")
        assert connection.recv(1) == b""


@pytest.mark.parametrize("limit", [512, 1_600])
def test_fewer_file_descriptors_than_may_be_needed_are_refused_at_the_start(cli: Cli, limit: int):
    """By 1,000 connections, and by two clusters whose files may be 256 each."""
    program = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); {FEEDCTL}"
    ended = template.run(program, "--home", cli.home, "serve", "--port", 0, timeout_s=DEADLINE_S)
    assert ended.returncode == 2, ended
    assert "http.connections" in ended.stderr
    assert "ulimit -Hn" in ended.stderr


@pytest.mark.processes
def test_a_log_that_is_not_read_stops_nothing(cli: Cli):
    """Neither requests nor the end; what it could not take is counted in it."""
    read, written = os.pipe()
    process = cli.spawn("serve", "--port", 0, stderr=written)
    os.close(written)
    with os.fdopen(read, "rb") as log:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            with closing(connect(address)) as connection:
                connection.settimeout(DEADLINE_S)
                for _ in range(1_000):
                    connection.sendall(GET + b"\r\n")
                    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            process.communicate()
        assert 100 < log.read().count(b"http.request") < 1_000
