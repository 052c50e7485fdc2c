"""Pages of two real clusters under a steady load of pages and actions, through the library and over HTTP, while each
cluster in turn is killed, suspended, or loses its gateway: no page fails, no walk repeats or skips anything, and no
page shows older state than it admits (rule 10).
"""

import itertools
import json
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Protocol, Self
from urllib.parse import urlencode, urlsplit

import pytest

from deploy.local import Stack
from feedstore.app.config import Config
from feedstore.app.services import open_service
from feedstore.app.wiring import reading
from feedstore.clocks import wall_ms
from feedstore.domain import Entry, Pin, PinSaved, SavePin, user
from feedstore.following.pages import FeedPages
from feedstore.following.service import FeedService
from feedstore.follows.port import Request
from feedstore.replicas.replicas import Replicas
from tests.browser.served import Served
from tests.cli.command import Cli
from tests.stack import homes
from tests.stack.history import History, Shown, is_in_order
from tests.stack.homes import CLUSTERS, Part, eventually
from tests.stack.own_home import own_home

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

USERS = range(1, 5)
OWNERS = range(101, 104)
TOGGLED = (USERS[-1], OWNERS[-1])
"""An edge that comes and goes."""
PINS = 150
"""So many are there when the load begins, so that a walk takes several pages."""
HOUR_MS = 3_600_000
LIMIT = 50
PAGE_S, ACTION_S = 0.04, 0.15
"""How long each walker waits after a page, and the actor after an action."""
LATEST = 20


class Answer(Protocol):
    """What a page says, wherever it comes from."""

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def cursor(self) -> str | None: ...
    @property
    def served_by(self) -> str: ...
    @property
    def behind_ms(self) -> int | None: ...


Ask = Callable[[int, int, str | None], Answer]
"""Asks for a page: user, limit, cursor."""


@dataclass(frozen=True)
class HttpPage:
    entries: Sequence[Entry]
    cursor: str | None
    served_by: str
    behind_ms: int | None


class Http:
    """A client with one connection, for one thread."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc, timeout=homes.DEADLINE_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {} if body is None else {"content-type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer

    def page(self, of: int, limit: int, cursor: str | None) -> HttpPage:
        query = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        page = self.ask("GET", f"/v1/users/{of}/feed?{urlencode(query)}")
        entries = [Entry(int(line["pin"]), line["created_ms"]) for line in page["entries"]]
        return HttpPage(entries, page["cursor"], page["served_by"], page["behind_ms"])

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class World:
    """A home on the stack, its workers, a server for HTTP, and a record of what was acknowledged.

    pins: ids that were never used.
    """

    stack: Stack
    cli: Cli
    config: Config
    parts: dict[str, Part]
    served: Served
    service: FeedService
    history: History = field(default_factory=History)
    pins: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class Walker:
    """Walks through feeds, and keeps every page. For one thread. what: names it."""

    def __init__(self, what: str, ask: Ask, users: Sequence[int], cap: int) -> None:
        self.what = what
        self._ask = ask
        self._users = itertools.cycle(users)
        self._cap = cap
        self.shown: list[Shown] = []
        self.walks = 0
        self.latest: deque[str] = deque(maxlen=LATEST)
        """Who served the latest pages."""

    def step(self, stop: threading.Event) -> None:
        """One walk at a steady pace, to the end of the feed unless it is stopped."""
        for _ in self.walk():
            if stop.wait(PAGE_S):
                return
        self.walks += 1

    def walk(self) -> Iterator[str]:
        """Who serves each page, from the top of the next feed to its end. Each entry comes once and in its place."""
        of = next(self._users)
        seen: list[Entry] = []
        cursor: str | None = None
        while True:
            asked_ms = wall_ms()
            page = self._ask(of, LIMIT, cursor)
            after = seen[-1] if seen else None
            seen += page.entries
            cursor = page.cursor
            is_last = cursor is None and len(seen) < self._cap
            self.shown.append(
                Shown(of, asked_ms, wall_ms(), after, page.entries, is_last, page.served_by, page.behind_ms)
            )
            self.latest.append(page.served_by)
            assert is_in_order(seen), (self.what, of, seen)
            yield page.served_by
            if cursor is None:
                return


class Actor:
    """Saves pins, some dated back; deletes some; follows and unfollows: through the library and over HTTP in turn."""

    def __init__(self, world: World, http: Http) -> None:
        self._world = world
        self._http = http
        self._saved: deque[int] = deque()
        self._numbers = itertools.count(1)

    def step(self, stop: threading.Event) -> None:
        world, number = self._world, next(self._numbers)
        if number % 16 == 0:
            follower, owner = TOGGLED
            act = world.service.unfollow if number % 32 else world.service.follow
            world.history.edge(act(follower, user(owner)))
        elif number % 5 == 0 and self._saved:
            world.history.deleted(world.service.delete_pin(self._saved.popleft()))
        else:
            pin = Pin(
                next(world.pins),
                owner=OWNERS[number % len(OWNERS)],
                board=OWNERS[number % len(OWNERS)],
                created_ms=wall_ms() - (number * 7_919 % HOUR_MS if number % 4 == 0 else 0),
            )
            if number % 2:
                world.history.saved(world.service.save_pin(pin))
            else:
                body = {"pin": str(pin.pin), "owner": str(pin.owner), "board": str(pin.board)}
                line = self._http.ask("POST", "/v1/pins", {**body, "created_ms": pin.created_ms})
                world.history.saved_at(pin.pin, pin.created_ms, pin.owner, line["committed_ms"])
            self._saved.append(pin.pin)
        stop.wait(ACTION_S)


class Load:
    """Walkers and an actor, each on a thread of its own, until the block ends.

    across: walkers for the test's own thread.
    """

    def __init__(self, world: World, walkers: Sequence[Walker], across: Sequence[Walker], actor: Actor) -> None:
        self._world = world
        self.walkers = walkers
        self.across = across
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in (*walkers, actor)]
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def walked(self, more: int = 2) -> None:
        """Returns once each walker has come to the end of so many feeds more. A load that failed ends the wait."""
        enough = [each.walks + more for each in self.walkers]
        eventually(
            lambda: self.errors or all(e.walks >= n for e, n in zip(self.walkers, enough, strict=True)),
            "feeds are walked through",
        )

    @contextmanager
    def switching(self, name: str) -> Iterator[None]:
        """Walks that begin before the block end after it, in this cluster: their cursors are good there."""
        walks = [each.walk() for each in self.across]
        for walk in walks:
            next(walk)
        yield
        for walk in walks:
            assert name in list(walk)

    def served_by(self, name: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Returns once the latest pages of each walker all came from there. meanwhile: is called again and again."""

        def all_are() -> bool:
            meanwhile()
            return all(len(each.latest) == LATEST and set(each.latest) == {name} for each in self.walkers)

        try:
            eventually(lambda: self.errors or all_are(), f"{name} serves all pages")
        except AssertionError:
            for each in self.walkers:
                print(f"{each.what}: the latest pages came from {', '.join(each.latest)}")
            print(self._world.service.clusters())
            raise

    def check(self) -> None:
        """Once it has ended: nothing failed, and every page was honest."""
        assert self.errors == []
        shown = [page for walker in (*self.walkers, *self.across) for page in walker.shown]
        wrong = self._world.history.wrong(shown)
        assert wrong == [], f"{len(wrong)} of {len(shown)} pages; the first: {wrong[0]}"
        known = sorted(page.behind_ms for page in shown if page.behind_ms is not None)
        print(f"{len(shown)} pages, {len(known)} of a known age: {known[len(known) // 2]} ms, at most {known[-1]}")

    def _run(self, each: Walker | Actor) -> None:
        try:
            while not self._stop.is_set():
                each.step(self._stop)
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self.errors.append(error)


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("survive")
    with own_home(stack, directory / "home") as cli, ExitStack() as running:
        cli.set("deadline", '"60s"')  # how soon pages come is measured in the bench
        parts = homes.parts_of(cli)
        running.enter_context(homes.running(list(parts.values())))
        served = Served(cli)
        running.callback(served.stop)
        served.start()
        config = homes.config_of(cli)
        service = running.enter_context(open_service(config))
        world = World(stack, cli, config, parts, served, service)
        with homes.telling(stack, list(parts.values())):
            fill(world)
            with cli.ports() as ports:
                homes.landed(ports)
        yield world


def fill(world: World) -> None:
    """Everybody follows everybody, and a feed has several pages."""
    for follower in USERS:
        for owner in OWNERS:
            world.history.edge(world.service.follow(follower, user(owner)))
    now_ms = wall_ms()
    owners = itertools.cycle(OWNERS)
    pins = [Pin(next(world.pins), owner := next(owners), owner, now_ms - HOUR_MS - 60_000 * n) for n in range(PINS)]
    for done in world.service.record([Request(SavePin(pin), None) for pin in pins]):
        assert isinstance(done, PinSaved), done
        world.history.saved(done)


@contextmanager
def loaded(world: World) -> Iterator[Load]:
    """Pages and actions at a steady pace, through the library and over HTTP; checked at the end."""
    with ExitStack() as closing:
        clients = [Http(world.served.address) for _ in range(4)]
        for each in clients:
            closing.callback(each.close)
        service, cap = world.service, world.config.limits.cap
        walkers = [
            Walker("library, even", service.page, USERS[::2], cap),
            Walker("library, odd", service.page, USERS[1::2], cap),
            Walker("HTTP, even", clients[0].page, USERS[::2], cap),
            Walker("HTTP, odd", clients[1].page, USERS[1::2], cap),
        ]
        across = [
            Walker("library, across", service.page, USERS, cap),
            Walker("HTTP, across", clients[2].page, USERS, cap),
        ]
        with homes.telling(world.stack, list(world.parts.values())):
            with Load(world, walkers, across, Actor(world, clients[3])) as load:
                yield load
            load.check()


def test_a_walk_while_the_feed_grows_shows_what_was_there_exactly_once(world: World) -> None:
    """New pins arrive above the walk, and older ones behind it and before it."""
    [reader, owner] = USERS[0], OWNERS[0]
    http = Http(world.served.address)
    asks: dict[str, Ask] = {"library": world.service.page, "HTTP": http.page}
    there = world.service.page(reader, 1_000).entries
    for ask in asks.values():
        seen: list[Entry] = []
        cursor: str | None = None
        while True:
            page = ask(reader, LIMIT, cursor)
            seen += page.entries
            cursor = page.cursor
            if cursor is None:
                break
            for created_ms in (wall_ms(), seen[0].created_ms - 1, seen[-1].created_ms - 1):
                pin = Pin(next(world.pins), owner, owner, created_ms)
                world.history.saved(world.service.save_pin(pin))
            newest = Entry(pin.pin, pin.created_ms)
            eventually(lambda newest=newest: newest in world.service.page(reader, 1_000).entries, "they land")
        assert is_in_order(seen), "none comes twice"
        assert set(there) <= set(seen)
        assert len(seen) > len(there)
    http.close()


# What becomes of a cluster
# --------------------------------------------------------------------------------------------------------------------


def gateway_killed(stack: Stack, cluster: str) -> None:
    stack.kill(f"thrift2-{cluster}")


def gateway_suspended(stack: Stack, cluster: str) -> None:
    stack.suspend(f"thrift2-{cluster}")


def cluster_suspended(stack: Stack, cluster: str) -> None:
    stack.suspend(f"hbase-{cluster}")


def cluster_killed(stack: Stack, cluster: str) -> None:
    stack.kill(f"hbase-{cluster}")


@pytest.mark.parametrize(
    ("drill", "away"),
    [
        (gateway_killed, "a"),
        (gateway_killed, "b"),
        (gateway_suspended, "a"),
        (cluster_suspended, "a"),
        (cluster_suspended, "b"),
        (cluster_killed, "a"),
        (cluster_killed, "b"),
    ],
)
def test_rule_10_no_page_fails_or_hides_its_age_while_a_cluster_is_away(
    world: World, drill: Callable[[Stack, str], None], away: str
) -> None:
    other = next(each for each in CLUSTERS if each != away)
    world.stack.up(*(f"cluster-{each}" for each in CLUSTERS))
    with loaded(world) as load:
        load.served_by("a")
        try:
            with load.switching(other):
                drill(world.stack, away)
                load.served_by(other)
            load.walked()
        finally:
            world.stack.resume(f"cluster-{away}")
        # One that was suspended for long ends by itself, some time after.
        load.served_by("a", meanwhile=lambda: world.stack.up(f"cluster-{away}"))  # a is preferred
        load.walked()


# That it would be noticed
# --------------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_hides_its_age_would_be_noticed(world: World) -> None:
    """It says the watermark of the one that is ahead, while its own writer does nothing."""
    world.stack.up(*(f"cluster-{each}" for each in CLUSTERS))
    heard = Replicas.set_watermark

    def mistaken(self: Replicas, name: str, watermark_ms: int | None) -> None:
        heard(self, "a" if name == "b" else "b", watermark_ms)

    with loaded(world) as load, ExitStack() as hiding:
        hiding.enter_context(pytest.MonkeyPatch.context()).setattr(Replicas, "set_watermark", mistaken)
        pages = FeedPages(hiding.enter_context(reading(world.config)), world.config.limits.cap)
        walker = Walker("hiding", pages.page, USERS, world.config.limits.cap)
        load.served_by("a")
        world.parts["writer-a"].signal(signal.SIGSTOP)
        hiding.callback(world.parts["writer-a"].signal, signal.SIGCONT)

        def is_noticed() -> bool:
            walker.step(threading.Event())
            return any(wrong.missing for wrong in world.history.wrong(walker.shown))

        eventually(lambda: load.errors or is_noticed(), "the check notices")
