"""A probe accepts the right answer only, and says what was wrong with another."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from deploy.local import logs, probes
from deploy.local.errors import NotReadyError
from deploy.local.home import Home
from deploy.local.ports import LOOPBACK


@contextlib.contextmanager
def _answering(answer: bytes) -> Iterator[tuple[int, bytearray]]:
    """A server that answers its first client with these bytes. Yields its port and what it was asked."""
    asked = bytearray()

    def serve() -> None:
        with contextlib.suppress(OSError):
            client, _ = server.accept()
            with client:
                asked.extend(client.recv(4096))
                client.sendall(answer)

    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def _thrift(kind: int, method: bytes, result: bytes) -> bytes:
    return struct.pack(">Ii", 0x80010000 | kind, len(method)) + method + struct.pack(">i", 1) + result


_EMPTY_LIST = b"\x0f\x00\x00" + b"\x0b" + struct.pack(">i", 0) + b"\x00"
_ERROR = b"\x0c\x00\x01\x00\x00"
_KAFKA = struct.pack(">iiihi", 1, 1, 1, 1, 0)

_LISTS = b"getTableNamesByNamespace"


def test_a_gateway_that_lists_tables_is_ready() -> None:
    with _answering(_thrift(2, _LISTS, _EMPTY_LIST)) as (port, asked):
        probes.thrift2_tables(port)
    assert asked.startswith(struct.pack(">Ii", 0x80010001, len(_LISTS)) + _LISTS)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_thrift(2, _LISTS, _ERROR), "the cluster does not answer"),
        (_thrift(3, _LISTS, _ERROR), "failed in the gateway"),
        (b"HTTP/1.1 400 Bad Request\r\n", "another protocol"),
        (b"", "closed the connection"),
    ],
)
def test_a_gateway_that_answers_otherwise_is_not_ready(answer: bytes, reason: str) -> None:
    with _answering(answer) as (port, _), pytest.raises(NotReadyError, match=reason):
        probes.thrift2_tables(port)


def test_a_broker_that_names_a_broker_is_ready() -> None:
    with _answering(struct.pack(">i", len(_KAFKA)) + _KAFKA) as (port, _):
        probes.kafka_metadata(port)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (struct.pack(">iii", 8, 1, 0), "no broker"),
        (struct.pack(">ii", 4, 1), "too short"),
        (struct.pack(">i", -1), "an answer of -1 bytes"),
        (b"\x00\x00", "closed the connection"),
    ],
)
def test_a_broker_that_answers_otherwise_is_not_ready(answer: bytes, reason: str) -> None:
    with _answering(answer) as (port, _), pytest.raises(NotReadyError, match=reason):
        probes.kafka_metadata(port)


def test_nobody_there_is_not_ready() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotReadyError, match="no connection"):
        probes.listens(port)


def test_a_log_is_asked_about_the_life_that_began_last(home: Home) -> None:
    log = home.log("hbase-a")
    assert not logs.says(log, "ready")
    log.touch()
    assert not logs.says(log, "ready")
    logs.begin(log)
    with log.open("a", encoding="utf-8") as file:
        file.write("ready\n")
    assert logs.says(log, "ready")
    logs.begin(log)
    assert not logs.says(log, "ready")


def test_a_tail_is_the_last_lines(home: Home) -> None:
    log = home.log("kafka")
    log.write_text("\n".join(str(number) for number in range(100_000)), encoding="utf-8")
    assert logs.tail(log, 2) == "99998\n99999"
    assert "No such file" in logs.tail(home.log("mariadb"), 2)


def test_a_server_that_answers_over_http_is_ready_and_one_that_answers_with_an_error_is_not() -> None:
    with _answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, asked):
        probes.answers_ok(port, "/-/ready")
    assert asked.startswith(b"GET /-/ready HTTP/1.1\r\n")
    with (
        _answering(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as (port, _),
        pytest.raises(NotReadyError, match="503"),
    ):
        probes.answers_ok(port, "/-/ready")


@pytest.mark.parametrize("answer", [b"another protocol\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_an_answer_that_is_no_http_or_that_is_cut_off_is_none(answer: bytes) -> None:
    with _answering(answer) as (port, _), pytest.raises(OSError, match="no answer over HTTP"):
        probes.http_answer(f"http://{LOOPBACK}:{port}/-/ready", 5.0)
