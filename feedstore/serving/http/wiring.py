"""Turns the configuration into a server."""

import socket
from collections.abc import Callable, Mapping

from feedstore.serving.config import Config
from feedstore.serving.http.app import App, Bounds
from feedstore.serving.http.cursors import Cursors, load_key
from feedstore.serving.http.endpoints import Api
from feedstore.serving.http.running import InLoop, InThreads, Runner
from feedstore.serving.http.server import HttpServer
from feedstore.serving.http.tokens import Access, Loopback, Tokens
from feedstore.serving.queues import Queues
from feedstore.serving.service import FeedService
from feedstore.serving.wiring import in_files, monotonic_s, wall_ms

WAITING_FOR_EACH_THREAD: int = 4
"""So many requests wait for a thread at most: where one takes 100 ms, half a second."""


def open_app(
    config: Config,
    environ: Mapping[str, str],
    service: FeedService,
    queues: Queues,
    *,
    owns_clusters: bool,
    clock: Callable[[], float] = monotonic_s,
) -> App:
    """owns_clusters: whether this process writes the clusters. Then reads of clusters in files take microseconds, and
    need no thread; beside an owner they may have to catch up with it. clock: the service's own.

    Raises ConfigError.
    """
    http = config.http
    access: Access = Loopback() if http.tokens is None else Tokens(http.tokens, clock, wall_ms)
    cursors = Cursors(load_key(http.cursor_key, environ))
    calls = InThreads(http.threads, WAITING_FOR_EACH_THREAD * http.threads, clock)
    pages: Runner = InLoop() if owns_clusters and in_files(config) else calls
    bounds = Bounds(deadline_s=config.deadline_ms / 1_000)
    return App(Api(service, queues, cursors, wall_ms), access, pages, calls, bounds, clock)


def server(config: Config, app: App, listener: socket.socket) -> HttpServer:
    return HttpServer(
        app,
        listener,
        patience_s=config.http.patience_ms / 1_000,
        connections=config.http.connections,
        end_s=config.http.patience_ms / 1_000 + config.deadline_ms / 1_000,
    )
