"""The services of a home, opened: what a web tier calls."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from feedstore.app.config import Config
from feedstore.app.tracing import open_tracer
from feedstore.app.wiring import clock_of, monotonic_s, open_follows, reading, reading_from
from feedstore.boards import Boards
from feedstore.boards.service import BoardService
from feedstore.catalog.settings import PINS
from feedstore.following.service import FeedService
from feedstore.follows.pin_source import FollowStorePins, PinSource
from feedstore.follows.store import FollowStore
from feedstore.metering import UNCOUNTED, Meter
from feedstore.replicas.replicas import Replica, Replicas
from feedstore.tracing import UNTRACED, Tracer

if TYPE_CHECKING:
    from feedstore.catalog.service import CatalogService


def open_service(config: Config) -> FeedService:
    """The service of a web tier. It writes to no cluster, so there may be many, even while a worker runs. A process
    that forks must open it after the fork, and none before: in a forked process, each call of one that was opened
    before is refused, and RocksDB aborts the process at its end.

    Raises ConfigError; FollowStoreUnavailableError: unlike a cluster, the follow store must be there.
    """
    clock = clock_of(config)
    with ExitStack() as stack:
        tracer = stack.enter_context(closing(open_tracer(config, "service")))
        follows = stack.enter_context(closing(open_follows(config, clock, tracer=tracer)))
        replicas = stack.enter_context(reading(config, clock, tracer))
        pins = stack.enter_context(_pins(config, follows, None))
        return _service(config, follows, replicas, pins, stack.pop_all().close)


@contextmanager
def open_boards(config: Config) -> Iterator[BoardService]:
    """The service of a web tier that shows and arranges boards. Any number of processes may have one.

    Raises FollowStoreUnavailableError, ConfigError.
    """
    with closing(open_follows(config, clock_of(config))) as follows:
        yield boards_on(follows)


def boards_on(follows: FollowStore, meter: Meter = UNCOUNTED) -> BoardService:
    """The service of boards, on a follow store that the caller has opened and closes afterwards."""
    return BoardService(Boards(follows), monotonic_s, meter)


class Services(NamedTuple):
    """All services that a web tier calls. catalogs: None if the home has none."""

    feeds: FeedService
    boards: BoardService
    catalogs: "CatalogService | None"


@contextmanager
def open_services(config: Config, meter: Meter = UNCOUNTED, tracer: Tracer = UNTRACED) -> Iterator[Services]:
    """All services, on one follow store. While all its servers are away, calls that need none of them still work; the
    rest work once the servers are back. meter: counts their calls. tracer: the caller closes it after the services.

    Raises ConfigError; FollowStoreUnavailableError: a database is missing, another one, or not up to date.
    """
    clock = clock_of(config)
    with (
        closing(open_follows(config, clock, may_be_away=True, meter=meter, tracer=tracer)) as follows,
        reading(config, clock, tracer, meter) as replicas,
        _services(config, follows, replicas, meter) as services,
    ):
        yield services


@contextmanager
def services_on(
    config: Config,
    follows: FollowStore,
    replicas: Iterable[Replica],
    clock: Callable[[], int],
    tracer: Tracer = UNTRACED,
    meter: Meter = UNCOUNTED,
) -> Iterator[Services]:
    """All services, on stores that the caller has opened and closes afterwards. For the process that writes clusters in
    files: it need not catch up with itself. clock: the time of the home. tracer: of reads. meter: counts calls.
    """
    with (
        reading_from(config, replicas, clock, tracer) as opened,
        _services(config, follows, opened, meter) as services,
    ):
        yield services


@contextmanager
def _services(config: Config, follows: FollowStore, replicas: Replicas, meter: Meter) -> Iterator[Services]:
    with (
        _catalogs(config) as catalogs,
        _pins(config, follows, catalogs) as pins,
        _service(config, follows, replicas, pins, lambda: None) as feeds,
    ):
        yield Services(feeds, boards_on(follows, meter), catalogs)


@contextmanager
def _catalogs(config: Config) -> Iterator["CatalogService | None"]:
    if not config.catalogs:
        yield None
        return
    from feedstore.app.catalogs import open_catalogs  # noqa: PLC0415 - homes without a catalog do not load it

    with open_catalogs(config) as catalogs:
        yield catalogs


def _service(
    config: Config, follows: FollowStore, replicas: Replicas, pins: PinSource, close: Callable[[], None]
) -> FeedService:
    return FeedService(
        replicas,
        follows,
        pins,
        cap=config.limits.cap,
        refill_again_ms=config.worker.refill_again_ms,
        within_s=config.serving.deadline_ms / 1_000,
        clock=monotonic_s,
        close=close,
    )


@contextmanager
def _pins(config: Config, follows: FollowStore, catalogs: "CatalogService | None") -> Iterator[PinSource]:
    """The source of pages of pins. catalogs: None if none are open yet."""
    if PINS not in config.catalogs:
        yield FollowStorePins(follows)
        return
    from feedstore.app.catalogs import open_catalog, pins_from  # noqa: PLC0415 - homes without a catalog do not load it

    opened = open_catalog(config, PINS) if catalogs is None else nullcontext(catalogs.catalog(PINS))
    with opened as catalog, pins_from(config, follows, catalog) as pins:
        yield pins
