"""serve, token: the HTTP API."""

import contextlib
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from feedstore.serving import wiring as feedstore_wiring
from feedstore.serving.config import FILE_NAME, Config, ConfigError, duration_ms
from feedstore.serving.http import tokens
from feedstore.serving.http.tokens import SCOPES, Scope
from feedstore.serving.queues import Queues
from feedstore.serving.service import FeedService
from feedstore.serving.wiring import wall_ms
from workers import collector, home, logs, wiring
from workers.cli.output import emit_json, note, say
from workers.cli.running import stopping
from workers.cli.session import Session, json_option, pass_session
from workers.home import HomeBusyError
from workers.runtime import WorkerFailedError
from workers.stage import TooManyDeadLettersError
from workers.standing import LateQueues, OpenQueues
from workers.wiring import Ports

if TYPE_CHECKING:
    from feedstore.serving.http.server import HttpServer

PORT = 8080
_ASK_S = 0.05
_RESTS_S = (1.0, 5.0, 15.0, 60.0)
"""How long a worker that failed rests before it begins again; the last one each time after that."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The name or address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="The port; 0 takes a free one."
)
@pass_session
def serve(session: Session, host: str, port: int) -> None:
    """Serves the HTTP API: pages, actions, who follows what.

    In a home with files it is the worker too, and everything runs in this process; where a worker holds the home
    already, that goes on with the work. On servers it only serves, and any number may run.

    Without tokens (feed.toml: http.tokens) it listens on this machine's loopback only. SIGTERM and SIGINT end it after
    the requests that are under way. What it can do stands at /openapi.json and in docs/http.md. At / is a
    site for browsers.

    \b
    Examples:
      feedctl serve
      feedctl serve --port 0
      feedctl serve --host 0.0.0.0 --port 80
      curl http://127.0.0.1:8080/v1/users/1/feed
    """
    with stopping() as stop, listening(session.config, host, port) as listener:
        run(session.config, listener, stop)


def listening(config: Config, host: str, port: int) -> "closing[socket.socket]":
    """A socket to serve on, closed at the end. Raises ConfigError."""
    try:
        from feedstore.serving.http import server  # noqa: PLC0415 - its libraries are an extra
    except ImportError as error:
        raise ConfigError(f"to serve HTTP, install feedstore[http]: {error}") from error
    return closing(server.listen(config, host, port))


def run(config: Config, listener: socket.socket, stop: Event) -> None:
    """Serves until `stop` is set, and works where nobody else does.

    A worker that fails begins again after a rest; one that met too many dead letters does not. Either way it serves.

    Raises:
        ConfigError
        FollowStoreUnavailableError, QueueError: what it needs is not there.
        WorkerFailedError: at the end, if the worker does not work by then.
    """
    collector.relax()
    logs.adopt("asyncio", "uvicorn")
    with ExitStack() as stack:
        if wiring.is_embedded(config):
            try:
                lock = stack.enter_context(home.worker_lock(config.home))
            except HomeBusyError as error:
                note(f"{error}: it goes on with the work, and this one only serves")
            else:
                ports = stack.enter_context(closing(wiring.open_ports(config, "owner", alone=True)))
                _serve_and_work(config, ports, lock, listener, stop)
                return
        _serve(config, listener, stop)


def _serve_and_work(config: Config, ports: Ports, lock: int, listener: socket.socket, stop: Event) -> None:
    """For who holds the home. ports: as its owner. lock: the home's."""
    with closing(feedstore_wiring.service_on(config, ports.follows, ports.replicas.values())) as service:
        wiring.refuse_unsafe(ports, config, ports.replicas)
        queues = OpenQueues(ports)
        with _serving(config, service, queues, listener, owns_clusters=True) as server:
            ended = _Ended(server, stop, config.http.drain_ms / 1_000)
            for rest_s in itertools.chain(_RESTS_S, itertools.repeat(_RESTS_S[-1])):
                queues.note_stopped(None)
                home.note_stopped(lock, None)
                try:
                    wiring.worker(ports, config).run(ended)
                except WorkerFailedError as error:
                    # Pages outlive it.
                    queues.note_stopped(str(error))
                    home.note_stopped(lock, str(error))
                    # It would bury as many again, and again.
                    for_good = any(isinstance(cause, TooManyDeadLettersError) for cause in error.causes)
                    if _waited(server, ended, math.inf if for_good else rest_s):
                        raise
                else:
                    return


def _waited(server: "HttpServer", ended: Callable[[], bool], rest_s: float) -> bool:
    """Serves for so long; whether it has ended."""
    until_s = time.monotonic() + rest_s
    while not ended():
        if time.monotonic() >= until_s:
            return False
        server.wait(_ASK_S)
    return True


def _serve(config: Config, listener: socket.socket, stop: Event) -> None:
    queues = LateQueues(lambda: wiring.open_ports(config, "beside", feeds=False))
    with (
        closing(queues),
        closing(feedstore_wiring.open_service(config)) as service,
        _serving(config, service, queues, listener, owns_clusters=False) as server,
    ):
        ended = _Ended(server, stop, config.http.drain_ms / 1_000)
        while not ended():
            server.wait(_ASK_S)


@contextlib.contextmanager
def _serving(
    config: Config, service: FeedService, queues: Queues, listener: socket.socket, *, owns_clusters: bool
) -> Iterator["HttpServer"]:
    """A server that runs, and has said where."""
    from feedstore.serving.http import wiring as http_wiring  # noqa: PLC0415 - its libraries are an extra

    app = http_wiring.open_app(config, os.environ, service, queues, owns_clusters=owns_clusters)
    with closing(http_wiring.server(config, app, listener)) as server:
        server.start()
        say(server.address)
        note(f"serving; try it in a browser, or: curl {server.address}/v1/users/1/feed")
        yield server


class _Ended:
    """Says when a server has ended, and has it end once somebody wants that.

    drain_s: for so long it goes on, and says that it is not ready.
    """

    def __init__(self, server: "HttpServer", stop: Event, drain_s: float) -> None:
        self._server = server
        self._stop = stop
        self._drain_s = drain_s
        self._draining = False

    def __call__(self) -> bool:
        if self._stop.is_set() and not self._draining:
            self._draining = True
            self._server.drain(self._drain_s)
        return not self._server.is_running()


@click.group()
def token() -> None:
    """Makes, lists and revokes tokens for the HTTP API.

    \b
    Examples:
      feedctl token new --name web --scope read --scope write
      feedctl token list
      feedctl token revoke web
    """


@token.command()
@click.option("--name", required=True, help="What it is for; names it in the file.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What it may do; may be given several times. None includes another.",
)
@click.option(
    "--expires",
    default="365d",
    show_default=True,
    metavar="DURATION",
    help="How long it lets somebody in, such as 90d; never: it has no end.",
)
@pass_session
def new(session: Session, name: str, scopes: tuple[Scope, ...], expires: str) -> None:
    """Makes a token, writes it to stdout, and keeps its hash only.

    The hash goes into the file that feed.toml names (http.tokens). Servers that run know it within seconds.

    \b
    Examples:
      feedctl token new --name web --scope read --scope write
      feedctl token new --name sre --scope read --scope operate --expires 90d
    """
    path = _tokens(session)
    end = None if expires == "never" else _in(expires)
    say(tokens.issue(path, name, scopes, end))
    until = "and never expires" if end is None else f"and expires at {end:%Y-%m-%d %H:%M:%S} UTC"
    note(f"its hash is in {path}, {until}; servers that run know it within seconds")


def _in(duration: str) -> datetime:
    try:
        return datetime.fromtimestamp(wall_ms() // 1_000 + duration_ms(duration) // 1_000, UTC)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{error}, or never", param_hint="--expires") from error


@token.command(name="list")
@json_option
@pass_session
def list_tokens(session: Session, *, as_json: bool) -> None:
    """Lists the tokens: their names, what they may do, when they expire. The tokens themselves are stored nowhere.

    \b
    Examples:
      feedctl token list
    """
    now_ms = wall_ms()
    for each in tokens.listed(_tokens(session)):
        if as_json:
            expires_ms = None if each.expires is None else int(each.expires.timestamp() * 1_000)
            emit_json(
                {
                    "name": each.name,
                    "scopes": each.scopes,
                    "sha256": each.sha256,
                    "expires_ms": expires_ms,
                    "expired": each.expired(now_ms),
                }
            )
            continue
        end = "never expires" if each.expires is None else f"expires {each.expires.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        say(f"{each.name:<20} {','.join(each.scopes):<20} {'HAS EXPIRED' if each.expired(now_ms) else end}")


@token.command()
@click.argument("name")
@pass_session
def revoke(session: Session, name: str) -> None:
    """Takes the token NAME back: servers that run refuse it within seconds.

    \b
    Examples:
      feedctl token revoke web
    """
    tokens.revoke(_tokens(session), name)
    note(f"{name} is revoked; servers that run refuse it within seconds")


def _tokens(session: Session) -> Path:
    """The file with the tokens. Raises ConfigError: there is none."""
    path = session.config.http.tokens
    if path is None:
        raise ConfigError(
            f'{session.home / FILE_NAME}: http.tokens names no file: set it to "tokens.toml", for example'
        )
    return path


COMMANDS = (serve, token)
