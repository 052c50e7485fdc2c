"""serve: the HTTP API."""

import contextlib
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import click

from feedstore.app.config import Config
from feedstore.app.services import Services, open_services, services_on
from feedstore.app.tracing import open_tracer
from feedstore.app.wiring import clock_of
from feedstore.catalog.settings import posted
from feedstore.errors import ConfigError, PortError, needing_extra
from feedstore.following import metrics as of_reads
from feedstore.http.queues import Queues
from feedstore.metering import Counting, definitions_of
from feedstore.tracing import Tracer
from workers.app import home, logs, memory_tuning, metering, targets, wiring
from workers.app.home import HomeBusyError
from workers.app.queue_status import LazyQueues, OpenQueues
from workers.cli.output import note, say
from workers.cli.session import Session, end_if_gone, pass_session
from workers.cli.signals import stopping
from workers.following.ports import Ports
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.runtime import WorkerFailedError

if TYPE_CHECKING:
    from feedstore.catalog.posting import Posting
    from feedstore.http.server import HttpServer


PORT = 8080


_ASK_S = 0.05
_LOOK_S = 1.0

_OF_READS: Final = frozenset(each.name for each in definitions_of(of_reads))
"""The metrics of clusters and groups that the server itself serves."""


_RESTS_S = (1.0, 5.0, 15.0, 60.0)
"""The rests of a worker that failed, before it begins again. The last one is repeated."""


@click.command(short_help="Serve the HTTP API and the site.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The name or address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="The port; 0 takes a free one."
)
@pass_session
def serve(session: Session, host: str, port: int) -> None:
    """Serve the HTTP API: pages, actions, follows, boards, and a site for browsers.

    In a home with files this process is the worker too, unless a worker already holds the home. On servers it only
    serves, and any number may run.

    Without tokens (feed.toml: http.tokens) it listens on this machine's loopback only. SIGTERM and SIGINT end it after
    it has answered the requests that it has begun. The API is described at /openapi.json and in docs/http.md; the site
    is at /. Requests are traced if feed.toml says where spans are sent (traces.endpoint; docs/traces.md).

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
    """Opens a socket to serve on, closed at the end. Raises ConfigError."""
    with needing_extra("to serve HTTP", "http"):
        from feedstore.app import http as http_wiring  # noqa: PLC0415 - its libraries are an extra
    return closing(http_wiring.listen(config, host, port))


def run(config: Config, listener: socket.socket, stop: Event) -> None:
    """Serves until `stop` is set, and does the worker's work if no other process does.

    A worker that fails begins again after a rest, unless it met too many dead letters. In both cases the serving
    continues.

    Raises:
        ConfigError
        FollowStoreUnavailableError, QueueError: a store is missing or away. On servers none is needed at the start; but
            a database that answers is refused if it is another one or not up to date.
        WorkerFailedError: at the end, if the worker has failed and does not work by then.
    """
    memory_tuning.relax()
    logs.adopt("asyncio", "uvicorn")
    with ExitStack() as stack:
        tracer = stack.enter_context(closing(open_tracer(config, "serve")))
        logs.name_traces(tracer)
        if wiring.is_embedded(config):
            try:
                lock = stack.enter_context(home.worker_lock(config.home))
            except HomeBusyError as error:
                held = home.held(config.home, error.pid)
                note(f"{held}: that worker does the work, and this process only serves")
            else:
                ports = stack.enter_context(closing(wiring.open_ports(config, "write", alone=True, tracer=tracer)))
                _serve_and_work(config, ports, lock, listener, stop)
                return
        _serve(config, listener, stop, tracer)


def _serve_and_work(config: Config, ports: Ports, lock: int, listener: socket.socket, stop: Event) -> None:
    """Serves and works. The caller holds the home. ports: opened as the home's owner. lock: the home's."""
    replicas = ports.replicas.values()
    with services_on(config, ports.follows, replicas, ports.clock, ports.tracer, ports.meter) as services:
        wiring.refuse_unsafe(ports, config, ports.replicas)
        wiring.warn_of_partitions(ports, config)
        queues = OpenQueues(ports)
        with _serving(config, services, queues, listener, ports.meter, ports.tracer, owns_clusters=True) as server:
            ended = _Ended(server, stop, config.http.drain_ms / 1_000, partial(end_if_gone, config.home, lock))
            for times, rest_s in enumerate(itertools.chain(_RESTS_S, itertools.repeat(_RESTS_S[-1]))):
                _note_stopped(queues, lock, None)
                for_good = False
                try:
                    looking = [*wiring.gauges(ports, config, faults=True), *wiring.canaries(ports, config)]
                    wiring.worker(ports, config, looking=looking).run(ended)
                except (WorkerFailedError, PortError, ConfigError, OSError) as error:
                    if isinstance(error, WorkerFailedError):
                        # A new worker would bury as many again and again.
                        for_good = any(isinstance(cause, TooManyDeadLettersError) for cause in error.causes)
                    elif times == 0:
                        raise  # the worker cannot be made: whatever started this process must hear of it
                    # Pages are served without a worker.
                    _note_stopped(queues, lock, str(error))
                    if _waited(server, ended, math.inf if for_good else rest_s):
                        raise
                else:
                    return


def _note_stopped(queues: OpenQueues, lock: int, why: str | None) -> None:
    queues.note_stopped(why)
    with contextlib.suppress(OSError):  # perhaps the disk is full: the server still says why
        home.note_stopped(lock, why)


def _waited(server: "HttpServer", ended: Callable[[], bool], rest_s: float) -> bool:
    """Serves for `rest_s`; returns whether the server has ended."""
    until_s = time.monotonic() + rest_s
    while not ended():
        if time.monotonic() >= until_s:
            return False
        server.wait(_ASK_S)
    return True


class _WorkerWatch:
    """Says why the work of a home in files is not done, if its worker is another process, which may end. It looks once
    every _LOOK_S, because a look holds the home's lock for a moment. Thread-safe: at worst two threads look at once.

    path: the home; None: the work is done on other machines, and its state is not known here.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._again_s = -math.inf
        self._said: str | None = None

    def __call__(self) -> str | None:
        if self._path is not None and self._clock() >= self._again_s:
            runs = home.worker_runs(self._path) is not None
            self._said = None if runs else "no worker runs: start feedctl work, or this server again"
            self._again_s = self._clock() + _LOOK_S
        return self._said


def _serve(config: Config, listener: socket.socket, stop: Event, tracer: Tracer) -> None:
    watch = _WorkerWatch(config.home if wiring.is_embedded(config) else None, time.monotonic)
    queues = LazyQueues(lambda: wiring.open_ports(config, "read", feeds=False, may_be_away=True), watch)
    meter = Counting(time.monotonic)
    with (
        closing(queues),
        open_services(config, meter, tracer) as services,
        _serving(config, services, queues, listener, meter, tracer, owns_clusters=False) as server,
    ):
        ended = _Ended(server, stop, config.http.drain_ms / 1_000, lambda: None)
        while not ended():
            server.wait(_ASK_S)


@contextlib.contextmanager
def _serving(
    config: Config,
    services: Services,
    queues: Queues,
    listener: socket.socket,
    meter: Counting,
    tracer: Tracer,
    *,
    owns_clusters: bool,
) -> Iterator["HttpServer"]:
    """Starts a server, which says its address. meter: has the counts that are served with those of requests."""
    from feedstore.app import http as http_wiring  # noqa: PLC0415 - its libraries are an extra
    from workers.app.metrics import ALL  # noqa: PLC0415 - the same
    from workers.app.plots import PLOTS  # noqa: PLC0415 - the same

    with ExitStack() as stack:
        posting = _posting(config, stack)
        endpoint = metering.MetricsEndpoint(meter, "serve")
        app = http_wiring.open_app(
            config,
            os.environ,
            services,
            queues,
            owns_clusters=owns_clusters,
            posting=posting,
            counted=lambda: endpoint.counts().without(_OF_READS),
            definitions=ALL,
            plots=PLOTS,
            tracer=tracer,
        )
        _listen(config, services, stack)
        server = stack.enter_context(closing(http_wiring.server(config, app, listener, tracer)))
        server.start()
        stack.enter_context(targets.named(config, "serve", server.address))
        say(server.address)
        token = "" if config.http.tokens is None else "-H 'Authorization: Bearer TOKEN' "
        note(f"serving; try it in a browser, or: curl {token}{server.address}/v1/users/1/feed")
        yield server


def _posting(config: Config, stack: ExitStack) -> "Posting | None":
    """Where updates of catalogs are posted, if the home has catalogs with posted updates."""
    if not posted(config.catalogs):
        return None
    from workers.catalog.posting import QueuePosting  # noqa: PLC0415 - other homes do not pay for it

    return stack.enter_context(closing(QueuePosting(partial(wiring.open_queue, config, clock_of(config)))))


def _listen(config: Config, services: Services, stack: ExitStack) -> None:
    """Keeps this process's caches of catalogs fresh, if it has any, until the stack is closed."""
    if services.catalogs is None:
        return
    from workers.app import catalogs  # noqa: PLC0415 - a home without catalogs does not pay for their library

    clock = clock_of(config)
    opener = partial(wiring.open_queue, config, clock)
    served = {name: services.catalogs.catalog(name) for name in config.catalogs}
    stack.enter_context(catalogs.listening(config, served, opener, clock))


class _Ended:
    """Says when a server has ended, and makes it end when that is requested.

    drain_s: how long it still serves after the request to end, while it reports that it is not ready. look: is called
    each time that this is asked.
    """

    def __init__(self, server: "HttpServer", stop: Event, drain_s: float, look: Callable[[], None]) -> None:
        self._look = look
        self._server = server
        self._stop = stop
        self._drain_s = drain_s
        self._draining = False

    def __call__(self) -> bool:
        self._look()
        if self._stop.is_set() and not self._draining:
            self._draining = True
            self._server.drain(self._drain_s)
        return not self._server.is_running()
