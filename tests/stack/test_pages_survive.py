"""Pages of two real clusters under a steady load, while each in turn is killed, suspended, or loses its gateway: no
page fails, and no walk repeats or skips anything.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Self

import pytest

from deploy.local import Stack
from feedstore.domain import Entry
from feedstore.feeds import FEEDS, mutations
from feedstore.serving.config import DEFAULT, Config, parse
from feedstore.serving.pages import FeedPages
from feedstore.serving.wiring import create_cluster, open_cluster, reading
from tests.stack.homes import CLUSTERS, eventually
from tests.stack.own_home import remove_tables

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

USERS = range(1, 5)
PINS = 60
LIMIT = 7
WITHIN_S = 60.0
"""A bound that a busy machine keeps as well; how soon pages come is measured in the bench."""
LATEST = 40


class Load:
    """Two threads that walk through feeds without end."""

    def __init__(self, pages: FeedPages) -> None:
        self._pages = pages
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(users,)) for users in (USERS[::2], USERS[1::2])]
        self.errors: list[BaseException] = []
        self.walks = 0
        self.latest: deque[str] = deque(maxlen=LATEST)
        """Who served the latest pages."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def served_by(self, *names: str) -> bool:
        """Whether the latest pages all came from these; a load that failed ends the wait."""
        return bool(self.errors) or (len(self.latest) == LATEST and set(self.latest) <= set(names))

    def _run(self, users: range) -> None:
        try:
            while not self._closed.is_set():
                for user in users:
                    self._walk(user)
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            self.errors.append(error)

    def _walk(self, user: int) -> None:
        seen: list[Entry] = []
        cursor: str | None = None
        while True:
            page = self._pages.page(user, LIMIT, cursor, time.monotonic() + WITHIN_S)
            seen += page.entries
            self.latest.append(page.served_by)
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == feed(user)
        self.walks += 1


def feed(user: int) -> list[Entry]:
    return [Entry(1_000 * user + pin, 1_000 + pin) for pin in range(PINS, 0, -1)]


@pytest.fixture(scope="module")
def config(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """Two clusters with the same feeds in namespaces of ours."""
    name = f"feedtest_{uuid.uuid4().hex[:12]}"
    text = DEFAULT
    for cluster in CLUSTERS:
        stack.up(f"cluster-{cluster}")
        thrift2, thrift1 = (f"127.0.0.1:{stack.port(f'{kind}-{cluster}')}" for kind in ("thrift2", "thrift1"))
        text = text.replace(f"rocksdb:data/{cluster}", f"hbase://{thrift2}/{name}?thrift1={thrift1}")
    config = parse(tmp_path_factory.mktemp("serving"), text, {})
    for cluster in CLUSTERS:
        create_cluster(config, cluster)
        with closing(open_cluster(config, cluster, "owner")) as opened:
            for user in USERS:
                opened.table(FEEDS).apply(
                    [mutations.put([(user, 100)], [(each.pin, each.created_ms) for each in feed(user)])]
                )
    yield config
    for each in config.clusters:
        stack.up(f"cluster-{each.name}")
        remove_tables(each.url)


def gateway_killed(stack: Stack, cluster: str) -> Callable[[], None]:
    stack.kill(f"thrift2-{cluster}")
    return lambda: stack.up(f"cluster-{cluster}")


def gateway_suspended(stack: Stack, cluster: str) -> Callable[[], None]:
    stack.suspend(f"thrift2-{cluster}")
    return lambda: stack.resume(f"thrift2-{cluster}")


def cluster_suspended(stack: Stack, cluster: str) -> Callable[[], None]:
    stack.suspend(f"hbase-{cluster}")

    def back() -> None:
        stack.resume(f"hbase-{cluster}")
        stack.up(f"cluster-{cluster}")  # one that was away for long ends by itself

    return back


def cluster_killed(stack: Stack, cluster: str) -> Callable[[], None]:
    stack.kill(f"hbase-{cluster}")
    return lambda: stack.up(f"cluster-{cluster}")


@pytest.mark.parametrize("away", CLUSTERS)
@pytest.mark.parametrize("drill", [gateway_killed, gateway_suspended, cluster_suspended, cluster_killed])
def test_no_page_fails_while_a_cluster_is_away(
    stack: Stack, config: Config, drill: Callable[[Stack, str], Callable[[], None]], away: str
) -> None:
    other = next(each for each in CLUSTERS if each != away)
    stack.up(*(f"cluster-{each}" for each in CLUSTERS))
    with reading(config) as replicas, Load(FeedPages(replicas, config.limits.cap)) as load:
        eventually(lambda: load.walks > 5, "feeds are walked through")
        back = drill(stack, away)
        try:
            eventually(lambda: load.served_by(other), f"{other} serves the pages")
            walks = load.walks
            eventually(lambda: load.walks > walks + 5 or load.errors, "feeds are walked through without it")
        finally:
            back()
        eventually(lambda: replicas.first() == "a" or load.errors, "the preferred cluster is asked again")
        eventually(lambda: "a" in load.latest or load.errors, "and serves pages")
    assert load.errors == []
