"""Sends servers requests as their clients do, in their own protocols and with nothing but the standard library: the
stack must start on a machine where no client is installed yet.

A probe returns if the answer is right, and raises NotReadyError if there is none, or another.
"""

import socket
import struct
import subprocess
import urllib.request
from http.client import HTTPException
from pathlib import Path

from deploy.local.errors import NotReadyError
from deploy.local.ports import LOOPBACK

_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 1 << 24

_THRIFT_VERSION = 0x80010000
_THRIFT_CALL, _THRIFT_REPLY = 1, 2
_THRIFT_STOP, _THRIFT_STRING, _THRIFT_LIST = 0, 11, 15

_KAFKA_METADATA, _KAFKA_METADATA_VERSION = 3, 1


def mariadb_select(client_conf: Path, database: str) -> None:
    """SELECT 1 as the follow store's user, over TCP."""
    argv = ["mariadb", f"--defaults-file={client_conf}", "--connect-timeout=3", "-N", "-e", "SELECT 1", database]
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            argv, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError as error:
        raise NotReadyError("there is no program mariadb to ask it with") from error
    except subprocess.TimeoutExpired as error:
        raise NotReadyError(f"no answer to SELECT 1 in {_ANSWER_S:.0f} s") from error
    if done.returncode != 0 or done.stdout.strip() != "1":
        raise NotReadyError((done.stderr or done.stdout).strip() or "SELECT 1 was not answered")


def listens(port: int, host: str = LOOPBACK) -> None:
    """The port accepts connections."""
    _connection(port, host).close()


def answers_ok(port: int, path: str) -> None:
    """GET over HTTP, answered without an error."""
    try:
        http_answer(f"http://{LOOPBACK}:{port}{path}", _ANSWER_S)
    except OSError as error:
        raise NotReadyError(f"GET {path}: {error}") from error


def http_answer(url: str, within_s: float) -> bytes:
    """The answer to a GET over HTTP. No proxy of the environment is asked: none reaches what is on this machine, or
    behind the doors of a zone.

    Raises OSError: there is none, or one with the status of an error.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=within_s) as answer:
            return bytes(answer.read())
    except HTTPException as error:
        raise OSError(f"no answer over HTTP: {error!r}") from error


def kafka_metadata(port: int) -> None:
    """The metadata of no topic: the answer names the broker as one of its brokers."""
    client = b"probe"
    body = struct.pack(">hhih", _KAFKA_METADATA, _KAFKA_METADATA_VERSION, 1, len(client)) + client
    body += struct.pack(">i", 0)  # an empty list of topics
    with _connection(port) as stream:
        _send(stream, struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise NotReadyError(f"an answer of {size} bytes")
        answer = _receive(stream, size)
    if len(answer) < 8:
        raise NotReadyError("an answer that is too short")
    _, brokers = struct.unpack_from(">ii", answer)
    if brokers < 1:
        raise NotReadyError("its metadata name no broker")


def thrift2_tables(port: int) -> None:
    """Thrift2 `getTableNamesByNamespace("default")`, in the strict binary protocol: goes through the gateway to the
    cluster's master and its catalogue. Right is an answer whose field 0 is a list.
    """
    method, namespace = b"getTableNamesByNamespace", b"default"
    head = struct.pack(">Ii", _THRIFT_VERSION | _THRIFT_CALL, len(method)) + method + struct.pack(">i", 1)
    argument = struct.pack(">bhi", _THRIFT_STRING, 1, len(namespace)) + namespace
    with _connection(port) as stream:
        _send(stream, head + argument + bytes([_THRIFT_STOP]))
        version, size = struct.unpack(">Ii", _receive(stream, 8))
        if not 0 <= size <= _ANSWER_BYTES_MAX:
            raise NotReadyError("an answer in another protocol")
        _receive(stream, size + 4)
        if version & 0xFF != _THRIFT_REPLY:
            raise NotReadyError(f"{method.decode()} failed in the gateway")
        kind, field = struct.unpack(">bh", _receive(stream, 3))
        if (kind, field) != (_THRIFT_LIST, 0):
            raise NotReadyError(f"{method.decode()}: the cluster does not answer the gateway")


def _connection(port: int, host: str = LOOPBACK) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=_ANSWER_S)
    except OSError as error:
        raise NotReadyError(f"no connection to {host}:{port}: {error.strerror or error}") from error


def _send(stream: socket.socket, message: bytes) -> None:
    try:
        stream.sendall(message)
    except OSError as error:
        raise NotReadyError(f"no answer: {error}") from error


def _receive(stream: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes."""
    parts = bytearray()
    while len(parts) < size:
        try:
            part = stream.recv(min(size - len(parts), 1 << 16))
        except OSError as error:
            raise NotReadyError(f"no answer: {error}") from error
        if not part:
            raise NotReadyError("it closed the connection")
        parts += part
    return bytes(parts)
