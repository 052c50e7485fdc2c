"""Turns the configuration into a server."""

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from feedstore.app import open_files
from feedstore.app.config import Config
from feedstore.app.services import Services
from feedstore.app.wiring import clock_of, in_files, monotonic_s
from feedstore.boards import endpoints as of_boards
from feedstore.catalog.settings import PINS
from feedstore.errors import ConfigError
from feedstore.following import endpoints as of_feeds
from feedstore.following.metrics import counts as following_counts
from feedstore.http import listening
from feedstore.http.app import App, Served
from feedstore.http.endpoint import Endpoint, Part
from feedstore.http.problems import Known
from feedstore.http.queues import BoundedQueues, Queues, QueuesUnavailableError
from feedstore.http.running import InThreads, Runners
from feedstore.http.server import HttpServer
from feedstore.http.signed_cursors import SignedCursors, load_key
from feedstore.http.site import assets
from feedstore.http.tokens import Access, Loopback, Tokens, is_loopback
from feedstore.http.traced import TracedApp
from feedstore.metering import Counts, Definition
from feedstore.metering.asking import PrometheusHours
from feedstore.metering.meter import together
from feedstore.metering.plots import Plot
from feedstore.metering.sampling import Sampler
from feedstore.tracing import UNTRACED, Tracer

if TYPE_CHECKING:
    from feedstore.catalog.posting import Posting
    from feedstore.catalog.service import CatalogService

DESCRIPTION: Final = "Following feeds: pages, actions, who follows what. Boards in their own order."
ENDPOINTS: Final[tuple[Endpoint[Any, Any, Any], ...]] = (*of_feeds.ENDPOINTS, *of_boards.ENDPOINTS)
"""The endpoints of every server. If the home has catalogs, there are more: see `_of_catalogs`."""
WAITING_FOR_EACH_THREAD: int = 4
"""The most requests that wait for each thread: if one takes 100 ms, the last waits half a second."""
_LOOKING: Final = 4
"""How many threads answer requests about the state of the system: for a Prometheus or two, and some browsers."""


def open_app(
    config: Config,
    environ: Mapping[str, str],
    services: Services,
    queues: Queues,
    *,
    owns_clusters: bool,
    definitions: Sequence[Definition],
    clock: Callable[[], float] = monotonic_s,
    posting: "Posting | None" = None,
    counted: Callable[[], Counts] = Counts,
    plots: Sequence[Plot] = (),
    tracer: Tracer = UNTRACED,
) -> App:
    """The application of a server. owns_clusters: whether this process writes the clusters. If so, reads of clusters in
    files take microseconds, and need no thread; if another process owns the files, reads may have to catch up with it.
    definitions: of all metrics. clock: the service's own. posting: where updates of catalogs go; None: they are
    refused. counted: gives what else this process counts. plots: of the work of the last hour. tracer: traces what the
    threads of requests do.

    Raises ConfigError.
    """
    http = config.http
    wall_ms = clock_of(config)
    access: Access = Loopback() if http.tokens is None else Tokens(http.tokens, clock, wall_ms)
    cursors = SignedCursors(load_key(http.cursor_key, environ))
    # Calls on these threads end by their deadline, so they do not have to wait for a follow store that hangs.
    bounded = _threads(http.threads, clock, tracer)
    reads = _threads(http.threads, clock, tracer)
    runners = Runners(
        pages=None if owns_clusters and in_files(config) else bounded,
        # Pages of pins end by their deadline if there is a catalog of pins.
        bounded=bounded if PINS in config.catalogs else reads,
        looks=_threads(_LOOKING, clock, tracer),
        reads=reads,
        actions=_threads(http.threads, clock, tracer),
    )
    service, boards, catalogs = services
    queues = BoundedQueues(queues, clock)
    catalog_parts, catalog_problems, catalog_counts = _of_catalogs(catalogs, posting)

    def counts() -> Counts:
        try:
            state = queues.state()
        except QueuesUnavailableError:
            state = None
        return together([following_counts(service, state, queues.stopped()), catalog_counts(), counted()])

    hours = _hours(config, plots, counts, clock, wall_ms)
    served = Served(
        [
            Part(of_feeds.FeedApi(service, queues, cursors, wall_ms, hours.hour), of_feeds.ENDPOINTS),
            Part(of_boards.BoardApi(boards, cursors), of_boards.ENDPOINTS),
            *catalog_parts,
        ],
        DESCRIPTION,
        assets(of_feeds.SITE),
        {**of_feeds.PROBLEMS, **catalog_problems},
        service.answers,
        queues.stopped,
        counts,
        definitions,
        hours.close,
    )
    return App(served, access, runners, config.serving.deadline_ms / 1_000, clock)


def _hours(
    config: Config,
    plots: Sequence[Plot],
    counts: Callable[[], Counts],
    clock: Callable[[], float],
    wall_ms: Callable[[], int],
) -> PrometheusHours | Sampler:
    """The source of plots: the Prometheus that scrapes all processes, or samples of this process."""
    if config.metrics.prometheus is not None:
        matching = f"home={json.dumps(str(config.home))}"
        return PrometheusHours(config.metrics.prometheus, matching, plots, clock, time.time)
    sampler = Sampler(plots, counts, wall_ms)
    if plots:
        sampler.start()
    return sampler


def _threads(threads: int, clock: Callable[[], float], tracer: Tracer) -> InThreads:
    return InThreads(threads, WAITING_FOR_EACH_THREAD * threads, clock, tracer)


class _OfCatalogs(NamedTuple):
    parts: Sequence[Part[Any]]
    problems: Known
    counts: Callable[[], Counts]


def _of_catalogs(catalogs: "CatalogService | None", posting: "Posting | None") -> _OfCatalogs:
    """The additional endpoints of a home with catalogs."""
    if catalogs is None:
        return _OfCatalogs((), {}, Counts)
    from feedstore.catalog import endpoints as of_catalogs  # noqa: PLC0415 - homes without a catalog do not load it
    from feedstore.catalog.metrics import counts  # noqa: PLC0415 - the same

    return _OfCatalogs(
        [Part(of_catalogs.CatalogApi(catalogs, posting), of_catalogs.ENDPOINTS)],
        of_catalogs.PROBLEMS,
        lambda: counts(catalogs.states(), catalogs.clock_ms()),
    )


def server(config: Config, app: App, listener: socket.socket, tracer: Tracer = UNTRACED) -> HttpServer:
    """The server of an application. tracer: of requests; the application and the services must have the same one."""
    return HttpServer(
        app if tracer is UNTRACED else TracedApp(app, tracer),
        listener,
        patience_s=config.http.patience_ms / 1_000,
        connections=config.http.connections,
        end_s=config.http.patience_ms / 1_000 + config.serving.deadline_ms / 1_000,
    )


def listen(config: Config, host: str, port: int) -> socket.socket:
    """A socket for a server. port: 0 takes any free port.

    Raises ConfigError if the socket cannot be had, if other machines could reach it and there are no tokens, or if this
    process may not open as many files as there may be connections.
    """
    open_files.lift_for_server(config)
    if config.http.tokens is None and not is_loopback(host):
        raise ConfigError(
            f"{host} is not this machine's loopback: anyone who reaches it could do anything. Name a file of tokens"
            " (feed.toml: http.tokens), and make one with: feedctl token new --name web --scope read --scope write"
        )
    try:
        return listening.listen(host, port)
    except UnicodeError as error:  # a part of the host's name is empty or too long
        raise ConfigError(f"{host}:{port}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{host}:{port}: {error.strerror or error}") from error
