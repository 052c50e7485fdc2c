"""Pages of pins over HTTP, under load, while one part after the other is away: a cluster, the follow store, both at
once, the updater. No page fails, and none shows a deleted pin for longer than it admits.
"""

import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

import pytest

from deploy.local import Stack
from feedstore.app.config import FILE_NAME
from feedstore.app.wiring import open_follows
from feedstore.clocks import wall_ms
from feedstore.domain import DeletePin, Follow, Pin, SavePin, user
from feedstore.follows.port import FollowStoreUnavailableError, Request
from feedstore.follows.store import FollowStore
from tests.browser.served import Served
from tests.cli.command import Cli
from tests.stack import homes
from tests.stack.homes import Part, eventually
from tests.stack.own_home import own_home
from tests.stack.test_catalog_on_the_stack import current

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

USERS = range(1, 9)
OWNER, BOARD = 101, 102
PINS = 60
"""That are there when the load begins."""
LIMIT = 25
APART_MS = 2_000
"""More than the clocks of this process and of the follow store differ, and what a server takes to answer."""


@dataclass(frozen=True)
class Page:
    asked_ms: int
    answered_ms: int
    behind_ms: int | None
    pins: list[int]


@dataclass(frozen=True)
class World:
    """A home on the stack with a catalog of pins, its workers, and a server. deleted: when each pin's deletion was
    acknowledged.
    """

    stack: Stack
    cli: Cli
    parts: dict[str, Part]
    served: Served
    follows: FollowStore
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    live: deque[int] = field(default_factory=deque)
    deleted: dict[int, int] = field(default_factory=dict)

    def save(self) -> None:
        pin = next(self.numbers)
        self.follows.record([Request(SavePin(Pin(pin, OWNER, BOARD, wall_ms())), f"save-{pin}")])
        self.live.append(pin)

    def delete(self) -> None:
        pin = self.live.popleft()
        self.follows.record([Request(DeletePin(pin), f"delete-{pin}")])
        self.deleted[pin] = wall_ms()


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with own_home(stack, tmp_path_factory.mktemp("catalog-survives") / "home") as cli, ExitStack() as running:
        cli.set("deadline", '"60s"')  # how soon pages come is measured in the bench
        with (cli.home / FILE_NAME).open("a") as file:
            file.write("[catalogs.pins]\n")
        follows = running.enter_context(closing(open_follows(homes.config_of(cli), wall_ms)))
        parts = homes.parts_of(cli)
        running.enter_context(homes.running(list(parts.values())))
        served = Served(cli)
        running.callback(served.stop)
        served.start()
        world = World(stack, cli, parts, served, follows)
        follows.record([Request(Follow(each, user(OWNER))) for each in USERS])
        for _ in range(PINS):
            world.save()
        with homes.telling(stack, list(parts.values())):
            # A worker may still be making the tables.
            eventually(lambda: all(current(cli, each, code=None) for each in homes.CLUSTERS), "generations are in use")
            eventually(lambda: len(shown(world, USERS[0]).pins) == LIMIT, "pages show pins")
        yield world


def shown(world: World, of: int) -> Page:
    """Raises if the answer is not a page."""
    asked_ms = wall_ms()
    answer = world.served.ask("GET", f"/v1/users/{of}/feed?hydrate=true&limit={LIMIT}")
    pins = [int(entry["pin"]) for entry in answer["entries"]]
    return Page(asked_ms, wall_ms(), answer["behind_ms"], pins)


class Load:
    """Four readers, and one who saves and deletes pins while the follow store answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pages: list[Page] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        users = [itertools.cycle(USERS[first::4]) for first in range(4)]
        steps: list[Callable[[], None]] = [
            lambda each=each: self.pages.append(shown(world, next(each))) for each in users
        ]
        self._threads = [threading.Thread(target=self._run, args=(step,)) for step in (*steps, self._act)]

    def _look(self, users: Iterator[int]) -> None:
        self.pages.append(shown(self.world, next(users)))

    def _act(self) -> None:
        try:
            self.world.save()
            self.world.delete()
        except FollowStoreUnavailableError:
            self._stop.wait(0.2)

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self._stop.wait(0.03):
                step()
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self.errors.append(error)

    def read(self, more: int = 100) -> None:
        """Returns once so many pages more were shown. A load that failed ends the wait."""
        enough = len(self.pages) + more
        eventually(lambda: self.errors or len(self.pages) >= enough, "pages are shown")

    def wrong(self) -> list[tuple[int, Page]]:
        """Pages with a pin that was deleted longer ago than they admit."""
        return [
            (pin, page)
            for page in self.pages
            if page.behind_ms is not None
            for pin in page.pins
            if self.world.deleted.get(pin, page.asked_ms) < page.asked_ms - page.behind_ms - APART_MS
        ]


@contextmanager
def loaded(world: World) -> Iterator[Load]:
    load = Load(world)
    for thread in load._threads:
        thread.start()
    try:
        with homes.telling(world.stack, list(world.parts.values())):
            yield load
    finally:
        load._stop.set()
        for thread in load._threads:
            thread.join()
    assert load.errors == []
    assert load.wrong() == []
    known = sorted(page.behind_ms for page in load.pages if page.behind_ms is not None)
    print(f"{len(load.pages)} pages, {len(known)} of a known age: {known[len(known) // 2]} ms, at most {known[-1]}")


# Gateways: an HBase that was suspended for long ends by itself, some time after.
A, B = "thrift2-a", "thrift2-b"


def cluster_a(world: World) -> None:
    world.stack.suspend(A)


def cluster_b(world: World) -> None:
    world.stack.suspend(B)


def follow_store(world: World) -> None:
    world.stack.suspend("mariadb")


def follow_store_and_cluster_a(world: World) -> None:
    world.stack.suspend("mariadb", A)


@pytest.mark.parametrize("away", [cluster_a, cluster_b, follow_store, follow_store_and_cluster_a])
def test_pages_of_pins_go_on_while_a_server_is_away(world: World, away: Callable[[World], None]) -> None:
    with loaded(world) as load:
        load.read()
        try:
            away(world)
            load.read(300)
        finally:
            world.stack.up()
        load.read()


def test_pages_of_pins_go_on_while_the_updater_is_away_and_say_so(world: World) -> None:
    with loaded(world) as load:
        load.read()
        for cluster in homes.CLUSTERS:
            world.parts[f"writer-{cluster}"].signal(signal.SIGSTOP)
        try:
            load.read(300)
            eventually(lambda: load.errors or (load.pages[-1].behind_ms or 0) > 5_000, "pages say that they are behind")
        finally:
            for cluster in homes.CLUSTERS:
                world.parts[f"writer-{cluster}"].signal(signal.SIGCONT)
        eventually(lambda: load.errors or (load.pages[-1].behind_ms or 9_999) < 5_000, "pages are fresh again")
